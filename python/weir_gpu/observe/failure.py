"""After an out-of-memory error: what all tensors hold that Python or autograd still know of.

Nothing here allocates memory of the GPU, unpacks a saved tensor or calls a hook. Objects are held only while this runs."""

import gc
import sys
import time

import torch

from ..abi import Category, PhaseMark
from .modules import is_kv_cache
from .optimizers import add_state
from .other_optimizers import found_among
from .tensors import is_tensor, node_of

# Programs that try batch sizes fail often. After so many failures, only one in a while is looked at.
MOST_FAILURES = 8
PAUSE_S = 30.0
MOST_NODES = 500_000
MOST_SECONDS = 5.0
# The clock is looked at after so many objects.
GLANCE = 256


class Failures:
    def __init__(self, watch, mark, clock=time.monotonic):
        self.watch = watch
        self.mark = mark
        self.clock = clock
        self.count = 0
        self.last = 0.0
        self.is_busy = False

    def attach(self):
        """CUDA must be in use: this call would start it. PyTorch passes an error here on to the program, so there is none."""
        attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
        try:
            if attach is not None:
                attach(self.observe)
        except Exception:
            pass

    def observe(self, _device, _size, _total, _free):
        """PyTorch calls this in the thread of the request, after the failure is in the recording and before the error is raised."""
        try:
            now = self.clock()
            if self.is_busy or (self.count >= MOST_FAILURES and now - self.last < PAUSE_S):
                return
            self.is_busy = True
            try:
                self.count += 1
                self.last = now
                self.tell()
            finally:
                self.is_busy = False
        except Exception:
            pass  # It must not hide the error of the program.

    def tell(self):
        telling = self.watch.tell_all()
        with torch._C.DisableTorchFunction():
            try:
                self._add_found(telling)
            except Exception:
                pass
            telling.send()
        self.mark(PhaseMark.FAILURE)

    def _add_found(self, telling):
        until = self.clock() + MOST_SECONDS
        caches = _cache_classes()
        tensors, nodes = [], []
        things = gc.get_objects()
        # The first step of an optimizer may be the one that fails.
        for optimizer, _ in found_among(things):
            add_state(telling, optimizer)
        for found in things:
            cls = type(found)
            if issubclass(cls, torch.Tensor):
                tensors.append(found)
            elif issubclass(cls, torch.optim.Optimizer):
                add_state(telling, found)  # also of one around another, which never called the constructor
            elif cls in caches:
                _add_cache(telling, found)
        for place, tensor in enumerate(tensors):
            node = node_of(tensor)
            if node is not None:
                telling.add(tensor, Category.ACTIVATION)
                nodes.append(node)
            if place % GLANCE == 0 and self.clock() > until:
                return
        del tensors, things
        _walk(telling, nodes, until, self.clock)


def _walk(telling, nodes, until, clock):
    """All nodes of the graphs, and the tensors that they have saved. A saved tensor with hooks is what the hooks made of it."""
    names = {}
    seen = set()
    while nodes and len(seen) < MOST_NODES:
        node = nodes.pop()
        if node in seen:
            continue
        seen.add(node)
        if len(seen) % GLANCE == 0 and clock() > until:
            return
        cls = type(node)
        saved = names.get(cls)
        if saved is None:
            saved = names[cls] = [name for name in dir(cls) if name.startswith("_raw_saved_")]
        for name in saved:
            try:
                value = getattr(node, name)
            except Exception:
                continue
            for entry in value if type(value) in (list, tuple) else (value,):
                tensor = getattr(entry, "data", None)
                if is_tensor(tensor):
                    telling.add(tensor, Category.ACTIVATION)
        try:
            nodes += [next_node for next_node, _ in node.next_functions if next_node is not None]
        except Exception:
            continue


def _cache_classes():
    """Classes that hold keys and values in Hugging Face's library, if the program has loaded it."""
    module = sys.modules.get("transformers.cache_utils")
    found = vars(module).values() if module is not None else ()
    return {cls for cls in found if isinstance(cls, type) and ("Cache" in cls.__name__ or "Layer" in cls.__name__)}


def _add_cache(telling, cache):
    for name, value in list(getattr(cache, "__dict__", {}).items()):
        if name in ("keys", "values") or is_kv_cache(name):
            for tensor in value if type(value) in (list, tuple) else (value,):
                if is_tensor(tensor):
                    telling.add(tensor, Category.KV_CACHE)
