"""Swapping: tensors that the GPU does not need for a while are swapped out to host memory and swapped in in time (docs/swapping.md)."""

import atexit
import contextlib
import os
import sys
from dataclasses import dataclass
from typing import Callable, Optional

_manager = None


@dataclass
class Options:
    """What swapping is asked to do, and its connections to the outside, which tests replace."""

    limit: Optional[int] = None  # bytes to keep below; None for as little as swapping is nearly free
    host_limit: Optional[int] = None  # bytes of pinned host memory for all processes together; None for half of what is available
    ranks: Optional[int] = None  # processes of the job on this machine, if known
    host_folder: Optional[str] = None  # where processes agree on that; None for `directory`
    host_budget: object = None  # what of that this process may pin
    tolerance: Optional[float] = None  # without a limit: share of a step's time that swapping may cost; None for any
    directory: Optional[str] = None  # profiles go to it and plans come from it
    debug: bool = False
    quiet: bool = False
    least: int = 1 << 20  # bytes of the smallest tensor that is swapped
    # gauges(device, bytes out, bytes in, stalls, nanoseconds of stalls), each a total since the start
    gauges: Optional[Callable] = None
    # mark(text) puts the text into the recording
    mark: Callable = lambda text: None
    # steps(steps that have ended, whether swapping is the same in every step from now on) tells the supervisor
    steps: Callable = lambda ended, swap_settled: None
    # attempting() is a context in which a request may fail without being an out-of-memory error of the program
    attempting: Callable = contextlib.nullcontext
    on_profile: Optional[Callable] = None
    take_plan: Optional[Callable] = None
    is_device: Callable = lambda tensor: tensor.is_cuda
    make_backend: Optional[Callable] = None

    @classmethod
    def of(cls, settings, **more):
        return cls(
            limit=settings.swap_limit,
            host_limit=settings.swap_host,
            ranks=settings.local_ranks,
            host_folder=settings.host_memory,
            tolerance=settings.swap_tolerance,
            directory=settings.directory,
            debug=settings.swap_debug,
            quiet=settings.quiet,
            **more,
        )


def install(options):
    """Call once, in the main thread, after `import torch` and before training. Returns the manager, or None if nobody makes plans."""
    global _manager
    if _manager is not None:
        return _manager
    if options.limit is None and not options.directory and options.on_profile is None:
        return None
    from . import budget
    from .hooks import Hooks
    from .manager import Manager

    options.host_budget = budget.of(options.host_folder or options.directory, options.host_limit, options.ranks)

    def make_backend(tensor):
        if options.make_backend is not None:
            return options.make_backend(tensor)
        from .backend import CudaBackend

        return CudaBackend(tensor.get_device())

    manager = Manager(options, make_backend, _once(options.quiet))
    manager.hooks = Hooks(manager)
    _manager = manager
    if options.directory:
        atexit.register(_write_report, manager, options.directory)
    return manager


def uninstall():
    """For tests: swaps everything in and removes all hooks."""
    global _manager
    if _manager is not None:
        _manager.stop("uninstalled", report=False)
        _manager.hooks.close()
        _manager = None


def step():
    """Marks the end of a training step, for programs without a torch.optim optimizer."""
    if _manager is not None:
        _manager.hooks.mark()


def report():
    """Totals of swapping so far; None if swapping is not installed."""
    return _manager.report().write() if _manager is not None else None


def write_report(directory):
    """Tells the supervisor the totals so far, for a summary."""
    if _manager is None or _manager.pid != os.getpid():
        return
    from ..abi import SwapReport
    from .exchange import write_json

    write_json(os.path.join(directory, f"{_manager.pid}{SwapReport.FILE}"), _manager.report().write())


def _once(quiet):
    """A function that prints one line for each topic, the first; none if quiet."""
    said = set()

    def say(topic, text):
        if quiet or topic in said:
            return
        said.add(topic)
        print(f"weir: swap: {text}", file=sys.stderr, flush=True)

    return say


def _write_report(manager, directory):
    if manager.pid != os.getpid():
        return
    from ..abi import SwapReport
    from .exchange import write_json

    report = manager.report().write()
    told = ("stepsPlanned", "stepsOff", "bytesOut", "bytesIn", "stalls", "misses", "peakAllocated")
    manager.options.mark("weir swap ended: " + ", ".join(f"{name} {report[name]}" for name in told))
    try:
        write_json(os.path.join(directory, f"{manager.pid}{SwapReport.FILE}"), report)
    except OSError:
        pass
