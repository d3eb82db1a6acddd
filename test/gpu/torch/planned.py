"""A training of fixed shape under `weir run --plan`, against PyTorch: the same bits, and what is reserved once it has settled.

    python3 test/gpu/torch/planned.py [WIDTH]        # needs a build, or a packed folder

Runs the training on PyTorch, on `weir run` and on `weir run --plan`. Prints PASS or FAIL for each figure, and ends with 1 after a FAIL."""

import os
import statistics
import sys

from swap_runs import GIB, StepLog, Verdicts, be_strict, run, tell, under_weir

STEPS = 40
SETTLED = 10
# Of what was allocated at most, once the job follows its plan.
MOST_RESERVED = 1.005
WAYS = {"pytorch": ("--allocator", "pytorch"), "weir": (), "weir --plan": ("--plan",)}


def train(width, path):
    be_strict()
    import torch

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(width, width // 64, 4 * width, dropout=0.1, batch_first=True, norm_first=True)
    net = torch.nn.TransformerEncoder(layer, 8, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    log = StepLog()
    for _ in range(STEPS):
        with log.step() as read:
            loss = net(torch.randn(16, 512, width, device="cuda")).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            read(loss)
    tell(path, log.told(net.parameters()))


def compare(width):
    verdicts = Verdicts()
    told = {name: run([*under_weir(*flags), sys.executable, os.path.abspath(__file__), "train", width])[0] for name, flags in WAYS.items()}
    plain = told["pytorch"]
    usual = statistics.median(plain["times"][-SETTLED:])
    for name, found in told.items():
        allocated, reserved = max(found["peaks"][-SETTLED:]), max(found["reserved"][-SETTLED:])
        time = statistics.median(found["times"][-SETTLED:]) / usual
        words = f"{name}: settled at {reserved / allocated:.4f} of {allocated / GIB:.2f} GiB, step {time:.3f} of {1000 * usual:.1f} ms"
        if name == "weir --plan":
            verdicts.check(reserved <= MOST_RESERVED * allocated, words)
        else:
            verdicts.note(words)
        same = found["losses"] == plain["losses"] and found["weights"] == plain["weights"]
        verdicts.check(same, f"{name}: losses and weights equal PyTorch's to the bit")
    return verdicts.failed


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        train(int(sys.argv[2]), sys.argv[3])
    else:
        sys.exit(compare(sys.argv[1] if len(sys.argv) > 1 else "2048") > 0)
