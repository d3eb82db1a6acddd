"""Memory in plain CUDA allocations, for weir_gpu.contiguous(), with or without Weir's allocator.

Weir and PyTorch's expandable segments join a tensor from several pieces of memory. Some libraries expect one: CUDA IPC with another
PyTorch, UCX, kernels for all-reduce, all that call cuMemGetAddressRange."""

import atexit
import contextlib
import threading

from . import adapter

_local = threading.local()
_lock = threading.Lock()
_idle = {}  # GPU, whether segments are expandable -> pools that no thread uses
_made = []  # pools and their allocators, which live as long as the process
_expandable = None  # PyTorch's setting, where Weir's adapter is not there to ask


@contextlib.contextmanager
def contiguous(device=None):
    torch = _torch()
    if torch is None:
        yield
        return
    index = torch.cuda.current_device() if device is None else _index(torch, device)
    inside = _local.__dict__.setdefault("inside", set())
    if index in inside:
        # PyTorch refuses to open a pool twice.
        yield
        return
    key, pool = _take(torch, index)
    try:
        with torch.cuda.use_mem_pool(pool, index):
            inside.add(index)
            try:
                yield
            finally:
                inside.discard(index)
    finally:
        with _lock:
            _idle[key].append(pool)


def _torch():
    """PyTorch, or None where it is missing or has no GPU."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def _index(torch, device):
    index = device if isinstance(device, int) else torch.device(device).index
    return torch.cuda.current_device() if index is None else index


def _take(torch, index):
    """A pool that no other thread uses, since PyTorch lets only one at a time. Pools are never taken down: that would end the process
    if another thread captured a graph meanwhile."""
    library, expandable = _settings(torch)
    key = (index, expandable)
    with _lock:
        idle = _idle.setdefault(key, [])
        if idle:
            return key, idle.pop()
    allocator = _plain(torch, library) if expandable else None
    with torch.cuda.device(index):
        # If memory is short, other requests may have what is free in the pool.
        pool = torch.cuda.MemPool(allocator, use_on_oom=True)
    with _lock:
        _made.append(pool)
    return key, pool


def _settings(torch):
    """The path of Weir's adapter, or None, and whether PyTorch's pools have expandable segments, which are pieces too."""
    global _expandable
    library = adapter.library()
    if library is not None:
        return library._name, bool(library.weir_torch_expandable())
    if _expandable is None:
        _expandable = bool(torch.cuda.memory._snapshot()["allocator_settings"]["expandable_segments"])
    return None, _expandable


def _plain(torch, library):
    """An allocator of a pool that has no expandable segments, whatever the setting says."""
    if library is None:
        raise RuntimeError(
            "weir_gpu.contiguous(): PyTorch's memory lies in expandable segments, which are no plain CUDA allocations; set "
            "expandable_segments:False in PYTORCH_ALLOC_CONF, or start the program with weir run"
        )
    allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "weir_torch_plain_alloc", "weir_torch_plain_free")
    with _lock:
        _made.append(allocator)
    return allocator.allocator()


@atexit.register
def _keep():
    """The pools of a process that ends are not taken down: CUDA may be gone before, or broken."""
    if _made:
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(_made))
