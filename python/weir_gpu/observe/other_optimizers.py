"""Optimizers whose steps PyTorch does not announce: classes outside of torch.optim, and classes that do not call its constructor.

They are found by what they hold: parameters in groups or in a list, as optimizers.py knows them. Observing and swapping share the step
that stands in the place of a class's own, so a program meets at most one."""

import functools
import gc
import inspect
import sys
import threading
import types
import weakref

import torch

from .optimizers import is_like_one

# Of code that runs only when its result is awaited or iterated, after a call of ours would have returned.
RUNS_LATER = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE

# If so many passes went by without a step, all objects are searched. An optimizer may be made late.
LOOKS = (2, 16, 128)

_listeners = []  # in the order of opening; replaced, never changed, since steps may run meanwhile
_replaced = []  # weak references: (class, the step in the place of its own). No class is kept alive: it may hold a model.
_inside = threading.local()


class OtherOptimizers:
    """Calls `before(optimizer, arguments, named)` and `after(optimizer)` around the steps of optimizers that were found."""

    def __init__(self, before, after):
        self.before, self.after = before, after
        self.looked_at = 0  # number of passes when it was last searched

    def look_after(self, passes):
        """Called while no step of an optimizer was seen."""
        due = max((look for look in LOOKS if look <= passes), default=0)
        if due > self.looked_at:
            self.looked_at = due
            self.look()

    def look(self):
        global _listeners
        if self not in _listeners:
            _listeners = [*_listeners, self]
        _search()

    def is_open(self):
        return self in _listeners

    def close(self):
        global _listeners
        _listeners = [other for other in _listeners if other is not self]
        if not _listeners:
            _restore_all()


def run_step(original, optimizer, arguments, named):
    """A class and the one it inherits from may both have a step of ours. If PyTorch has wrapped this step since, it announces it."""
    listeners = _listeners
    inside = _inside.__dict__.setdefault("ids", set())
    if id(optimizer) in inside or not listeners or _is_announced(type(optimizer)) or not _is_one(optimizer):
        return original(optimizer, *arguments, **named)
    inside.add(id(optimizer))
    try:
        for listener in listeners:
            listener.before(optimizer, (optimizer, *arguments), named)
        result = original(optimizer, *arguments, **named)
        for listener in reversed(listeners):
            listener.after(optimizer)
    finally:
        inside.discard(id(optimizer))
    return result


def _step_for(original):
    """It refers to nothing of ours: a class may be pickled with its code, and loaded where Weir is not."""

    @functools.wraps(original)
    def step(optimizer, /, *arguments, **named):
        # Compiled code runs as without us.
        if torch.compiler.is_compiling():
            return original(optimizer, *arguments, **named)
        ours = sys.modules.get("weir_gpu.observe.other_optimizers")
        if ours is None:
            return original(optimizer, *arguments, **named)
        return ours.run_step(original, optimizer, arguments, named)

    return step


def found_among(things):
    """(optimizer, the class that has its step) of all that PyTorch does not announce."""
    classes = {}
    for thing in things:
        kind = type(thing)
        # Most objects are of few classes. Nothing of the object itself is asked before its class has a step.
        if kind not in classes:
            classes[kind] = _owner_of_step(kind)
        if classes[kind] is not None and _is_one(thing):
            yield thing, classes[kind]


def _search():
    owners = {id(owner): owner for _, owner in found_among(gc.get_objects())}
    for owner in owners.values():
        _replace(owner)


def _replace(owner):
    """Only the class that has the step itself gets another one: in a class that inherits it, it would hide those of later bases."""
    original = owner.__dict__["step"]  # maybe ours already
    if any(found() is original for _, found in _replaced):
        return
    step = _step_for(original)
    try:
        owner.step = step
    except Exception:
        return  # a class of an extension, or one that guards its attributes
    _replaced.append((weakref.ref(owner), weakref.ref(step)))


def _restore_all():
    while _replaced:
        owner, step = (reference() for reference in _replaced.pop())
        # Somebody may have wrapped it since. Then it stays, and only calls what it has replaced.
        if owner is not None and step is not None and owner.__dict__.get("step") is step:
            owner.step = step.__wrapped__


def _is_announced(kind):
    return getattr(kind.step, "hooked", False)


def _owner_of_step(kind):
    """The class that has the step of another one. None if it is not a function of the program."""
    try:
        owner = next((base for base in kind.__mro__ if "step" in base.__dict__), None)
        step = owner.__dict__["step"] if owner is not None else None
        if not isinstance(step, types.FunctionType) or step.__code__.co_flags & RUNS_LATER or _is_announced(kind):
            return None
        return None if any(one.__module__.split(".")[0] == "torch" for one in (kind, owner)) else owner
    except Exception:
        return None


def _is_one(thing):
    """Objects of the program may do anything when they are asked."""
    try:
        # Its state is watched by a weak reference.
        return is_like_one(thing) and weakref.ref(thing) is not None
    except Exception:
        return False
