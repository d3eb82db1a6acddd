"""Optimizers, of torch.optim and others that are built alike: what they update, and their state."""

import functools
import weakref

import torch
from torch.optim import optimizer as of_all

from ..abi import Category
from .tensors import PLAIN, gradients_of, is_tensor, is_trained, kind_of, shape_of, storage_address

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
    if not callable(getattr(type(thing), "step", None)):
        return False
    with torch._C.DisableTorchFunction():
        return any(map(is_trained, parameters_of(thing)))


def parameters_of(optimizer):
    """Those in groups; else those in lists of which some are trained."""
    found = _grouped(optimizer)
    return found or [value for listed in _lists_of(optimizer) if any(map(is_trained, listed)) for value in listed]


# Only plain containers are looked into: others are the program's, or a library's, and may do anything.


def _attributes(thing):
    """Without asking the object, whose class may answer with code of its own."""
    try:
        attributes = object.__getattribute__(thing, "__dict__")
    except Exception:
        return {}
    return attributes if type(attributes) is dict else {}


def _grouped(optimizer):
    found = []
    groups = _attributes(optimizer).get("param_groups")
    for group in list(groups) if isinstance(groups, list) else ():
        of_group = group.get("params") if isinstance(group, dict) else None
        if isinstance(of_group, list):
            found += [parameter for parameter in of_group if is_tensor(parameter)]
    return found


def _lists_of(thing):
    """Lists of tensors among the attributes."""
    lists = [list(value) for value in list(_attributes(thing).values()) if type(value) in (list, tuple) and value and is_tensor(value[0])]
    return [listed for listed in lists if all(map(is_tensor, listed))]


def _state_of(optimizer):
    state = _attributes(optimizer).get("state")
    return state if isinstance(state, dict) else {}


def _held_by(optimizer):
    """Where an optimizer without a dictionary `state` may have it: lists that begin with a tensor, and dictionaries."""
    if has_state(optimizer):
        return []
    held = [value for name, value in list(_attributes(optimizer).items()) if name not in ("param_groups", "defaults")]
    return [value for value in held if isinstance(value, dict) or (type(value) in (list, tuple) and value and is_tensor(value[0]))]


def _listed_state(optimizer):
    """Lists beside the parameters, tensor by tensor of the same shape, and dictionaries that have the parameters as keys. Anything else
    may be something else."""
    held = _held_by(optimizer)
    parameters = parameters_of(optimizer) if held else []
    if not parameters:
        return []
    shapes, keys, found = list(map(shape_of, parameters)), set(map(id, parameters)), []
    for value in held:
        if isinstance(value, dict):
            for key, entry in list(dict.items(value)):
                if id(key) in keys or (type(key) is int and key in keys):
                    _collect(found, entry, 0)
        elif all(map(is_tensor, value)) and list(map(shape_of, value)) == shapes:
            found += value
    known = {storage_address(value) for value in [*parameters, *gradients_of(parameters)] if kind_of(value) == PLAIN}
    return [value for value in found if id(value) not in keys and not (kind_of(value) == PLAIN and storage_address(value) in known)]


def has_state(optimizer):
    return dict.__len__(_state_of(optimizer)) > 0


def sample_of(optimizer, address_of):
    """Addresses of some state tensors, to notice that there are others."""
    state = _state_of(optimizer)
    count = dict.__len__(state)
    groups = _attributes(optimizer).get("param_groups")
    found = [count]
    for held in _held_by(optimizer)[: SAMPLES * SAMPLES]:
        found.append(dict.__len__(held) if isinstance(held, dict) else [len(held), *map(address_of, held[:: max(1, len(held) - 1)])])
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
    found = _listed_state(optimizer)
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
