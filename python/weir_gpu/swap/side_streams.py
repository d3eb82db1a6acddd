"""Streams of the program beside the compute stream. They may still read memory that is to be given up, without telling the allocator.

All their reads of a tensor were enqueued before the program gave up its last reference. So an event that is recorded after we found
ourselves the only owners covers them, and the compute stream waits for that event before the memory is handed on (docs/swapping.md).
"""

import contextlib
import gc
import threading
from collections import deque

import torch

_making = threading.local()

FOREIGN = "the program uses a CUDA stream that PyTorch does not own, and such a stream may be destroyed at any time"
CAPTURED = "a stream is captured into a CUDA graph, and graphs need fixed addresses"


@contextlib.contextmanager
def our_own():
    """Streams that are made in here are ours: the program does not read on them."""
    _making.ours = True
    try:
        yield
    finally:
        _making.ours = False


class SideStreams:
    """Knows the streams of the program, and makes fences: events on those that have work when a tensor is found to be only ours."""

    def __init__(self):
        self.backend = None
        self.known = {}  # (kind of device, its index, id of the stream): every stream that Python code has made; values mean nothing
        self.readers = ()  # streams of our GPU, other than the compute stream
        self.counted = 0  # how many of the known streams `readers` was made from
        self.refusal = None  # why nothing may be given up any more
        self.made = 0  # number of the last fence that was recorded
        self.wanted = False  # whether a copy needs the next fence
        self.passed = 0  # number of the last fence that the compute stream waits for
        self.fences = deque()  # (number, events), of fences that the compute stream does not wait for yet

    def open(self, backend):
        self.backend = backend
        # Work of other threads may be on the default stream.
        self.note(backend.default_stream)

    def note(self, stream):
        """Called for every stream object that Python code makes, by any thread."""
        key = stream.device_type, stream.device_index, stream.stream_id
        if key not in self.known and not getattr(_making, "ours", False):
            self.known[key] = None

    def _find_readers(self):
        """Sorts in streams that were made since the last time."""
        known = list(self.known)
        self.counted = len(known)
        backend = self.backend
        mine = [number for kind, index, number in known if (kind, index) == (backend.device_type, backend.index)]
        found = [backend.stream_of(number) for number in mine if not backend.is_foreign(number)]
        handles = {backend.compute_handle, *map(backend.handle_of, found)}
        # A foreign stream has its handle as its id. It may be one of PyTorch's under another name.
        if any(backend.is_foreign(number) and number not in handles for number in mine):
            self.refusal = self.refusal or FOREIGN
        self.readers = tuple(stream for stream in found if backend.handle_of(stream) != backend.compute_handle)

    def why_not(self):
        """Why nothing may be given up any more; None if it may."""
        if len(self.known) != self.counted:
            self._find_readers()
        return self.refusal

    # ---- fences

    def need_fence(self):
        """The number of the fence that covers all reads of a tensor that only we own now. 0: there is nobody to wait for."""
        if len(self.known) != self.counted:
            self._find_readers()
        if not self.readers:
            return 0
        self.wanted = True
        return self.made + 1

    def record(self):
        """Records the fence that was asked for. It covers all fences before it: a stream that is idle now has passed those."""
        if not self.wanted:
            return
        self.wanted = False
        backend = self.backend
        events = []
        for stream in self.readers:
            if backend.is_captured(stream):
                # Neither asking it nor recording on it is allowed. No fence: whoever needs this one stays.
                self.refusal = self.refusal or CAPTURED
                return
            if not backend.is_idle(stream):
                events.append(backend.event(stream))
        self.made += 1
        if events:
            self.fences.append((self.made, events))

    def events_of(self, number):
        """The events of the last fence, if it has this number."""
        return self.fences[-1][1] if self.fences and self.fences[-1][0] == number else ()

    def take(self, number):
        """The events that the compute stream must wait for, to pass a fence that was recorded."""
        if number <= self.passed:
            return ()
        self.passed = number
        events = ()
        while self.fences and self.fences[0][0] <= number:
            events = self.fences.popleft()[1]
        return events


class StreamHooks:
    """Sees every stream object that Python code makes, from torch.cuda.Stream and its subclasses, or from torch.Stream."""

    def __init__(self, note):
        self.note = note
        self.watched = torch.cuda.Stream
        self.original = self.watched.__dict__.get("__new__")
        self.generic = torch.Stream
        # Swapping begins with `import torch`, before there are streams. If a program calls it later, there may be some.
        for thing in gc.get_objects() if torch.cuda.is_initialized() else ():
            # Not isinstance(), which asks the object: a dead weak proxy raises, and deprecated ones warn.
            if issubclass(type(thing), self.watched):
                note(thing)
        self._watch()
        self._replace_generic()

    def _watch(self):
        make, note = self.watched.__new__, self.note

        def __new__(cls, *arguments, **named):
            stream = make(cls, *arguments, **named)
            note(stream)
            return stream

        self.watched.__new__ = staticmethod(__new__)

    def _replace_generic(self):
        """torch.Stream cannot be changed, so a subclass takes its place."""
        generic, note = self.generic, self.note

        class TakenFor(type(generic)):
            # Classes of the program that inherit from Stream are asked as usual.
            def __instancecheck__(cls, thing):
                return isinstance(thing, generic) if cls is Stream else super().__instancecheck__(thing)

            def __subclasscheck__(cls, other):
                return issubclass(other, generic) if cls is Stream else super().__subclasscheck__(other)

        class Stream(generic, metaclass=TakenFor):
            __slots__ = ()

            def __new__(cls, *arguments, **named):
                stream = generic.__new__(cls, *arguments, **named)
                note(stream)
                return stream

        Stream.__module__, Stream.__qualname__, Stream.__doc__ = generic.__module__, generic.__qualname__, generic.__doc__
        torch.Stream = torch._C.Stream = Stream

    def close(self):
        torch.Stream = torch._C.Stream = self.generic
        if self.original is None:
            del self.watched.__new__
        else:
            self.watched.__new__ = self.original
