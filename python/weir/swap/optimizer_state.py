"""Optimizer state between steps. Each tensor keeps its object and its storage; only the memory is freed and allocated.

A state tensor may be swapped out only while the chain state dict -> entry -> tensor -> storage has no other owner.
Every access to the state dict from outside of step() swaps in first.
"""

import sys
import weakref
from collections import defaultdict
from collections.abc import ItemsView, ValuesView

import torch

from .backend import owners
from .in_place import InPlaceSwapper, Swappable
from .records import RESIDENT


class Entry:
    """The state of one parameter."""

    __slots__ = ("values",)

    def __init__(self, values):
        self.values = values


class Item(Swappable):
    __slots__ = ("entry", "key", "tensor", "index", "optimizer")

    def __init__(self, entry, key, tensor, optimizer):
        storage = tensor.untyped_storage()
        super().__init__(storage.nbytes(), storage)
        self.entry, self.key, self.tensor = entry, key, tensor
        self.index = -1
        self.optimizer = optimizer

    def who(self):
        return "item", self.index

    def is_exclusive(self):
        return self.entry.values.get(self.key) is self.tensor and _references(self) == EXCLUSIVE


def _references(item):
    return (
        sys.getrefcount(item.entry.values),
        sys.getrefcount(item.tensor),
        sys.getrefcount(item.storage),
        item.tensor._use_count(),
        owners(item.tensor.untyped_storage()._cdata, True),
        # Weak references give access to a tensor without passing the state dict.
        weakref.getweakrefcount(item.tensor),
        weakref.getweakrefcount(item.storage),
    )


def _calibrate():
    """The counts if nobody else holds anything. They are measured, since releases of Python and PyTorch differ."""
    state = {0: {"state": torch.zeros(8)}}
    item = Item(Entry(state[0]), "state", state[0]["state"], 0)
    return _references(item), state


EXCLUSIVE = _calibrate()[0]


class GuardedState(defaultdict):
    """`optimizer.state` that swaps an entry in before anybody gets it.

    An entry that somebody holds is not swapped out. So an entry is swapped in and handed out under one lock, and views hand out
    entries one by one."""

    guard = None

    def __getitem__(self, key):
        guard = self.guard
        if guard is None:
            return super().__getitem__(key)
        with guard.lock:
            if guard.moving:
                guard.swap_in_entry(self, key)
            return super().__getitem__(key)

    def _all(self):
        guard = self.guard
        if guard is not None and guard.moving:
            guard.swap_in_all()

    def _entries(self):
        """All entries at once. The list keeps them from being swapped out."""
        if self.guard is None:
            return list(super().items())
        with self.guard.lock:
            self._all()
            return list(super().items())

    def get(self, key, default=None):
        return self[key] if key in self else default

    def setdefault(self, key, default=None):
        self._all()
        return super().setdefault(key, default)

    def pop(self, *arguments):
        self._all()
        return super().pop(*arguments)

    def popitem(self):
        self._all()
        return super().popitem()

    def __delitem__(self, key):
        self._all()
        super().__delitem__(key)

    def clear(self):
        self._all()
        super().clear()

    def values(self):
        return ValuesView(self)

    def items(self):
        return ItemsView(self)

    def __iter__(self):
        # Defined here so that dict(state) and state | other go through __getitem__.
        return super().__iter__()

    def copy(self):
        return defaultdict(self.default_factory, self._entries())

    __copy__ = copy

    def __or__(self, other):
        return self.copy() | other

    def __eq__(self, other):
        return dict(self._entries()) == other

    __hash__ = None

    def __repr__(self):
        return repr(self.copy())

    def __reduce__(self):
        return defaultdict, (self.default_factory,), None, None, iter(self._entries())


