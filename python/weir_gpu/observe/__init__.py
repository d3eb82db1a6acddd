"""Watches what memory holds: categories of tensors, phases of steps and, if asked for, every access of some steps (docs/recording.md).

It uses weak references only: it never keeps a tensor alive, and it never changes what a program computes."""

import atexit
import os
import sys

from ..refusal import say

# What observers tell goes through it.
OUR_ADAPTER = "weir_gpu.adapter"

_watch = None
_accesses = None


def install(tell, mark, put_operator=None, accesses=0, device_of=None, when_used=None, quiet=False):
    """Call once, after `import torch` and before training. CUDA does not start.

    `tell(device, {address: category})`, `mark(text)` and `put_operator(...)` write into the recording. `when_used(function)` calls the
    function when CUDA is in use."""
    global _watch, _accesses
    if _watch is not None:
        return _watch
    from .compilers import leave_alone
    from .failure import Failures
    from .tensors import get_device
    from .watch import Watch

    watch = Watch(tell, mark, device_of or get_device)
    watch.open()
    watch.failures = Failures(watch, mark)
    if when_used is not None:
        when_used(watch.failures.attach)
    if accesses and put_operator is not None:
        from .accesses import Accesses

        _accesses = Accesses(accesses, put_operator, device_of or get_device, say=(lambda _: None) if quiet else None)
        watch.on_step = _accesses.step_ended
    _watch = watch
    leave_alone([name for name in sys.modules if name.startswith(__name__)] + [OUR_ADAPTER])
    atexit.register(_at_exit, os.getpid(), quiet)
    os.register_at_fork(after_in_child=_forked)
    return watch


def uninstall():
    """For tests."""
    global _watch, _accesses
    if _accesses is not None and _accesses.is_on:
        _accesses.end()
    if _watch is not None:
        _watch.close()
    _watch = _accesses = None


def step():
    """A step has ended. Counts only in a program in which no optimizer was seen."""
    if _watch is not None and _watch.phases.anchor is None:
        _watch.phases.end_step()


def _at_exit(pid, quiet):
    if _watch is None or pid != os.getpid():
        return
    try:
        _watch.tell_all().send()
        if not quiet and _watch.misses_steps():
            say("weir: steps are not marked: no optimizer ran outside of compiled code. Call weir_gpu.step() after each step.")
    except Exception:
        pass


def _forked():
    if _accesses is not None and _accesses.is_on:
        _accesses.end()
    if _watch is not None:
        _watch.phases.forked()
