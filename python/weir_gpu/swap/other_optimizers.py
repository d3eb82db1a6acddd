"""Optimizers whose steps PyTorch does not announce: classes outside of torch.optim, and classes that do not call its constructor.

They are found by what they hold: parameters in groups, as observe/optimizers.py knows them."""

import functools
import gc
import threading
import types
import weakref

import torch

from ..observe.optimizers import is_like_one

# If so many passes went by without a step, all objects are searched. An optimizer may be made late.
LOOKS = (2, 16, 128)


class OtherOptimizers:
    """No class is kept alive: a step made in a function may hold a model."""

    def __init__(self, before, after):
        self.before, self.after = before, after
        self.looked_at = 0  # number of passes when it was last searched
        self.watched = []  # weak references: (class, the step in the place of its own)
        self.inside = threading.local()

    def look_after(self, passes):
        """Called at any save of a tensor while no step of an optimizer was seen."""
        due = max((look for look in LOOKS if look <= passes), default=0)
        if due > self.looked_at:
            self.looked_at = due
            self.look()

    def look(self):
        classes = {}
        for thing in gc.get_objects():
            kind = type(thing)
            # Most objects are of few classes. Nothing of the object itself is asked before its class has a step.
            if kind not in classes:
                classes[kind] = _owner_of_step(kind)
            if classes[kind] is not None and _is_one(thing):
                self._watch(classes[kind])
                classes[kind] = None

    def _watch(self, owner):
        """Only the class that has the step itself gets another one: in a class that inherits it, it would hide those of later bases."""
        original = owner.__dict__["step"]
        if any(found() is original for _, found in self.watched):
            return
        others = self

        @functools.wraps(original)
        def step(optimizer, /, *arguments, **named):
            inside = others.inside.__dict__.setdefault("ids", set())
            # A class and the one it inherits from may both be watched.
            # If PyTorch has wrapped this function since, it announces the step itself.
            is_seen = id(optimizer) in inside or not others.watched or torch.compiler.is_compiling()
            if is_seen or _is_announced(type(optimizer)) or not _is_one(optimizer):
                return original(optimizer, *arguments, **named)
            inside.add(id(optimizer))
            try:
                others.before(optimizer)
                result = original(optimizer, *arguments, **named)
                others.after(optimizer)
            finally:
                inside.discard(id(optimizer))
            return result

        try:
            owner.step = step
        except Exception:
            return  # a class of an extension, or one that guards its attributes
        self.watched.append((weakref.ref(owner), weakref.ref(step)))

    def close(self):
        while self.watched:
            owner, step = (reference() for reference in self.watched.pop())
            # Somebody may have wrapped it since. Then it stays, and only calls what it has replaced.
            if owner is not None and step is not None and owner.__dict__.get("step") is step:
                owner.step = step.__wrapped__


def _is_announced(kind):
    return getattr(kind.step, "hooked", False)


def _owner_of_step(kind):
    """The class that has the step of another one. None if it is not a function of the program."""
    try:
        owner = next((base for base in kind.__mro__ if "step" in base.__dict__), None)
        if owner is None or not isinstance(owner.__dict__["step"], types.FunctionType) or _is_announced(kind):
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
