"""Optimizer state between steps. Each tensor keeps its object and its storage; only the memory is freed and allocated.

A state tensor may be swapped out only while the chain state dict -> entry -> tensor -> storage has no other owner. A sharded tensor
(DTensor) and other tensors that consist of tensors are part of the chain, and the tensors inside of them are swapped.
Every access to the state dict from outside of step() swaps in first.
"""

import contextlib
import sys
import weakref
from collections import defaultdict
from collections.abc import ItemsView, ValuesView

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .backend import owners
from .in_place import InPlaceSwapper, Swappable
from .records import RESIDENT, SWAPPED_OUT, SWAPPING_IN, SWAPPING_OUT
from .swapped_tensors import unobserved
from .wrapped_tensors import MOST_DEPTH, Wrapper, parts_of


class Entry:
    """The state of one parameter, found by the parameter's place in its optimizer. It holds nothing: state must go with its optimizer."""

    __slots__ = ("optimizer", "group", "place", "identity")

    def __init__(self, optimizer, group, place, values):
        self.optimizer, self.group, self.place, self.identity = optimizer, group, place, id(values)

    @property
    def values(self):
        """Its dictionary; None if it was replaced."""
        optimizer = self.optimizer()
        if optimizer is None:
            return None
        try:
            parameter = optimizer.param_groups[self.group]["params"][self.place]
        except (AttributeError, IndexError, KeyError):
            return None
        values = dict.get(optimizer.state, parameter)
        return values if id(values) == self.identity else None


class Item(Swappable):
    """One state tensor. Its storage is held only while it is not resident."""

    __slots__ = ("entry", "key", "names", "reference", "index", "optimizer", "last_storage")

    def __init__(self, entry, key, names, tensor, optimizer, died):
        super().__init__(tensor.untyped_storage().nbytes())
        self.entry, self.key = entry, key
        self.names = names  # attributes that lead from the entry's tensor to this one; () if it is the entry's tensor itself
        self.reference = weakref.ref(tensor, lambda _: died(self))
        self.index = -1
        self.optimizer = optimizer
        # It keeps the address of the storage from being used again, not the storage.
        self.last_storage = None

    @property
    def tensor(self):
        return self.reference() if self.reference is not None else None

    def who(self):
        return "item", self.index

    def begin(self):
        tensor = self.tensor
        if tensor is None:
            return False
        self.storage = tensor.untyped_storage()
        if self.last_storage is None or self.last_storage.cdata != self.storage._cdata:
            # The program has replaced its memory.
            self.of_compute_stream = False
            self.last_storage = StorageWeakRef(self.storage)
        return True

    def is_exclusive(self):
        return self.count_references() == EXCLUSIVE[len(self.names)]

    def count_references(self):
        """All references to the chain from the state dict to the storage; None if the tensor is not part of the state any more."""
        tensor, values = self.tensor, self.entry.values
        if tensor is None or values is None:
            return None
        found = values.get(self.key)
        outer = []
        for name in self.names:
            if not isinstance(found, torch.Tensor):
                return None
            outer += sys.getrefcount(found), found._use_count(), weakref.getweakrefcount(found)
            found = getattr(found, name, None)
        if found is not tensor:
            return None
        del found
        storage = tensor.untyped_storage()
        return (
            *outer,
            sys.getrefcount(values),
            sys.getrefcount(tensor),
            sys.getrefcount(storage) - (self.storage is storage),
            tensor._use_count(),
            owners(storage._cdata, True),
            # Weak references give access to a tensor without passing the state dict.
            weakref.getweakrefcount(tensor),
            weakref.getweakrefcount(storage),
        )

    def on_resident(self):
        self.storage = None

    def forget(self):
        """Its tensor is gone, or not swapped any more."""
        self.reference = None
        self.storage = None


def _calibrate(depth):
    """The counts if nobody else holds anything. They are measured, since releases of Python and PyTorch differ."""

    class Optimizer:
        """PyTorch's own would import its compiler, which takes seconds."""

        def __init__(self):
            self.param_groups = [{"params": [0]}]
            self.state = {0: {"state": Wrapper.around(torch.zeros(8), depth)}}

    optimizer = Optimizer()
    entry = Entry(weakref.ref(optimizer), 0, 0, optimizer.state[0])
    ((names, tensor),) = parts_of(optimizer.state[0]["state"])
    item = Item(entry, "state", names, tensor, 0, lambda _: None)
    del tensor
    return item.count_references()


