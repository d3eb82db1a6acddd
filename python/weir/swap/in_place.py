"""Storages that stay under their tensors while their memory comes and goes: optimizer state, parameters."""

from .records import GONE, LEAVING, RESIDENT, RETURNING


class Movable:
    """`storage` is set from the copy out to the end of the return, at least."""

    __slots__ = ("storage", "size", "state", "slot", "event", "check")

    def __init__(self, size, storage=None):
        self.size = size
        self.storage = storage
        self.state = RESIDENT
        self.slot = None
        self.event = None
        self.check = None


class InPlace:
    """The movements, on the compute stream; whose memory may go is for the classes below this to say."""

    def __init__(self, copies):
        self.copies = copies
        self.away = 0  # not resident: what is leaving is still there and does not count

    def is_ours(self, item):
        """Nobody else can read or write the storage."""
        raise NotImplementedError

    def move_of(self, item):
        """Its name in plans: class and index."""
        raise NotImplementedError

    def goes(self, item):
        """From here on nobody may read or write it who has not asked."""

    def is_back(self, item):
        """Its content is there for whatever comes next on the compute stream."""

    def leave(self, item):
        if item.state != RESIDENT or not self.is_ours(item):
            return False
        if item.slot is None:
            item.slot = self.copies.slab.take(item.size)
            if item.slot is None:
                return False
        item.event, item.check = self.copies.begin_out(item.storage, item.slot)
        item.state = LEAVING
        self.goes(item)
        return True

    def drop(self, item):
        if item.state != LEAVING:
            return False
        if not self.is_ours(item):
            self.stay(item)
            self.copies.counts["kept"] += 1
            return False
        self.copies.wait(item.event, (self.move_of(item), "out"))
        self.copies.before_giving_up(item.storage)
        item.storage.resize_(0)
        item.state = GONE
        item.event = None
        self.away += 1
        self.copies.away += item.size
        return True

    def begin_return(self, item):
        self.copies.backend.refill(item.storage, item.size)
        item.event = self.copies.begin_back(item.storage, item.slot)
        item.state = RETURNING
        self.copies.away -= item.size

    def end_return(self, item):
        self.copies.wait(item.event, (self.move_of(item), "in"))
        item.event = None
        item.state = RESIDENT
        self.away -= 1
        self.copies.verify(item.check, item.storage)
        item.check = None
        self.is_back(item)

    def stay(self, item):
        """Its memory was never given up. The copy only read it, and what it holds is not used again."""
        item.state = RESIDENT
        self.is_back(item)

    def bring_back(self, item, planned=False):
        if item.state == LEAVING:
            self.stay(item)
            return
        if item.state == GONE:
            if not planned:
                self.copies.counts["misses"] += 1
            self.begin_return(item)
        if item.state == RETURNING:
            self.end_return(item)

    def let_go(self, item):
        """Not to be touched any more: whoever still has it gets it back."""
        if item.state in (GONE, RETURNING):
            self.bring_back(item)
        if item.event is not None:
            self.copies.graveyard.append((item.storage, item.event))
        if item.state == LEAVING:
            self.stay(item)
        if item.slot is not None:
            item.slot.release()
            item.slot = None
