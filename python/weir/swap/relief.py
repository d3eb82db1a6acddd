"""When there is no memory left: before a request of the program's fails, whatever may leave the GPU does so at once.

What leaves like this is back when it is needed, or when a plan says.
"""

import torch

from .away import undisturbed
from .records import LEAVING, RESIDENT


class Relief:
    def __init__(self, manager):
        self.manager = manager
        self.copies, self.guard, self.saved = manager.copies, manager.guard, manager.saved
        self.counts = manager.copies.counts

    def relieve(self, device, wanted):
        """The allocator has found no memory for so many bytes. Gives whether there is more now; it asks again if that is not enough."""
        manager = self.manager
        try:
            if not self._may_be_asked(device) or not manager.lock.acquire(timeout=1):
                return False
        except Exception:
            return False
        try:
            return self.make_room(wanted)
        except Exception:
            manager.failed("relief")
            return False
        finally:
            manager.lock.release()

    def make_room(self, wanted):
        """The same for requests of our own, under our lock."""
        with undisturbed(), self.copies.together():
            left = self._let_leave(max(self.manager.least, wanted // 4), self.manager.steps.tick_count)
        self.counts["reliefs"] += left > 0
        self.counts["relieved_bytes"] += left
        return left > 0

    def _may_be_asked(self, device):
        """Not when it is us who ask, most of whose requests may fail, and not for other streams: what is given up is the compute stream's."""
        manager, backend = self.manager, self.manager.backend
        if manager.stopped or backend is None or device != backend.index or manager.lock._is_owned():
            return False
        return backend.on_compute() and not backend.capturing() and torch._C._functorch.peek_interpreter_stack() is None

    def _let_leave(self, wanted, tick):
        """State first, then the saved tensors that are needed last; gives how many bytes have left."""
        chosen = []
        begun = 0
        # Whoever has the old dictionary, as code in the midst of step() may, holds its entries too, and they stay.
        self.guard.protect_all()
        for item in self.guard.items:
            if begun >= wanted:
                break
            if item.state == LEAVING or (item.state == RESIDENT and self.guard.is_protected(item) and self.guard.leave(item)):
                chosen.append((self.guard, item))
                begun += item.size
        for reference in self.saved.records:
            record = reference()
            if begun >= wanted:
                break
            # One that came back is about to be used, or is kept for another backward.
            if record is None or record.storage is not None:
                continue
            if record.state == LEAVING or (record.state == RESIDENT and not record.copied and self.saved.leave(record, tick)):
                chosen.append((self.saved, record))
                begun += record.size
        # The last to be copied first: one wait is enough.
        return sum(thing.size for owner, thing in reversed(chosen) if owner.drop(thing))