EXCLUSIVE = [_calibrate(depth) for depth in range(MOST_DEPTH + 1)]


class GuardedState(defaultdict):
    """`optimizer.state` that swaps an entry in before anybody gets it.

    An entry that somebody holds is not swapped out. So an entry is swapped in and handed out under one lock, and views hand out
    entries one by one."""

    guard = None
    is_plain = False  # takes the place of a dictionary without a default, as optimizers outside of torch.optim have

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
        with self._resident():
            return list(super().items())

    def get(self, key, default=None):
        return self[key] if key in self else default

    @contextlib.contextmanager
    def _resident(self):
        """In here all entries are resident, and no other thread begins to swap one out."""
        with contextlib.nullcontext() if self.guard is None else self.guard.lock:
            self._all()
            yield

    def setdefault(self, key, default=None):
        with self._resident():
            return super().setdefault(key, default)

    def pop(self, *arguments):
        with self._resident():
            return super().pop(*arguments)

    def popitem(self):
        with self._resident():
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
        return dict(self._entries()) if self.is_plain else defaultdict(self.default_factory, self._entries())

    __copy__ = copy

    def __or__(self, other):
        return self.copy() | other

    def __eq__(self, other):
        return dict(self._entries()) == other

    __hash__ = None

    def __repr__(self):
        return repr(self.copy())

    def __reduce__(self):
        made = (dict, ()) if self.is_plain else (defaultdict, (self.default_factory,))
        return *made, None, None, iter(self._entries())


def _tensors_in(values):
    """The tensors of an entry that have memory of their own: (key, names of attributes below it, tensor)."""
    for key, value in values.items():
        if type(value) is torch.Tensor:
            yield key, (), value
        elif isinstance(value, torch.Tensor):
            for names, tensor in parts_of(value):
                yield key, names, tensor


