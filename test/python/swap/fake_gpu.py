"""A GPU made of host memory whose side streams run as late, or as early, as the waits allow: a wait too few is wrong data."""

import contextlib
import ctypes
import random
import sys
import time

import torch


class Event:
    def __init__(self, stream):
        self.stream = stream
        self.done = False
        self.at = time.perf_counter()
        self.moment = None


class Stream:
    def __init__(self, name):
        self.name = name
        self.queue = []
        self.saw_compute = None


class Copy:
    """Like a copy engine: knows addresses, holds nothing."""

    def __init__(self, target, source, storage):
        self.target, self.source, self.size = target, source, storage.nbytes()
        self.address = storage.data_ptr()
        self.weak = storage._weak_ref()

    def run(self):
        storage = torch.UntypedStorage._new_with_weak_ptr(self.weak)
        if storage is None or storage.data_ptr() != self.address:
            return "memory"
        ctypes.memmove(self.target, self.source, self.size)
        return None


class FakeBackend:
    name = "fake"
    index = 0

    def __init__(self, order="late", seed=1):
        self.order = order
        self.random = random.Random(seed)
        self.device = torch.device("cpu")
        self.compute, self.out_stream, self.in_stream = Stream("compute"), Stream("out"), Stream("in")
        self.faults = []
        self.aside = False
        self.current_bytes = 0
        self.room = 1 << 40
        self.pin_room = 1 << 40
        self.freed = 0
        self.returned = 0
        self.compute_waits = 0
        self.ignore_compute_waits = False

    def is_mine(self, tensor):
        return True

    def on_compute(self):
        return not self.aside

    def capturing(self):
        return False

    def computing(self):
        return contextlib.nullcontext()

    def moment(self):
        """Changes whenever the program may have given the compute stream work, or memory was freed or allocated."""
        manager = sys.modules["weir.swap"]._manager
        return (manager.steps.done, manager.steps.tick_count, self.freed, self.returned) if manager else self.freed

    # Work on the compute stream is done as it is given, so its events are over at once.
    def event(self, stream, timing=False):
        event = Event(stream)
        if stream is self.compute:
            event.done = True
            event.moment = self.moment()
        else:
            stream.queue.append(("event", event))
            self.maybe_run()
        return event

    def wait(self, stream, event):
        if stream is self.compute:
            self.compute_waits += 1
            if not self.ignore_compute_waits:
                self.run_until(event)
            return
        if event.stream is self.compute:
            stream.saw_compute = event.moment
        stream.queue.append(("wait", event))

    def wait_current(self, event):
        self.run_until(event)

    def current(self):
        return self.compute

    def finished(self, event):
        return event.done

    def elapsed_us(self, first, second):
        return (second.at - first.at) * 1e6

    def has_no_copies(self):
        return not self.out_stream.queue and not self.in_stream.queue

    def synchronize(self):
        for stream in (self.out_stream, self.in_stream):
            while stream.queue:
                self.run_one(stream)

    def copy_out(self, target, storage):
        self.copy(self.out_stream, target.data_ptr(), storage.data_ptr(), storage)

    def copy_in(self, storage, source):
        self.copy(self.in_stream, storage.data_ptr(), source.data_ptr(), storage)

    def copy(self, stream, target, source, storage):
        if stream.saw_compute != self.moment():
            self.faults.append(f"a copy on {stream.name} does not wait for the compute stream")
        stream.queue.append(("copy", Copy(target, source, storage)))
        self.maybe_run()

    def maybe_run(self):
        if self.order == "early":
            self.synchronize()
        elif self.order == "random":
            for stream in (self.out_stream, self.in_stream):
                while stream.queue and self.random.random() < 0.4:
                    self.run_one(stream)

    def run_one(self, stream):
        what = stream.queue.pop(0)
        if what[0] == "event":
            what[1].done = True
            what[1].at = time.perf_counter()
        elif what[0] == "wait":
            self.run_until(what[1])
        else:
            fault = what[1].run()
            if fault:
                self.faults.append(f"{fault} of a copy on {stream.name} was freed before it was over")

    def run_until(self, event):
        while not event.done:
            if not event.stream.queue:
                raise AssertionError("waiting for an event that never comes")
            self.run_one(event.stream)

    def new_storage(self, size):
        if size > self.room:
            raise torch.cuda.OutOfMemoryError("the fake GPU is full")
        storage = torch.UntypedStorage(size)
        self.bytes_of(storage).fill_(0xCD)
        self.returned += 1
        return storage

    def refill(self, storage, size):
        storage.resize_(size)
        self.bytes_of(storage).fill_(0xCD)
        self.returned += 1

    def bytes_of(self, storage):
        return torch.empty(0, dtype=torch.uint8).set_(storage)

    def hide(self, tensor):
        """Writing raises an error. Reading cannot, without a GPU, and finds what nobody has written."""
        unreadable = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
        self.bytes_of(unreadable.untyped_storage()).fill_(0xFF)
        torch._C._set_throw_on_mutable_data_ptr(unreadable)
        tensor.data = unreadable

    def before_free(self, storage, of_compute_stream):
        # Called right before memory is freed: its next owner writes to it at once.
        self.freed += 1
        self.bytes_of(storage).fill_(0xFF)

    def pinned(self, size):
        if size > self.pin_room:
            raise MemoryError("no more pinned memory")
        self.pin_room -= size
        return torch.full((size,), 0xAB, dtype=torch.uint8)

    def out_of_memory(self, error):
        return isinstance(error, torch.cuda.OutOfMemoryError)

    def release_cached(self):
        pass

    def take_peak(self):
        return self.current_bytes, self.current_bytes
