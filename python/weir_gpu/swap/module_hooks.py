"""Hooks that swapping parameters needs: the forward passes of modules, and every way to a parameter that bypasses Python."""

import functools

import torch
from torch._functorch import eager_transforms, vmap

from .native_calls import NativeCalls


class ModuleHooks:
    def __init__(self, manager):
        self.manager = manager
        self.patched = []
        self.hooks = []
        self._watch()
        self.native_calls = NativeCalls()
        layers = manager.layers
        # Compiled code reads parameters directly and checks their class.
        self._before(torch, "compile", lambda *_, **__: self._give_up())
        # Another process that maps the memory would not see the new memory after a swap-in.
        self._before(torch.UntypedStorage, "_share_cuda_", lambda *_, **__: self._give_up())
        # Other hooks may keep a parameter and pass it to autograd directly. Checkpointing computes again instead.
        self._before(torch.autograd.graph.saved_tensors_hooks, "__enter__", self._others_save)
        # Transforms wrap tensors without asking their class.
        for module, names in (
            (eager_transforms, ("_grad_increment_nesting", "_jvp_increment_nesting", "_func_increment_nesting")),
            (vmap, ("_vmap_increment_nesting",)),
        ):
            for name in names:
                self._before(module, name, lambda *_, **__: layers.swap_in_all())
        # Scripts and exported programs are made of the parameters that are there.
        for owner, name in ((torch.jit, "script"), (torch.jit, "freeze"), (torch.export, "export"), (torch.utils, "swap_tensors")):
            self._before(owner, name, lambda *_, **__: layers.swap_in_all())

    def _watch(self):
        """Hooks all modules at once: hooks of a single module would be saved and copied with it."""
        manager = self.manager

        def begins(module, _arguments):
            if not torch.compiler.is_compiling():
                manager.module_begins(module)

        def ends(module, _arguments, _result):
            if not torch.compiler.is_compiling():
                manager.module_ends(module)

        of_all = torch.nn.modules.module
        self.hooks = [of_all.register_module_forward_pre_hook(begins), of_all.register_module_forward_hook(ends)]

    def _unwatch(self):
        for hook in self.hooks:
            hook.remove()
        self.hooks = []

    def _give_up(self):
        self._unwatch()
        self.manager.layers.give_up()
        # Compiled code must find PyTorch's own functions.
        self.native_calls.close()

    def _others_save(self, hooks):
        if type(hooks).__module__ != "torch.utils.checkpoint":
            self._give_up()

    def _before(self, owner, name, act):
        original = getattr(owner, name, None)
        if original is None:
            return

        @functools.wraps(original)
        def wrapper(*arguments, **named):
            act(*arguments, **named)
            return original(*arguments, **named)

        self.patched.append((owner, name, original, name in vars(owner)))
        setattr(owner, name, wrapper)

    def close(self):
        self._unwatch()
        self.native_calls.close()
        for owner, name, original, own in reversed(self.patched):
            if own:
                setattr(owner, name, original)
            else:
                delattr(owner, name)
        self.patched = []
