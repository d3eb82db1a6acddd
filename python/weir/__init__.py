"""Weir inside a PyTorch process. `weir run` puts it there; a program needs nothing from it, and may call what is below.

Without `weir run` every function here does nothing, so calls can stay in a script."""

__version__ = "0.1.0"


def step(name="step"):
    """Marks the beginning of a training step (or of anything else, by its name) in the recording. There is room for some thousand
    names, so a name should not have a number in it: marks are counted anyway."""
    from . import adapter

    adapter.mark(name)


def gauges(device=0):
    """Levels of a GPU by name, in bytes and counts, or None if Weir is not in place there."""
    from . import adapter

    return adapter.gauges(device)


def check(level=1):
    """0 if all is well inside Weir's engines, else the number of a broken invariant; level 3 takes long."""
    from . import adapter

    return adapter.check(level)
