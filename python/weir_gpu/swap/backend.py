"""The GPU as swapping sees it: streams, events, copies and memory figures. Tests replace it (test/python/swap/fake_gpu.py)."""

import contextlib
import threading
from typing import ClassVar

import torch

from .cuda_runtime import TO_DEVICE, TO_HOST, Registration, asynchronous_memcpy, capture_query, loaded_runtime, relax_captures
from .host_chunk import HostChunk, pieces_of
from .side_streams import our_own

_use_count = torch._C._storage_Use_Count


def _calibrate():
    """References to a storage beyond those of tensors. They belong to its Python object, and PyTorch releases count them differently."""
    probe = torch.empty(8)
    cdata = probe.untyped_storage()._cdata
    released = _use_count(cdata) - 1
    held = probe.untyped_storage()
    return released, _use_count(cdata) - 1, held


_RELEASED, _HELD = _calibrate()[:2]


def owners(cdata, held=False):
    """The number of tensors on a storage whose Python object exists. `held`: whether we hold that object."""
    return _use_count(cdata) - (_HELD if held else _RELEASED)


HIDDEN = (
    "weir: this tensor is swapped out, and code outside of Python uses it. "
    "Use it in Python first, for example by tensor.detach(), or run without a size for --swap."
)


class CudaBackend:
    """One GPU. Its compute stream is the stream that was current when the backend was made."""

    name = "cuda"
    device_type = 1  # as PyTorch numbers kinds of devices

    def __init__(self, index):
        self.index = index
        self.device = torch.device("cuda", index)
        self.compute = torch.cuda.current_stream(self.device)
        self.compute_handle = self.compute.cuda_stream
        self.default_stream = torch.cuda.default_stream(self.device)
        with our_own():
            self.out_stream = torch.cuda.Stream(self.device)
            self.in_stream = torch.cuda.Stream(self.device)
        self.out_handle, self.in_handle = self.out_stream.cuda_stream, self.in_stream.cuda_stream
        self._runtime = loaded_runtime()
        self._memcpy = asynchronous_memcpy(self._runtime)
        self._is_captured = capture_query(self._runtime)
        self._registration = Registration(self._runtime)
        self._raw_stream = torch._C._cuda_getCurrentRawStream
        self._set_stream = torch._C._cuda_setStream

    # ---- devices and streams

    def is_mine(self, tensor):
        return tensor.is_cuda and tensor.get_device() == self.index

    def on_compute(self):
        return self._raw_stream(self.index) == self.compute_handle

    def computing(self):
        """Makes the compute stream the current one."""
        return contextlib.nullcontext() if self.on_compute() else torch.cuda.stream(self.compute)

    def capturing(self):
        return bool(torch._C._cuda_isCurrentStreamCapturing())

    # ---- streams of the program

    def stream_of(self, number):
        return torch.cuda.Stream(stream_id=number, device_index=self.index, device_type=self.device_type)

    def handle_of(self, stream):
        return stream.cuda_stream

    def is_foreign(self, number):
        """Whether PyTorch did not make the stream with this id. Ids of PyTorch's own are odd, and 0 for the default stream."""
        return number != 0 and number % 2 == 0

    def is_captured(self, stream):
        return self._is_captured is not None and self._is_captured(stream.cuda_stream)

    def is_idle(self, stream):
        return stream.query()

    # ---- events

    def event(self, stream, timing=False):
        made = torch.cuda.Event(enable_timing=timing)
        made.record(stream)
        return made

    def wait(self, stream, event):
        stream.wait_event(event)

    def wait_current(self, event):
        torch.cuda.current_stream(self.device).wait_event(event)

    def current(self):
        return torch.cuda.current_stream(self.device)

    def finished(self, event):
        return event.query()

    def elapsed_us(self, first, second):
        return first.elapsed_time(second) * 1000.0

    def has_no_copies(self):
        return self.out_stream.query() and self.in_stream.query()

    def synchronize(self):
        torch.cuda.synchronize(self.device)

    # ---- memory

    def new_storage(self, size):
        """Allocates on the compute stream, whichever stream is current."""
        with self.computing():
            return torch.UntypedStorage(size, device=self.device)

    def refill(self, storage, size):
        """Allocates memory for a storage of size 0."""
        with self.computing():
            storage.resize_(size)

    def bytes_of(self, storage):
        return torch.empty(0, dtype=torch.uint8, device=self.device).set_(storage)

    def hide(self, tensor):
        """Takes a tensor's storage away: every access to its content raises an error, until its `data` is set."""
        torch._C._set_storage_access_error_msg(tensor, HIDDEN)

    def before_free(self, storage, of_compute_stream):
        """Memory that another stream allocated must not be reused before the compute stream has reached this point."""
        if not of_compute_stream:
            self.mark_used(storage)

    def mark_used(self, thing):
        """Whoever frees this tensor or storage: its memory is not reused before the compute stream has reached that point."""
        tensor = thing if isinstance(thing, torch.Tensor) else self.bytes_of(thing)
        tensor.record_stream(self.compute)

    def copy_out(self, target, storage):
        """Copies a storage to pinned host bytes, on the stream for swapping out."""
        for at, size in pieces_of(target):
            if self._memcpy is None:
                self._copy(self.out_stream, target[at : at + size], self.bytes_of(storage)[at : at + size])
            else:
                self._memcpy(target.data_ptr() + at, storage.data_ptr() + at, size, TO_HOST, self.out_handle)

    def copy_in(self, storage, source):
        for at, size in pieces_of(source):
            if self._memcpy is None:
                self._copy(self.in_stream, self.bytes_of(storage)[at : at + size], source[at : at + size])
            else:
                self._memcpy(storage.data_ptr() + at, source.data_ptr() + at, size, TO_DEVICE, self.in_handle)

    def _copy(self, stream, target, source):
        previous = torch.cuda.current_stream(self.device)
        self._set_stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)
        try:
            target.copy_(source, non_blocking=True)
        finally:
            self._set_stream(stream_id=previous.stream_id, device_index=previous.device_index, device_type=previous.device_type)

    # ---- host memory

    def host_memory(self, size):
        return HostChunk(size, self.device, self._registration)

    def in_background(self, work):
        def run():
            # A new thread has device 0, and any call of the runtime would make a context there.
            with torch.cuda.device(self.device):
                relax_captures(self._runtime)
                work()

        thread = threading.Thread(target=run, name="weir-pinning", daemon=True)
        thread.start()
        return thread

    def out_of_memory(self, error):
        return isinstance(error, torch.cuda.OutOfMemoryError)

    def release_cached(self):
        torch.cuda.empty_cache()

    # ---- memory figures

    def allocated(self):
        """Bytes of all tensors now."""
        return torch.cuda.memory_allocated(self.index)

    def take_peak(self):
        """Peak bytes allocated and reserved since the last call. The peaks that the program reads are not affected."""
        return _PeakKeeper.of(self.index).take()


