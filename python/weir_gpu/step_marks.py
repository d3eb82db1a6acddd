"""Marks the end of every step in the recording, and ends the process after some of them. `weir fit` asks for it.

A step ends with the step of an optimizer, or where the program begins the next one by weir_gpu.step()."""

import os
import sys
import weakref

MARK = "weir step"
# The memory that PyTorch could have, in bytes, stands behind this.
USABLE = "weir usable "

_marks = None


class StepMarks:
    def __init__(self, mark, end_after, usable, end):
        self.mark = mark
        self.end_after = end_after
        self.usable = usable
        self.end = end
        self.ended = 0
        self.begun = 0
        self.optimizer = None  # the one whose steps count: others step in between

    def stepped(self, optimizer):
        counted = self.optimizer and self.optimizer()
        if counted is None:
            self.optimizer = weakref.ref(optimizer)
        elif counted is not optimizer:
            return
        self.step_ends()

    def begins(self):
        """The program says that a step begins. Once an optimizer has stepped, only that counts."""
        if self.optimizer is not None:
            return
        self.begun += 1
        if self.begun > 1:
            self.step_ends()

    def step_ends(self):
        if self.ended == 0:
            usable = self.usable()
            if usable is not None:
                self.mark(f"{USABLE}{usable}")
        self.mark(MARK)
        self.ended += 1
        if self.ended == self.end_after:
            self.end()


def install(mark, end_after):
    """Call once, after `import torch`."""
    global _marks
    from torch.optim import optimizer as optimizers

    _marks = marks = StepMarks(mark, end_after, _usable, _end)

    def after(optimizer, _arguments, _named):
        marks.stepped(optimizer)

    optimizers.register_optimizer_step_post_hook(after)


def begins():
    if _marks is not None:
        _marks.begins()


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
