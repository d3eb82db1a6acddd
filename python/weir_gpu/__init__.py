"""Weir inside a PyTorch process. `weir run` loads it, and programs need not call anything here.

Without Weir in place these functions do nothing, so calls can stay in a script. Importing this package does not import PyTorch."""

__version__ = "0.1.0"


def step(name="step"):
    """Marks the beginning of a training step, or of whatever `name` says, in the recording.

    A recording holds some thousand different names, so do not put the number of the step into the name."""
    from . import adapter

    adapter.mark(name)


def gauges(device=0):
    """Gauges of a GPU by name, in bytes and counts; None if Weir is not installed there."""
    from . import adapter

    return adapter.gauges(device)


def check(level=1):
    """0 if Weir's engines are consistent, otherwise the number of a broken invariant. Level 3 is slow."""
    from . import adapter

    return adapter.check(level)


def contiguous(device=None):
    """For libraries that look behind a tensor: those that ask for the range of its memory, or send it to other processes.

        with weir_gpu.contiguous():
            buffer = torch.empty(1 << 20, device="cuda")

    What this thread allocates inside lies in plain CUDA allocations, as cudaMalloc gives them, on one GPU (default: the current
    one). The memory comes from a torch.cuda.MemPool and stays there for later blocks. So put the allocations of buffers inside,
    not a training step. Blocks may be nested. Without Weir this works, too; without a GPU, nothing happens."""
    from . import plain_memory

    return plain_memory.contiguous(device)
