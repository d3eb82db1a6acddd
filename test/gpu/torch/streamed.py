"""Optimizer state that does not fit beside parameters and gradients, on a real GPU: the same bits, and memory within the limit.

    python3 test/gpu/torch/streamed.py [OPTIMIZER ...]        # AdamW, SGD and RMSprop, if none is named; needs a build, or a packed folder

Trains each under `weir run` twice: with all the memory it wants, and with --swap and --limit at parameters, gradients and half of the
state. Prints PASS or FAIL for each figure, and ends with 1 after a FAIL."""

import os
import statistics
import sys

from swap_runs import GIB, MIB, StepLog, Verdicts, be_strict, run, tell, under_weir

STEPS = 12
WIDTH, BLOCKS, BATCH = 2048, 12, 512
PARAMETERS = BLOCKS * 8 * WIDTH * WIDTH * 4
# Tensors of state for each parameter, and what else the optimizer is asked for.
KINDS = {"AdamW": (2, {}), "SGD": (1, {"momentum": 0.9, "nesterov": True}), "RMSprop": (2, {"momentum": 0.9})}
# Three chunks of state, activations, and what a step computes for a chunk.
ROOM = 768 * MIB


def train(kind, path):
    be_strict()
    import torch

    torch.manual_seed(0)
    up, down = (torch.nn.Linear, WIDTH, 4 * WIDTH), (torch.nn.Linear, 4 * WIDTH, WIDTH)
    made = [make(*sizes) for _ in range(BLOCKS) for make, *sizes in (up, (torch.nn.GELU,), down)]
    net = torch.nn.Sequential(*made).cuda()
    optimizer = getattr(torch.optim, kind)(net.parameters(), lr=1e-4, **KINDS[kind][1])
    log = StepLog()
    for _ in range(STEPS):
        with log.step() as read:
            loss = net(torch.randn(BATCH, WIDTH, device="cuda")).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            read(loss)
    tell(path, log.told(net.parameters()))


def compare(kind, verdicts):
    def trained(*flags):
        return run([*under_weir(*flags), sys.executable, os.path.abspath(__file__), "train", kind])[0]

    state = KINDS[kind][0] * PARAMETERS
    limit = 2 * PARAMETERS + max(state // 2, ROOM)
    plain = trained()
    streamed = trained("--swap", f"{limit // MIB}MiB", "--limit", f"{limit // MIB}MiB")
    report = streamed["report"]
    same = streamed["losses"] == plain["losses"] and streamed["weights"] == plain["weights"]
    verdicts.check(same, f"{kind}: losses and weights equal those without a limit to the bit")
    verdicts.check(report["stopped"] is None, f"{kind}: stopped: {report['stopped']}")
    verdicts.check(report["stepsStreamed"] == STEPS, f"{kind}: {report['stepsStreamed']} of {STEPS} steps were streamed")
    peak, usual_peak = (max(told["reserved"]) for told in (streamed, plain))
    words = f"peak reserved {peak / GIB:.2f} GiB, limit {limit / GIB:.2f} GiB, without a limit {usual_peak / GIB:.2f} GiB"
    verdicts.check(peak <= limit, f"{kind}: {words}")
    took, usual = (statistics.median(told["times"][3:]) for told in (streamed, plain))
    words = f"{state / GIB:.1f} GiB of state cross the link in each direction"
    verdicts.note(f"{kind}: step {1000 * took:.0f} ms, without a limit {1000 * usual:.0f} ms; {words}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        train(*sys.argv[2:4])
    else:
        verdicts = Verdicts()
        for kind in sys.argv[1:] or KINDS:
            compare(kind, verdicts)
        print(f"{verdicts.failed} failed")
        sys.exit(verdicts.failed > 0)
