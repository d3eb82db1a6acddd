"""The parts of a layer: its parameters and their gradients. Each knows whether it may be swapped out.

It may only while nothing holds its memory but its own object, PyTorch's autograd nodes for it, and our handles.
"""

import sys
import weakref

import torch

from .backend import owners
from .in_place import Swappable
from .swapped_tensors import is_plain, mark_resident, mark_swapped_out, mark_without_memory


class Layer:
    __slots__ = ("module", "ordinal", "weights", "size", "passage", "elsewhere")

    def __init__(self, module, ordinal, lost):
        self.module = weakref.ref(module, lambda _: lost.append(self))
        self.ordinal = ordinal
        self.weights = []
        self.size = 0  # bytes that could be swapped out at the end of its last forward pass
        self.passage = None  # index in this step, from the end of its forward pass until it is needed again
        self.elsewhere = False  # has run on another stream, and ours does not wait for that one

    def items(self):
        for weight in self.weights:
            yield weight
            if weight.gradient is not None:
                yield weight.gradient

    def who(self):
        return "layer", self.passage


def _node_of(parameter):
    """The autograd node of a parameter's gradient. It holds the parameter, and is made here if missing, so that uses can be counted."""
    if not parameter.requires_grad:
        return None
    with torch.enable_grad():
        return parameter.view_as(parameter).grad_fn.next_functions[0][0]


def _calibrate():
    """Use counts of a parameter without and with the node of its gradient, and of a gradient."""
    frozen = torch.nn.Parameter(torch.zeros(8), requires_grad=False)
    trained = torch.nn.Parameter(torch.zeros(8))
    node = _node_of(trained)
    trained.grad = torch.zeros(8)
    return frozen._use_count(), trained._use_count(), trained.grad._use_count(), node


FROZEN, TRAINED, GRADIENT = _calibrate()[:3]


class _Holder:
    """Holds a storage as a `Swappable` does."""

    def __init__(self, tensor):
        self.storage = tensor.untyped_storage()


def _references(holder):
    return sys.getrefcount(holder.storage), weakref.getweakrefcount(holder.storage)


def _calibrate_storage():
    tensor = torch.zeros(8)
    return _references(_Holder(tensor)), tensor


STORAGE = _calibrate_storage()[0]


def _is_held_by_others(holder):
    """Whether the program holds the storage object, which would become empty."""
    return _references(holder) != STORAGE


class Weight(Swappable):
    """One parameter, found by its place in its module. The parameter and its storage are held only while it is not resident."""

    __slots__ = ("layer", "layers", "owner", "name", "identity", "cdata", "moving", "version", "node", "gradient")
    counted = "parameters_out"

    def __init__(self, layers, layer, owner, name, parameter):
        storage = parameter.untyped_storage()
        super().__init__(storage.nbytes())
        self.layers, self.layer = layers, layer
        # No weak reference: PyTorch cannot swap the content of tensors that have one (torch.utils.swap_tensors).
        self.owner, self.name, self.identity = weakref.ref(owner), name, id(parameter)
        self.cdata = storage._cdata
        self.moving = None
        self.version = 0  # when the question was asked first: C++ may write to it without asking
        self.node = None
        self.gradient = None

    def parameter(self):
        if self.moving is not None:
            return self.moving
        owner = self.owner()
        parameter = owner._parameters.get(self.name) if owner is not None else None
        return parameter if id(parameter) == self.identity else None

    def who(self):
        return self.layer.who()

    def begin(self):
        parameter = self.parameter()
        if parameter is None or not is_plain(parameter):
            return False
        self.moving, self.node, self.storage = parameter, _node_of(parameter), parameter.untyped_storage()
        self.version = parameter._version
        # The program may have replaced its memory since.
        self.of_compute_stream = False
        return True

    def is_exclusive(self):
        if self.storage._cdata != self.cdata or self.storage.nbytes() != self.size or _is_held_by_others(self):
            return False
        if self.moving._version != self.version:
            return False
        # Other owners in C++ could read it without asking.
        if self.moving._use_count() != (FROZEN if self.node is None else TRAINED):
            return False
        return owners(self.cdata, True) == 1 + self.layers.saved.aliases_on(self.cdata)

    def on_swap_out(self):
        mark_swapped_out(self.moving, lambda: self.layers.layer_is_used(self.layer))

    def on_give_up(self):
        mark_without_memory(self.moving, self.layers.copies.backend.hide)

    def on_resident(self):
        if self.moving is not None:
            mark_resident(self.moving)
        self.moving = self.node = self.storage = None

    def renew(self):
        """Returns whether its memory was replaced."""
        parameter = self.parameter()
        if parameter is None or self.moving is not None:
            return False
        storage = parameter.untyped_storage()
        if storage._cdata == self.cdata and storage.nbytes() == self.size:
            return False
        self.cdata, self.size = storage._cdata, storage.nbytes()
        return True


class Gradient(Swappable):
    """The gradient of a parameter that has one at the end of its layer's forward pass: gradients are being accumulated."""

    __slots__ = ("weight", "tensor", "version", "hook")
    counted = "gradients_out"

    def __init__(self, weight):
        super().__init__(0)
        self.weight = weight
        self.tensor = None
        self.version = 0
        self.hook = None

    def who(self):
        return self.weight.layer.who()

    def find(self, least):
        """The gradient that exists now, if it can be swapped out. The size is 0 if there is none."""
        self.size = 0
        parameter = self.weight.parameter()
        tensor = parameter.grad if parameter is not None else None
        if tensor is None or type(tensor) is not torch.Tensor or tensor.layout != torch.strided or tensor.requires_grad:
            return None
        size = tensor.numel() * tensor.element_size()
        if size < least or tensor.device != parameter.device or tensor.untyped_storage().nbytes() != size:
            return None
        self.size = size
        return tensor

    def begin(self):
        tensor = self.find(self.weight.layers.least)
        if tensor is None:
            return False
        if self.hook is None:
            # Autograd adds to the gradient in C++, without asking. This hook runs before.
            layers, weight = self.weight.layers, self.weight
            self.hook = self.weight.parameter().register_hook(lambda _: layers.gradient_is_needed(weight))
        self.tensor, self.storage, self.version = tensor, tensor.untyped_storage(), tensor._version
        self.of_compute_stream = False
        return True

    def is_exclusive(self):
        parameter = self.weight.parameter()
        if parameter is None or parameter.grad is not self.tensor or self.tensor._use_count() != GRADIENT or _is_held_by_others(self):
            return False
        if self.tensor._version != self.version:
            return False
        return owners(self.storage._cdata, True) == 1

    def on_swap_out(self):
        layers, layer = self.weight.layers, self.weight.layer
        mark_swapped_out(self.tensor, lambda: layers.layer_is_used(layer))

    def on_give_up(self):
        mark_without_memory(self.tensor, self.weight.layers.copies.backend.hide)

    def on_resident(self):
        if self.tensor is not None:
            mark_resident(self.tensor)
        self.tensor = self.storage = None

    def forget(self):
        if self.hook is not None:
            self.hook.remove()
            self.hook = None
