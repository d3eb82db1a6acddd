"""Weir inside a PyTorch process, loaded by `weir run`. Programs need not call anything here.

Without `weir run` these functions do nothing, so calls can stay in a script."""

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
