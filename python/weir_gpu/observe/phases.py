"""Marks of forward and backward passes, of optimizers and of steps: what runs at the moment, as the recording shows it.

A step ends with the step() of one optimizer, the anchor. Optimizers that run inside of a backward pass are a part of it."""

import functools
import sys
import threading
import weakref

import torch
from torch.autograd import graph
from torch.optim import optimizer as optimizers

from ..abi import PhaseMark
from .other_optimizers import OtherOptimizers

# If the anchor has not stepped for so many steps of others, another one takes its place.
MOST_OTHERS = 64


class Calls(threading.local):
    """Calls of step() that run in this thread, outermost first.

    A step() that ends with an error tells nobody. It runs for as long as the frame that called our hook is on the stack."""

    def __init__(self):
        self.running = []  # (identity and code of the frame, weak reference to the optimizer)

    def begin(self, optimizer, frame):
        self.end(optimizer, frame)
        self.running.append((id(frame), frame.f_code, weakref.ref(optimizer)))

    def end(self, optimizer, frame):
        """Also forgets calls that ended with an error, and what ran inside of them."""
        self.forget_ended(frame.f_back)
        for place, (_, _, reference) in enumerate(self.running):
            if reference() is optimizer:
                del self.running[place:]
                return

    def forget_ended(self, frame):
        """Frames are not held, as they hold the locals of the program. One of the same identity and code is another step(), which
        has called our hook itself, and has forgotten this one."""
        if not self.running:
            return
        on_stack = {}
        while frame is not None:
            on_stack[id(frame)] = frame.f_code
            frame = frame.f_back
        for place, (identity, code, _) in enumerate(self.running):
            if on_stack.get(identity) is not code:
                del self.running[place:]
                return


