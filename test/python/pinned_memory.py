"""Tests of python/weir_gpu/pinned.py on statistics of several versions of PyTorch and on tensors of a stand-in."""

import json
import os
import sys
import tempfile
import types
import unittest

from weir_gpu import pinned

KIB = 1024


class Storage:
    def __init__(self, address, size):
        self.address, self.size = address, size

    def data_ptr(self):
        return self.address

    def nbytes(self):
        return self.size


class Tensor:
    device = types.SimpleNamespace(type="cpu")
    layout = "strided"

    def __init__(self, address, size, is_pinned=True):
        self.storage, self.pinned = Storage(address, size), is_pinned

    def untyped_storage(self):
        return self.storage

    def is_pinned(self):
        return self.pinned


class Strange(Tensor):
    def is_pinned(self):
        raise AssertionError("code of the program was run")


def torch_with(stats, initialized=True, version="2.13.0"):
    cuda = types.SimpleNamespace(is_initialized=lambda: initialized)
    if stats is not None:
        cuda.host_memory_stats = lambda: stats
    nn = types.SimpleNamespace(Parameter=Tensor)
    return types.SimpleNamespace(__version__=version, cuda=cuda, Tensor=Tensor, nn=nn, strided="strided")


NEW = {
    "allocated_bytes.current": 96 * KIB,
    "allocated_bytes.peak": 128 * KIB,
    "active_bytes.current": 80 * KIB,
    "active_bytes.peak": 99 * KIB,
}


class Pinned(unittest.TestCase):
    def test_statistics_of_old_and_new_versions(self):
        held = {"held": 96 * KIB, "peak_held": 128 * KIB, "used": 80 * KIB, "peak_used": 99 * KIB, "allocations": 3, "rounding": 0}
        self.assertEqual(pinned.statistics(torch_with({**NEW, "num_host_alloc": 3})), held)
        self.assertEqual(pinned.statistics(torch_with({**NEW, "num_host_alloc": 3}, version="2.14.1+cu130")), held)
        # These count blocks as used that are free.
        del held["used"], held["peak_used"]
        self.assertEqual(pinned.statistics(torch_with({**NEW, "num_host_alloc": 3}, version="2.11.0+cu130")), held)
        old = {"reserved_bytes.current": 96 * KIB, "reserved_bytes.peak": 128 * KIB, "num_host_alloc": 3}
        old.update({"allocated_bytes.current": 80 * KIB, "allocated_bytes.peak": 99 * KIB})
        self.assertEqual(pinned.statistics(torch_with(old, version="2.7.1")), held)
        self.assertIsNone(pinned.statistics(torch_with(None)))
        self.assertIsNone(pinned.statistics(torch_with({})))
        self.assertIsNone(pinned.statistics(torch_with(NEW, initialized=False)))

    def test_rounding_counts_each_pinned_storage_once_and_runs_no_code_of_the_program(self):
        kept = [Tensor(1, 40 * KIB), Tensor(1, 40 * KIB), Tensor(2, 16 * KIB), Tensor(3, 40 * KIB, is_pinned=False), Tensor(4, 5)]
        kept.append(Strange(5, 40 * KIB))
        self.assertEqual(pinned.rounding(torch_with(NEW), 80 * KIB), 24 * KIB)
        # 64 + 16 KiB do not fit in 79 KiB: these blocks were not rounded.
        self.assertIsNone(pinned.rounding(torch_with(NEW), 79 * KIB))
        del kept

    def test_a_report_is_written_whole_and_nothing_raises(self):
        with tempfile.TemporaryDirectory() as folder:
            pinned._report_of(os.getpid(), torch_with(NEW), folder)
            with open(os.path.join(folder, f"{os.getpid()}.pinned.json"), encoding="utf8") as file:
                report = json.load(file)
            self.assertEqual([report["pid"], report["held"], report["peakHeld"]], [os.getpid(), 96 * KIB, 128 * KIB])
            self.assertEqual(len(os.listdir(folder)), 1)
            pinned._report_of(os.getpid() + 1, torch_with(NEW), "/nowhere")
            pinned._report_of(os.getpid(), torch_with({"active_bytes.current": "no number"}), folder)
        pinned._report_of(os.getpid(), torch_with(NEW), "/nowhere")


if __name__ == "__main__":
    sys.exit(unittest.main())
