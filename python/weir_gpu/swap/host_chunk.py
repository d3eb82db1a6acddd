"""A chunk of host memory that is pinned piece by piece (pinning.py), and the parts in which it may be copied."""

import ctypes
import mmap
import os
import weakref

import torch

from .pinning import PIECE


class HostChunk:
    """Host memory that is pinned piece by piece."""

    def __init__(self, size, device, registration):
        self.device, self.registration = device, registration
        # Shared, so that a fork does not get copies of pinned pages.
        memory = mmap.mmap(-1, size)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            try:
                memory.madvise(mmap.MADV_HUGEPAGE)
            except OSError:
                pass
        # A finalizer of `pages` runs before the mapping is closed; one of the mapping itself would run too late.
        pages = (ctypes.c_char * size).from_buffer(memory)
        self.bytes = torch.frombuffer(pages, dtype=torch.uint8)
        self.pieces = []  # addresses that are pinned
        # Unregister before the pages are unmapped: otherwise memory mapped there later could not be registered.
        # At the end of the process the order does not matter.
        weakref.finalize(pages, _unpin, os.getpid(), device, registration, self.pieces).atexit = False

    def pin(self, at, length):
        address = self.bytes.data_ptr() + at
        # The driver's call is shorter if the pages are there.
        ctypes.memset(address, 0, length)
        with torch.cuda.device(self.device):
            code = self.registration.register(address, length)
            if code != 0:
                self.registration.forget_error(self.device)
                raise MemoryError(f"cudaHostRegister answered {code}")
        self.pieces.append(address)


def _unpin(pid, device, registration, pieces):
    # A fork cannot use CUDA.
    if pid != os.getpid() or not pieces:
        return
    # The last owner may go in any thread, also in one that has another device.
    with torch.cuda.device(device):
        for address in pieces:
            if registration.unregister(address) != 0:
                registration.forget_error(device)


def pieces_of(host):
    """The parts of a slot's bytes that one copy may contain, as (offset in the slot, size)."""
    start, size = host.storage_offset(), host.numel()
    at = 0
    while at < size:
        length = min(size - at, PIECE - (start + at) % PIECE)
        yield at, length
        at += length