class Phases:
    """Calls `listener.backward_begins()`, `backward_ends()`, `optimizer_begins(optimizer)`, `optimizer_ends(optimizer)`, `step_ends()`."""

    def __init__(self, mark, listener):
        self.mark = mark
        self.listener = listener
        self.forked()
        self.calls = Calls()
        self.anchor = None  # weak reference
        self.others = 0
        self.owes_step = False  # a step has ended inside of a backward pass
        self.steps = 0
        self.has_begun = False  # a step() of an optimizer, whether or not it ended
        self.forgot_unannounced = False  # the program has optimizers that PyTorch announces
        self.with_passes = []  # weak references to optimizers in whose steps backward passes ran
        self.passes_before = 0  # backward passes before that
        self.unannounced = OtherOptimizers(self._before_other, self._after_other)
        self.to_close = []
        self.closed = False

    def open(self):
        try:
            for register, hook in (
                (optimizers.register_optimizer_step_pre_hook, self._before_step),
                (optimizers.register_optimizer_step_post_hook, self._after_step),
            ):
                self.to_close.append(register(hook).remove)
            self.to_close.append(self.unannounced.close)
            self._wrap_backward()
        except BaseException:
            self.close()
            raise

    def close(self):
        self.closed = True
        while self.to_close:
            self.to_close.pop()()

    # ---- backward passes

    def _wrap_backward(self):
        """All backward passes from Python go through this function. Compiled code never calls it."""
        original = graph._engine_run_backward
        phases = self

        @functools.wraps(original)
        def _engine_run_backward(*arguments, **named):
            if phases.closed or torch.compiler.is_compiling():
                return original(*arguments, **named)
            # An interrupt may come at any moment, also before the pass is counted.
            this = object()
            try:
                phases._pass_begins(this)
                return original(*arguments, **named)
            finally:
                phases._pass_ends(this)

        for module in (graph, sys.modules["torch.autograd"]):
            if vars(module).get("_engine_run_backward") is original:
                module._engine_run_backward = _engine_run_backward
                self.to_close.append(functools.partial(_restore, module, "_engine_run_backward", _engine_run_backward, original))

    def _pass_begins(self, this):
        with self.lock:
            self.passes.add(this)
            if len(self.passes) > 1:
                return
        self._call(self.listener.backward_begins)
        self._call(self.mark, PhaseMark.BACKWARD)

    def _pass_ends(self, this):
        with self.lock:
            if this not in self.passes:
                return
            self.passes.remove(this)
            if self.passes:
                return
            owes_step, self.owes_step = self.owes_step, False
        if not self.has_begun:
            self.passes_before += 1
            self._call(self.unannounced.look_after, self.passes_before)
        self._call(self.listener.backward_ends)
        if owes_step:
            self.end_step()
        else:
            self._call(self._mark_after_pass, sys._getframe())

    def _mark_after_pass(self, frame):
        """A closure runs inside of its optimizer."""
        self.calls.forget_ended(frame)
        if self.calls.running:
            self._note_passes_of(self.calls.running[0][2])
        self.mark(PhaseMark.OPTIMIZER if self.calls.running else PhaseMark.FORWARD)

    # ---- optimizers

    def _before_step(self, optimizer, _arguments, _named):
        if not torch.compiler.is_compiling():
            self._call(self._forget_unannounced)
            self._call(self._step_begins, optimizer, sys._getframe().f_back)

    def _after_step(self, optimizer, _arguments, _named):
        if not torch.compiler.is_compiling():
            self._call(self._step_ends, optimizer, sys._getframe().f_back)

    def _before_other(self, optimizer, _arguments, _named):
        # What has run backward passes in its steps is more than an optimizer. Most of such a step is a forward pass.
        self._call(self._step_begins, optimizer, sys._getframe().f_back, not self._has_passes(optimizer))

    def _after_other(self, optimizer):
        if not self.forgot_unannounced:
            self._call(self._step_ends, optimizer, sys._getframe().f_back)

    def _has_passes(self, optimizer):
        return any(known() is optimizer for known in self.with_passes)

    def _note_passes_of(self, reference):
        if not self._has_passes(reference()):
            self.with_passes = [*(known for known in self.with_passes if known() is not None), reference]

    def _forget_unannounced(self):
        """A program that steps an optimizer of PyTorch's ends its steps with it. Others may be what runs it, such as a trainer."""
        if self.forgot_unannounced or not self.unannounced.is_open():
            return
        self.forgot_unannounced = True
        self.unannounced.close()
        self.calls = Calls()
        self.anchor = None

    def _step_begins(self, optimizer, frame, is_marked=True):
        self.has_begun = True
        self.calls.begin(optimizer, frame)
        self._call(self.listener.optimizer_begins, optimizer)
        if not self.passes and len(self.calls.running) == 1 and is_marked:
            self.mark(PhaseMark.OPTIMIZER)

    def _step_ends(self, optimizer, frame):
        self.calls.end(optimizer, frame)
        self._call(self.listener.optimizer_ends, optimizer)
        if self.calls.running:
            return
        is_end = self._is_anchor(optimizer)
        if self.passes:
            self.owes_step = self.owes_step or is_end
        elif is_end:
            self.end_step()
        else:
            self.mark(PhaseMark.FORWARD)

    def _is_anchor(self, optimizer):
        anchor = self.anchor() if self.anchor is not None else None
        if anchor is not optimizer and (anchor is None or self.others >= MOST_OTHERS):
            self.anchor, anchor = weakref.ref(optimizer), optimizer
        self.others = 0 if anchor is optimizer else self.others + 1
        return anchor is optimizer

    def end_step(self):
        self.steps += 1
        self._call(self.listener.step_ends)
        self._call(self.mark, PhaseMark.STEP)

    def forked(self):
        """A thread that held the lock, or ran a backward pass, does not exist here."""
        self.lock = threading.RLock()  # a handler of a signal may run a backward pass while this thread has it
        self.passes = set()  # backward passes that run, in all threads

    @staticmethod
    def _call(function, *arguments):
        # A defect of ours must not stop the program.
        try:
            function(*arguments)
        except Exception:
            pass


def _restore(owner, name, ours, original):
    if vars(owner).get(name) is ours:
        setattr(owner, name, original)
