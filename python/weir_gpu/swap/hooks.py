"""The hooks that swapping registers in PyTorch, and their removal."""

import functools
import os
import threading
import weakref

import torch
from torch.optim import optimizer as optimizers

from ..observe.other_optimizers import OtherOptimizers
from ..refusal import Refusal
from .function_saves import FunctionSaves
from .module_hooks import ModuleHooks
from .side_streams import StreamHooks


class Hooks:
    """Saved-tensor hooks of the thread that trains, which autograd passes on to its own threads, and hooks of all optimizers."""

    def __init__(self, manager):
        self.manager = manager
        self.here = threading.local()  # `pushed`: whether our saved-tensor hooks are on this thread's stack
        self.thread = threading.current_thread()  # the thread that has them
        self.is_first_thread = True
        self.closed = False
        # Bound methods are made once: the top of the hook stack is recognized by identity.
        self.pack = manager.pack
        self.unpack = manager.unpack
        self.wanted = True
        self.to_close = []  # functions, in the order of opening
        try:
            self._open(manager)
        except BaseException:
            # A PyTorch that is not as expected: nothing of ours stays in it.
            self.close()
            raise
        manager = weakref.ref(manager)
        os.register_at_fork(after_in_child=lambda: _forked(manager()))

    def _open(self, manager):
        if not hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks"):
            raise Refusal("swap", f"swapping needs PyTorch 2.8 or newer; this is {torch.__version__}")
        self.functions = self._opened(FunctionSaves())
        for register, hook in (
            (optimizers.register_optimizer_step_pre_hook, self._before),
            (optimizers.register_optimizer_step_post_hook, self._after),
        ):
            self.to_close.append(register(hook).remove)
        self.others = self._opened(OtherOptimizers(self._before, self._after))
        # Without a limit, parameters are not swapped, and module hooks are not needed.
        self.modules = self._opened(ModuleHooks(manager)) if manager.options.limit is not None else None
        self._step_aside_for_transforms()
        self._stop_at_graphs()
        self.streams = self._opened(StreamHooks(manager.copies.sides.note))
        self._opened(manager.streamed)
        self.push()

    def _opened(self, part):
        self.to_close.append(part.close)
        return part

    def _before(self, optimizer, arguments=(), named=None):
        if not torch.compiler.is_compiling():
            self.manager.before_step(optimizer, arguments, named)

    def _after(self, optimizer, _arguments=(), _named=None):
        if not torch.compiler.is_compiling():
            self.manager.after_step(optimizer)
            self._follow(optimizer)
            if not self.wanted and self.pushed:
                self.pop()

    def mark(self):
        self.manager.mark()
        self._follow(None)

    # ---- the stack of saved-tensor hooks, of which every thread has its own

    @property
    def pushed(self):
        return getattr(self.here, "pushed", False)

    @pushed.setter
    def pushed(self, pushed):
        self.here.pushed = pushed

    def _follow(self, optimizer):
        """This thread has ended a training step. If another one has the hooks, but does not train, they are needed here."""
        if self.pushed or not self.wanted or self.manager.stopped is not None or threading.current_thread() is self.thread:
            return
        anchor = self.manager.anchor
        trains = optimizer is not None and anchor is not None and anchor() is optimizer
        nothing_seen = self.manager.backend is None and self.is_first_thread
        # Hooks of the program may be on top, and it will pop whatever it finds there. Or it has disabled hooks.
        autograd = torch._C._autograd
        is_free = autograd._saved_tensors_hooks_is_enabled() and not autograd._top_saved_tensors_default_hooks(True)
        if (trains or nothing_seen or not self.thread.is_alive()) and is_free:
            self.thread, self.is_first_thread = threading.current_thread(), False
            self.push()

    def push(self):
        if not self.pushed:
            torch._C._autograd._push_saved_tensors_default_hooks(self.pack, self.unpack)
            self.pushed = True

    def is_top(self):
        top = torch._C._autograd._top_saved_tensors_default_hooks(True)
        return bool(top) and top[0] is self.pack

    def save_parameters(self):
        """Whether parameters saved now reach our hooks, or are not kept at all because checkpointing computes them again."""
        top = torch._C._autograd._top_saved_tensors_default_hooks(True)
        return bool(top) and (top[0] is self.pack or getattr(top[0], "__module__", None) == "torch.utils.checkpoint")

    def pop(self):
        """Pops our hooks if they are on top of this thread's stack. Otherwise they stay and pass everything through."""
        if self.pushed and self.is_top():
            torch._C._autograd._pop_saved_tensors_default_hooks()
            self.pushed = False

    def remove(self):
        """Removes the saved-tensor hooks: saved tensors will not be swapped any more."""
        self.wanted = False
        self.pop()

    def _step_aside_for_transforms(self):
        """Transforms such as torch.func.grad disable saved-tensor hooks, which fails while some are pushed. Ours are popped meanwhile.

        The functions below PyTorch's context manager are replaced, not the context manager: compiled code calls them directly."""
        self.autograd = torch._C._autograd
        disable, enable = self.autograd._saved_tensors_hooks_disable, self.autograd._saved_tensors_hooks_enable
        # Autograd's own threads have stacks of their own.
        hooks, aside = self, threading.local()

        def put_back():
            if getattr(aside, "popped", False):
                aside.popped = False
                # If they were removed meanwhile, they stay off.
                if hooks.wanted:
                    torch._C._autograd._push_saved_tensors_default_hooks(hooks.pack, hooks.unpack)
                else:
                    hooks.pushed = False

        def _saved_tensors_hooks_disable(error_message, fail_if_non_empty=True):
            if fail_if_non_empty and not hooks.closed and hooks.is_top():
                torch._C._autograd._pop_saved_tensors_default_hooks()
                aside.popped = True
            try:
                disable(error_message, fail_if_non_empty)
            except RuntimeError:
                put_back()
                raise

        def _saved_tensors_hooks_enable():
            enable()
            put_back()

        for function in (_saved_tensors_hooks_disable, _saved_tensors_hooks_enable):
            # Compiled graphs name it. They are cached only if all functions in them are PyTorch's.
            function.__module__ = "torch._C._autograd"
            function.__qualname__ = function.__name__
            self._replace(self.autograd, function.__name__, function)

    def _stop_at_graphs(self):
        """A captured CUDA graph contains addresses. Before a capture, everything is swapped in, and swapping ends."""
        graph_class = getattr(getattr(torch.cuda, "graphs", None), "CUDAGraph", None)
        original = getattr(graph_class, "capture_begin", None)
        if original is None:
            return
        hooks = self

        def capture_begin(graph, *arguments, **named):
            if not hooks.closed:
                hooks.manager.stop("a CUDA graph is captured, and graphs need fixed addresses")
            return original(graph, *arguments, **named)

        self._replace(graph_class, "capture_begin", capture_begin)

    def _replace(self, owner, name, function):
        self.to_close.append(functools.partial(setattr, owner, name, getattr(owner, name)))
        setattr(owner, name, function)

    def close(self):
        self.closed = True
        self.wanted = False
        self.pop()
        while self.to_close:
            self.to_close.pop()()


def _forked(manager):
    if manager is None:
        return
    if manager.backend is None:
        # Nothing has been swapped yet: the child may be the process that trains.
        manager.pid = os.getpid()
    else:
        manager.stopped = manager.stopped or "this is a forked process"
