"""Optimizers whose steps PyTorch does not announce: classes outside of torch.optim, and classes that do not call its constructor.

They are found by what they hold: parameters in groups, as observe/optimizers.py knows them."""

import functools
import gc
import inspect
import threading

from ..observe.optimizers import is_like_one

# If so many passes went by without a step, all objects are searched. An optimizer may be made late.
LOOKS = (2, 16, 128)


class OtherOptimizers:
    def __init__(self, before, after):
        self.before, self.after = before, after
        self.looked_at = 0  # number of passes when it was last searched
        self.watched = []  # (class, its own step if it has one, the step in its place)
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
                classes[kind] = _has_step(kind)
            if classes[kind] and _is_one(thing):
                classes[kind] = False
                self._watch(kind)

    def _watch(self, kind):
        original = kind.step
        others = self

        @functools.wraps(original)
        def step(optimizer, *arguments, **named):
            inside = others.inside.__dict__.setdefault("ids", set())
            # A class and the one it inherits from may both be watched.
            # If PyTorch has wrapped this function since, it announces the step itself.
            if id(optimizer) in inside or not others.watched or _is_announced(type(optimizer)) or not _is_one(optimizer):
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
            own = kind.__dict__.get("step")
            kind.step = step
        except (TypeError, AttributeError):
            return  # a class of an extension, which cannot be changed
        self.watched.append((kind, own, step))

    def close(self):
        while self.watched:
            kind, own, step = self.watched.pop()
            # Somebody may have wrapped it since. Then it stays, and only calls what it has replaced.
            if kind.__dict__.get("step") is not step:
                continue
            if own is not None:
                kind.step = own
            else:
                del kind.step


def _is_announced(kind):
    return getattr(kind.step, "hooked", False)


def _has_step(kind):
    try:
        step = inspect.getattr_static(kind, "step", None)
        # Only what gets the object as its first argument can be wrapped.
        if not callable(step) or not hasattr(type(step), "__get__") or isinstance(step, (staticmethod, classmethod)):
            return False
        return not _is_announced(kind) and not kind.__module__.startswith("torch.")
    except Exception:
        return False


def _is_one(thing):
    """Objects of the program may do anything when they are asked."""
    try:
        return is_like_one(thing)
    except Exception:
        return False
