"""What call stacks cost: five workloads, each recorded in several ways in one run, against PyTorch's own history.

    PYTHONPATH=dist/python python3 test/gpu/torch/stack_costs.py [--only gpt2,bert] [--json FILE] [--rounds 12]

Each way is a process of its own. All of them are ready at the same time and take turns, a few steps each, so that a machine that
becomes slower slows all of them. Every step is waited for. A ratio is the median, over the rounds, of the median step against the mean
of two processes that nobody records; behind it the quartiles. `least`: the shortest step of all rounds against theirs, for workloads
that wait for a noisy processor. `again` is the second of the two against their mean: the noise. `with a stack`: share of the requests."""

import argparse
import json
import math
import os
import socket
import statistics
import struct
import sys
import tempfile
import time
import traceback

# Allocator, value of the variable for stacks, whether PyTorch records its history.
PLAIN = ("unrecorded", "again")
WAYS = {
    "unrecorded": ("", "", False),
    "weir record, no stacks": ("pytorch", "", False),
    "weir record, python": ("pytorch", "python", False),
    "weir record, large": ("pytorch", "python:1048576", False),
    "weir run, large": ("weir", "python:1048576", False),
    "pytorch's history": ("", "", True),
    "again": ("", "", False),
}


def attention(torch, heads, x, qkv, out):
    batch, length, width = x.shape
    q, k, v = (part.view(batch, length, heads, width // heads).transpose(1, 2) for part in qkv(x).chunk(3, -1))
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return out(y.transpose(1, 2).reshape(batch, length, width))


def decoder(torch, layers, width, heads, vocabulary, length):
    nn = torch.nn

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            x = x + attention(torch, heads, self.first(x), self.qkv, self.out)
            return x + self.mlp(self.second(x))

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            self.layers, self.norm = nn.ModuleList(Layer() for _ in range(layers)), nn.LayerNorm(width)

        def forward(self, tokens):
            x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
            for layer in self.layers:
                x = layer(x)
            return self.norm(x) @ self.tokens.weight.t()

    return Decoder()


def gpt2(torch):
    model = decoder(torch, 48, 1600, 25, 50304, 1024).cuda().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    tokens = torch.randint(50304, (4, 1024), device="cuda")

    def step():
        logits = model(tokens)
        torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), tokens.view(-1)).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, 2


