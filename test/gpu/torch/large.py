"""Swapping where large models train, against PyTorch alone: memory, step times, how soon, how near to the bound, and the same bits.

    python3 test/gpu/torch/large.py [PART ...] [--only A,B] [--seconds N] [--json FILE]      # needs a build, or a packed folder

Parts:
  timed   (default) each workload alone on the GPU: PyTorch, `weir run --swap auto`, PyTorch again. PASS or FAIL for each figure.
  debug   each workload under WEIR_SWAP_DEBUG=1, several at once: only bits count.
  limits  the smallest memory in which each workload trains: PyTorch, expandable segments, save_on_cpu, FSDP2's CPU offload, and
          `weir run --swap SIZE --limit SIZE`. Several runs at once; the smallest size of each then runs alone, for its step time.

--seconds: no run starts later than this; what was left out is printed. --json: all figures, written after each workload.
WEIR_NODE names a Node, if it is neither in the packed folder nor in the PATH.

Workloads: see large_models.py. All are PyTorch code with random weights, and strictly deterministic. Ends with 1 after a FAIL."""

import argparse
import concurrent.futures
import json
import os
import socket
import sys
import time
from dataclasses import replace

import large_figures
import swap_runs
from large_models import WORKLOADS, Job, command
from swap_runs import GIB, MIB, OutOfMemory, Verdicts

PARTS = ("timed", "debug", "limits")
STEPS = 50
DEBUG_STEPS = 20
# A plan is in use after about ten steps.
LIMIT_STEPS = 16
RUN_S = 400
# Memory for runs at the same time, and what CUDA itself takes for each process.
SHARED_GIB, CONTEXT_GIB = 125, 1
MOST_AT_ONCE = 4
HOST_GIB = 90
# The smallest size is found to this share of PyTorch's own peak.
PRECISION = 0.03
SMALLEST = 0.15

WEIR, OFFLOAD, SAVE = "weir", "offload", "save_on_cpu"
# Environment and ways of each method that keeps a limit.
METHODS = {
    "native": ({}, []),
    "expandable": ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "PYTORCH_ALLOC_CONF": "expandable_segments:True"}, []),
    SAVE: ({}, [SAVE]),
    OFFLOAD: ({}, [OFFLOAD]),
    WEIR: ({}, []),
}


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def run_job(job, flags=None, environment=None):
    """Runs a job, under Weir if there are flags. Returns what its ranks tell."""
    words = command(job, free_port())
    if flags is not None:
        words = [*swap_runs.under_weir(*flags), *words]
    return swap_runs.run(words, job.resolved().ranks, RUN_S, environment)


def within(job, method, size, at_once):
    """The job, flags and environment that keep a limit."""
    environment, ways = METHODS[method]
    if method == WEIR:
        text = f"{size // MIB}MiB"
        # Runs that do not fit are expected.
        return job, ["--swap", text, "--limit", text, "--swap-host", f"{HOST_GIB // at_once}GiB", "--oom-dir", "none"], environment
    return replace(job, fraction=size, ways=ways), None, environment


class Budget:
    """No run starts after its end."""

    def __init__(self, seconds, clock=time.monotonic):
        self.clock = clock
        self.until = clock() + seconds
        self.left_out = []

    def allows(self, what):
        if self.clock() < self.until:
            return True
        self.left_out.append(what)
        return False


