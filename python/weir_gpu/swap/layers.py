"""The layers of a model. Under a limit, their parameters and gradients may be swapped out between forward and backward pass."""

import weakref

import torch
from torch.nn.parameter import is_lazy

from .in_place import InPlaceSwapper
from .records import RESIDENT, SWAPPED_OUT, SWAPPING_IN, SWAPPING_OUT
from .swapped_tensors import unobserved
from .weights import Gradient, Layer, Weight

# A layer is the largest part of the model that has at most this share of its parameters.
LARGEST_SHARE = 1 / 8


class Layers(InPlaceSwapper):
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
        self.lost = lock.leftovers()  # layers of models that are gone
        self.root = None  # weak reference to the largest module called so far, until layers are chosen
        self.root_size = 0
        self.seen = weakref.WeakSet()
        self.noting = True
        self.chosen = False
        self.given_up = False

    # ---- the layers

    def note_module(self, module):
        """Finds the model, before layers are chosen: the module with the most parameters."""
        if not self.noting or module in self.seen or any(is_lazy(parameter) for parameter in module.parameters()):
            return
        self.seen.add(module)
        size = _bytes_of(module)
        if size > self.root_size:
            self.root, self.root_size = weakref.ref(module), size

    def choose(self):
        """Chooses the layers, after the first step."""
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
                    # A parameter that two layers share is needed by both, so it is not swapped.
                    if parameter is not None and holders[id(parameter)] == 1 and self._is_swappable(parameter):
                        layer.weights.append(Weight(self, layer, owner, name, parameter))
            if layer.weights:
                self.layers.append(layer)
                self.by_module[id(part)] = layer
        self._index()
        for reference in self.saved.by_cdata.values():
            record = reference()
            if record is not None and record.cdata in self.by_storage:
                record.layer, record.frozen = self.by_storage[record.cdata].layer, True

    def _is_swappable(self, parameter):
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
        """After a step: finds parameters whose memory was replaced, for example because the model was converted."""
        renewed = [weight.renew() for layer in self.layers for weight in layer.weights]
        if any(renewed):
            self._index()

    def give_up(self):
        """Swaps all parameters in and forgets the layers."""
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
            # If the parameter's memory was replaced, another storage may have this address by now.
            parameter = weight.parameter()
            if parameter is None or parameter.untyped_storage()._cdata != cdata:
                return None
        return weight.layer

    def begin_step(self):
        for layer in self.passages:
            layer.passage = None
        self.passages = []
        self.noting = not self.chosen

    def clear_resident_lost(self):
        """The same as `clear_lost`, if nothing has to be swapped in for it."""
        if all(item.state == RESIDENT for layer in self.lost for item in layer.items()):
            self.clear_lost()

    def clear_lost(self):
        """Forgets layers of models that were deleted. Their parameters are swapped in: somebody may still use them."""
        if not self.lost:
            return False
        with unobserved():
            while self.lost:
                layer = self.lost.pop()
                for item in layer.items():
                    self.release(item)
                for weight in layer.weights:
                    if weight.gradient is not None:
                        weight.gradient.forget()
                layer.weights = []
                layer.passage = None
        self.layers = [layer for layer in self.layers if layer.weights]
        self.by_module = {id(layer.module()): layer for layer in self.layers}
        self._index()
        if not self.layers:
            # Another model may follow. It can be found only in a step that is seen from its beginning.
            self.chosen, self.noting, self.root, self.root_size = False, False, None, 0
        return True

    # ---- swapping

    def layer_ends(self, layer):
        """Its forward pass is over: computes how many bytes could be swapped out now."""
        layer.size = 0
        for weight in layer.weights:
            layer.size += weight.size
            parameter = weight.parameter()
            if parameter is not None and parameter.grad is not None and weight.gradient is None:
                weight.gradient = Gradient(weight)
            if weight.gradient is not None and weight.gradient.find(self.least) is not None:
                layer.size += weight.gradient.size

    def begin_layer_swap_out(self, layer):
        counts = self.copies.counts
        for item in layer.items():
            if self.begin_swap_out(item):
                counts[item.counted] += item.size
            elif item.size > 0:
                counts["kept"] += 1

    def end_layer_swap_out(self, layer):
        items = [item for item in layer.items() if item.state == SWAPPING_OUT]
        if items and self.copies.may_give_up():
            # Another thread may have been inside an operation on one of them when its copy began.
            self.copies.wait_for_readers()
        for item in reversed(items):
            self.end_swap_out(item)

    def begin_layer_swap_in(self, layer):
        for item in layer.items():
            if item.state == SWAPPED_OUT:
                self.begin_swap_in(item)

    def layer_is_needed(self, layer, planned):
        self._swap_in_items([item for item in layer.items() if item.state != RESIDENT], planned)

    def gradient_is_needed(self, weight):
        """Autograd is about to add to the gradient."""
        with self.lock:
            if weight.gradient.state != RESIDENT:
                self._swap_in_items([weight.gradient], planned=False)

    def layer_is_used(self, layer):
        """A parameter or gradient of it that is swapped out is used."""
        with self.lock:
            self.layer_is_needed(layer, planned=False)

    def swap_in_all(self, planned=False):
        with self.lock:
            for layer in self.layers:
                self.layer_is_needed(layer, planned)

    def _swap_in_items(self, items, planned):
        if not items:
            return
        moved = False
        with unobserved():
            self.wait_for_swap_ins(items)
            for item in items:
                moved = moved or item.state in (SWAPPED_OUT, SWAPPING_IN)
                self.swap_in(item, planned or item.state == SWAPPING_IN)
            if moved:
                self.copies.make_current_wait()


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
