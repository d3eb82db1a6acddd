"""The layers of a model, whose parameters and gradients may be away between their forward and their backward pass if a limit asks
for it."""

import weakref

import torch
from torch.nn.parameter import is_lazy

from .away import undisturbed
from .in_place import InPlace
from .records import GONE, RESIDENT, RETURNING
from .weights import Gradient, Layer, Weight

# A layer is the largest part of the model with at most this share of its parameters.
LARGEST_SHARE = 1 / 8


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
                        layer.weights.append(Weight(self, layer, owner, name, parameter))
            if layer.weights:
                self.layers.append(layer)
                self.by_module[id(part)] = layer
        self._index()
        for reference in self.saved.by_cdata.values():
            record = reference()
            if record is not None and record.cdata in self.by_storage:
                record.layer, record.frozen = self.by_storage[record.cdata].layer, True

    def _may_ever_leave(self, parameter):
        if type(parameter) is not torch.nn.Parameter or not self.copies.backend.is_mine(parameter):
            return False
        if parameter.layout != torch.strided or parameter.is_quantized:
            return False
        size = parameter.numel() * parameter.element_size()
        return size >= self.least and parameter.untyped_storage().nbytes() == size

    def _index(self):
        weights = [weight for layer in self.layers for weight in layer.weights]
        self.by_parameter = {weight.identity: weight for weight in weights}
        self.by_storage = {weight.cdata: weight for weight in weights}

    def renew(self):
        """After a step: what has other memory than before (a model that was converted) is known by that."""
        renewed = [weight.renew() for layer in self.layers for weight in layer.weights]
        if any(renewed):
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
                for item in layer.items():
                    self.let_go(item)
                for weight in layer.weights:
                    if weight.gradient is not None:
                        weight.gradient.forget()
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

    def layer_ends(self, layer):
        """Its forward pass is over: how much of it could leave now."""
        layer.size = 0
        for weight in layer.weights:
            layer.size += weight.size
            parameter = weight.parameter()
            if parameter is not None and parameter.grad is not None and weight.gradient is None:
                weight.gradient = Gradient(weight)
            if weight.gradient is not None and weight.gradient.find(self.least) is not None:
                layer.size += weight.gradient.size

    def layer_leaves(self, layer):
        counts = self.copies.counts
        for item in layer.items():
            if self.leave(item):
                counts[item.counted] += item.size
            elif item.size > 0:
                counts["kept"] += 1

    def layer_drops(self, layer):
        for item in reversed(list(layer.items())):
            self.drop(item)

    def layer_begins_return(self, layer):
        for item in layer.items():
            if item.state == GONE:
                self.begin_return(item)

    def layer_is_needed(self, layer, planned):
        self._bring_back([item for item in layer.items() if item.state != RESIDENT], planned)

    def gradient_is_needed(self, weight):
        """Autograd is about to add to it."""
        with self.lock:
            if weight.gradient.state != RESIDENT:
                self._bring_back([weight.gradient], planned=False)

    def somebody_uses(self, layer):
        """Something of it that is away."""
        with self.lock:
            self.layer_is_needed(layer, planned=False)

    def bring_back_all(self, planned=False):
        with self.lock:
            for layer in self.layers:
                self.layer_is_needed(layer, planned)

    def _bring_back(self, items, planned):
        if not items:
            return
        moved = False
        with undisturbed():
            self.wait_for_returns(items)
            for item in items:
                moved = moved or item.state in (GONE, RETURNING)
                self.bring_back(item, planned or item.state == RETURNING)
            if moved:
                self.copies.let_current_follow()


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