class StateGuard(InPlaceSwapper):
    """All swappable state of all optimizers, in a fixed order."""

    def __init__(self, copies, lock, least):
        super().__init__(copies)
        self.lock = lock
        self.least = least
        self.optimizers = []  # weak references; the index is the ordinal
        self.items = []
        self.signature = ()
        self.lost = []

    def are_needed_together(self, item, other):
        return item.optimizer == other.optimizer

    def ordinal(self, optimizer):
        for place, reference in enumerate(self.optimizers):
            if reference() is optimizer:
                return place
        place = len(self.optimizers)
        self.optimizers.append(weakref.ref(optimizer, lambda _: self.forget(place)))
        return place

    def forget(self, place):
        # Only noted: this runs when the optimizer dies, at any point of the program.
        self.lost.append(place)

    def clear_lost(self):
        places = set()
        while self.lost:
            places.add(self.lost.pop())
        for item in self.items:
            if item.optimizer in places:
                self.release(item)
        self.items = [item for item in self.items if item.optimizer not in places]
        return self.number()

    def number(self):
        for index, item in enumerate(self.items):
            item.index = index
        signature = tuple((item.optimizer, item.size) for item in self.items)
        same = signature == self.signature
        self.signature = signature
        return not same

    def scan(self, optimizer):
        """After step(): finds the state that exists now. Returns whether the list of items has changed."""
        place = self.ordinal(optimizer)
        found = []
        state = optimizer.state
        known = {id(item.tensor): item for item in self.items if item.optimizer == place}
        entries = {id(item.entry.values): item.entry for item in known.values()}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if not dict.__contains__(state, parameter):
                    continue
                values = dict.__getitem__(state, parameter)
                if type(values) is not dict:
                    continue
                entry = entries.get(id(values))
                for key, tensor in values.items():
                    if type(tensor) is not torch.Tensor or tensor.numel() * tensor.element_size() < self.least:
                        continue
                    item = known.get(id(tensor))
                    if item is None or item.entry.values is not values or item.key != key:
                        if not self.copies.backend.is_mine(tensor) or tensor.layout != torch.strided or tensor.requires_grad:
                            continue
                        entry = entry or Entry(values)
                        item = Item(entry, key, tensor, place)
                        # A tensor that does not fill its storage shares it with others.
                        if item.size != tensor.numel() * tensor.element_size():
                            continue
                    found.append(item)
        kept = {id(item) for item in found}
        others = []
        for item in self.items:
            if item.optimizer != place:
                others.append(item)
            elif id(item) not in kept:
                self.release(item)
        self.items = sorted(others + found, key=lambda item: item.optimizer)
        return self.number()

    def release_all(self):
        for item in self.items:
            self.release(item)
        self.items = []
        self.number()

    def release_slots_except(self, plans):
        """Gives back the slots of state that no plan swaps any more."""
        moved = {index for plan in plans for index in plan.items}
        for item in self.items:
            if item.index not in moved and item.state == RESIDENT and item.copy is None:
                item.release_slot()

    def protect(self, optimizer):
        """Replaces the optimizer's plain dict by a guarded one with the same entries."""
        state = optimizer.state
        if type(state) is GuardedState:
            return True
        if type(state) is not defaultdict:
            return False
        guarded = GuardedState(state.default_factory, state)
        guarded.guard = self
        optimizer.state = guarded
        return True

    def protect_all(self):
        for reference in self.optimizers:
            optimizer = reference()
            if optimizer is not None:
                self.protect(optimizer)

    def is_protected(self, item):
        optimizer = self.optimizers[item.optimizer]()
        return optimizer is not None and type(optimizer.state) is GuardedState

    def swap_in_all(self):
        with self.lock:
            moved = False
            for item in self.items:
                if item.state != RESIDENT:
                    self.swap_in(item)
                    moved = True
            if moved:
                self.copies.make_current_wait()

    def swap_in_entry(self, state, key):
        with self.lock:
            if not dict.__contains__(state, key):
                return
            values = dict.__getitem__(state, key)
            moved = False
            for item in self.items:
                if item.entry.values is values and item.state != RESIDENT:
                    self.swap_in(item)
                    moved = True
            if moved:
                self.copies.make_current_wait()
