"""Storages that stay under their tensors while their memory comes and goes: optimizer state, parameters."""

from .records import GONE, LEAVING, RESIDENT, RETURNING


class Movable:
    """What may leave says itself when: `storage` is set from the copy out to the end of the return, at least."""

    __slots__ = ("storage", "size", "state", "slot", "copy", "check", "is_computes")

    def __init__(self, size, storage=None):
        self.size = size
        self.storage = storage
        self.state = RESIDENT
        self.slot = None
        self.copy = None
        self.check = None
        self.is_computes = False  # its memory was taken by us, for the compute stream

    def who(self):
        """Its name in plans: class and index."""
        raise NotImplementedError

    def begin(self):
        """Before it is asked whether it may leave; gives whether there is anything to ask."""
        return True

    def is_ours(self):
        """Nobody else can read or write the storage."""
        raise NotImplementedError

    def goes(self):
        """From here on nobody may read or write it who has not asked."""

    def is_back(self):
        """Its content is there for whatever comes next on the compute stream."""

    def release_slot(self):
        if self.slot is not None:
            self.slot.release()
            self.slot = None


class InPlace:
    """The movements, on the compute stream."""

    def __init__(self, copies):
        self.copies = copies
        self.moving = 0  # not resident: whoever wants one of these has to ask

    def are_needed_together(self, item, other):
        """Whether state has to be there when the item is."""
        return False

    def leave(self, item):
        if item.state != RESIDENT or not item.begin():
            return False
        if item.is_ours() and item.storage.nbytes() == item.size:
            if item.slot is not None and item.slot.size != item.size:
                item.release_slot()
            if item.slot is None:
                item.slot = self.copies.slab.take(item.size)
            if item.slot is not None:
                item.copy, item.check = self.copies.begin_out(item.storage, item.slot)
                item.state = LEAVING
                self.moving += 1
                item.goes()
                return True
        item.is_back()
        return False

    def drop(self, item):
        if item.state != LEAVING:
            return False
        if not item.is_ours():
            self.stay(item)
            self.copies.counts["kept"] += 1
            return False
        self.copies.wait(item.copy, ([item.who()], "out"))
        self.copies.before_giving_up(item.storage, item.is_computes)
        # First: whatever interrupts us here, it is looked for on the host.
        item.state = GONE
        item.copy = None
        self.copies.away += item.size
        item.storage.resize_(0)
        self.copies.after_giving_up()
        return True

    def begin_return(self, item):
        self.take_memory(item)
        self.begin_copy_back(item)

    def take_memory(self, item):
        self.copies.refill(item.storage, item.size)
        item.is_computes = True

    def begin_copy_back(self, item):
        item.copy = self.copies.begin_back(item.storage, item.slot)
        item.state = RETURNING
        self.copies.away -= item.size

    def wait_for_returns(self, items):
        """Of all that are on their way at once."""
        returning = [item for item in items if item.state == RETURNING]
        if returning:
            last = max(returning, key=lambda item: item.copy.number)
            self.copies.wait(last.copy, ([item.who() for item in returning], "in"))

    def end_return(self, item):
        self.copies.wait(item.copy, ([item.who()], "in"))
        item.copy = None
        item.state = RESIDENT
        self.moving -= 1
        self.copies.verify(item.check, item.storage)
        item.check = None
        item.is_back()

    def stay(self, item):
        """Its memory was never given up. The copy only reads it, and what it holds is not used again; it has to be over before
        the owner gives the memory up."""
        if item.copy is not None:
            self.copies.graveyard.append((item.storage, item.copy))
            item.copy = None
        item.state = RESIDENT
        self.moving -= 1
        item.is_back()

    def bring_back(self, item, planned=False):
        if item.state == LEAVING:
            self.stay(item)
            return
        if item.state == GONE:
            if not planned:
                self.copies.counts["misses"] += 1
            self.copies.relief.begin_needed(lambda: self.begin_return(item), item.size, lambda other: self.are_needed_together(item, other))
        if item.state == RETURNING:
            self.end_return(item)

    def let_go(self, item):
        """Not to be touched any more: whoever still has it gets it back."""
        self.bring_back(item)
        item.release_slot()
