"""Modules of the program, and what is in them: parameters, gradients, buffers, caches of keys and values.

PyTorch tells of each module that gets a parameter or a buffer. Copies and unpickled modules tell by __setstate__."""

import functools
import re
import threading
import weakref

import torch
from torch.nn.modules import module as of_all

from ..abi import Category
from .tensors import is_tensor, requires_grad

# Names of buffers and attributes that hold keys and values: k_cache, cache_v, past_key_values, kv_cache.
_KV = re.compile(r"(^|_)(k|v|kv|keys?|values?)_?caches?($|_)|(^|_)caches?_(k|v|kv|keys?|values?)($|_)|^past_key|^kv$")


def is_kv_cache(name):
    return isinstance(name, str) and _KV.search(name) is not None


def category_of_buffer(name):
    return Category.KV_CACHE if is_kv_cache(name) else Category.BUFFER


# Attributes that every module has.
STANDARD = frozenset(torch.nn.Module().__dict__)


class Modules:
    """Weak references to modules with tensors of their own, in the order of their making."""

    def __init__(self, on_registered, on_moved):
        self.by_id = {}
        self.on_registered = on_registered  # called with a tensor and its category, before the module has it
        self.on_moved = on_moved  # called with modules that may be on a GPU now
        self.applying = threading.local()  # .depth: calls of _apply that run in this thread
        self.to_close = []

    def open(self):
        try:
            for register, hook in (
                (of_all.register_module_parameter_registration_hook, self._parameter_registered),
                (of_all.register_module_buffer_registration_hook, self._buffer_registered),
            ):
                self.to_close.append(register(hook).remove)
            self._wrap("__setstate__", self._after_setstate)
            self._wrap("_apply", self._around_apply)
        except BaseException:
            self.close()
            raise

    def close(self):
        while self.to_close:
            self.to_close.pop()()

    def note(self, module):
        identity = id(module)
        if identity not in self.by_id:
            forget = self.by_id.pop
            # Without a reference to us: this may be called at any moment.
            self.by_id[identity] = weakref.ref(module, lambda _: forget(identity, None))

    def all(self):
        return [module for module in [reference() for reference in list(self.by_id.values())] if module is not None]

    def _parameter_registered(self, module, _name, parameter):
        self._registered(module, parameter, Category.PARAMETER)

    def _buffer_registered(self, module, name, buffer):
        self._registered(module, buffer, category_of_buffer(name))

    def _registered(self, module, tensor, category):
        if torch.compiler.is_compiling():
            return
        try:
            self.note(module)
            if tensor is not None:
                self.on_registered(tensor, category)
        except Exception:
            pass

    def _after_setstate(self, original):
        modules = self

        @functools.wraps(original)
        def __setstate__(module, state):
            original(module, state)
            if torch.compiler.is_compiling():
                return
            try:
                modules._note_holder(module)
            except Exception:
                pass

        return __setstate__

    def _around_apply(self, original):
        """to(), cuda(), half() and so on."""
        modules = self

        @functools.wraps(original)
        def _apply(module, *arguments, **named):
            # Compilers must see nothing of ours.
            if torch.compiler.is_compiling():
                return original(module, *arguments, **named)
            running = modules.applying
            depth = running.depth = getattr(running, "depth", 0) + 1
            try:
                return original(module, *arguments, **named)
            finally:
                running.depth = depth - 1
                if depth == 1:
                    modules._moved(module)

        return _apply

    def _moved(self, module):
        try:
            tree = _tree(module)
            # They may be older than the hooks.
            for part in tree:
                self._note_holder(part)
            self.on_moved(tree)
        except Exception:
            pass

    def _note_holder(self, module):
        if _own(module, "_parameters") or _own(module, "_buffers"):
            self.note(module)

    def _wrap(self, name, make):
        original = getattr(torch.nn.Module, name)
        wrapper = make(original)
        setattr(torch.nn.Module, name, wrapper)

        def restore():
            # Another library may have wrapped ours meanwhile. Then ours stays.
            if torch.nn.Module.__dict__.get(name) is wrapper:
                setattr(torch.nn.Module, name, original)

        self.to_close.append(restore)


def _own(module, name):
    """The dictionary of that name, or nothing. Attributes of modules are not asked for: they may be properties of the program."""
    found = module.__dict__.get(name)
    return found if isinstance(found, dict) else {}


def _tree(module):
    found, rest = {id(module): module}, [module]
    while rest:
        for child in _own(rest.pop(), "_modules").values():
            if child is not None and id(child) not in found:
                found[id(child)] = child
                rest.append(child)
    return list(found.values())


def parameters_of(modules):
    found = []
    for module in modules:
        found += _own(module, "_parameters").values()
    return [parameter for parameter in found if parameter is not None]


def add_others(telling, modules):
    """Buffers, and tensors that are plain attributes. Others may have found better names for those, so they come last."""
    buffers, caches = [], []
    for module in modules:
        own = module.__dict__
        for name, tensor in list(_own(module, "_buffers").items()):
            if tensor is not None:
                (caches if is_kv_cache(name) else buffers).append(tensor)
        for name in own.keys() - STANDARD:
            value = own[name]
            if is_tensor(value):
                if not requires_grad(value):
                    (caches if is_kv_cache(name) else buffers).append(value)
            elif type(value) in (list, tuple) and is_kv_cache(name):
                caches += [tensor for tensor in value if is_tensor(tensor)]
    telling.add_all(caches, Category.KV_CACHE)
    telling.add_all(buffers, Category.BUFFER)
