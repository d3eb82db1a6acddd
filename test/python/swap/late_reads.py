"""Side streams of a program that read tensors as late as possible, without record_stream; on the fake GPU or on a real one."""

import torch
from fake_gpu import FakeBackend
from support import FAKE

# On a real GPU a spin kernel of so many cycles, some milliseconds, runs before each read.
CYCLES = 20_000_000


class Readers:
    """Makes streams, reads on them, and joins them with the compute stream."""

    def __init__(self, run=None):
        self.backend = (run.backend if run is not None else FakeBackend("early")) if FAKE else None
        self.reads = []

    def stream(self):
        return self.backend.side_stream() if FAKE else torch.cuda.Stream()

    def read(self, stream, tensor):
        """Enqueues a read. The program may drop the tensor afterwards, as long as something else keeps its memory."""
        if FAKE:
            self.reads.append(self.backend.read(stream, tensor))
            return
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            # Memory of its own, so that the result does not depend on the allocator.
            result = torch.empty_like(tensor, device="cpu", pin_memory=True)
            torch.cuda._sleep(CYCLES)
            result.copy_(tensor.detach(), non_blocking=True)
        self.reads.append(result)

    def join(self, stream):
        """The compute stream waits for the other one. From here on, the program may free what was read."""
        if FAKE:
            self.backend.wait(self.backend.compute, self.backend.event(stream))
        else:
            torch.cuda.current_stream().wait_stream(stream)

    def contents(self):
        """What all reads have found, after the last join. None on the fake GPU: the memory was gone."""
        if FAKE:
            return [read.content for read in self.reads]
        torch.cuda.synchronize()
        return [read.numpy().tobytes() for read in self.reads]

    def wrong(self, expected):
        found, expected = self.contents(), expected.contents()
        assert len(found) == len(expected) > 0, (len(found), len(expected))
        return sum(one != other for one, other in zip(expected, found))


def without_fences(run):
    """Swapping as it would be without waits for side streams."""
    run.manager.copies.sides.need_fence = lambda: 0
