"""Side streams that read late what swapping gives up, on a real GPU. Plain PyTorch reads right in each of these programs.

    weir run --swap auto -- python3 test/gpu/torch/side_streams.py            # with a plan; WEIR_SWAP_TOLERANCE=any keeps the plan
    weir run --swap 1GiB -- python3 test/gpu/torch/side_streams.py            # without a plan at first, then with one
    python3 test/gpu/torch/side_streams.py                                    # plain: the same losses

Options: [--only A,B] [--steps N] [--width N] [--depth N] [--cycles N]

Prints for each program: wrong reads, a digest of the losses, and what was swapped. Ends with 1 if a read was wrong."""

import argparse
import hashlib
import os
import sys
import threading

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def checksum(tensor):
    """Exact, whatever the order of additions."""
    return tensor.detach().contiguous().view(torch.int32).sum(dtype=torch.int64)


class Reads:
    """Compares what a side stream reads late with what the compute stream read at once."""

    def __init__(self, cycles):
        self.cycles = cycles
        self.pending = []
        self.wrong = torch.zeros((), dtype=torch.int64, device="cuda")
        self.count = 0

    def read(self, stream, tensor):
        """A spin kernel on the side stream, then the read. Nobody tells the allocator."""
        expected = checksum(tensor)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(self.cycles)
            self.pending.append((expected, checksum(tensor)))

    def read_generic(self, stream, tensor):
        """The same on a stream that is no torch.cuda.Stream."""
        expected = checksum(tensor)
        stream.wait_stream(torch.accelerator.current_stream())
        with stream:
            torch.cuda._sleep(self.cycles)
            self.pending.append((expected, checksum(tensor)))

    def copy(self, stream, tensor, target):
        """An asynchronous copy to pinned memory, compared at the end of the step."""
        expected = checksum(tensor)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(self.cycles)
            target.copy_(tensor.detach(), non_blocking=True)
        self.pending.append((expected, target))

    def join(self, stream):
        torch.cuda.current_stream().wait_event(stream.record_event())

    def compare(self):
        """After all streams were joined."""
        for expected, found in self.pending:
            if not found.is_cuda:
                torch.cuda.synchronize()
                found = checksum(found).cuda()
            self.wrong += (expected != found).long()
            self.count += 1
        self.pending = []


class Net(torch.nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(width, width) for _ in range(depth)])

    def forward(self, x, visit=lambda index, x: None):
        for index, layer in enumerate(self.layers):
            x = torch.tanh(layer(x)) * 1.01
            visit(index, x)
        return x.square().mean()


def more_work(options):
    """Saves more tensors, so that memory changes hands before the join."""
    x = torch.randn(4 * options.width, options.width, device="cuda", requires_grad=True)
    for _ in range(8):
        x = (x * 1.0001).tanh()
    return x.sum() * 1e-9


def train(options, reads, visit=None, before_backward=None, after_step=None, batches=None):
    torch.manual_seed(0)
    net = Net(options.width, options.depth).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    losses = []
    for step in range(options.steps):
        x = batches(step) if batches else torch.randn(4 * options.width, options.width, device="cuda")
        loss = net(x, visit) if visit else net(x)
        del x
        penalty = more_work(options)
        if before_backward:
            before_backward()
        (loss + penalty).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if after_step:
            after_step(net, optimizer)
        else:
            reads.compare()
        losses.append(loss.item())
    return losses


@program
def statistics(options, reads):
    """Activations that only the graph keeps, on one stream, and on a second one that is made later."""
    streams = [torch.cuda.Stream()]

    def visit(index, x):
        if index == options.depth - 1 and len(streams) == 1:
            streams.append(torch.cuda.Stream(priority=-1))
        reads.read(streams[index % len(streams)], x)

    return train(options, reads, visit, lambda: [reads.join(stream) for stream in streams])


@program
def copies_to_the_host(options, reads):
    stream = torch.cuda.Stream()
    targets = [torch.empty(4 * options.width, options.width, pin_memory=True) for _ in range(options.depth)]
    return train(options, reads, lambda index, x: reads.copy(stream, x, targets[index]), lambda: reads.join(stream))


@program
def moving_averages(options, reads):
    """Parameters and optimizer state, read after a step and joined before the next one changes them."""
    stream = torch.cuda.Stream()

    def joined():
        reads.join(stream)
        reads.compare()

    def after_step(net, optimizer):
        for parameter in net.parameters():
            reads.read(stream, parameter)
            reads.read(stream, optimizer.state[parameter]["exp_avg"])

    return train(options, reads, None, joined, after_step)


@program
def prefetching(options, reads):
    """Batches are made on a side stream, in memory of that stream, and read there again."""
    stream = torch.cuda.Stream()
    host = [torch.randn(4 * options.width, options.width).pin_memory() for _ in range(2)]

    def batches(step):
        with torch.cuda.stream(stream):
            batch = host[step % 2].to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(stream)
        batch.record_stream(torch.cuda.current_stream())
        reads.read(stream, batch)
        return batch.requires_grad_()

    return train(options, reads, None, lambda: reads.join(stream), None, batches)


@program
def generic_streams(options, reads):
    """torch.Stream, which is a class of its own."""
    stream = torch.Stream(device="cuda")
    return train(options, reads, lambda _, x: reads.read_generic(stream, x), lambda: reads.join(stream))


@program
def threads(options, reads):
    """Reads that other threads enqueue."""
    streams = [torch.cuda.Stream() for _ in range(2)]

    def visit(index, x):
        thread = threading.Thread(target=reads.read, args=(streams[index % 2], x))
        thread.start()
        thread.join()

    return train(options, reads, visit, lambda: [reads.join(stream) for stream in streams])


@program
def foreign_streams(options, reads):
    """A stream of the CUDA runtime. It ends the swapping, so it comes last."""
    import ctypes

    handle = ctypes.c_ulonglong(0)
    torch.cuda.check_error(torch.cuda.cudart().cudaStreamCreate(ctypes.addressof(handle)))
    stream = torch.cuda.ExternalStream(handle.value)
    return train(options, reads, lambda _, x: reads.read(stream, x), lambda: reads.join(stream))


def swapped():
    try:
        from weir_gpu import swap
    except ImportError:
        return None
    return swap.report()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--depth", type=int, default=12)
    parser.add_argument("--cycles", type=int, default=4_000_000)
    options = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    total = 0
    before = {}
    for name, function in PROGRAMS.items():
        if options.only and name not in options.only.split(","):
            continue
        reads = Reads(options.cycles)
        losses = function(options, reads)
        torch.cuda.synchronize()
        reads.compare()
        wrong = int(reads.wrong.item())
        total += wrong
        digest = hashlib.sha256(" ".join(loss.hex() for loss in losses).encode()).hexdigest()[:16]
        report = swapped() or {}
        told = {key: report[key] - before.get(key, 0) for key in ("bytesOut", "bytesIn", "stepsPlanned", "parametersOut") if key in report}
        before = {**before, **{key: report[key] for key in told}}
        print(
            f"{name}: {wrong} of {reads.count} reads wrong, losses {digest}, swapped {told}, stopped: {report.get('stopped')}", flush=True
        )
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
