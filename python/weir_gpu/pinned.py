"""Pinned host memory of this process for the summary and the recording: what PyTorch's host allocator holds, and what rounding costs.

PyTorch rounds blocks up to powers of two. It tells so since 2.7; with older versions nothing is reported. Nothing here raises."""

import atexit
import contextlib
import gc
import json
import os
import time

from .abi import EXCHANGE_VERSION, PinnedReport

# Looking for pinned tensors asks the driver about each tensor of the host. A program with many of them must not wait for that.
_MOST_SECONDS = 0.2
# A program that tries batch sizes may fail hundreds of times a second.
_PAUSE_SECONDS = 5.0
_COUNTS_USE = [2, 13]
# Smaller ones hardly count.
_LEAST_BYTES = 4096


def install(torch, directory):
    """Reports when the process ends, and when a request for GPU memory fails."""
    pid = os.getpid()
    reported = float("-inf")

    def failed(*_):
        nonlocal reported
        if time.monotonic() - reported > _PAUSE_SECONDS:
            _report_of(pid, torch, directory)
            reported = time.monotonic()

    def attach():
        observe = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
        if observe is not None:
            observe(failed)

    atexit.register(_report_of, pid, torch, directory)
    later = getattr(torch.cuda, "_lazy_call", None)
    if later is not None:
        later(attach)


def _report_of(pid, torch, directory):
    if pid != os.getpid():
        return  # a fork: the memory is not its own
    with contextlib.suppress(Exception):
        found = statistics(torch)
        if found is not None and found["peak_held"] > 0:
            report = PinnedReport(version=EXCHANGE_VERSION, pid=pid, **found).write()
            _write(os.path.join(directory, f"{pid}{PinnedReport.FILE}"), report)


def statistics(torch):
    """None if CUDA is not in use, or this PyTorch does not tell."""
    ask = getattr(torch.cuda, "host_memory_stats", None)
    if ask is None or not torch.cuda.is_initialized():
        return None
    stats = ask()
    # 2.7 calls it reserved what later versions call allocated.
    held = "allocated_bytes" if "active_bytes.current" in stats else "reserved_bytes"
    if f"{held}.current" not in stats:
        return None
    found = {
        "allocations": int(stats.get("num_host_alloc", 0)),
        "held": int(stats[f"{held}.current"]),
        "peak_held": int(stats[f"{held}.peak"]),
    }
    # Older versions count blocks as used that were freed long ago.
    if [int(number) for number in torch.__version__.split(".")[:2]] >= _COUNTS_USE:
        found.update(used=int(stats["active_bytes.current"]), peak_used=int(stats["active_bytes.peak"]))
    lost = rounding(torch, found.get("used", found["held"]))
    return found if lost is None else {**found, "rounding": lost}


def rounding(torch, used):
    """Bytes beyond the pinned tensors that are alive, because of rounding; None if that cannot be said."""
    if used == 0:
        return 0
    deadline = time.monotonic() + _MOST_SECONDS
    sizes = {}
    kinds = (torch.Tensor, torch.nn.Parameter)
    for thing in gc.get_objects():
        # Subclasses may run code of the program.
        if type(thing) not in kinds or thing.device.type != "cpu" or thing.layout is not torch.strided:
            continue
        if time.monotonic() > deadline:
            return None
        storage = thing.untyped_storage()
        size = storage.nbytes()
        if size >= _LEAST_BYTES and storage.data_ptr() not in sizes and thing.is_pinned():
            sizes[storage.data_ptr()] = size
    blocks = {address: 1 << (size - 1).bit_length() for address, size in sizes.items()}
    # A setting may leave large blocks unrounded, and memory may be pinned by others. Then this is not how it is.
    return sum(blocks.values()) - sum(sizes.values()) if sum(blocks.values()) <= used else None


def _write(path, report):
    with open(f"{path}.new", "w", encoding="utf8") as file:
        json.dump(report, file)
    os.replace(f"{path}.new", path)