class Comparison:
    """All runs, in turn. `runner` is replaced in tests."""

    def __init__(self, options, runner=run_job, verdicts=None):
        self.options = options
        self.runner = runner
        self.budget = Budget(options.seconds)
        self.verdicts = verdicts or Verdicts()
        self.workloads = {name: {} for name in options.only}
        self.about = {}

    def run(self, what, job, flags=None, environment=None):
        """What the run tells; None if it was left out or has failed."""
        if not self.budget.allows(what):
            return None
        began = time.monotonic()
        try:
            told = self.runner(job, flags, environment)
        except Exception as error:
            self.verdicts.check(False, f"{what}: {type(error).__name__}: {error}")
            return None
        self.about = {name: told[0][name] for name in ("torch", "gpu") if name in told[0]}
        self.verdicts.note(f"{what}: {time.monotonic() - began:.0f} s")
        return told

    def job(self, name, steps):
        return Job(name, steps, self.options.device, self.options.tiny)

    # ---- timed

    def timed(self, name):
        job = self.job(name, self.options.steps)
        native = [self.run(f"{name}, native", job)]
        swapped = self.run(f"{name}, --swap auto", job, ["--swap", "auto"])
        # Compiling takes longer than what a second run would show.
        if not WORKLOADS[name].compiled:
            native.append(self.run(f"{name}, native again", job))
        native = [told for told in native if told is not None]
        self.workloads[name]["native"] = native
        if native and swapped is not None:
            self.workloads[name]["swapped"] = swapped
            self.workloads[name]["figures"] = figures = large_figures.compare(native, swapped)
            large_figures.judge(name, figures, self.verdicts)

    # ---- debug

    def debug(self, names):
        """Runs share the GPU in groups that fit."""
        for group in groups(names, lambda name: 1.1 * (WORKLOADS[name].gib + CONTEXT_GIB), SHARED_GIB):
            with concurrent.futures.ThreadPoolExecutor(len(group)) as pool:
                list(pool.map(lambda name: self.debug_one(name, len(group)), group))

    def debug_one(self, name, at_once):
        job = self.job(name, self.options.debug_steps)
        natives = self.workloads[name].get("native") or [self.run(f"{name}, native beside others", job)]
        host = ["--swap-host", f"{HOST_GIB // at_once}GiB"]
        told = self.run(f"{name}, debug", job, ["--swap", "auto", *host], {"WEIR_SWAP_DEBUG": "1", "WEIR_SWAP_TOLERANCE": "any"})
        if told is None or natives[0] is None:
            return
        self.workloads[name]["debug"] = {"checked": sum(rank["report"]["checked"] for rank in told)}
        large_figures.judge_bits(f"{name}, debug", natives[0], told, self.verdicts)
        checked = [rank["report"]["checked"] for rank in told]
        self.verdicts.check(min(checked) > 0, f"{name}, debug: copies compared: {', '.join(map(str, checked))}")

    # ---- limits

    def limits(self, name):
        job = self.job(name, self.options.limit_steps)
        natives = self.workloads[name].get("native") or [self.run(f"{name}, native", job)]
        if natives[0] is None:
            return
        native = large_figures.merged(natives[0])
        high = max(native["reserved"])
        self.workloads[name]["limits"] = found = {}
        for method in METHODS:
            if method == OFFLOAD and WORKLOADS[name].ranks == 1:
                continue
            found[method] = row = self.smallest(name, job, method, high)
            if row["bytes"] is None:
                continue
            told = self.run(f"{name}, {method} in {row['bytes'] / GIB:.2f} GiB, alone", *within(job, method, row["bytes"], 1))
            if told is None:
                continue
            row.update(large_figures.under_limit(native, told))
            if method == WEIR:
                row["stepsStreamed"] = max(rank["report"].get("stepsStreamed", 0) for rank in told)
                large_figures.judge_bits(f"{name} in {row['bytes'] / GIB:.2f} GiB", natives[0], told, self.verdicts)
            self.verdicts.note(f"{name}, {method}: trains in {row['bytes'] / GIB:.2f} GiB, step time {row['stepRatio']:.3f} of native's")
        large_figures.judge_limits(name, found, self.verdicts)

    def smallest(self, name, job, method, high):
        """The smallest size that trains and the largest that does not, by runs of several sizes at once."""
        failures = []

        def trains(size, at_once):
            what = f"{name}, {method} in {size / GIB:.2f} GiB"
            if not self.budget.allows(what):
                return None
            try:
                self.runner(*within(job, method, size, at_once))
                return True
            except OutOfMemory:
                return False
            except Exception as error:
                failures.append(f"{what}: {type(error).__name__}: {str(error)[-500:]}")
                return False

        each = WORKLOADS[name].ranks * (high / GIB + CONTEXT_GIB)
        # PyTorch rounds pinned memory up to powers of two: two such runs may need more than the machine has.
        at_once = 1 if method == SAVE else max(1, min(MOST_AT_ONCE, int(SHARED_GIB // each)))
        step = max(2 * MIB, int(PRECISION * high))
        trained, failed = large_figures.search(trains, int(SMALLEST * high), int(1.05 * high), step, at_once)
        for words in failures:
            # Other ways to train in little memory may have defects of their own.
            if method == WEIR:
                self.verdicts.check(False, f"failed for another reason than memory: {words}")
            else:
                self.verdicts.note(f"failed for another reason than memory: {words}")
        return {"bytes": trained, "failed": failed}

    # ---- all

    def go(self):
        options = self.options
        for name in options.only if "timed" in options.parts else ():
            self.timed(name)
            self.write()
        if "debug" in options.parts:
            self.debug(options.only)
            self.write()
        for name in options.only if "limits" in options.parts else ():
            self.limits(name)
            self.write()
        if self.budget.left_out:
            print(f"left out, since {options.seconds} s were over: {'; '.join(self.budget.left_out)}", flush=True)
        print(f"{len(self.verdicts.all)} figures judged, {self.verdicts.failed} failed", flush=True)
        return 1 if self.verdicts.failed else 0

    def write(self):
        if not self.options.json:
            return
        whole = {
            **self.about,
            "steps": self.options.steps,
            "workloads": self.workloads,
            "verdicts": self.verdicts.all,
            "leftOut": self.budget.left_out,
        }
        with open(self.options.json, "w", encoding="utf-8") as file:
            json.dump(whole, file, indent=1)
            file.write("\n")


def groups(names, size_of, most):
    """In order; each group is as large as fits, and has at least one."""
    made, room = [], 0
    for name in names:
        if not made or size_of(name) > room:
            made.append([])
            room = most
        made[-1].append(name)
        room -= size_of(name)
    return made


def options_of(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (default: timed)")
    parser.add_argument("--only", default=",".join(WORKLOADS), help="workloads, separated by commas")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no run starts later than this")
    parser.add_argument("--json", default="", type=lambda path: os.path.abspath(path) if path else "", help="write all figures there")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--debug-steps", type=int, default=DEBUG_STEPS)
    parser.add_argument("--limit-steps", type=int, default=LIMIT_STEPS)
    parser.add_argument("--tiny", action="store_true", help="models of a few KiB, to try the script")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args(words)
    options.parts = options.parts or ["timed"]
    options.only = [name for name in options.only.split(",") if name]
    for name, known in ((options.parts, PARTS), (options.only, WORKLOADS)):
        unknown = [word for word in name if word not in known]
        if unknown:
            parser.error(f"there is no {unknown[0]}; there are {', '.join(known)}")
    return options


if __name__ == "__main__":
    sys.exit(Comparison(options_of(sys.argv[1:])).go())
