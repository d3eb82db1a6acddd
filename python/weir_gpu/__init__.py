"""Weir inside a PyTorch process. `weir run` loads it, and programs need not call anything here. Programs without `weir run` call enable().

Without Weir in place the other functions do nothing, so calls can stay in a script. Importing this package does not import PyTorch."""

__version__ = "0.1.0"


class Error(RuntimeError):
    """Weir could not be put in place. The message is one sentence that says why and what to do."""


def enable(
    *,
    limit=None,
    swap=None,
    swap_host=None,
    allocator=None,
    record=None,
    force=None,
    oom_dir=None,
    plan=None,
    lend=None,
    what_if=None,
    what_if_events=None,
    metrics=None,
    metrics_host=None,
    serve=None,
    serve_port=None,
    ring_rows=None,
    stacks=None,
    json_file=None,
    allow_untested=None,
    quiet=None,
    verbose=None,
    required=True,
):
    """Runs this process on Weir's allocator, without `weir run`. Call it before the first use of CUDA, before or after `import torch`:

        import weir_gpu
        weir_gpu.enable(limit="40GiB", swap="auto")

    The options are those of `weir run`, with the same meaning: see docs/without-a-wrapper.md. What is not given comes from the
    variables that `weir run` reads, too. If Weir cannot be put in place, this raises weir_gpu.Error; with required=False it
    prints the reason, and the program goes on with PyTorch's own allocator. Under `weir run`, it does nothing."""
    given = dict(locals())
    del given["required"]
    from . import enabling

    enabling.enable(given, required)


def summary(what_if=True, timeout=120):
    """What `weir run` prints at its end, up to now. print() shows it, and `.json` is the same for programs (docs/json.md).

    `what_if`: also replay the run on other allocators, which takes a while after many allocations. `timeout`: seconds to wait for
    that; None for as long as it takes. Never raises: without Weir the text says why there is nothing to report."""
    from . import enabling

    return enabling.summary(what_if, timeout)


def step(name="step"):
    """Marks the beginning of a training step, or of whatever `name` says, in the recording.

    A recording holds some thousand different names, so do not put the number of the step into the name."""
    import sys

    from . import adapter

    observe = sys.modules.get("weir_gpu.observe")
    if observe is not None and name == "step":
        observe.step()
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
