"""Saved tensors between forward and backward. Their storages leave and come back as new ones, on which the handles make new tensors.

A storage may be away only while nobody but our handles holds it, which is asked before its copy and again before it is given up.
"""

import weakref
from collections import deque

from .records import GONE, LEAVING, RESIDENT, RETURNING, Record


class SavedTensors:
    def __init__(self, copies):
        self.copies = copies
        self.records = []  # of this step, weak, by index
        self.by_cdata = {}  # those of older steps, too
        self.dead = deque()

    # ---- which there are

    def on_storage(self, cdata):
        reference = self.by_cdata.get(cdata)
        return reference() if reference is not None else None

    def aliases_on(self, cdata):
        """Our own tensors on a storage."""
        record = self.on_storage(cdata)
        return sum(handle.alias is not None for handle in record.live_handles()) if record is not None else 0

    def of_index(self, index):
        return self.records[index]() if 0 <= index < len(self.records) else None

    def add(self, size, cdata):
        record = Record(self.copies.graveyard, self.dead, size, cdata, len(self.records))
        reference = weakref.ref(record)
        self.by_cdata[cdata] = reference
        self.records.append(reference)
        return record

    def begin_step(self):
        """What is left of the step before is no part of this one."""
        for reference in self.records:
            record = reference()
            if record is not None:
                record.index = -1
        self.records = []

    def clear_dead(self):
        while self.dead:
            slot, bytes_away, cdata = self.dead.popleft()
            self.copies.away -= bytes_away
            if slot is not None:
                slot.release()
            reference = self.by_cdata.get(cdata)
            if reference is not None and reference() is None:
                del self.by_cdata[cdata]

    # ---- movements

    def leave(self, record, tick):
        """Copies out, but only what nobody else can reach: from here to the end of the gap the bytes cannot change."""
        if record.frozen or not record.is_ours() or not record.unchanged():
            return False
        if record.slot is None:
            record.slot = self.copies.slab.take(record.size)
            if record.slot is None:
                record.frozen = True
                return False
        storage = record.live_handles()[0].alias.untyped_storage()
        record.unwaited, record.check = self.copies.begin_out(storage, record.slot)
        record.state = LEAVING
        record.copied = True
        if record.sole_at < 0:
            record.sole_at = tick
        return True

    def drop(self, record):
        """Gives the memory up, in the order of the compute stream: whoever gets it next comes after the copy."""
        copies = self.copies
        if record.frozen or not record.is_ours() or not record.unchanged():
            copies.counts["kept"] += 1
            record.state = RESIDENT
            return False
        if record.unwaited is not None:
            copies.wait(record.unwaited, ([("record", record.index)], "out"))
            record.unwaited = None
        handles = record.live_handles()
        storage = next(handle.alias for handle in handles if handle.alias is not None).untyped_storage()
        copies.before_giving_up(storage)
        # First: whatever interrupts us here, it is looked for on the host.
        record.state = GONE
        copies.away += record.size
        for handle in handles:
            handle.let_go()
        if self.on_storage(record.cdata) is record:
            del self.by_cdata[record.cdata]
        record.storage = None
        record.cdata = 0
        del storage
        copies.after_giving_up()
        return True

    def begin_return(self, record):
        copies = self.copies
        storage = copies.new_storage(record.size)
        record.unwaited = copies.begin_back(storage, record.slot)
        record.storage = storage
        record.cdata = storage._cdata
        self.by_cdata[record.cdata] = weakref.ref(record)
        record.state = RETURNING
        copies.away -= record.size

    def end_return(self, record):
        self.copies.wait(record.unwaited, ([("record", record.index)], "in"))
        record.unwaited = None
        record.state = RESIDENT
        self.copies.verify(record.check, record.storage)

    def cancel(self, record):
        """The copy is not to be used; the slot is given back in the order of the copies out, which never overtake each other."""
        record.state = RESIDENT
        record.copied = False
        if record.slot is not None:
            record.slot.release()
            record.slot = None
