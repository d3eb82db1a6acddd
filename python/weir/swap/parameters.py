"""Parameters between the forward and the backward pass of their layer, where a limit asks for it.

A parameter may be away only while nothing but its own object, the node of its gradient and our handles holds its memory. Its
object then is of a class that brings it back before anybody gets hold of the content.
"""

import contextlib
import weakref

import torch
from torch.nn.parameter import is_lazy

from .backend import owners
from .in_place import InPlace, Movable
from .records import GONE, RESIDENT, RETURNING

# A layer is the largest part of the model with at most this share of its parameters.
LARGEST_SHARE = 1 / 8


class Weight(Movable):
    """One parameter, known by its place in its module; it and its storage are held only while it moves."""

    __slots__ = ("owner", "name", "identity", "moving", "node", "layer", "cdata")

    def __init__(self, owner, name, parameter, layer):
        storage = parameter.untyped_storage()
        super().__init__(storage.nbytes())
        # Not by a weak reference of its own: PyTorch does not exchange the content of tensors that have some.
        self.owner, self.name, self.identity = weakref.ref(owner), name, id(parameter)
        self.moving = None
        self.node = None
        self.layer = layer
        self.cdata = storage._cdata

    def parameter(self):
        if self.moving is not None:
            return self.moving
        owner = self.owner()
        parameter = owner._parameters.get(self.name) if owner is not None else None
        return parameter if id(parameter) == self.identity else None


class Layer:
    __slots__ = ("module", "ordinal", "weights", "size", "passage", "elsewhere")

    def __init__(self, module, ordinal, lost):
        self.module = weakref.ref(module, lambda _: lost.append(self))
        self.ordinal = ordinal
        self.weights = []
        self.size = 0
        self.passage = None  # number in this step, from the end of its forward pass until it is needed again
        self.elsewhere = False  # has run on another stream, whose work ours does not wait for


def _metadata():
    tensor = torch.Tensor
    read = (
        "grad", "requires_grad", "shape", "dtype", "device", "layout", "is_leaf", "grad_fn", "_version", "ndim", "is_cuda", "is_sparse",
        "is_quantized", "output_nr", "name",
    )  # fmt: skip
    known = {getattr(tensor, name).__get__ for name in read if hasattr(tensor, name)}
    known.add(tensor.grad.__set__)
    asked = (
        "size", "dim", "numel", "nelement", "element_size", "stride", "storage_offset", "is_floating_point", "is_complex", "get_device",
        "is_contiguous", "register_hook", "register_post_accumulate_grad_hook", "__hash__",
    )  # fmt: skip
    return known | {getattr(tensor, name) for name in asked if hasattr(tensor, name)}


# What can be asked of a parameter without its content.
METADATA = _metadata()


class AwayParameter(torch.nn.Parameter):
    """What a parameter is from the beginning of its copy until it is back. Every use from Python comes here first."""

    bring_back = None  # of the Layers there are

    def __new__(cls, data=None, requires_grad=True):
        # Copies are made by the class of what is copied, and they are not away.
        return torch.nn.Parameter(data, requires_grad)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        for tensor in _away_in((args, kwargs)):
            cls.bring_back(tensor)
            # What is made by the class of what it is like was never away.
            tensor.__class__ = torch.nn.Parameter
        # None of them is of this class any more; other classes still have their say.
        return func(*args, **kwargs)


