"""What a layer is made of: parameters and the gradients that are there. Each says whether it may leave.

It may only while nothing but its own object, the nodes that PyTorch keeps of it and our handles hold its memory.
"""

import weakref

import torch

from .away import is_plain, set_away, set_back
from .backend import owners
from .in_place import Movable


class Layer:
    __slots__ = ("module", "ordinal", "weights", "size", "passage", "elsewhere")

    def __init__(self, module, ordinal, lost):
        self.module = weakref.ref(module, lambda _: lost.append(self))
        self.ordinal = ordinal
        self.weights = []
        self.size = 0  # of what may leave, when its forward pass was last over
        self.passage = None  # number in this step, from the end of its forward pass until it is needed again
        self.elsewhere = False  # has run on another stream, whose work ours does not wait for

    def items(self):
        for weight in self.weights:
            yield weight
            if weight.gradient is not None:
                yield weight.gradient

    def who(self):
        return "layer", self.passage


def _node_of(parameter):
    """Of its gradient: it holds the parameter, and is made where there is none, so that uses can be counted."""
    if not parameter.requires_grad:
        return None
    with torch.enable_grad():
        return parameter.view_as(parameter).grad_fn.next_functions[0][0]


def _calibrate():
    """Uses that tensors count: of a parameter without and with the node of its gradient, and of a gradient."""
    frozen = torch.nn.Parameter(torch.zeros(8), requires_grad=False)
    trained = torch.nn.Parameter(torch.zeros(8))
    node = _node_of(trained)
    trained.grad = torch.zeros(8)
    return frozen._use_count(), trained._use_count(), trained.grad._use_count(), node


FROZEN, TRAINED, GRADIENT = _calibrate()[:3]


class Weight(Movable):
    """One parameter, known by its place in its module; it and its storage are held only while it moves."""

    __slots__ = ("layer", "layers", "owner", "name", "identity", "cdata", "moving", "node", "gradient")
    counted = "parameters_out"

    def __init__(self, layers, layer, owner, name, parameter):
        storage = parameter.untyped_storage()
        super().__init__(storage.nbytes())
        self.layers, self.layer = layers, layer
        # Not by a weak reference of its own: PyTorch does not exchange the content of tensors that have some.
        self.owner, self.name, self.identity = weakref.ref(owner), name, id(parameter)
        self.cdata = storage._cdata
        self.moving = None
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
        # The program may have given it other memory since.
        self.is_computes = False
        return True

    def is_ours(self):
        if self.storage._cdata != self.cdata or self.storage.nbytes() != self.size:
            return False
        # Whatever else has it in C++ may read it without asking.
        if self.moving._use_count() != (FROZEN if self.node is None else TRAINED):
            return False
        return owners(self.cdata, True) == 1 + self.layers.saved.aliases_on(self.cdata)

    def goes(self):
        set_away(self.moving, lambda: self.layers.somebody_uses(self.layer))

    def is_back(self):
        if self.moving is not None:
            set_back(self.moving)
        self.moving = self.node = self.storage = None

    def renew(self):
        """Gives whether it has other memory than before."""
        parameter = self.parameter()
        if parameter is None or self.moving is not None:
            return False
        storage = parameter.untyped_storage()
        if storage._cdata == self.cdata and storage.nbytes() == self.size:
            return False
        self.cdata, self.size = storage._cdata, storage.nbytes()
        return True


class Gradient(Movable):
    """Of a parameter that has one when its layer's forward pass is over: gradients are being accumulated."""

    __slots__ = ("weight", "tensor", "hook")
    counted = "gradients_out"

    def __init__(self, weight):
        super().__init__(0)
        self.weight = weight
        self.tensor = None
        self.hook = None

    def who(self):
        return self.weight.layer.who()

    def find(self, least):
        """The gradient there is now, if it could leave; the size is 0 where there is none."""
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
            # Autograd adds to it in C++, without asking; this comes before.
            layers, weight = self.weight.layers, self.weight
            self.hook = self.weight.parameter().register_hook(lambda _: layers.gradient_is_needed(weight))
        self.tensor, self.storage = tensor, tensor.untyped_storage()
        self.is_computes = False
        return True

    def is_ours(self):
        parameter = self.weight.parameter()
        if parameter is None or parameter.grad is not self.tensor or self.tensor._use_count() != GRADIENT:
            return False
        return owners(self.storage._cdata, True) == 1

    def goes(self):
        layers, layer = self.weight.layers, self.weight.layer
        set_away(self.tensor, lambda: layers.somebody_uses(layer))

    def is_back(self):
        if self.tensor is not None:
            set_back(self.tensor)
        self.tensor = self.storage = None

    def forget(self):
        if self.hook is not None:
            self.hook.remove()
            self.hook = None
