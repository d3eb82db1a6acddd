"""Saved tensors between forward and backward pass. A swap-in makes a new storage, on which the handles make new tensors.

A storage may be swapped out only while our handles are its only owners. That is checked before the copy and before the memory is freed.
"""

import weakref
from collections import deque

from .records import GONE, RESIDENT, SWAPPED_OUT, SWAPPING_IN, SWAPPING_OUT, Record


class SavedTensors:
    def __init__(self, copies):
        self.copies = copies
        self.by_index = {}  # weak references, of this step, in order; dead ones are removed
        self.count = 0  # indices given in this step
        self.by_cdata = {}  # weak references, of older steps as well
        self.dead = deque()

    # ---- the records

    def on_storage(self, cdata):
        reference = self.by_cdata.get(cdata)
        return reference() if reference is not None else None

    def aliases_on(self, cdata):
        """The number of our own tensors on a storage."""
        record = self.on_storage(cdata)
        return sum(handle.alias is not None for handle in record.live_handles()) if record is not None else 0

    @property
    def records(self):
        """Weak references to the records of this step, in order."""
        return list(self.by_index.values())

    def of_index(self, index):
        reference = self.by_index.get(index)
        return reference() if reference is not None else None

    def add(self, size, cdata):
        record = Record(self.copies.pending_frees, self.dead, size, cdata, self.count)
        self.by_cdata[cdata] = self.by_index[self.count] = weakref.ref(record)
        self.count += 1
        return record

    def begin_step(self):
        """Records that are left from the previous step are not part of this one."""
        for reference in self.records:
            record = reference()
            if record is not None:
                record.index = -1
        self.by_index = {}
        self.count = 0

    def clear_dead(self):
        while self.dead:
            slot, bytes_away, cdata, index = self.dead.popleft()
            self.copies.swapped_out -= bytes_away
            if slot is not None:
                slot.release()
            for known, key in ((self.by_cdata, cdata), (self.by_index, index)):
                # Another record may have its place by now.
                if key in known and ((record := known[key]()) is None or record.state == GONE):
                    del known[key]

    # ---- swapping

    def begin_swap_out(self, record, tick):
        """Begins the copy out, if we are the only owner: then the bytes cannot change until the swap-in."""
        if record.frozen or self.copies.sides.why_not() or not record.is_exclusive() or not record.unchanged():
            return False
        if record.slot is None:
            record.slot = self.copies.slab.take(record.size)
            if record.slot is None:
                record.frozen = True
                return False
        storage = record.live_handles()[0].alias.untyped_storage()
        record.unwaited, record.check = self.copies.begin_out(storage, record.slot, after_sides=record.unread)
        record.state = SWAPPING_OUT
        record.copied = True
        if record.sole_at < 0:
            record.sole_at = tick
        return True

    def end_swap_out(self, record):
        """Frees the memory, in the order of the compute stream: whoever gets it next runs after the copy, and after other readers."""
        copies = self.copies
        if record.frozen or not copies.may_give_up() or not record.is_exclusive() or not record.unchanged():
            copies.counts["kept"] += 1
            record.state = RESIDENT
            return False
        if record.unwaited is not None:
            copies.wait(record.unwaited, ([("record", record.index)], "out"))
            record.unwaited = None
        if record.state != SWAPPING_OUT:
            # It was used since its copy, maybe on another stream.
            copies.wait_for_readers()
        handles = record.live_handles()
        storage = next(handle.alias for handle in handles if handle.alias is not None).untyped_storage()
        copies.before_free(storage)
        # Set first: if we are interrupted here, the content is taken from the host.
        record.state = SWAPPED_OUT
        copies.swapped_out += record.size
        for handle in handles:
            handle.drop_alias()
        if self.on_storage(record.cdata) is record:
            del self.by_cdata[record.cdata]
        record.storage = None
        record.cdata = 0
        del storage
        copies.after_free()
        return True

    def begin_swap_in(self, record):
        copies = self.copies
        storage = copies.new_storage(record.size)
        record.unwaited = copies.begin_in(storage, record.slot)
        record.storage = storage
        record.cdata = storage._cdata
        self.by_cdata[record.cdata] = weakref.ref(record)
        record.state = SWAPPING_IN
        copies.swapped_out -= record.size

    def end_swap_in(self, record):
        self.copies.wait(record.unwaited, ([("record", record.index)], "in"))
        record.unwaited = None
        record.state = RESIDENT
        self.copies.verify(record.check, record.storage)

    def cancel_swap_out(self, record):
        """The copy is not used. The slot can be reused at once: copies out run in order."""
        record.state = RESIDENT
        record.copied = False
        if record.slot is not None:
            record.slot.release()
            record.slot = None
