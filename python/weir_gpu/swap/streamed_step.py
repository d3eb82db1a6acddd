"""Steps of optimizers whose state does not fit: it passes through the GPU in chunks of parameters, with the same results to the bit.

`step()` of PyTorch calls two functions for each group: `_init_group`, which makes state and collects it in lists, and one that computes.
In a streamed step the first one collects nothing. The second one then calls both for one chunk after the other."""

import contextlib
import functools
import sys
import threading
import weakref

import torch

from .copies import Corrupted
from .element_wise import bytes_of, is_of_pytorch, is_uniform, kind_of
from .optimizer_state import GuardedState
from .records import SWAPPED_OUT, SWAPPING_OUT
from .swapped_tensors import unobserved

# Bytes of state in a chunk. Up to three chunks are on the GPU: one leaves, one is computed with, one comes.
CHUNK = 128 << 20


class _Holder:
    def __init__(self):
        self.state = {}


def _references(holder):
    return sys.getrefcount(holder.__dict__["state"])


_ALONE = _references(_Holder())


class StreamedSteps:
    def __init__(self, manager):
        self.manager = manager
        self.copies, self.guard, self.mover, self.lock = manager.copies, manager.guard, manager.mover, manager.lock
        self.kinds = weakref.WeakKeyDictionary()  # by class of optimizer
        self.replaced = []  # (namespace, what sets a name in it, name, what was there, what is there now)
        self.here = threading.local()  # `step`: the streamed step of this thread

    # ---- before and after a step

    def forget(self):
        """A step that has failed is not streamed any more."""
        self.here.step = None
        self.guard.is_streaming = False

    def begin(self, optimizer, arguments, named):
        """Whether this step is streamed. Then its state stays where it is until `step()` needs it."""
        limit = self.manager.options.limit
        # A closure computes gradients in the middle of the step.
        if limit is None or any(one is not None for one in (*arguments[1:], *named.values())):
            return False
        if not self._is_too_large(optimizer, limit) or not self._has_its_state_alone(optimizer):
            return False
        kind = self._kind_of(optimizer)
        if not kind.computes_as_pytorch() or not self._replace(kind) or not self.guard.protect(optimizer):
            return False
        self.here.step = Step(self, optimizer, kind)
        return True

    def check(self, optimizer):
        """After any step."""
        step = getattr(self.here, "step", None)
        if step is not None and step.optimizer is optimizer:
            step.check()

    def end(self, optimizer):
        """After the step, before its end is noted. Returns whether the list of items has changed in it."""
        step = getattr(self.here, "step", None)
        self.forget()
        if step is None or step.optimizer is not optimizer:
            return False
        self.copies.counts["steps_streamed"] += step.chunks > 0
        place = self.guard.ordinal(optimizer)
        for item in reversed(self.guard.items):
            if item.optimizer == place and item.state == SWAPPING_OUT:
                self.guard.end_swap_out(item)
        return step.has_new_items

    def _kind_of(self, optimizer):
        cls = type(optimizer)
        if cls not in self.kinds:
            self.kinds[cls] = kind_of(optimizer)
        return self.kinds[cls]

    def _is_too_large(self, optimizer, limit):
        """Whether state and what the step computes would not fit beside what is on the GPU now."""
        kind = self._kind_of(optimizer)
        if kind is None:
            return False
        place = self.guard.ordinal(optimizer)
        needed = sum(item.size for item in self.guard.items if item.optimizer == place and item.state == SWAPPED_OUT)
        computed = 0
        for group in optimizer.param_groups:
            sizes = {p: bytes_of(p) for p in group["params"] if p.grad is not None}
            # State that the step will make.
            needed += sum(kind.most_state * size for p, size in sizes.items() if not dict.get(optimizer.state, p))
            # Kernels for lists have their results for the whole list at once, a loop those of one parameter.
            computed = max(computed, (max if group.get("foreach") is False else sum)(sizes.values() or (0,)))
        return self.copies.backend.allocated() + needed + computed > limit

    @staticmethod
    def _has_its_state_alone(optimizer):
        """Whoever else has the plain dictionary would not see what the step puts into the guarded one."""
        return type(optimizer.__dict__.get("state")) is GuardedState or _references(optimizer) <= _ALONE

    # ---- in place of PyTorch's functions

    def _replace(self, kind):
        """Whether ours are called first, and PyTorch's by them. What others have put there would see chunks instead of the whole."""
        places = (
            (kind.owner, "_init_group", vars(kind.owner).get, functools.partial(setattr, kind.owner), self._in_place_of_collecting),
            (kind.names, kind.function, kind.names.get, kind.names.__setitem__, self._in_place_of_computing),
        )
        for owner, name, get, put, make in places:
            if not any(other is owner and known == name for other, known, *_ in self.replaced):
                before = get(name)
                if not is_of_pytorch(before):
                    return False
                now = functools.wraps(before)(make(before))
                self.replaced.append((owner, name, get, put, before, now))
                put(name, now)
        return all(get(name) is now for _, name, get, _, _, now in self.replaced)

    def _current(self):
        return None if torch.compiler.is_compiling() else getattr(self.here, "step", None)

    def _in_place_of_collecting(self, collect):
        def _init_group(optimizer, group, *lists, **named):
            step = self._current()
            # The program may call it, too, to make state.
            is_asked = step is not None and step.optimizer is optimizer and sys._getframe(1).f_code is step.kind.code
            if not is_asked or step.is_inside:
                return collect(optimizer, group, *lists, **named)
            return step.collect(collect, group, lists, named)

        return _init_group

    def _in_place_of_computing(self, compute):
        def function(*arguments, **named):
            step = self._current()
            if step is None or step.is_inside or not step.is_mine(arguments, named):
                return compute(*arguments, **named)
            return step.compute(compute, arguments, named)

        return function

    def close(self):
        while self.replaced:
            _, name, get, put, before, now = self.replaced.pop()
            # Somebody may have replaced it since. Then it stays, and only calls what it has replaced.
            if get(name) is now:
                put(name, before)


