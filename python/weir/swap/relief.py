"""When there is no memory left: before a request fails, whatever may leave the GPU does so at once.

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
        self.needed = None  # while a return is begun that somebody waits for: which state must not make room for it

    def relieve(self, device, wanted):
        """The allocator has found no memory for so many bytes. Gives whether there is more now; it asks again if that is not enough."""
        manager = self.manager
        try:
            if manager.lock._is_owned():
                return self.needed is not None and self._make_room(wanted, of_saved=True)
            if not self._may_be_asked(device) or not manager.lock.acquire(timeout=1):
                return False
        except Exception:
            return False
        try:
            # In the midst of an operation PyTorch makes no tensors that share a version: saved ones cannot be put aside.
            return self._make_room(wanted, of_saved=False)
        except Exception:
            manager.failed("relief")
            return False
        finally:
            manager.lock.release()

    def begin_needed(self, begin, size, besides=lambda item: False):
        """Begins a return that somebody waits for, under our lock; state for which `besides` is true is needed as well."""
        self.needed = besides
        try:
            while True:
                try:
                    begin()
                    return
                except RuntimeError as error:
                    # Where the allocator has not asked by itself.
                    if not self.copies.backend.out_of_memory(error) or not self._make_room(size, of_saved=True):
                        raise
        finally:
            self.needed = None

    def _may_be_asked(self, device):
        """Not for other streams: what is given up is the compute stream's."""
        manager, backend = self.manager, self.manager.backend
        if manager.stopped or backend is None or device != backend.index:
            return False
        return backend.on_compute() and not backend.capturing() and torch._C._functorch.peek_interpreter_stack() is None

    def _make_room(self, wanted, of_saved):
        if self.manager.stopped:
            return False
        with undisturbed(), self.copies.together():
            left = self._let_leave(max(self.manager.least, wanted // 4), of_saved)
        self.counts["reliefs"] += left > 0
        self.counts["relieved_bytes"] += left
        return left > 0

    def _let_leave(self, wanted, of_saved):
        """State first, then the saved tensors that are needed last; gives how many bytes have left."""
        chosen = []
        begun = 0
        # Whoever has the old dictionary, as code in the midst of step() may, holds its entries too, and they stay.
        self.guard.protect_all()
        try:
            for item in self.guard.items:
                if begun >= wanted:
                    break
                if self.needed is not None and self.needed(item):
                    continue
                if item.state == LEAVING or (item.state == RESIDENT and self.guard.is_protected(item) and self.guard.leave(item)):
                    chosen.append((self.guard, item))
                    begun += item.size
            for reference in self.saved.records if of_saved else ():
                record = reference()
                if begun >= wanted:
                    break
                # One that came back is about to be used, or is kept for another backward.
                if record is None or record.storage is not None:
                    continue
                if record.state == LEAVING or (
                    record.state == RESIDENT and not record.copied and self.saved.leave(record, self.manager.steps.tick_count)
                ):
                    chosen.append((self.saved, record))
                    begun += record.size
        except RuntimeError as error:
            # Debugging sums up what leaves, for which there is no memory either.
            if not self.copies.backend.out_of_memory(error):
                raise
        # The last to be copied first: one wait is enough.
        return sum(thing.size for owner, thing in reversed(chosen) if owner.drop(thing))