def _away_in(value):
    if type(value) is AwayParameter:
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _away_in(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _away_in(part)


def _node_of(parameter):
    """Of its gradient: it holds the parameter, and is made where there is none, so that uses can be counted."""
    if not parameter.requires_grad:
        return None
    with torch.enable_grad():
        return parameter.view_as(parameter).grad_fn.next_functions[0][0]


def _calibrate():
    """Uses that a parameter's tensor counts when only Python and the node of its gradient have it."""
    frozen = torch.nn.Parameter(torch.zeros(8), requires_grad=False)
    trained = torch.nn.Parameter(torch.zeros(8))
    node = _node_of(trained)
    return frozen._use_count(), trained._use_count(), node


ALONE, WITH_NODE = _calibrate()[:2]


class Layers(InPlace):
    def __init__(self, copies, saved, lock, least):
        super().__init__(copies)
        self.saved = saved
        self.lock = lock
        self.least = least
        self.layers = []
        self.by_module = {}
        self.by_parameter = {}
        self.by_storage = {}
        self.passages = []  # layers in the order in which their forward passes ended in this step
        self.lost = []
        self.root = None  # the largest module called so far, until layers are chosen
        self.root_size = 0
        self.seen = weakref.WeakSet()
        self.noting = True
        self.chosen = False
        self.given_up = False

    # ---- which there are

    def note_module(self, module):
        """Before layers are chosen: which module is the model."""
        if not self.noting or module in self.seen or any(is_lazy(parameter) for parameter in module.parameters()):
            return
        self.seen.add(module)
        size = _bytes_of(module)
        if size > self.root_size:
            self.root, self.root_size = weakref.ref(module), size

    def choose(self):
        """After the first step: the parts of the model whose parameters may leave."""
        root = self.root() if self.root is not None else None
        self.chosen = root is not None
        self.seen.clear()
        if root is None:
            return
        parts = list(_parts(root, self.root_size * LARGEST_SHARE))
        holders = {}
        for part in parts:
            for parameter in part.parameters():
                holders[id(parameter)] = holders.get(id(parameter), 0) + 1
        for part in parts:
            layer = Layer(part, len(self.layers), self.lost)
            for owner in part.modules():
                for name, parameter in owner._parameters.items():
                    # What two parts share is needed by either.
                    if parameter is not None and holders[id(parameter)] == 1 and self._may_ever_leave(parameter):
                        layer.weights.append(Weight(owner, name, parameter, layer))
            if layer.weights:
                self.layers.append(layer)
                self.by_module[id(part)] = layer
        self._index()
        for reference in self.saved.by_cdata.values():
            record = reference()
            if record is not None and record.cdata in self.by_storage:
                record.layer, record.frozen = self.by_storage[record.cdata].layer, True
        AwayParameter.bring_back = self.bring_back_parameter

    def _may_ever_leave(self, parameter):
        if type(parameter) is not torch.nn.Parameter or not self.copies.backend.is_mine(parameter):
            return False
        if parameter.layout != torch.strided or parameter.is_quantized:
            return False
        size = parameter.numel() * parameter.element_size()
        return size >= self.least and parameter.untyped_storage().nbytes() == size

    def _index(self):
        for layer in self.layers:
            layer.size = sum(weight.size for weight in layer.weights)
        weights = [weight for layer in self.layers for weight in layer.weights]
        self.by_parameter = {weight.identity: weight for weight in weights}
        self.by_storage = {weight.cdata: weight for weight in weights}

    def renew(self):
        """After a step: what has other memory than before (a model that was converted) is known by that."""
        changed = False
        for layer in self.layers:
            for weight in layer.weights:
                parameter = weight.parameter()
                if parameter is None or weight.state != RESIDENT:
                    continue
                storage = parameter.untyped_storage()
                if storage._cdata == weight.cdata and storage.nbytes() == weight.size:
                    continue
                changed = True
                weight.cdata, weight.size = storage._cdata, storage.nbytes()
                if weight.slot is not None:
                    weight.slot.release()
                    weight.slot = None
        if changed:
            self._index()

    def give_up(self):
        """All parameters are there, and stay."""
        with self.lock:
            self.given_up = True
            self.lost.extend(self.layers)
            self.clear_lost()
            self.seen.clear()

    def of_module(self, module):
        layer = self.by_module.get(id(module))
        return layer if layer is not None and layer.module() is module else None

    def of_parameter(self, parameter):
        weight = self.by_parameter.get(id(parameter))
        return weight.layer if weight is not None and weight.parameter() is parameter else None

    def of_storage(self, cdata):
        weight = self.by_storage.get(cdata)
        if weight is None:
            return None
        if weight.storage is None:
            # Where its memory has been replaced, the number may be another storage's by now.
            parameter = weight.parameter()
            if parameter is None or parameter.untyped_storage()._cdata != cdata:
                return None
        return weight.layer

    def begin_step(self):
        for layer in self.passages:
            layer.passage = None
        self.passages = []
        self.noting = not self.chosen

    def clear_lost(self):
        """Layers of models that are gone. Whoever still has a parameter of theirs gets it back."""
        if not self.lost:
            return False
        with undisturbed():
            while self.lost:
                layer = self.lost.pop()
                for weight in layer.weights:
                    self.let_go(weight)
                layer.weights = []
                layer.passage = None
        self.layers = [layer for layer in self.layers if layer.weights]
        self.by_module = {id(layer.module()): layer for layer in self.layers}
        self._index()
        if not self.layers:
            # Another model may come; which it is shows when a step is seen from its beginning.
            self.chosen, self.noting, self.root, self.root_size = False, False, None, 0
        return True

    # ---- movements

    def is_ours(self, item):
        parameter = item.moving
        if item.storage._cdata != item.cdata or item.storage.nbytes() != item.size:
            return False
        # Whatever else has it in C++ may read it without asking.
        if parameter._use_count() != (WITH_NODE if item.node is not None else ALONE):
            return False
        record = self.saved.on_storage(item.cdata)
        aliases = sum(handle.alias is not None for handle in record.live_handles()) if record is not None else 0
        return owners(item.cdata, True) == 1 + aliases

    def move_of(self, item):
        return "layer", item.layer.passage

    def goes(self, item):
        item.moving.__class__ = AwayParameter

    def is_back(self, item):
        parameter = item.moving
        item.moving = item.node = item.storage = None
        if parameter is not None:
            parameter.__class__ = torch.nn.Parameter

    def leave(self, item):
        parameter = item.parameter()
        if parameter is None or item.state != RESIDENT or type(parameter) is not torch.nn.Parameter:
            return False
        item.moving, item.node, item.storage = parameter, _node_of(parameter), parameter.untyped_storage()
        if super().leave(item):
            self.copies.counts["parameters_out"] += item.size
            return True
        self.is_back(item)
        return False

    def layer_leaves(self, layer):
        for weight in layer.weights:
            if not self.leave(weight):
                self.copies.counts["kept"] += 1

    def layer_drops(self, layer):
        for weight in layer.weights:
            self.drop(weight)

    def layer_begins_return(self, layer):
        for weight in layer.weights:
            if weight.state == GONE:
                self.begin_return(weight)

    def layer_is_needed(self, layer, planned):
        if all(weight.state == RESIDENT for weight in layer.weights):
            return
        moved = False
        with undisturbed():
            for weight in layer.weights:
                moved = moved or weight.state in (GONE, RETURNING)
                if weight.state != RESIDENT:
                    self.bring_back(weight, planned or weight.state == RETURNING)
            if moved:
                self.copies.let_current_follow()

    def bring_back_all(self, planned=False):
        with self.lock:
            for layer in self.layers:
                self.layer_is_needed(layer, planned)

    def bring_back_parameter(self, parameter):
        """Somebody uses a parameter that is away."""
        with self.lock:
            layer = self.of_parameter(parameter)
            if layer is not None:
                self.layer_is_needed(layer, planned=False)


@contextlib.contextmanager
def undisturbed():
    """What we do is none of the business of whoever looks at every operation of the program."""
    state = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)
    try:
        if torch._C._len_torch_dispatch_stack() == 0:
            yield
        else:
            from torch.utils._python_dispatch import _disable_current_modes

            with _disable_current_modes():
                yield
    finally:
        torch._C._set_tracing_state(state)


def is_observed():
    """Whether somebody looks at every operation: a mode, a transform, a trace."""
    return (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._get_tracing_state() is not None
    )


def _bytes_of(module):
    return sum(parameter.numel() * parameter.element_size() for parameter in module.parameters())


def _parts(module, most):
    size = _bytes_of(module)
    children = list(module.children())
    if size <= most or not children:
        if size > 0:
            yield module
        return
    for child in children:
        yield from _parts(child, most)