class Step:
    """One streamed step of an optimizer."""

    def __init__(self, steps, optimizer, kind):
        self.steps, self.kind = steps, kind
        # A step that fails is kept until the next one, but not what the program wants to free then.
        self.reference = weakref.ref(optimizer)
        self.guard, self.mover, self.copies = steps.guard, steps.mover, steps.copies
        self.place = steps.guard.ordinal(optimizer)
        self.group, self.lists = None, ()  # what was collected last and is not computed yet
        self.collecting = None  # PyTorch's own function
        self.is_inside = False  # PyTorch's own functions are running for a chunk
        self.has_new_items = False
        self.chunks = 0
        self.leaving = []  # items of the last chunk, which are on their way out

    @property
    def optimizer(self):
        return self.reference()

    def collect(self, collect, group, lists, named):
        """In place of `_init_group`: collects nothing. Returns what it returns for no parameters."""
        self.check()
        # All hooks of the program have run: gradients stay as they are. They may have given the optimizer another dictionary.
        is_guarded = self.guard.protect(self.optimizer) and self.copies.backend.on_compute()
        if not is_guarded or not is_uniform(self.optimizer, self.kind, group, self.copies.backend.is_mine):
            self._bring(group["params"])
            return collect(self.optimizer, group, *lists, **named)
        self.collecting = collect
        self.group, self.lists = group, (*lists, *(named[name] for name in self.kind.arguments[len(lists) :]))
        return collect(self.optimizer, {**group, "params": []}, *lists, **named)

    def is_mine(self, arguments, named):
        """Whether these are the lists in which nothing was collected."""
        given = {id(argument) for argument in (*arguments, *named.values())}
        return self.group is not None and any(id(one) in given for one in self.lists)

    def check(self):
        """Nothing may be collected by us and then computed by somebody else: such parameters would not change."""
        if self.group is not None:
            raise Corrupted("weir: a group of parameters was not computed in a step of the optimizer")

    def compute(self, compute, arguments, named):
        """In place of the function that computes, for a whole group."""
        group, lists = self.group, self.lists
        self.group, self.lists = None, ()
        places = {id(one): number for number, one in enumerate(lists)}
        chunks = self._chunks(group)
        self.is_inside = True
        try:
            for number, chunk in enumerate(chunks):
                is_new = not all(dict.get(self.optimizer.state, parameter) for parameter in chunk)
                self._bring(chunk)
                if number + 1 < len(chunks):
                    self._fetch(chunks[number + 1])
                parts = [[] for _ in lists]
                self.collecting(self.optimizer, {**group, "params": chunk}, *parts)
                part = [parts[places[id(argument)]] if id(argument) in places else argument for argument in arguments]
                compute(*part, **{name: parts[places[id(value)]] if id(value) in places else value for name, value in named.items()})
                self._keep(group, chunk, parts)
                # Whoever holds a tensor of state keeps it from leaving.
                del parts, part
                self._leave(chunk, is_new)
                self.chunks += 1
        finally:
            self.is_inside = False

    def _keep(self, group, chunk, parts):
        if self.kind.kept_afterwards is None or not parts[2]:
            return
        name, key = self.kind.kept_afterwards
        for parameter, kept in zip(chunk, parts[self.kind.arguments.index(name)]):
            self.optimizer.state[parameter][key] = kept

    # ---- chunks

    def _chunks(self, group):
        """Parameters in their order. A chunk is one parameter, or several with little state."""
        made, room = [], 0
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            size = self.kind.most_state * bytes_of(parameter)
            if not made or size > room:
                made.append([])
                room = CHUNK
            made[-1].append(parameter)
            room -= size
        return made

    def _items(self, chunk):
        entries = [id(dict.get(self.optimizer.state, parameter)) for parameter in chunk]
        return [item for identity in entries for item in self.guard.by_entry.get(identity, ()) if item.optimizer == self.place]

    def _bring(self, chunk):
        """The chunk's state is resident when this returns, for work on the current stream."""
        items = self._items(chunk)
        with self.steps.lock, unobserved():
            wanted = [item for item in items if item.state == SWAPPED_OUT]
            for item in wanted:
                self.copies.relief.begin_needed(lambda: self.guard.take_memory(item), item.size, lambda other: other in items)
            with self.copies.batch():
                for item in wanted:
                    self.guard.begin_copy_in(item)
            self.guard.wait_for_swap_ins(items)
            for item in items:
                self.guard.swap_in(item, planned=True)
            # A hook of the program may have chosen another stream.
            self.copies.make_current_wait()

    @contextlib.contextmanager
    def _swapping(self):
        """An error of ours in here ends swapping, not the step."""
        manager = self.steps.manager
        try:
            with self.steps.lock, unobserved(), self.copies.batch():
                yield
        except Exception:
            manager.failed("optimizer step")

    def _fetch(self, chunk):
        """If there is no memory for it yet, it comes when its turn has come."""
        with self._swapping():
            for item in self._items(chunk):
                if item.state == SWAPPED_OUT and not self.mover.has_room_for(self.guard.begin_swap_in, item):
                    return

    def _leave(self, chunk, is_new):
        """The chunk's copies out begin. Memory of the chunk before it is given up."""
        if self.steps.manager.stopped:
            return
        with self._swapping():
            if is_new:
                self.has_new_items = self.guard.scan(self.optimizer) or self.has_new_items
            items = [item for item in self._items(chunk) if self.guard.is_protected(item) and self.guard.begin_swap_out(item)]
            # Starts with the last copy: one wait is enough for all.
            for item in reversed(self.leaving):
                self.guard.end_swap_out(item)
            self.leaving = items
