"""Copies between GPU and host on two streams of their own, and the compute stream's waits for them.

All swapping goes through here, so the rules that keep memory from being reused too early stand in one place.
"""

import contextlib
from collections import deque
from typing import NamedTuple

import torch

from .host import HostSlab
from .side_streams import SideStreams

COUNTED = (
    "bytes_out", "bytes_in", "stalls", "stall_us", "misses", "off_plan", "kept", "steps_planned", "steps_off", "adjusted", "late_out",
    "parameters_out", "gradients_out", "checked", "reliefs", "relieved_bytes", "steps_streamed",
)  # fmt: skip


class Copy(NamedTuple):
    event: object  # recorded after the copy
    way: str
    number: int  # counts the copies in this direction, which run one after the other
    fence: int = 0  # of a copy out: what other streams have read of its source is over behind this fence


class Copies:
    def __init__(self, options, say, lock):
        self.options = options
        self.say = say
        self.lock = lock
        self.backend = None  # set at the first large tensor on a GPU
        self.slab = None
        self.sides = SideStreams()
        self.checks = Checks(options.debug)
        self.observer = None  # the steps, which may measure how long a wait took
        self.relief = None  # frees memory for a swap-in that is needed
        self.counts = dict.fromkeys(COUNTED, 0)
        self.swapped_out = 0  # bytes that are on the host only
        # For each direction: the number of copies begun, and the last one that the compute stream waits for.
        self.begun = {"out": 0, "in": 0}
        self.waited = {"out": 0, "in": 0}
        # In a batch, for each direction: the value of `taken` when it last waited for the compute stream.
        self.following = None
        self.batch_turn = 0  # the lock's turn in which it began
        self.taken = 0
        # (an owner of memory, a copy of it), left by destructors: the compute stream must wait for the copy before the memory is freed.
        self.pending_frees = deque()

    def open(self, backend):
        self.backend = backend
        self.sides.open(backend)
        self.slab = self._new_slab(0)

    def _new_slab(self, peak):
        # Under a limit, what cannot leave may leave no room for the program. Otherwise training does not wait for pinned memory.
        return HostSlab(self.backend, self.options.host_budget, self.say, peak, waits=self.options.limit is not None)

    def stop_pinning(self):
        """Afterwards nothing is pinned in the background."""
        if self.slab is not None:
            self.slab.pinning.halt()

    def give_host_memory_back(self):
        """Unpins host memory. Memory of slots in use is unpinned with the last of them."""
        self.backend.synchronize()
        self.slab = self._new_slab(self.slab.peak)

    def give_unused_host_memory_back(self):
        """Unpins host memory if no slot is used and no copy is under way. It does not wait for one."""
        if not self.slab.used and self.backend.has_no_copies():
            self.slab = self._new_slab(self.slab.peak)

    def begin_out(self, storage, slot, after_sides=False):
        """Returns the copy and the checksum of the copied bytes. The caller has found that we are the only owners of the storage.

        `after_sides`: other streams may have written to it, and the compute stream need not have waited for them."""
        backend = self.backend
        fence = self.sides.need_fence()
        if after_sides:
            self.sides.record()
            for event in self.sides.events_of(fence):
                backend.wait(backend.out_stream, event)
                if self.checks.wanted:
                    backend.wait(backend.compute, event)
        checksum = self.checks.sum_up(storage, backend)
        self._after_compute("out", backend.out_stream)
        if slot.busy is not None:
            backend.wait(backend.out_stream, slot.busy.event)
        with self._waiting_if_interrupted(backend.out_stream):
            backend.copy_out(slot.bytes, storage)
            copy = self._begun("out", backend.out_stream)._replace(fence=fence)
        self.counts["bytes_out"] += slot.size
        if self.following is None:
            self.sides.record()
        return copy, checksum

    @contextlib.contextmanager
    def batch(self):
        """Copies begun in here wait once for the compute stream, which gets no work from the program meanwhile.

        Allocating may give it work, though: waits for streams that used the memory before. Other threads may give work to other
        streams until a tensor is found to be ours. So one fence for all is recorded last."""
        self.following, self.batch_turn = {}, self.lock.turn
        try:
            yield
        finally:
            self.following = None
            self.sides.record()

    def refill(self, storage, size):
        self.taken += 1
        self.backend.refill(storage, size)

    def new_storage(self, size):
        self.taken += 1
        return self.backend.new_storage(size)

    @contextlib.contextmanager
    def _waiting_if_interrupted(self, stream):
        """Nobody would know of the copy, or of its first pieces. The memory may be freed next, on the compute stream."""
        try:
            yield
        except BaseException:
            self.backend.wait(self.backend.compute, self.backend.event(stream))
            raise

    def _after_compute(self, way, stream):
        # An interrupt may have left a batch open. No batch outlives its turn at the lock.
        if self.following is not None and self.batch_turn != self.lock.turn:
            self.following = None
        if self.following is None or self.following.get(way) != self.taken:
            self.backend.wait(stream, self.backend.event(self.backend.compute))
        if self.following is not None:
            self.following[way] = self.taken

    def _begun(self, way, stream):
        self.begun[way] += 1
        return Copy(self.backend.event(stream), way, self.begun[way])

    def begin_in(self, storage, slot):
        """Returns the copy. Whoever writes to the slot next waits for it, too."""
        # The memory may have been used on the compute stream until now.
        self._after_compute("in", self.backend.in_stream)
        with self._waiting_if_interrupted(self.backend.in_stream):
            self.backend.copy_in(storage, slot.bytes)
            slot.busy = self._begun("in", self.backend.in_stream)
        self.counts["bytes_in"] += slot.size
        return slot.busy

    def wait(self, copy, what):
        """The compute stream waits, the host does not. The duration is read some steps later.

        To wait for several copies in one direction, wait for the last one first: then the others are over."""
        backend = self.backend
        events = self.sides.take(copy.fence) if copy.fence else ()
        event = self._unwaited(copy)
        if event is not None:
            events = (*events, event)
        if not events:
            return
        before = backend.event(backend.compute, timing=True) if self.observer.times_waits() else None
        for event in events:
            backend.wait(backend.compute, event)
        self._was_waited_for(copy)
        if before is not None:
            self.observer.waited(what, before, backend.event(backend.compute, timing=True))

    def may_give_up(self):
        """Whether memory may be given up: all streams that read it can be waited for."""
        self.sides.record()
        return self.sides.why_not() is None

    def wait_for_readers(self):
        """The compute stream waits for all reads that other streams have been given until now."""
        fence = self.sides.need_fence()
        self.sides.record()
        for event in self.sides.take(fence):
            self.backend.wait(self.backend.compute, event)

    def _unwaited(self, copy):
        return copy.event if copy.number > self.waited[copy.way] else None

    def _was_waited_for(self, copy):
        """Noted after the wait: an interrupt in between leads to a second wait, not to none."""
        self.waited[copy.way] = max(self.waited[copy.way], copy.number)

    def before_free(self, storage, of_compute_stream=False):
        """Afterwards the memory may be reused on the compute stream. `of_compute_stream`: it was allocated on that stream."""
        self.backend.before_free(storage, of_compute_stream)
        if self.checks.wanted:
            self.checks.poison(storage, self.backend)

    def after_free(self):
        """Debugging: unmaps the memory at once, so that the GPU stops whoever still uses its address."""
        if self.checks.wanted:
            self.backend.release_cached()

    def verify(self, checksum, storage):
        if checksum is not None:
            self.checks.verify(checksum, storage, self.backend)

    def make_current_wait(self):
        """Makes the current stream, if it is another one, wait for the compute stream."""
        backend = self.backend
        if not backend.on_compute():
            backend.wait_current(backend.event(backend.compute))

    def clear_pending_frees(self):
        while self.pending_frees:
            thing, copy = self.pending_frees.popleft()
            event = self._unwaited(copy)
            if event is not None:
                self.backend.wait(self.backend.compute, event)
                self._was_waited_for(copy)
            # Another stream may have allocated it, and that stream does not wait for the copy.
            self.backend.mark_used(thing)
            del thing


class Corrupted(RuntimeError):
    """Debugging found changed content. This ends the program."""


class Checks:
    """Debugging: overwrites freed memory and compares checksums before and after a swap.

    All of it runs on the compute stream, because that is the stream that waits for copies."""

    def __init__(self, wanted):
        self.wanted = wanted
        self.pairs = []  # (sum before, sum after), on the GPU until the step ends

    def sum_up(self, storage, backend):
        if not self.wanted:
            return None
        with backend.computing():
            content = backend.bytes_of(storage)
            whole = content[: content.numel() // 8 * 8].view(torch.int64)
            # A single sum would not change if two words changed places.
            half = whole.numel() // 2
            return torch.stack((whole.sum(), whole[:half].sum()))

    def verify(self, expected, storage, backend):
        self.pairs.append((expected, self.sum_up(storage, backend)))

    def poison(self, storage, backend):
        with backend.computing():
            backend.bytes_of(storage).fill_(0xFF)

    def compare(self):
        """Returns the number of copies compared."""
        pairs, self.pairs = self.pairs, []
        for expected, found in pairs:
            if not torch.equal(expected, found):
                raise Corrupted("weir: the content of a tensor has changed between swap-out and swap-in")
        return len(pairs)
