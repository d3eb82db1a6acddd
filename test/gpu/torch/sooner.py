"""How soon swapping begins on a real GPU, what it pauses for, and whether the losses stay the same to the bit.

    python3 test/gpu/torch/sooner.py [KIND ...]        # runs `weir run` with and without --swap auto for each kind; needs a build

Kinds: plain, thread (training in a thread that did not import torch), handmade (an optimizer outside of torch.optim), sharded (FSDP2 on
one rank), limit (--swap and --limit at 80 % of the plain peak; its peak counts from the first step).

Prints PASS or FAIL for each figure, and ends with 1 after a FAIL."""

import hashlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time

KINDS = ("plain", "thread", "handmade", "sharded", "limit")
STEPS = 40
# Steps after the first one, which makes the state.
MOST_STEPS = 10
MOST_PAUSE_S = 0.05
MOST_WATCHING = 1.05
GIB = 1 << 30
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")


def train(kind):
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    import torch

    torch.use_deterministic_algorithms(True)
    told = {"kind": kind}

    class Block(torch.nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm = torch.nn.LayerNorm(width)
            self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

        def forward(self, x):
            return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))

    class Handmade:
        def __init__(self, parameters):
            self.param_groups, self.state = [{"params": list(parameters)}], {}

        @torch.no_grad()
        def step(self):
            for parameter in self.param_groups[0]["params"]:
                if parameter not in self.state:
                    self.state[parameter] = {"m": torch.zeros_like(parameter), "v": torch.zeros_like(parameter)}
                entry = self.state[parameter]
                entry["m"].lerp_(parameter.grad, 0.1)
                entry["v"].lerp_(parameter.grad.square(), 0.001)
                parameter.sub_(entry["m"] / (entry["v"].sqrt() + 1e-8), alpha=1e-4)

        def zero_grad(self):
            for parameter in self.param_groups[0]["params"]:
                parameter.grad = None

    def work():
        torch.manual_seed(0)
        net = torch.nn.Sequential(*[Block(2048) for _ in range(16)]).cuda()
        if kind == "sharded":
            import torch.distributed as dist
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard

            dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
            mesh = init_device_mesh("cuda", (1,))
            for block in net:
                fully_shard(block, mesh=mesh)
            fully_shard(net, mesh=mesh)
        optimizer = Handmade(net.parameters()) if kind == "handmade" else torch.optim.AdamW(net.parameters(), lr=1e-4)
        swap = sys.modules.get("weir_gpu.swap")
        losses, times, planned, peaks = [], [], [], []
        for _ in range(STEPS):
            torch.cuda.reset_peak_memory_stats()
            begin = time.perf_counter()
            loss = net(torch.randn(16384, 2048, device="cuda")).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            times.append(time.perf_counter() - begin)
            report = swap.report() if swap is not None else None
            planned.append(report["stepsPlanned"] if report else 0)
            peaks.append(torch.cuda.max_memory_allocated())
        told.update(
            losses=hashlib.sha256(json.dumps([loss.hex() for loss in losses]).encode()).hexdigest()[:16],
            times=times,
            planned=planned,
            peaks=peaks,
            reserved=torch.cuda.max_memory_reserved(),
            report=swap.report() if swap is not None else None,
        )
        if kind == "sharded":
            dist.destroy_process_group()

    if kind == "thread":
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    else:
        work()
    print("told " + json.dumps(told), flush=True)


def run(kind, *flags):
    command = ["node", os.path.join(ROOT, "dist", "cli", "main.js"), "run", "-q", "--no-what-if", *flags, "--"]
    child = subprocess.run(
        [*command, sys.executable, os.path.abspath(__file__), "train", kind], capture_output=True, text=True, timeout=500
    )
    line = next((line for line in child.stdout.split("\n") if line.startswith("told ")), None)
    if line is None:
        raise RuntimeError(f"{kind} {flags}: ended with {child.returncode}: {child.stderr[-2000:]}")
    return json.loads(line[5:])


failed = 0


def check(good, words):
    global failed
    failed += not good
    print(f"{'PASS' if good else 'FAIL'} {words}", flush=True)


def compare(kind):
    plain = run("plain" if kind == "limit" else kind)
    usual = statistics.median(plain["times"][3:])
    flags = ["--swap", "auto"]
    if kind == "limit":
        size = f"{int(0.8 * max(plain['peaks']) / (1 << 20))}MiB"
        flags = ["--swap", size, "--limit", size]
    swapped = run(kind, *flags)
    planned, times, peaks, report = (swapped[name] for name in ("planned", "times", "peaks", "report"))
    first = next((step for step, count in enumerate(planned, 1) if count > 0), None)
    check(swapped["losses"] == plain["losses"], f"{kind}: losses {swapped['losses']}, plain {plain['losses']}")
    check(report["stopped"] is None, f"{kind}: stopped: {report['stopped']}")
    check(first is not None and first <= 1 + MOST_STEPS, f"{kind}: a plan is used from step {first} on")
    # The first step of both chooses kernels. Under a limit, steps without a plan wait for copies and for pinned memory.
    longest = max(time - usual for time in times[1:])
    where = times.index(max(times[1:])) + 1
    if kind == "limit":
        print(f"     {kind}: longest step {max(times[1:]):.3f} s, step {where}; a plain step takes {usual:.3f} s")
    else:
        check(
            longest <= MOST_PAUSE_S, f"{kind}: longest pause {1000 * longest:.1f} ms, in step {where}; a step takes {1000 * usual:.1f} ms"
        )
        watched = statistics.median(times[1 : (first or 8) - 1])
        check(watched <= MOST_WATCHING * usual, f"{kind}: steps before the plan take {watched / usual:.3f} of plain ones")
    settled = statistics.median(times[-10:])
    print(f"     {kind}: last steps take {settled / usual:.3f} of plain ones; {report['stalls']} stalls, {report['misses']} misses")
    whole, last = max(peaks) / max(plain["peaks"]), max(peaks[-10:]) / max(plain["peaks"])
    check(last < 1, f"{kind}: peak allocated of plain's {max(plain['peaks']) / GIB:.2f} GiB: {whole:.3f} whole run, {last:.3f} last steps")
    if kind == "limit":
        check(whole <= 0.8, f"{kind}: the limit holds from the first step on")


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        train(sys.argv[2])
    else:
        for kind in sys.argv[1:] or KINDS:
            compare(kind)
        print(f"{failed} failed")
        sys.exit(failed > 0)
