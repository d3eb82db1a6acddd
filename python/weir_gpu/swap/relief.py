"""Emergency swap-outs: before a request fails for lack of memory, whatever can be swapped out is.

It is swapped in when it is needed, or when a plan says so.
"""

import torch

from .records import RESIDENT, SWAPPING_OUT
from .swapped_tensors import unobserved


class Relief:
    def __init__(self, manager):
        self.manager = manager
        self.copies, self.guard, self.saved = manager.copies, manager.guard, manager.saved
        self.counts = manager.copies.counts
        self.needed = None  # during an urgent swap-in: tells which state must not be swapped out for it

    def relieve(self, device, wanted):
        """The allocator calls this if a request finds no memory. Returns whether some was freed; it calls again if that is too little."""
        manager = self.manager
        try:
            if manager.lock._is_owned():
                return self.needed is not None and self._make_room(wanted, of_saved=True)
            if not self._may_be_asked(device) or not manager.lock.acquire(timeout=1):
                return False
        except Exception:
            return False
        try:
            # Inside an operation, PyTorch cannot make tensors that share a version counter, so saved tensors must stay.
            return self._make_room(wanted, of_saved=False)
        except Exception:
            manager.failed("relief")
            return False
        finally:
            manager.lock.release()

    def begin_needed(self, begin, size, besides=lambda item: False):
        """Begins an urgent swap-in, under our lock. State for which `besides` is true must stay."""
        self.needed = besides
        try:
            while True:
                try:
                    begin()
                    return
                except RuntimeError as error:
                    # The allocator has not called `relieve`.
                    if not self.copies.backend.out_of_memory(error) or not self._make_room(size, of_saved=True):
                        raise
        finally:
            self.needed = None

    def _may_be_asked(self, device):
        """Not on other streams: the freed memory belongs to the compute stream."""
        manager, backend = self.manager, self.manager.backend
        if manager.stopped or backend is None or device != backend.index:
            return False
        return backend.on_compute() and not backend.capturing() and torch._C._functorch.peek_interpreter_stack() is None

    def _make_room(self, wanted, of_saved):
        if self.manager.stopped:
            return False
        # A pause is better than an error of the program.
        with unobserved(), self.copies.slab.waiting(), self.copies.batch():
            left = self._swap_out(max(self.manager.least, wanted // 4), of_saved)
        self.counts["reliefs"] += left > 0
        self.counts["relieved_bytes"] += left
        return left > 0

    def _swap_out(self, wanted, of_saved):
        """Swaps out state first, then the saved tensors that are needed last. Returns the number of bytes freed."""
        chosen = []
        begun = 0
        # Code inside step() may hold the old dictionary. Then it holds the entries too, and they are not swapped out.
        self.guard.protect_all()
        try:
            for item in self.guard.items:
                if begun >= wanted:
                    break
                if self.needed is not None and self.needed(item):
                    continue
                if item.state == SWAPPING_OUT or (
                    item.state == RESIDENT and self.guard.is_protected(item) and self.guard.begin_swap_out(item)
                ):
                    chosen.append((self.guard, item))
                    begun += item.size
            for reference in self.saved.records if of_saved else ():
                record = reference()
                if begun >= wanted:
                    break
                # A saved tensor that was swapped in is about to be used, or is kept for another backward pass.
                if record is None or record.storage is not None:
                    continue
                if record.state == SWAPPING_OUT or (
                    record.state == RESIDENT and not record.copied and self.saved.begin_swap_out(record, self.manager.steps.tick_count)
                ):
                    chosen.append((self.saved, record))
                    begun += record.size
        except RuntimeError as error:
            # Debugging computes checksums, and there is no memory for these either.
            if not self.copies.backend.out_of_memory(error):
                raise
        # Starts with the last copy: one wait is enough for all.
        return sum(thing.size for owner, thing in reversed(chosen) if owner.end_swap_out(thing))
