"""Pinned host memory: a few large chunks, pinned once, divided into slots by best fit."""

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

    def __init__(self, allocate, limit, say, peak=0):
        self.allocate = allocate
        self.limit = limit
        self.say = say
        self.chunks = []
        self.free = []  # [chunk, offset, size, busy], sorted by chunk and offset
        self.capacity = 0
        self.used = 0
        self.peak = peak
        self.refused = False

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
        size = min(-(-wanted // ALIGNMENT) * ALIGNMENT, (self.limit - self.capacity) // ALIGNMENT * ALIGNMENT)
        while size >= min(LEAST_CHUNK, wanted) and size >= least and size > 0:
            try:
                content = self.allocate(size)
            except (MemoryError, RuntimeError, OSError) as error:
                self.say("host", f"{size} bytes of host memory cannot be pinned ({error}); swapping with less")
                size = size // 2 // ALIGNMENT * ALIGNMENT
                continue
            self.free.append([len(self.chunks), 0, size, None])
            self.chunks.append(content)
            self.capacity += size
            return size
        self.refused = True
        self.say("host", f"all {self.capacity} bytes of host memory for swapping are used (limit {self.limit}); less is swapped")
        return 0


def later(first, second):
    if first is None or second is None:
        return first or second
    return first if first.number >= second.number else second


def default_limit():
    """Half of the memory that the machine, or the container, has available."""
    available = 1 << 62
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    available = int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as most, open("/sys/fs/cgroup/memory.current", encoding="ascii") as now:
            most = most.read().strip()
            if most != "max":
                available = min(available, max(0, int(most) - int(now.read())))
    except (OSError, ValueError):
        pass
    return available // 2 if available < 1 << 62 else 8 << 30