class StateGuard(InPlaceSwapper):
    """All swappable state of all optimizers, in a fixed order."""

    def __init__(self, copies, lock, least):
        super().__init__(copies)
        self.lock = lock
        self.least = least
        self.optimizers = []  # weak references; the index is the ordinal
        self.items = []
        self.by_entry = {}  # items by the identity of their entry's dictionary
        self.signature = ()
        self.lost = []  # ordinals of optimizers that are gone
        self.dead = lock.leftovers()  # items whose tensors are gone
        self.has_gaps = False  # some items are gone, but still in the list
        self.free_ordinals = []
        self.streamed = frozenset()  # ordinals of optimizers whose last step was streamed
        self.is_streaming = False  # such a step is running

    def are_needed_together(self, item, other):
        return item.optimizer == other.optimizer

    def ordinal(self, optimizer):
        for place, reference in enumerate(self.optimizers):
            if reference() is optimizer:
                return place
        if self.free_ordinals:
            place = self.free_ordinals.pop()
        else:
            place = len(self.optimizers)
            self.optimizers.append(None)
        # Only noted: this runs when the optimizer dies, at any point of the program.
        self.optimizers[place] = weakref.ref(optimizer, lambda _: self.lost.append(place))
        return place

    def note_step(self, optimizer, is_streamed):
        place = self.ordinal(optimizer)
        self.streamed = self.streamed | {place} if is_streamed else self.streamed - {place}
        self.is_streaming = is_streamed

    def streamed_out(self):
        """Bytes of state that are on the host and come only for a streamed step."""
        if not self.streamed:
            return 0
        return sum(item.size for item in self.items if item.optimizer in self.streamed and item.state == SWAPPED_OUT)

    def is_idle(self):
        """Whether all optimizers are gone, and all state with them."""
        return not any(reference() is not None for reference in self.optimizers) and not any(item.tensor is not None for item in self.items)

    def bury_dead(self):
        """Gives back what belongs to items whose tensors are gone. They keep their places in the list until the next tick."""
        while self.dead:
            self._drop(self.dead.popleft())
            self.has_gaps = True

    def _drop(self, item):
        if item.state in (SWAPPING_OUT, SWAPPING_IN):
            self.copies.pending_frees.append((item.storage, item.copy))
        elif item.state == SWAPPED_OUT:
            self.copies.swapped_out -= item.size
        if item.state != RESIDENT:
            self.moving -= 1
        item.state, item.copy, item.check = RESIDENT, None, None
        item.release_slot()
        item.forget()

    def clear_lost(self):
        """Forgets items that are gone, and makes those resident that outlive their optimizer. Returns whether the list has changed."""
        self.bury_dead()
        places = set()
        while self.lost:
            places.add(self.lost.pop())
        for item in self.items:
            if item.optimizer in places and item.tensor is not None:
                self.release(item)
                item.forget()
        self.free_ordinals.extend(places)
        self.streamed -= places
        self.has_gaps = False
        return self._take([item for item in self.items if item.reference is not None])

    def _take(self, items):
        """The list of items from now on; returns whether it has changed. After an interrupt, what is swapped out is still found."""
        by_entry = {}
        for index, item in enumerate(items):
            item.index = index
            by_entry.setdefault(item.entry.identity, []).append(item)
        signature = tuple((item.optimizer, item.size) for item in items)
        same = signature == self.signature
        self.items, self.by_entry, self.signature = items, by_entry, signature
        return not same

    def scan(self, optimizer):
        """After step(): finds the state that exists now. Returns whether the list of items has changed."""
        self.bury_dead()
        place = self.ordinal(optimizer)
        found = []
        state = getattr(optimizer, "state", None)
        groups = getattr(optimizer, "param_groups", None)
        if not isinstance(state, dict) or not isinstance(groups, list):
            groups = ()  # built in another way: only its steps are known
        known = {id(tensor): item for item in self.items if item.optimizer == place and (tensor := item.tensor) is not None}
        for ordinal, group in enumerate(groups):
            for position, parameter in enumerate(group["params"]):
                if not dict.__contains__(state, parameter):
                    continue
                values = dict.__getitem__(state, parameter)
                if type(values) is not dict:
                    continue
                entry = Entry(self.optimizers[place], ordinal, position, values)
                for key, names, tensor in _tensors_in(values):
                    if tensor.numel() * tensor.element_size() < self.least:
                        continue
                    item = known.get(id(tensor))
                    if item is None or item.entry.identity != entry.identity or (item.key, item.names) != (key, names):
                        if not self.copies.backend.is_mine(tensor) or tensor.layout != torch.strided or tensor.requires_grad:
                            continue
                        # A tensor that does not fill its storage shares it with others.
                        if tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size():
                            continue
                        item = Item(entry, key, names, tensor, place, self.dead.append)
                    item.entry = entry
                    found.append(item)
        kept = {id(item) for item in found}
        others = []
        for item in self.items:
            if item.optimizer != place:
                others.append(item)
            elif id(item) not in kept:
                self.release(item)
                item.forget()
        return self._take(sorted(others + found, key=lambda item: item.optimizer))

    def release_all(self):
        for item in self.items:
            self.release(item)
            item.forget()
        self._take([])

    def release_slots_except(self, plans):
        """Gives back the slots of state that no plan swaps any more."""
        moved = {index for plan in plans for index in plan.items}
        for item in self.items:
            if item.index not in moved and item.state == RESIDENT and item.copy is None:
                item.release_slot()

    def protect(self, optimizer):
        """Replaces the optimizer's plain dict by a guarded one with the same entries."""
        state = optimizer.__dict__.get("state")
        if type(state) is GuardedState:
            return True
        if type(state) not in (dict, defaultdict):
            return False
        guarded = GuardedState(getattr(state, "default_factory", None), state)
        guarded.is_plain = type(state) is dict
        guarded.guard = self
        optimizer.__dict__["state"] = guarded
        return True

    def protect_all(self):
        for reference in self.optimizers:
            optimizer = reference()
            if optimizer is not None:
                self.protect(optimizer)

    def is_protected(self, item):
        optimizer = self.optimizers[item.optimizer]()
        return optimizer is not None and type(optimizer.__dict__.get("state")) is GuardedState

    def swap_in_all(self):
        with self.lock, unobserved():
            moved = False
            for item in self.items:
                if item.state != RESIDENT:
                    self.swap_in(item)
                    moved = True
            if moved:
                self.copies.make_current_wait()

    def swap_in_entry(self, state, key):
        with self.lock, unobserved():
            if not dict.__contains__(state, key):
                return
            values = dict.__getitem__(state, key)
            moved = False
            for item in self.by_entry.get(id(values), ()):
                if item.state != RESIDENT:
                    self.swap_in(item)
                    moved = True
            if moved:
                self.copies.make_current_wait()
