"""Ends the process after some steps of training. `weir fit` asks for it.

It listens to the marks of the observers, which find the steps, and passes them on to the recording."""

import os
import sys

from .abi import PhaseMark

# The memory that PyTorch could have, in bytes, stands behind this.
USABLE = "weir usable "


class ShortRun:
    """`mark(text)` writes into the recording. `end_after`: steps; 0: the program goes to its end."""

    def __init__(self, mark, end_after, usable=None, end=None):
        self.write = mark
        self.end_after = end_after
        self.usable = usable or _usable
        self.end = end or _end
        self.ended = 0
        self.is_begun = False

    def mark(self, text):
        if text != PhaseMark.STEP:
            self.is_begun = self.is_begun or text in (PhaseMark.BACKWARD, PhaseMark.OPTIMIZER)
            self.write(text)
        elif self.is_begun:
            self.step_ends()
        else:
            # The first weir_gpu.step() begins a step, and ends none.
            self.is_begun = True

    def step_ends(self):
        if self.ended == 0:
            usable = self.usable()
            if usable is not None:
                self.write(f"{USABLE}{usable}")
        self.write(PhaseMark.STEP)
        self.ended += 1
        if self.ended == self.end_after:
            self.end()


def _usable():
    """What PyTorch holds and what is free; None without a GPU."""
    torch = sys.modules["torch"]
    if not torch.cuda.is_initialized():
        return None
    try:
        free, _ = torch.cuda.mem_get_info()
        return free + torch.cuda.memory_reserved()
    except Exception:
        # Not worth a failure of the job: the size of the GPU is known as well.
        return None


def _end():
    """Ends the process at once: no checkpoint, no report of the program must come of a run that was cut short."""
    torch = sys.modules["torch"]
    for finish in (torch.cuda.synchronize, sys.stdout.flush, sys.stderr.flush):
        # Whatever fails here must not keep the process from ending.
        try:
            finish()
        except Exception:
            pass
    os._exit(0)
