"""Optimizers, of torch.optim and others that are built alike: what they update, and their state."""

import functools
import weakref

import torch
from torch.optim import optimizer as of_all

from ..abi import Category
from .tensors import is_tensor, is_trained

# State of these many parameters is looked at to see whether it has changed.
SAMPLES = 4
MOST_DEPTH = 3


class Known:
    """One optimizer, and what was told of its state."""

    def __init__(self, optimizer, forget):
        self.reference = weakref.ref(optimizer, forget)
        self.steps = self.told_at = 0
        self.sample = None  # of the state that was told


class Optimizers:
    def __init__(self):
        self.by_id = {}
        self.to_close = []

    def open(self):
        """Every optimizer calls this function when it is made, copied or unpickled."""
        original = of_all.Optimizer._patch_step_function
        optimizers = self

        @functools.wraps(original)
        def _patch_step_function(optimizer):
            original(optimizer)
            try:
                optimizers.known(optimizer)
            except Exception:
                pass

        of_all.Optimizer._patch_step_function = _patch_step_function

        def restore():
            if of_all.Optimizer.__dict__.get("_patch_step_function") is _patch_step_function:
                of_all.Optimizer._patch_step_function = original

        self.to_close.append(restore)

    def close(self):
        while self.to_close:
            self.to_close.pop()()

    def known(self, optimizer):
        identity = id(optimizer)
        found = self.by_id.get(identity)
        if found is None:
            forget = self.by_id.pop
            found = self.by_id[identity] = Known(optimizer, lambda _: forget(identity, None))
        return found

    def all(self):
        pairs = [(known, known.reference()) for known in list(self.by_id.values())]
        return [(known, optimizer) for known, optimizer in pairs if optimizer is not None]


def is_like_one(thing):
    """Whether an object of any class is built as an optimizer: it has a step, and parameters that are trained, in groups or in a list."""
    attributes = getattr(thing, "__dict__", None)
    if not callable(getattr(type(thing), "step", None)) or not isinstance(attributes, dict):
        return False
    with torch._C.DisableTorchFunction():
        found = parameters_of(thing)
        if found:
            return any(map(is_trained, found))
        lists = [value for value in list(attributes.values()) if type(value) in (list, tuple) and value and is_tensor(value[0])]
        return any(is_tensor(value) and is_trained(value) for listed in lists for value in listed)


def parameters_of(optimizer):
    """Only plain containers are looked into: others are the program's, or a library's, and may do anything."""
    found = []
    groups = optimizer.__dict__.get("param_groups")
    for group in list(groups) if isinstance(groups, list) else ():
        of_group = group.get("params") if isinstance(group, dict) else None
        if isinstance(of_group, list):
            found += [parameter for parameter in of_group if is_tensor(parameter)]
    return found


def _state_of(optimizer):
    state = optimizer.__dict__.get("state")
    return state if isinstance(state, dict) else {}


def has_state(optimizer):
    return dict.__len__(_state_of(optimizer)) > 0


def sample_of(optimizer, address_of):
    """Addresses of some state tensors, to notice that there are others."""
    state = _state_of(optimizer)
    count = dict.__len__(state)
    groups = optimizer.__dict__.get("param_groups")
    found = [count]
    for group in groups if isinstance(groups, list) else ():
        of_group = group.get("params") if isinstance(group, dict) else None
        if isinstance(of_group, list) and of_group:
            for place in {0, len(of_group) // 2, len(of_group) - 1}:
                values = dict.get(state, of_group[place])
                if isinstance(values, dict):
                    found += [address_of(value) for value in values.values() if is_tensor(value)]
        if len(found) > SAMPLES * SAMPLES:
            break
    return found


def add_state(telling, optimizer):
    found = []
    # Without the methods of the dictionary: where state is swapped, they would swap it in.
    for values in list(dict.values(_state_of(optimizer))):
        _collect(found, values, 0)
    telling.add_all(found, Category.OPTIMIZER_STATE)


def _collect(found, value, depth):
    if is_tensor(value):
        found.append(value)
    elif depth < MOST_DEPTH:
        if isinstance(value, dict):
            inner = list(dict.values(value))
        elif type(value) in (list, tuple):
            inner = value
        else:
            return
        for entry in inner:
            _collect(found, entry, depth + 1)
