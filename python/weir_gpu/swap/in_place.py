"""Swapping in place, for optimizer state, parameters and gradients: the storage stays, and only its memory is freed and allocated."""

from .records import RESIDENT, SWAPPED_OUT, SWAPPING_IN, SWAPPING_OUT


class Swappable:
    """A storage that can be swapped. `storage` is set at least from the start of the swap-out to the end of the swap-in."""

    __slots__ = ("storage", "size", "state", "slot", "copy", "check", "of_compute_stream")

    def __init__(self, size, storage=None):
        self.size = size
        self.storage = storage
        self.state = RESIDENT
        self.slot = None
        self.copy = None
        self.check = None
        self.of_compute_stream = False  # we allocated its memory, on the compute stream

    def who(self):
        """Class and index, as plans name it."""
        raise NotImplementedError

    def begin(self):
        """Prepares the question whether it may be swapped out; False if it cannot be asked."""
        return True

    def is_exclusive(self):
        """Whether nobody else can read or write the storage."""
        raise NotImplementedError

    def on_swap_out(self):
        """Called when the swap-out begins: from now on, users must ask before they read or write."""

    def on_give_up(self):
        """Called right before its memory is given up."""

    def on_resident(self):
        """Called when it is resident again, or stays so: its content is there for later work on the compute stream."""

    def release_slot(self):
        if self.slot is not None:
            self.slot.release()
            self.slot = None


class InPlaceSwapper:
    """Swaps storages out and in, in the order of the compute stream."""

    def __init__(self, copies):
        self.copies = copies
        self.moving = 0  # number of storages that are not resident; users of these must ask first

    def are_needed_together(self, item, other):
        """Whether `other` must be resident when `item` is."""
        return False

    def begin_swap_out(self, item):
        if item.state != RESIDENT or self.copies.sides.why_not() or not item.begin():
            return False
        # Memory that another library made cannot be given up.
        if item.is_exclusive() and item.storage.nbytes() == item.size and item.storage.resizable():
            if item.slot is not None and item.slot.size != item.size:
                item.release_slot()
            if item.slot is None:
                item.slot = self.copies.slab.take(item.size)
            if item.slot is not None:
                # First, because other threads may use it until then.
                item.on_swap_out()
                try:
                    item.copy, item.check = self.copies.begin_out(item.storage, item.slot, after_sides=True)
                except BaseException:
                    item.on_resident()
                    raise
                item.state = SWAPPING_OUT
                self.moving += 1
                return True
        item.on_resident()
        return False

    def end_swap_out(self, item):
        if item.state != SWAPPING_OUT:
            return False
        if not self.copies.may_give_up() or not item.is_exclusive():
            self.cancel_swap_out(item)
            self.copies.counts["kept"] += 1
            return False
        self.copies.wait(item.copy, ([item.who()], "out"))
        # Set first: if we are interrupted here, the content is taken from the host.
        item.state = SWAPPED_OUT
        item.copy = None
        self.copies.swapped_out += item.size
        self.copies.before_free(item.storage, item.of_compute_stream)
        item.on_give_up()
        item.storage.resize_(0)
        self.copies.after_free()
        return True

    def begin_swap_in(self, item):
        self.take_memory(item)
        self.begin_copy_in(item)

    def take_memory(self, item):
        # It has some after an interrupt, or if there was none for the next item. Other memory would leave a copy without a target.
        if item.storage.nbytes() != item.size:
            self.copies.refill(item.storage, item.size)
            item.of_compute_stream = True

    def begin_copy_in(self, item):
        item.copy = self.copies.begin_in(item.storage, item.slot)
        item.state = SWAPPING_IN
        self.copies.swapped_out -= item.size

    def wait_for_swap_ins(self, items):
        """Waits once for all of these that are being swapped in."""
        swapping_in = [item for item in items if item.state == SWAPPING_IN]
        if swapping_in:
            last = max(swapping_in, key=lambda item: item.copy.number)
            self.copies.wait(last.copy, ([item.who() for item in swapping_in], "in"))

    def end_swap_in(self, item):
        self.copies.wait(item.copy, ([item.who()], "in"))
        item.copy = None
        item.state = RESIDENT
        self.moving -= 1
        self.copies.verify(item.check, item.storage)
        item.check = None
        item.on_resident()

    def cancel_swap_out(self, item):
        """Its memory was never freed. The copy out is not used, but it must end before the owner frees the memory."""
        if item.copy is not None:
            self.copies.pending_frees.append((item.storage, item.copy))
            item.copy = None
        item.state = RESIDENT
        self.moving -= 1
        item.on_resident()

    def swap_in(self, item, planned=False):
        if item.state == SWAPPING_OUT:
            self.cancel_swap_out(item)
            return
        if item.state == SWAPPED_OUT:
            if not planned:
                self.copies.counts["misses"] += 1
            self.copies.relief.begin_needed(
                lambda: self.begin_swap_in(item), item.size, lambda other: self.are_needed_together(item, other)
            )
        if item.state == SWAPPING_IN:
            self.end_swap_in(item)

    def release(self, item):
        """Makes it resident for whoever still uses it, and gives its slot back."""
        self.swap_in(item)
        item.release_slot()
