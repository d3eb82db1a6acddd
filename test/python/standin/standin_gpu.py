"""The stand-in GPU for programs in tests: memory of Weir's engine on the host, taken as PyTorch takes it."""

import ctypes
import sys

from weir_gpu import adapter

MIB = 1 << 20


def start():
    """As torch.cuda._lazy_init: what was queued runs first. Only ours, since there is no CUDA."""
    cuda = sys.modules["torch"].cuda
    if cuda._initialized:
        return
    for call, _ in list(cuda._queued_calls):
        if type(getattr(call, "__self__", None)).__module__.startswith("weir_gpu"):
            call()
    cuda._initialized = True


class Block:
    """A tensor's memory: filled at once, checked when it is freed."""

    def __init__(self, size, byte=0x5A):
        start()
        self.library = adapter.library()
        if self.library is None:
            self.address = 0  # on PyTorch's own allocator
            return
        self.library.standin_allocate.restype = ctypes.c_uint64
        self.library.standin_allocate.argtypes = [ctypes.c_uint64]
        self.library.standin_free.argtypes = [ctypes.c_uint64]
        self.address, self.size, self.byte = self.library.standin_allocate(size), size, byte
        if self.address == 0:
            raise MemoryError(f"no {size} bytes on the stand-in GPU")
        ctypes.memset(self.address, byte, size)

    def free(self):
        if self.address == 0:
            return
        assert ctypes.string_at(self.address, self.size).count(self.byte) == self.size, "another block was given the same memory"
        self.library.standin_free(self.address)
        self.address = 0


def train(steps=4, layers=6):
    """Steps with growing and shrinking requests."""
    for step in range(steps):
        blocks = [Block((2 + (step * 7 + layer * 3) % 9) * MIB + 100) for layer in range(layers)]
        for block in blocks:
            block.free()
    return steps
