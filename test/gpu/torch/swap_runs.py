"""Trainings with and without swapping: the log of one, runs of a script under `weir run` or without it, and verdicts on figures."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

GIB, MIB = 1 << 30, 1 << 20
ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))
# Steps after the first one, which makes the state.
MOST_STEPS = 10
MOST_PAUSE_S = 0.05
MOST_WATCHING = 1.05
# Steps at the end of a run that count as settled.
SETTLED = 10


class OutOfMemory(Exception):
    """The run found no memory."""


def be_strict():
    """Makes PyTorch identical to itself from run to run. Two attention kernels are not, even in this mode."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    import torch

    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    # Filling memory hides whoever reads too much of it, and takes time.
    torch.utils.deterministic.fill_uninitialized_memory = False


class StepLog:
    """What each step of a training came to: its loss, time and peaks, and the number of planned steps up to it."""

    def __init__(self, device="cuda"):
        self.is_cuda = device == "cuda"
        self.losses, self.times, self.planned, self.peaks, self.reserved = [], [], [], [], []

    @property
    def swap(self):
        return sys.modules.get("weir_gpu.swap")

    def report(self):
        return self.swap.report() if self.swap is not None else None

    @contextlib.contextmanager
    def step(self):
        """Gives a function that reads the loss, which waits for the compute stream."""
        import torch

        if self.is_cuda:
            torch.cuda.reset_peak_memory_stats()
        begin = time.perf_counter()
        yield lambda loss: self.losses.append(loss.item().hex())
        self.times.append(time.perf_counter() - begin)
        report = self.report()
        self.planned.append(report["stepsPlanned"] if report else 0)
        self.peaks.append(torch.cuda.max_memory_allocated() if self.is_cuda else 0)
        self.reserved.append(torch.cuda.max_memory_reserved() if self.is_cuda else 0)

    def told(self, parameters=()):
        names = ("losses", "times", "planned", "peaks", "reserved")
        return {**{name: getattr(self, name) for name in names}, "weights": digest(parameters), "report": self.report()}


def digest(parameters):
    """Changes if any bit of the parameters does, except by coincidence."""
    import torch

    sums = []
    for parameter in parameters:
        local = parameter.to_local() if hasattr(parameter, "to_local") else parameter.detach()
        bits = local.detach().contiguous().view(-1).view({2: torch.int16, 4: torch.int32, 8: torch.int64}[local.element_size()])
        sums.append(int(bits.sum(dtype=torch.int64)))
    return hashlib.sha256(json.dumps(sums).encode()).hexdigest()[:16]


def node():
    """The packed folder has a Node of its own (scripts/pack-gpu.mjs)."""
    packed = os.path.join(ROOT, "node")
    return os.environ.get("WEIR_NODE") or (packed if os.path.isfile(packed) else shutil.which("node") or "node")


def under_weir(*flags):
    return [node(), os.path.join(ROOT, "dist", "cli", "main.js"), "run", "-q", "--no-what-if", *flags, "--"]


def run(command, ranks=1, timeout=500, environment=None):
    """Runs a command whose last word is to be a path. Each rank writes what it tells to `path`.<rank>.json. Returns one for each rank."""
    with tempfile.TemporaryDirectory() as folder:
        told = os.path.join(folder, "told")
        child = subprocess.Popen(
            [*command, told],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        try:
            said = child.communicate(timeout=timeout)[0]
        except subprocess.TimeoutExpired:
            said = stop(child)
            raise RuntimeError(f"took more than {timeout} s: {said[-2000:]}") from None
        found = []
        for rank in range(ranks):
            path = f"{told}.{rank}.json"
            if not os.path.exists(path):
                kind = OutOfMemory if "OutOfMemoryError" in said or "out of memory" in said else RuntimeError
                raise kind(f"ended with {child.returncode}: {said[-2000:]}")
            with open(path, encoding="utf-8") as file:
                found.append(json.load(file))
    return found


def stop(child):
    """`weir run` passes the signal on to its command."""
    child.terminate()
    try:
        return child.communicate(timeout=20)[0]
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        return child.communicate()[0]


def tell(path, told, rank=0):
    with open(f"{path}.{rank}.json", "w", encoding="utf-8") as file:
        json.dump(told, file)


class Verdicts:
    """Prints PASS or FAIL for each figure, and keeps them."""

    def __init__(self, say=lambda line: print(line, flush=True)):
        self.say = say
        self.failed = 0
        self.all = []

    def check(self, good, words):
        self.failed += not good
        self.all.append({"good": bool(good), "words": words})
        self.say(f"{'PASS' if good else 'FAIL'} {words}")

    def note(self, words):
        self.say(f"     {words}")


def first_planned(planned):
    """The first step that followed a plan, counted from 1; None if there was none."""
    return next((step for step, count in enumerate(planned, 1) if count > 0), None)
