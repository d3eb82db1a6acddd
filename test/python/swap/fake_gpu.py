"""A GPU made of host memory whose side streams run as late, or as early, as the waits allow: a wait too few is wrong data."""

import contextlib
import ctypes
import random
import sys
import time
import weakref

import torch


class Event:
    def __init__(self, stream):
        self.stream = stream
        self.done = False
        self.at = time.perf_counter()
        self.moment = None


class Stream:
    device_type = device_index = 0

    def __init__(self, name, number):
        self.name = name
        self.stream_id = number
        self.queue = []
        self.saw_compute = None
        self.captured = False


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


class Read:
    """A kernel of the program on a side stream, that was enqueued without telling anybody. Like a kernel, it knows an address."""

    def __init__(self, tensor):
        self.address, self.size = tensor.data_ptr(), tensor.numel() * tensor.element_size()
        self.storage_address = tensor.untyped_storage().data_ptr()
        self.weak = tensor.untyped_storage()._weak_ref()
        self.content = None  # what it has read; None if the memory was gone

    def run(self):
        if self.is_there():
            self.content = ctypes.string_at(self.address, self.size)

    def is_there(self):
        storage = torch.UntypedStorage._new_with_weak_ptr(self.weak)
        return storage is not None and storage.data_ptr() == self.storage_address


class Write(Read):
    """The same, for a kernel that writes."""

    def __init__(self, tensor, content):
        super().__init__(tensor)
        self.content = content

    def run(self):
        assert self.is_there(), "the program's own memory is gone"
        ctypes.memmove(self.address, self.content, self.size)


class HostChunk:
    """Host memory of which only pinned pieces may be used by copies."""

    def __init__(self, backend, size):
        self.backend = backend
        self.bytes = torch.full((size,), 0xAB, dtype=torch.uint8)
        self.pinned = []  # (begin, end), addresses
        backend.chunks.append(weakref.ref(self))

    def pin(self, at, length):
        if length > self.backend.pin_room:
            raise MemoryError("no more pinned memory")
        self.backend.pin_room -= length
        begin = self.bytes.data_ptr() + at
        self.pinned.append((begin, begin + length))

    def covers(self, begin, size):
        """Whether the range is pinned, in however many pieces."""
        for first, end in sorted(self.pinned):
            if first <= begin < end:
                size -= min(size, end - begin)
                begin = end
        return size == 0


class FakeBackend:
    name = "fake"
    device_type = index = 0
    compute_handle = 0

    def __init__(self, order="late", seed=1):
        self.order = order
        self.random = random.Random(seed)
        self.device = torch.device("cpu")
        self.compute, self.out_stream, self.in_stream = Stream("compute", 0), Stream("out", 1), Stream("in", 3)
        self.default_stream = self.compute
        self.sides = {}  # streams of the program, by id
        self.chunks = []  # weak references to host memory
        self.fence_events = 0
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
        manager = sys.modules["weir_gpu.swap"]._manager
        return (manager.steps.done, manager.steps.tick_count, self.freed, self.returned) if manager else self.freed

    # ---- streams of the program

    def side_stream(self, number=None):
        """As if the program had made a torch.cuda.Stream, or an ExternalStream if the number is even."""
        number = 2 * len(self.sides) + 101 if number is None else number
        stream = self.sides.setdefault(number, Stream(f"side {number}", number))
        manager = sys.modules["weir_gpu.swap"]._manager
        if manager is not None:
            manager.copies.sides.note(stream)
        return stream

    def stream_of(self, number):
        return self.compute if number == 0 else self.sides[number]

    def handle_of(self, stream):
        return stream.stream_id

    def is_foreign(self, number):
        return number != 0 and number % 2 == 0

    def is_captured(self, stream):
        return stream.captured

    def is_idle(self, stream):
        assert not stream.captured, "a captured stream must not be asked"
        return not stream.queue

    def read(self, stream, tensor):
        """Work on a side stream that reads a tensor of the compute stream."""
        read = Read(tensor)
        stream.queue.append(("read", read))
        self.maybe_run()
        return read

    def write(self, stream, tensor, content):
        stream.queue.append(("write", Write(tensor, content)))
        self.maybe_run()

    # Work on the compute stream is done as it is given, so its events are over at once.
    def event(self, stream, timing=False):
        assert not stream.captured, "an event on a captured stream would become part of the graph"
        self.fence_events += stream.stream_id in self.sides
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

    def streams(self):
        return (self.out_stream, self.in_stream, *self.sides.values())

    def has_no_copies(self):
        return not self.out_stream.queue and not self.in_stream.queue

    def synchronize(self):
        for stream in self.streams():
            while stream.queue:
                self.run_one(stream)

    def is_pinned(self, address, size):
        return any((chunk := reference()) is not None and chunk.covers(address, size) for reference in self.chunks)

    def copy_out(self, target, storage):
        if not self.is_pinned(target.data_ptr(), target.numel()):
            self.faults.append("a copy out to host memory that is not pinned")
        self.copy(self.out_stream, target.data_ptr(), storage.data_ptr(), storage)

    def copy_in(self, storage, source):
        if not self.is_pinned(source.data_ptr(), source.numel()):
            self.faults.append("a copy in from host memory that is not pinned")
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
            for stream in self.streams():
                while stream.queue and self.random.random() < 0.4:
                    self.run_one(stream)

    def run_one(self, stream):
        what = stream.queue.pop(0)
        if what[0] == "event":
            what[1].done = True
            what[1].at = time.perf_counter()
        elif what[0] == "wait":
            self.run_until(what[1])
        elif what[0] in ("read", "write"):
            what[1].run()
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

    def mark_used(self, thing):
        pass

    def host_memory(self, size):
        return HostChunk(self, size)

    def in_background(self, work):
        """Background work is done at once. Tests that want it late, or in a thread, replace this."""
        work()

    def out_of_memory(self, error):
        return isinstance(error, torch.cuda.OutOfMemoryError)

    def release_cached(self):
        pass

    def allocated(self):
        return self.current_bytes

    def take_peak(self):
        return self.current_bytes, self.current_bytes