class _PeakKeeper:
    """Reads peaks between two calls by resetting PyTorch's peaks, and adds the older peaks to what the program reads."""

    _made: ClassVar = {}
    _PEAKS = (
        "allocated_bytes",
        "reserved_bytes",
        "active_bytes",
        "requested_bytes",
        "allocation",
        "segment",
        "active",
        "inactive_split",
        "inactive_split_bytes",
    )

    @classmethod
    def of(cls, index):
        if index not in cls._made:
            cls._made[index] = cls(index)
        return cls._made[index]

    def __init__(self, index):
        self.index = index
        self.kept = None
        if not _PeakKeeper._made:
            self._wrap()

    @classmethod
    def _wrap(cls):
        cls.stats = staticmethod(torch._C._cuda_memoryStats)
        cls.reset = staticmethod(torch._C._cuda_resetPeakMemoryStats)
        # Below torch.cuda and torch.accelerator.
        for name in ("_cuda_memoryStats", "_accelerator_getDeviceStats"):
            cls._replace(name, cls._lifted)
        for name in ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats"):
            cls._replace(name, cls._forgetting)

    @staticmethod
    def _replace(name, make):
        original = getattr(torch._C, name, None)
        if original is not None:
            setattr(torch._C, name, make(original))

    @classmethod
    def _lifted(cls, original):
        def memory_stats(device):
            figures = original(device)
            keeper = cls._made.get(device)
            if keeper is not None and keeper.kept is not None:
                lift(figures, keeper.kept)
            return figures

        return memory_stats

    @classmethod
    def _forgetting(cls, original):
        def reset_peaks(device):
            keeper = cls._made.get(device)
            if keeper is not None:
                keeper.kept = None
            original(device)

        return reset_peaks

    def take(self):
        figures = _PeakKeeper.stats(self.index)
        peak = figures["allocated_bytes"]["all"]["peak"], figures["reserved_bytes"]["all"]["peak"]
        if self.kept is not None:
            lift(figures, self.kept)
        self.kept = {name: {pool: values["peak"] for pool, values in figures[name].items()} for name in self._PEAKS if name in figures}
        _PeakKeeper.reset(self.index)
        return peak


def lift(figures, kept):
    for name, pools in kept.items():
        for pool, peak in pools.items():
            values = figures.get(name, {}).get(pool)
            if values is not None and values["peak"] < peak:
                values["peak"] = peak
