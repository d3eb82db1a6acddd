"""Pinned host memory: a few large chunks, pinned once, divided into slots by best fit."""

import contextlib
import weakref

from .budget import FixedBudget
from .pinning import ALIGNMENT, Pinning

# Least bytes to pin when a slot is missing. If training has to wait for it, the pause is about 25 ms.
CHUNK = 64 << 20


class Slot:
    __slots__ = ("slab", "chunk", "at", "size", "room", "busy", "bytes")

    def __init__(self, slab, chunk, at, size, room, busy, content):
        self.slab, self.chunk, self.at, self.size, self.room, self.busy, self.bytes = slab, chunk, at, size, room, busy, content

    def release(self):
        if self.slab is not None:
            slab, self.slab = self.slab, None
            slab.give_back(self)


class HostSlab:
    """`busy` of a free range or a slot is the last copy that reads it. Whoever writes there next waits for that copy.

    `waits`: whether a missing slot is pinned at once. Otherwise it is ordered, and whoever needs it goes without."""

    def __init__(self, memory, budget, say, peak=0, waits=True):
        # A number stands for a budget that nobody else uses.
        budget = FixedBudget(budget) if isinstance(budget, int) else budget
        budget.join()
        self.pinning = Pinning(memory, budget, say)
        self.say = say
        self.waits = waits
        self.chunks = []
        self.numbers = {}  # id of a chunk -> its place in the list
        self.free = []  # [chunk, offset, size, busy], sorted by chunk and offset
        self.capacity = 0
        self.ordered = 0  # bytes that are still to come from the background
        self.used = 0
        self.peak = peak
        self.refused = False
        # Slots keep their slab alive, so its chunks are unpinned with it.
        weakref.finalize(self, self.pinning.close).atexit = False

    def reserve(self, total):
        """Has `total` bytes pinned in the background."""
        self.collect()
        missing = total - self.capacity - self.ordered
        if missing > 0:
            self.refused = False
            self._order(missing)

    def is_ready(self):
        """Whether everything that was ordered has come, or cannot be had."""
        self.collect()
        return self.ordered == 0

    @contextlib.contextmanager
    def waiting(self):
        """In here, missing slots are pinned at once."""
        before, self.waits = self.waits, True
        try:
            yield
        finally:
            self.waits = before

    def take(self, size):
        room = -(-size // ALIGNMENT) * ALIGNMENT
        self.collect()
        best = self._best(room)
        if best is None:
            self._grow(room)
            best = self._best(room)
            if best is None:
                return None
        chunk, at, length, busy = best
        if length == room:
            self.free.remove(best)
        else:
            best[1] += room
            best[2] -= room
        self.used += room
        self.peak = max(self.peak, self.used)
        return Slot(self, chunk, at, size, room, busy, self.chunks[chunk].bytes[at : at + size])

    def give_back(self, slot):
        self.used -= slot.room
        self._add(slot.chunk, slot.at, slot.room, slot.busy)

    def collect(self):
        """Takes over what was pinned in the background."""
        arrived = self.pinning.arrived
        while arrived:
            chunk, at, length = arrived.popleft()
            self.ordered -= length
            if chunk is not None:
                self._pinned(chunk, at, length)
            elif length > 0 and not self.pinning.is_halted:
                self._refuse()

    def _best(self, room):
        best = None
        for place in self.free:
            if place[2] >= room and (best is None or place[2] < best[2]):
                best = place
        return best

    def _add(self, chunk, at, size, busy):
        place = [chunk, at, size, busy]
        free = self.free
        index = 0
        while index < len(free) and (free[index][0], free[index][1]) < (place[0], place[1]):
            index += 1
        free.insert(index, place)
        for left in (index, index - 1):
            if 0 <= left < len(free) - 1:
                first, second = free[left], free[left + 1]
                if first[0] == second[0] and first[1] + first[2] == second[1]:
                    first[2] += second[2]
                    first[3] = later(first[3], second[3])
                    del free[left + 1]

    def _pinned(self, chunk, at, length):
        number = self.numbers.setdefault(id(chunk), len(self.chunks))
        if number == len(self.chunks):
            self.chunks.append(chunk)
        self.capacity += length
        self._add(number, at, length, None)

    def _order(self, size):
        self.ordered += size
        self.pinning.order(size)
        self.collect()

    def _grow(self, room):
        if self.refused:
            return
        if not self.waits:
            # What is under way may be enough.
            if self.ordered == 0:
                self._order(max(room, CHUNK))
            return
        pieces = self.pinning.pin(max(room, CHUNK), room)
        for piece in pieces:
            self._pinned(*piece)
        if sum(length for _, _, length in pieces) < room:
            self._refuse()

    def _refuse(self):
        self.refused = True
        self.say("host", f"all {self.capacity} bytes of host memory for swapping are used; less is swapped")


def later(first, second):
    if first is None or second is None:
        return first or second
    return first if first.number >= second.number else second
