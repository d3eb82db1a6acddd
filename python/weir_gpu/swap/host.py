"""Pinned host memory: a few large chunks, pinned once, divided into slots by best fit."""

import weakref

from .budget import FixedBudget

ALIGNMENT = 4096
CHUNK = 256 << 20
LEAST_CHUNK = 64 << 20


class Slot:
    __slots__ = ("slab", "chunk", "at", "size", "room", "busy", "bytes")

    def __init__(self, slab, chunk, at, size, room, busy, content):
        self.slab, self.chunk, self.at, self.size, self.room, self.busy, self.bytes = slab, chunk, at, size, room, busy, content

    def release(self):
        if self.slab is not None:
            slab, self.slab = self.slab, None
            slab.give_back(self)


class HostSlab:
    """`busy` of a free range or a slot is the last copy that reads it. Whoever writes there next waits for that copy."""

    def __init__(self, allocate, budget, say, peak=0):
        self.allocate = allocate
        # A number stands for a budget that nobody else uses.
        self.budget = FixedBudget(budget) if isinstance(budget, int) else budget
        self.budget.join()
        self.say = say
        self.chunks = []
        self.free = []  # [chunk, offset, size, busy], sorted by chunk and offset
        self.capacity = 0
        self.used = 0
        self.peak = peak
        self.refused = False
        self.pinned = []  # sizes of the chunks
        # Slots keep their slab alive, so its chunks are unpinned with it.
        weakref.finalize(self, _release, self.budget, self.pinned).atexit = False

    def reserve(self, total):
        """Pins `total` bytes now, so that no step has to."""
        missing = total - self.capacity
        self.refused = False
        while missing > 0 and not self.refused:
            got = self._grow(missing)
            missing -= got

    def take(self, size):
        room = -(-size // ALIGNMENT) * ALIGNMENT
        best = None
        for place in self.free:
            if place[2] >= room and (best is None or place[2] < best[2]):
                best = place
        if best is None:
            if self._grow(max(room, CHUNK), room) < room:
                return None
            best = self.free[-1]
        chunk, at, length, busy = best
        if length == room:
            self.free.remove(best)
        else:
            best[1] += room
            best[2] -= room
        self.used += room
        self.peak = max(self.peak, self.used)
        return Slot(self, chunk, at, size, room, busy, self.chunks[chunk][at : at + size])

    def give_back(self, slot):
        self.used -= slot.room
        place = [slot.chunk, slot.at, slot.room, slot.busy]
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

    def _grow(self, wanted, least=1):
        if self.refused:
            return 0
        size = -(-wanted // ALIGNMENT) * ALIGNMENT
        smallest = max(min(LEAST_CHUNK, wanted), least)
        while size >= smallest:
            granted = self.budget.claim(size)
            size = granted // ALIGNMENT * ALIGNMENT
            if granted > size:
                self.budget.release(granted - size)
            if size < smallest:
                self.budget.release(size)
                break
            try:
                content = self.allocate(size)
            except (MemoryError, RuntimeError, OSError) as error:
                self.budget.release(size)
                self.say("host", f"{size} bytes of host memory cannot be pinned ({error}); swapping with less")
                size = size // 2 // ALIGNMENT * ALIGNMENT
                continue
            self.free.append([len(self.chunks), 0, size, None])
            self.chunks.append(content)
            self.pinned.append(size)
            self.capacity += size
            return size
        self.refused = True
        self.say("host", f"all {self.capacity} bytes of host memory for swapping are used; less is swapped")
        return 0


def _release(budget, sizes):
    budget.release(sum(sizes))


def later(first, second):
    if first is None or second is None:
        return first or second
    return first if first.number >= second.number else second
