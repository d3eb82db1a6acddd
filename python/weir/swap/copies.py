"""Copies between GPU and host on two streams of their own, and the waits of the compute stream for them.

Saved tensors and optimizer state move by these alone, so what keeps memory from being used too early is said here once.
"""

import contextlib
from collections import deque
from typing import NamedTuple

import torch

from .host import HostSlab

COUNTED = (
    "bytes_out", "bytes_in", "stalls", "stall_us", "misses", "off_plan", "kept", "steps_planned", "steps_off", "adjusted", "late_out",
    "parameters_out", "gradients_out", "checked", "reliefs", "relieved_bytes",
)  # fmt: skip


class Copy(NamedTuple):
    event: object  # its end
    way: str
    number: int  # among those that went this way, one after the other


class Copies:
    def __init__(self, options, say):
        self.options = options
        self.say = say
        self.backend = None  # until the first large tensor on a GPU
        self.slab = None
        self.checks = Checks(options.debug)
        self.observer = None  # the steps, which may want to know how long a wait was
        self.relief = None  # who makes room for what is needed
        self.counts = dict.fromkeys(COUNTED, 0)
        self.away = 0  # bytes that are on the host only
        # Of the copies each way: how many have begun, and up to which one the compute stream has been told to wait.
        self.begun = {"out": 0, "in": 0}
        self.waited = {"out": 0, "in": 0}
        # Where copies begin together: by way, how many pieces of memory had been taken when they waited for the compute stream.
        self.following = None
        self.taken = 0
        # (what holds memory, a copy in it): destructors leave here what the compute stream has to wait for first.
        self.graveyard = deque()

    def open(self, backend):
        self.backend = backend
        self.slab = HostSlab(backend.pinned, self.options.host_limit, self.say)

    def give_host_memory_back(self):
        """What somebody still has a place in goes with the last of these places."""
        self.backend.synchronize()
        self.slab = HostSlab(self.backend.pinned, self.options.host_limit, self.say, self.slab.peak)

    def begin_out(self, storage, slot):
        """Gives the copy, and the checksum of what is copied."""
        backend = self.backend
        checksum = self.checks.sum_up(storage, backend)
        self._after_compute("out", backend.out)
        if slot.busy is not None:
            backend.wait(backend.out, slot.busy.event)
        backend.copy_out(slot.bytes, storage)
        self.counts["bytes_out"] += slot.size
        return self._begun("out", backend.out), checksum

    @contextlib.contextmanager
    def together(self):
        """Copies that begin in here wait once for the compute stream: it gets no work of the program's meanwhile. Only where memory is
        taken it may be given waits, for streams that used it before."""
        self.following = {}
        try:
            yield
        finally:
            self.following = None

    def refill(self, storage, size):
        self.taken += 1
        self.backend.refill(storage, size)

    def new_storage(self, size):
        self.taken += 1
        return self.backend.new_storage(size)

    def _after_compute(self, way, stream):
        if self.following is None or self.following.get(way) != self.taken:
            self.backend.wait(stream, self.backend.event(self.backend.compute))
        if self.following is not None:
            self.following[way] = self.taken

    def _begun(self, way, stream):
        self.begun[way] += 1
        return Copy(self.backend.event(stream), way, self.begun[way])

    def begin_back(self, storage, slot):
        """Gives the copy, for which whoever writes the slot next waits, too."""
        # The memory may have been in use a moment ago, on the compute stream.
        self._after_compute("in", self.backend.back)
        self.backend.copy_back(storage, slot.bytes)
        slot.busy = self._begun("in", self.backend.back)
        self.counts["bytes_in"] += slot.size
        return slot.busy

    def wait(self, copy, what):
        """The compute stream waits, the host does not. How long is looked at steps later. Whoever waits for several of one way waits
        for the last of them first: then the others are over, too."""
        backend = self.backend
        event = self._unwaited(copy)
        if event is None:
            return
        if not self.observer.times_waits():
            backend.wait(backend.compute, event)
            return
        before = backend.event(backend.compute, timing=True)
        backend.wait(backend.compute, event)
        after = backend.event(backend.compute, timing=True)
        self.observer.waited(what, before, after)

    def _unwaited(self, copy):
        if copy.number <= self.waited[copy.way]:
            return None
        self.waited[copy.way] = copy.number
        return copy.event

    def before_giving_up(self, storage, is_computes=False):
        """After this the memory may go to whoever comes next on the compute stream. `is_computes`: it is known to be that stream's."""
        self.backend.gives_up(storage, is_computes)
        if self.checks.wanted:
            self.checks.poison(storage, self.backend)

    def after_giving_up(self):
        """Debugging: the memory is unmapped at once, so that whoever still reaches for it by its address is stopped by the GPU."""
        if self.checks.wanted:
            self.backend.release_cached()

    def verify(self, checksum, storage):
        if checksum is not None:
            self.checks.verify(checksum, storage, self.backend)

    def let_current_follow(self):
        """A stream other than ours goes on only when the compute stream has come this far."""
        backend = self.backend
        if not backend.on_compute():
            backend.wait_current(backend.event(backend.compute))

    def clear_graveyard(self):
        while self.graveyard:
            thing, copy = self.graveyard.popleft()
            event = self._unwaited(copy)
            if event is not None:
                self.backend.wait(self.backend.compute, event)
            del thing


class Corrupted(RuntimeError):
    """Debugging found content changed. Nothing to be quiet about."""


class Checks:
    """Debugging: stray readers see poison, copies are summed up before and after. All of it in the order of the compute stream,
    whichever is current: that is the one that waits for copies."""

    def __init__(self, wanted):
        self.wanted = wanted
        self.pairs = []  # (sum before, sum after), on the GPU until the step is over

    def sum_up(self, storage, backend):
        if not self.wanted:
            return None
        with backend.computing():
            content = backend.bytes_of(storage)
            whole = content[: content.numel() // 8 * 8].view(torch.int64)
            # A sum of words would not notice two of them changing places.
            half = whole.numel() // 2
            return torch.stack((whole.sum(), whole[:half].sum()))

    def verify(self, expected, storage, backend):
        self.pairs.append((expected, self.sum_up(storage, backend)))

    def poison(self, storage, backend):
        with backend.computing():
            backend.bytes_of(storage).fill_(0xFF)

    def compare(self):
        """Gives the number of copies that were looked at."""
        pairs, self.pairs = self.pairs, []
        for expected, found in pairs:
            if not torch.equal(expected, found):
                raise Corrupted("weir: a tensor came back from host memory with other content than it left with")
        return len(pairs)
