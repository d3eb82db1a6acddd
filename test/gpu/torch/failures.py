"""Out-of-memory errors on a GPU: the file is there, and `weir analyze` names the line that asked for the memory.

python3 test/gpu/torch/failures.py [COMMAND OF WEIR ...], such as: python3 test/gpu/torch/failures.py node dist/cli/main.js

Each case is a process of its own that fails on purpose: in forward, in backward, in the optimizer, in a callback of a DataLoader, in
rank 1 of 2, and in a place where the script catches the error. Lines that must be named end with `# fails: CASE`."""

import concurrent.futures
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
LIMIT = 1536 * MIB
SCRIPT = os.path.abspath(__file__)
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(SCRIPT))))
# The way of starting, and the case.
CASES = (
    *(("run", case) for case in ("forward", "backward", "optimizer", "loader", "caught", "rank")),
    *(("record", case) for case in ("forward", "backward", "optimizer", "rank")),
    ("enable", "forward"),
)
AT_ONCE = 3


# ---- What fails.


def fail(case):
    import torch

    if case == "rank":
        import torch.distributed as dist

        dist.init_process_group("gloo")
    if os.environ.get("FAIL_FRACTION"):
        torch.cuda.set_per_process_memory_fraction(LIMIT / torch.cuda.get_device_properties(0).total_memory)
    device = torch.device("cuda:0")
    globals()[f"fail_in_{case}"](torch, device)


def fail_in_forward(torch, device):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1024, 1024, device=device))

        def forward(self, x):
            for _ in range(100):
                x = torch.nn.functional.gelu(x @ self.weight)  # fails: forward
            return x

    Net()(torch.zeros(64 * 1024, 1024, device=device, requires_grad=True))


def fail_in_backward(torch, device):
    weight = torch.zeros(225 * MIB, 1, device=device, requires_grad=True)  # 900 MiB, and the gradient as much
    words = torch.arange(1000, device=device)
    found = torch.nn.functional.embedding(words, weight)  # fails: backward
    loss = found.sum()
    loss.backward()


def fail_in_optimizer(torch, device):
    weight = torch.nn.Parameter(torch.zeros(100 * MIB, device=device))  # 400 MiB, and the gradient, and twice as much state
    optimizer = torch.optim.Adam([weight], foreach=False)
    weight.grad = torch.zeros_like(weight)
    optimizer.step()  # fails: optimizer


def fail_in_loader(torch, device):
    def collate(items):
        return torch.zeros(len(items) * 256 * MIB, device=device)  # fails: loader

    for batch in torch.utils.data.DataLoader(list(range(64)), batch_size=2, collate_fn=collate):
        batch.sum().item()


def fail_in_caught(torch, device):
    held = torch.zeros(100 * MIB, device=device)
    for _ in range(3):
        try:
            torch.zeros(1024 * MIB, device=device)  # fails: caught
        except torch.cuda.OutOfMemoryError:
            pass
    print("went on", held.sum().item())


def fail_in_rank(torch, device):
    import torch.distributed as dist

    held = torch.zeros(50 * MIB, device=device)
    dist.barrier()
    if dist.get_rank() == 1:
        held = torch.zeros(1024 * MIB, device=device)  # fails: rank
    time.sleep(3)
    print(held.shape)


# ---- What is checked.


def line_of(case):
    with open(SCRIPT, encoding="utf8") as file:
        return next(number for number, line in enumerate(file, 1) if line.rstrip().endswith(f"# fails: {case}"))


def check(weir, way, case):
    """What is wrong, one sentence each."""
    folder = tempfile.mkdtemp(prefix=f"weir-failures-{way}-{case}-")
    python = [sys.executable, SCRIPT, "--fail", case]
    if case == "rank":
        python = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *python[1:]]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEIR")}
    if way == "run":
        words = [*weir, "run", "--stacks=python", "--no-what-if", "--limit", str(LIMIT), "--", *python]
    elif way == "record":
        words = [*weir, "record", "--stacks=python", "--no-what-if", "-o", "run.weir", "--", *python]
        environment["FAIL_FRACTION"] = "1"
    else:
        words = python
        # The folder of the process is another one.
        environment["PYTHONPATH"] = os.pathsep.join(
            os.path.abspath(path) for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path
        )
        environment.update(WEIR="1", WEIR_LIMIT=str(LIMIT), WEIR_STACKS="python")
    began = time.monotonic()
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=100)
    if way == "enable":
        # The supervisor ends after the process.
        for _ in range(100):
            if glob.glob(os.path.join(folder, "oom.*.weir")):
                break
            time.sleep(0.1)
    wrong = []

    def must(right, what):
        if not right:
            wrong.append(what)

    must((done.returncode == 0) == (case == "caught"), f"exit code {done.returncode}")
    must("OutOfMemoryError" in done.stderr or case == "caught", "the script did not see the error")
    files = sorted(os.path.basename(path) for path in glob.glob(os.path.join(folder, "oom.*.weir")))
    expected = 2 if case == "caught" else 1
    must(len(files) == expected, f"{expected} file(s) expected, found {files}")
    if case == "rank":
        must(all(name.startswith("oom.1.") for name in files), f"not of rank 1: {files}")
        must("out of memory: rank 1 " in done.stderr, "rank 1 is not named")
    must("out of memory: " in done.stderr and "to make it fit: " in done.stderr, "the ten lines are missing")
    site = f"failures.py:{line_of(case)} "
    for name in files:
        asked = subprocess.run([*weir, "analyze", "--json", "--no-smallest", name], cwd=folder, capture_output=True, text=True)
        if asked.returncode != 0:
            wrong.append(f"weir analyze {name}: {asked.stderr}")
            continue
        found = json.loads(asked.stdout)
        must(site in (found["oom"]["site"] or ""), f"{name}: expected {site}, found {found['oom']['site']}")
        must(f"requested at: {found['oom']['site']}" in done.stderr, f"{name}: the ten lines do not name that line")
        must(found["warnings"] == [], f"{name}: {found['warnings']}")
        must(found["otherMemory"] is not None, f"{name}: memory that is not PyTorch's is unknown")
    lines = [line for line in done.stderr.splitlines() if line.startswith("weir: ")]
    print(f"== {way} {case}: {'ok' if not wrong else wrong} ({time.monotonic() - began:.1f} s)\n" + "\n".join(lines), flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    return [f"{way} {case}: {sentence}" for sentence in wrong]


def main(weir):
    if not weir:
        found = shutil.which("weir")
        weir = [found] if found else [shutil.which("node") or "node", os.path.join(ROOT, "dist/cli/main.js")]
    weir = [os.path.abspath(word) if os.path.exists(word) else word for word in weir]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        wrong = [sentence for answer in pool.map(lambda case: check(weir, *case), CASES) for sentence in answer]
    for sentence in wrong:
        print(f"FAILED {sentence}")
    print(f"{len(CASES)} cases, {len(wrong)} failures")
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fail"]:
        fail(sys.argv[2])
    else:
        sys.exit(main(sys.argv[1:]))
