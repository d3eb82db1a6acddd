"""How soon swapping begins on a real GPU, what it pauses for, and whether the losses stay the same to the bit.

    python3 test/gpu/torch/sooner.py [KIND ...]        # runs `weir run` with and without --swap auto for each kind; needs a build

Kinds: plain, thread (training in a thread that did not import torch), handmade (an optimizer outside of torch.optim), sharded (FSDP2 on
one rank), limit (--swap and --limit at 80 % of the plain peak; its peak counts from the first step).

Prints PASS or FAIL for each figure, and ends with 1 after a FAIL."""

import os
import statistics
import sys
import threading

from swap_runs import (
    GIB,
    MIB,
    MOST_PAUSE_S,
    MOST_STEPS,
    MOST_WATCHING,
    SETTLED,
    StepLog,
    Verdicts,
    be_strict,
    first_planned,
    run,
    tell,
    under_weir,
)

KINDS = ("plain", "thread", "handmade", "sharded", "limit")
STEPS = 40


def train(kind, path):
    be_strict()
    import torch

    log = StepLog()

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
        for _ in range(STEPS):
            with log.step() as read:
                loss = net(torch.randn(16384, 2048, device="cuda")).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                read(loss)
        tell(path, log.told(net.parameters()))
        if kind == "sharded":
            dist.destroy_process_group()

    if kind == "thread":
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    else:
        work()


def trained(kind, *flags):
    return run([*under_weir(*flags), sys.executable, os.path.abspath(__file__), "train", kind])[0]


def compare(kind, verdicts):
    check = verdicts.check
    plain = trained("plain" if kind == "limit" else kind)
    usual = statistics.median(plain["times"][3:])
    flags = ["--swap", "auto"]
    if kind == "limit":
        size = f"{int(0.8 * max(plain['peaks']) / MIB)}MiB"
        flags = ["--swap", size, "--limit", size]
    swapped = trained(kind, *flags)
    times, peaks, report = (swapped[name] for name in ("times", "peaks", "report"))
    first = first_planned(swapped["planned"])
    same = swapped["losses"] == plain["losses"] and swapped["weights"] == plain["weights"]
    check(same, f"{kind}: losses and weights equal plain's to the bit")
    check(report["stopped"] is None, f"{kind}: stopped: {report['stopped']}")
    check(first is not None and first <= 1 + MOST_STEPS, f"{kind}: a plan is used from step {first} on")
    # The first step of both chooses kernels. Under a limit, steps without a plan wait for copies and for pinned memory.
    longest = max(time - usual for time in times[1:])
    where = times.index(max(times[1:])) + 1
    if kind == "limit":
        verdicts.note(f"{kind}: longest step {max(times[1:]):.3f} s, step {where}; a plain step takes {usual:.3f} s")
    else:
        check(
            longest <= MOST_PAUSE_S, f"{kind}: longest pause {1000 * longest:.1f} ms, in step {where}; a step takes {1000 * usual:.1f} ms"
        )
        watched = statistics.median(times[1 : (first or 8) - 1])
        check(watched <= MOST_WATCHING * usual, f"{kind}: steps before the plan take {watched / usual:.3f} of plain ones")
    settled = statistics.median(times[-SETTLED:])
    verdicts.note(f"{kind}: last steps take {settled / usual:.3f} of plain ones; {report['stalls']} stalls, {report['misses']} misses")
    whole, last = max(peaks) / max(plain["peaks"]), max(peaks[-SETTLED:]) / max(plain["peaks"])
    check(last < 1, f"{kind}: peak allocated of plain's {max(plain['peaks']) / GIB:.2f} GiB: {whole:.3f} whole run, {last:.3f} last steps")
    if kind == "limit":
        check(whole <= 0.8, f"{kind}: the limit holds from the first step on")


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        train(*sys.argv[2:4])
    else:
        verdicts = Verdicts()
        for kind in sys.argv[1:] or KINDS:
            compare(kind, verdicts)
        print(f"{verdicts.failed} failed")
        sys.exit(verdicts.failed > 0)