def resnet(torch):
    nn = torch.nn

    class Bottleneck(nn.Module):
        def __init__(self, before, width, stride):
            super().__init__()
            self.body = nn.Sequential(
                *(nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
                *(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
                *(nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)),
            )
            self.short = nn.Sequential(nn.Conv2d(before, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

        def forward(self, x):
            return torch.relu(self.body(x) + self.short(x))

    blocks, before = [], 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for index in range(count):
            blocks.append(Bottleneck(before, width, stride if index == 0 else 1))
            before = 4 * width
    stem = (nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    model = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)).cuda()
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images = torch.randn(96, 3, 224, 224, device="cuda").contiguous(memory_format=torch.channels_last)
    labels = torch.randint(1000, (96,), device="cuda")

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, 4


def bert(torch):
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(768, 12, 3072, activation="gelu", batch_first=True)
    body = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
    model = nn.Sequential(nn.Embedding(30522, 768), body, nn.Linear(768, 30522)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    tokens = torch.randint(30522, (16, 512), device="cuda")

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(tokens).view(-1, 30522), tokens.view(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, 4


def mlp(torch):
    """Many small tensors: the CPU is the bottleneck, and every request costs."""
    nn = torch.nn
    parts = []
    for _ in range(60):
        parts += [nn.Linear(64, 64), nn.LayerNorm(64), nn.ReLU()]
    model = nn.Sequential(*parts).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=False)
    x = torch.randn(32, 64, device="cuda")

    def step():
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, 8


def decode(torch):
    """Tokens one by one, with caches that grow by torch.cat. A step is 16 tokens."""
    nn = torch.nn
    width, heads, layers = 768, 12, 12
    qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers)).cuda().bfloat16()
    mlps = nn.ModuleList(nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(layers))
    mlps = mlps.cuda().bfloat16()

    def step():
        with torch.no_grad():
            caches = [None] * layers
            x = torch.randn(8, 1, width, device="cuda", dtype=torch.bfloat16)
            for _ in range(16):
                for index in range(layers):
                    q, k, v = (part.view(8, 1, heads, -1).transpose(1, 2) for part in qkv[index](x).chunk(3, -1))
                    if caches[index] is not None:
                        k, v = torch.cat((caches[index][0], k), 2), torch.cat((caches[index][1], v), 2)
                    caches[index] = (k, v)
                    y = torch.nn.functional.scaled_dot_product_attention(q, k, v)
                    x = x + y.transpose(1, 2).reshape(8, 1, width)
                    x = x + mlps[index](x)

    return step, 5


WORKLOADS = {"gpt2": gpt2, "resnet": resnet, "bert": bert, "mlp": mlp, "decode": decode}
WARM_UP = 4
# GPT-2 XL takes about 25 GB, so only five of them fit at a time.
AT_ONCE = {"gpt2": 5}


def share_with_stack(folder):
    """From the ring of this process, whose layout is in abi/ring.ts: share of the requests with a stack; stacks; dropped rows."""
    with open(os.path.join(folder, f"{os.getpid()}.ring"), "rb") as file:
        ring = file.read()
    rows_at, capacity = struct.unpack_from("<II", ring, 20)
    tail, dropped, _, _, stacks = struct.unpack_from("<5Q", ring, 128)
    requests = known = 0
    for row in range(min(tail, capacity)):
        at = rows_at + row * 56
        if ring[at + KIND] != 1:
            continue
        requests += 1
        known += struct.unpack_from("<i", ring, at + STACK)[0] >= 0
    return {"requests": requests, "share": known / max(requests, 1), "stacks": stacks, "dropped": dropped}


# Offsets in a row: abi/events.ts.
KIND, STACK = 24, 36


def take_part(torch, workload, way, folder, read, write):
    """In a child: makes one workload ready in one way, runs the steps it is told to, and tells their times."""
    allocator, stacks, history = WAYS[way]
    if allocator:
        from weir_gpu import activate, settings
        from weir_gpu.abi import ChildVariable

        variables = {ChildVariable.ALLOCATOR: allocator, ChildVariable.RUN_DIR: folder, ChildVariable.RING_ROWS: str(1 << 22)}
        if stacks:
            variables[ChildVariable.STACKS] = stacks
        activate.install(settings.read({**os.environ, **variables}))
    if history:
        torch.cuda.memory._record_memory_history(stacks="python", max_entries=1 << 20)
    torch.manual_seed(1)
    with torch.device("cuda"):  # a host takes seconds to draw the weights
        step, count = WORKLOADS[workload](torch)

    def timed():
        torch.cuda.synchronize()
        began = time.perf_counter()
        step()
        torch.cuda.synchronize()
        return time.perf_counter() - began

    for _ in range(WARM_UP):
        timed()
    print("ready", file=write, flush=True)
    for line in read:
        if line == "end\n":
            print(json.dumps(share_with_stack(folder) if allocator else {}), file=write, flush=True)
            return
        print(json.dumps([timed() for _ in range(count)]), file=write, flush=True)


class Participant:
    """A process that starts CUDA for itself."""

    def __init__(self, torch, workload, way):
        self.name = f"{workload}, {way}"
        ours, theirs = socket.socketpair()
        self.child = os.fork()
        if self.child == 0:
            try:
                ours.close()
                with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
                    take_part(torch, workload, way, folder, theirs.makefile("r"), theirs.makefile("w"))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        theirs.close()
        self.socket, self.lines = ours, ours.makefile("r")

    def hear(self):
        line = self.lines.readline()
        if not line:
            raise SystemExit(f"{self.name}: ended early")
        return line

    def step(self):
        self.socket.sendall(b"step\n")
        return json.loads(self.hear())

    def end(self):
        self.socket.sendall(b"end\n")
        told = json.loads(self.hear())
        os.waitpid(self.child, 0)
        return told


def compare(torch, workload, ways, rounds):
    """Figures of some ways that take turns, by way."""
    taking_part = {way: Participant(torch, workload, way) for way in ways}
    for one in taking_part.values():
        one.hear()
    medians, least = {way: [] for way in ways}, dict.fromkeys(ways, math.inf)
    for turn in range(rounds):
        first = turn % len(ways)
        for way in [*ways[first:], *ways[:first]]:
            times = taking_part[way].step()
            medians[way].append(statistics.median(times))
            least[way] = min(least[way], *times)
    base = [statistics.mean(medians[way][turn] for way in PLAIN) for turn in range(rounds)]
    found = {}
    for way in ways:
        ratios = sorted(own / plain for own, plain in zip(medians[way], base))
        quartiles = statistics.quantiles(ratios, n=4)
        found[way] = {"ms": 1e3 * statistics.median(medians[way]), "ratio": quartiles[1], "low": quartiles[0], "high": quartiles[2]}
        found[way]["least"] = least[way] / statistics.mean(least[plain] for plain in PLAIN)
        found[way].update(taking_part[way].end())
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default=",".join(WORKLOADS), help="workloads, separated by commas: %(default)s")
    parser.add_argument("--json", default="")
    parser.add_argument("--rounds", type=int, default=12)
    options = parser.parse_args()
    import torch

    results, began = {}, time.perf_counter()
    recorded = [way for way in WAYS if way not in PLAIN]
    for workload in options.only.split(","):
        room = AT_ONCE.get(workload, len(WAYS)) - len(PLAIN)
        results[workload] = {}
        print(f"\n{workload}")
        print(f"  {'way':24} {'ms':>9} {'ratio':>7} {'quartiles':>15} {'least':>7} {'with a stack':>13} {'stacks':>7} {'requests':>9}")
        for at in range(0, len(recorded), room):
            found = compare(torch, workload, [PLAIN[0], *recorded[at : at + room], PLAIN[1]], options.rounds)
            for way, figures in found.items():
                share = f"{figures['share']:.1%}" if "share" in figures else ""
                rest = f"{share:>13} {figures.get('stacks', ''):>7} {figures.get('requests', ''):>9}"
                spread = f"{figures['low']:.3f} to {figures['high']:.3f}"
                print(f"  {way:24} {figures['ms']:9.2f} {figures['ratio']:7.3f} {spread:>15} {figures['least']:7.3f} {rest}")
                if figures.get("dropped"):
                    print(f"    {figures['dropped']} events were dropped")
            sys.stdout.flush()
            results[workload].update(found)
    means = {
        name: {way: math.prod(found[way][name] for found in results.values()) ** (1 / len(results)) for way in recorded}
        for name in ("ratio", "least")
    }
    for name, ratios in means.items():
        print(f"\nmean {name}: " + ", ".join(f"{way} {ratio:.3f}" for way, ratio in ratios.items()))
    print(f"took {time.perf_counter() - began:.0f} s")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            where = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
            json.dump({**where, "results": results, "means": means}, file, indent=1)


if __name__ == "__main__":
    main()
