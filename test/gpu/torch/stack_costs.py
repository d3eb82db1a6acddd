"""What call stacks cost: five workloads, each recorded in several ways in one run, against PyTorch's own history.

    PYTHONPATH=dist/python python3 test/gpu/torch/stack_costs.py [--seconds 120] [--only gpt2,bert] [--json FILE]

The ways take turns, a few steps each, in random order, with steps that nobody records before and after each turn. `time` is the median
over all rounds of a turn against the turns beside it, so a machine that becomes slower slows both. Behind it stands its 95 % interval.
`again` is a second process that nobody records: as far as it is from 1, all other processes may be, which the verdicts allow for.

`CPU` is what all threads of the process take until everything is launched, less what they take unrecorded, as a share of the unrecorded
step, which cannot become longer by more; and in us per request. Other programs hardly change it. Where the GPU is behind by so many
kernels that launching waits, the processor waits in any case and the figure says less; the ratio of times is precise there.

`stacks alone`: against the same process while it takes none. `over history`: against PyTorch's own history in the same rounds."""

import argparse
import ctypes
import json
import os
import random
import shutil
import socket
import struct
import sys
import tempfile
import time
import traceback

from paired import Estimate, pairs, schedule
from stack_report import judge, show
from stack_workloads import WORKLOADS

BASE, AGAIN, HISTORY = "unrecorded", "again", "history"
# Allocator and value of the variable for stacks.
RECORDED = {
    "record python": ("pytorch", "python"),
    "record large": ("pytorch", "python:1048576"),
    "run large": ("weir", "python:1048576"),
}
OFF = "record off"
# Two processes that do the same differ by some percent where the processor is the bottleneck, so `again` has one of its own.
HOSTS = {HISTORY: BASE, OFF: "record python"}
WAYS = (OFF, *RECORDED, HISTORY, AGAIN)
# PyTorch's current allocator. Weir's for `weir record` gives out PyTorch's blocks, so it can be left aside for some steps: then nobody
# takes stacks.
CURRENT_ALLOCATOR = "_ZN3c104cuda20CUDACachingAllocator9allocatorE"
WARM_UP = 4
SLICE_S = 0.06
# Of the time: the model with the longest steps needs more of it for as many rounds.
WEIGHTS = {"gpt2": 2}
# A process is ready and ends a turn within this time, or is left out.
MOST_WAIT_S = 90
# For `--dry`: what ways cost more than others, as a share of a step.
PLANTED = {"record python": 0.25}
# Offsets in a row of the ring: abi/events.ts.
KIND, STACK = 24, 36


def requests_of(folder):
    """From the ring of this process, whose layout is in abi/ring.ts: requests, share of them with a stack, stacks, dropped rows."""
    with open(os.path.join(folder, f"{os.getpid()}.ring"), "rb") as file:
        ring = file.read()
    rows_at, capacity = struct.unpack_from("<II", ring, 20)
    tail, dropped, _, _, stacks = struct.unpack_from("<5Q", ring, 128)
    requests = known = 0
    for row in range(min(tail, capacity)):
        at = rows_at + row * 56
        if ring[at + KIND] == 1:
            requests += 1
            known += struct.unpack_from("<i", ring, at + STACK)[0] >= 0
    return {"requests": requests, "share": known / max(requests, 1), "stacks": stacks, "dropped": dropped}


class Steps:
    """In a child: one workload, made ready in one way."""

    def __init__(self, torch, workload, way, folder, is_dry):
        self.torch, self.planted, self.is_dry = torch, PLANTED.get(way, 0) if is_dry else 0, is_dry
        self.is_planted = True
        self.current = self.native = None
        if way in RECORDED and not is_dry:
            try:
                self.current = ctypes.c_void_p.in_dll(ctypes.CDLL("libc10_cuda.so"), CURRENT_ALLOCATOR)
                self.native = self.current.value
            except (OSError, ValueError) as error:
                print(f"  {OFF}: {error}", file=sys.stderr)
            install(folder, *RECORDED[way])
        self.can_be_off = is_dry or self.current is not None
        torch.manual_seed(1)
        with torch.device("cpu" if is_dry else "cuda"):  # a host takes seconds to draw large weights
            self.step = WORKLOADS[workload](torch, small=is_dry)
        self.ran, self.unit = 0, 0.0
        for _ in range(WARM_UP):
            self.last = self.turn(1)
        self.count = max(1, round(SLICE_S * 1e3 / self.last["ms"]))
        self.unit = self.last["cpu"] / 1e3

    def wait(self):
        if not self.is_dry:
            self.torch.cuda.synchronize()

    def turn(self, count):
        self.wait()
        began, used = time.perf_counter(), time.process_time()
        for _ in range(count):
            self.step()
            if self.planted and self.is_planted:
                until = time.process_time() + self.planted * self.unit
                while time.process_time() < until:
                    pass
        used = time.process_time() - used
        self.wait()
        self.ran += count
        return {"ms": (time.perf_counter() - began) * 1e3 / count, "cpu": used * 1e3 / count}

    def follow(self, way, count):
        """A turn of so many steps. Before it, some that are not counted, where that costs little: caches belong to others now."""
        has_history = way == HISTORY and not self.is_dry
        ours = self.current.value if self.current is not None else None
        self.is_planted = way != OFF
        if way == OFF and self.current is not None:
            self.current.value = self.native
        if has_history:
            self.torch.cuda.memory._record_memory_history(stacks="python", max_entries=1 << 18)
        if self.last["ms"] < SLICE_S * 1e3:
            self.turn((count + 1) // 2)
        found = self.turn(count)
        if has_history:
            self.torch.cuda.memory._record_memory_history(enabled=None)
        if self.current is not None:
            self.current.value = ours
        return found


def install(folder, allocator, stacks):
    from weir_gpu import activate, settings
    from weir_gpu.abi import ChildVariable

    variables = {ChildVariable.ALLOCATOR: allocator, ChildVariable.RUN_DIR: folder, ChildVariable.RING_ROWS: str(1 << 22)}
    if stacks:
        variables[ChildVariable.STACKS] = stacks
    activate.install(settings.read({**os.environ, **variables}))


def take_part(torch, workload, way, folder, is_dry, read, write):
    steps = Steps(torch, workload, way, folder, is_dry)
    print(json.dumps({"count": steps.count, "canBeOff": steps.can_be_off}), file=write, flush=True)
    for line in read:
        asked = json.loads(line)
        if asked is None:
            told = requests_of(folder) if way in RECORDED and not is_dry else {}
            gpu = "none" if is_dry else torch.cuda.get_device_name()
            print(json.dumps({**told, "ran": steps.ran, "gpu": gpu}), file=write, flush=True)
            return
        print(json.dumps(steps.follow(*asked)), file=write, flush=True)


class Left(Exception):
    """A process that does not take part any more."""


class Participant:
    """A process that starts CUDA for itself. It is forked, so all of them have the same memory layout and hashes."""

    sockets = []  # noqa: RUF012 -- ours, which the next children inherit and must not keep open

    def __init__(self, torch, workload, way, is_dry):
        ours, theirs = socket.socketpair()
        self.folder = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        sys.stdout.flush()
        self.child = os.fork()
        if self.child == 0:
            try:
                for inherited in [ours, *self.sockets]:
                    inherited.close()
                take_part(torch, workload, way, self.folder, is_dry, theirs.makefile("r"), theirs.makefile("w"))
            except BaseException as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                print(f"  {way}: {type(error).__name__}: {str(error)[:400]} ({where.filename}:{where.lineno})", file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        theirs.close()
        self.sockets.append(ours)
        ours.settimeout(MOST_WAIT_S)
        self.socket, self.lines = ours, ours.makefile("r")

    def hear(self):
        try:
            line = self.lines.readline()
        except OSError as error:
            raise Left(f"no answer: {error}") from None
        if not line:
            raise Left("its process ended")
        return json.loads(line)

    def ask(self, what):
        try:
            self.socket.sendall(json.dumps(what).encode() + b"\n")
        except OSError as error:
            raise Left(str(error)) from None
        return self.hear()

    def end(self, kill=False):
        if kill:
            os.kill(self.child, 9)
        self.sockets.remove(self.socket)
        self.socket.close()
        os.waitpid(self.child, 0)
        shutil.rmtree(self.folder, ignore_errors=True)


class Comparison:
    """One workload, until a moment."""

    def __init__(self, torch, workload, ways, is_dry):
        self.draw = random.Random(workload)
        self.order_of_ways = list(ways)
        self.left = {}
        self.participants = {
            way: Participant(torch, workload, way, is_dry) for way in dict.fromkeys(HOSTS.get(way, way) for way in (BASE, *ways))
        }
        told = {way: self.of(way, lambda one: one.hear()) for way in list(self.participants)}
        self.count = told[BASE]["count"] if told[BASE] else 0
        if OFF in ways and not (told[HOSTS[OFF]] or {}).get("canBeOff"):
            self.order_of_ways.remove(OFF)
        self.rounds = []  # {way: ({"ms", "cpu"} of the way, of the base)}

    def of(self, way, asking):
        """None if the process does not take part any more. Then the way is left out."""
        try:
            return asking(self.participants[way])
        except Left as reason:
            self.left[way] = str(reason)
            self.participants.pop(way).end(kill=True)
            return None

    def ways(self):
        return [way for way in self.order_of_ways if HOSTS.get(way, way) in self.participants]

    def measure(self, until):
        if BASE not in self.participants:
            raise Left(self.left[BASE])
        longest = 0.0
        while self.ways() and (not self.rounds or time.perf_counter() + longest < until):
            began = time.perf_counter()
            order = schedule(BASE, self.ways(), self.draw)
            found, last = [], None
            for way in order:
                process = HOSTS.get(way, way)
                if process == last:
                    self.interrupt()
                last = process
                found.append(self.of(process, lambda one, way=way: one.ask([way, self.count])) if process in self.participants else None)
                if found[-1] is None and process == BASE:
                    raise Left(self.left.get(BASE, ""))
            both = {part: pairs(order, BASE, [one[part] if one else float("nan") for one in found]) for part in ("ms", "cpu")}
            self.rounds.append({way: {part: both[part][way] for part in both} for way, one in zip(order, found) if way != BASE and one})
            longest = max(longest, time.perf_counter() - began)

    def interrupt(self):
        """Another process runs a step, so that no turn has the caches of the one before."""
        others = [way for way in self.participants if way != BASE]
        if others:
            other = self.draw.choice(others)
            self.of(other, lambda one: one.ask([other, 1]))

    def finish(self):
        told = {way: self.of(way, lambda one: one.ask(None)) for way in list(self.participants)}
        for way in list(self.participants):
            self.participants.pop(way).end()
        return told

    def abandon(self):
        for way in list(self.participants):
            self.participants.pop(way).end(kill=True)

    @staticmethod
    def costs(rounds, way, base_of):
        """Step time as a ratio, processor time as a difference, against what `base_of` tells of a round."""
        bases = [base_of(one) for one in rounds]
        ratio = Estimate([one[way]["ms"][0] / base["ms"] for one, base in zip(rounds, bases)])
        more = [one[way]["cpu"][0] - base["cpu"] for one, base in zip(rounds, bases)]
        share = Estimate([part / base["ms"] for part, base in zip(more, bases)])
        return {"ratio": ratio.figures(), "cpu": {**Estimate(more).figures(), "share": share.figures()}}

    @staticmethod
    def moved(one, way, other):
        """What another way took, as if it had its turn where this one had."""
        return {part: one[other][part][0] * one[way][part][1] / max(one[other][part][1], 1e-9) for part in ("ms", "cpu")}

    def results(self):
        """Figures by way."""
        told = self.finish()
        requests = next((one["requests"] / one["ran"] for one in told.values() if one and "requests" in one), None)
        found = {}
        for way in self.order_of_ways:
            rounds = [one for one in self.rounds if way in one]
            reason = self.left.get(HOSTS.get(way, way))
            if reason or not rounds:
                found[way] = {"left out": reason or "no time"}
                continue
            figures = {"ms": Estimate([one[way]["ms"][0] for one in rounds]).median}
            figures.update(self.costs(rounds, way, lambda one: {part: one[way][part][1] for part in ("ms", "cpu")}))
            if requests:
                figures["cpu"]["usPerRequest"] = figures["cpu"]["median"] * 1e3 / requests
            others = {"againstHistory": HISTORY, "stacksAlone": OFF if way == "record python" else None}
            for name, other in others.items():
                both = [one for one in rounds if other in one]
                if both and way not in (BASE, AGAIN, OFF, other):
                    figures[name] = self.costs(both, way, lambda one, other=other: self.moved(one, way, other))
            figures.update(told.get(way) or {})
            found[way] = figures
        self.gpu = next((one["gpu"] for one in told.values() if one), "")
        return found, requests


def in_child(work):
    """Whether it has ended well."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() is not False else 1)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def prepare(is_dry):
    """What each child would spend its time on: compiling the adapter, and importing what optimizers import at their first step."""

    def try_to_install():
        with tempfile.TemporaryDirectory() as folder:
            install(folder, "pytorch", "python")

    def leaves_cuda_to_children():
        import torch._dynamo

        return is_dry or in_child(lambda: torch.zeros(1, device="cuda").item() == 0)

    if not is_dry and not in_child(try_to_install):
        raise SystemExit("Weir cannot be installed here")
    if in_child(leaves_cuda_to_children):
        import torch._dynamo  # noqa: F401


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default=",".join(WORKLOADS), help="workloads, separated by commas: %(default)s")
    parser.add_argument("--ways", default=",".join(WAYS), help="what to compare, separated by commas: %(default)s")
    parser.add_argument("--seconds", type=float, default=120, help="for all workloads, starting included: %(default)s")
    parser.add_argument("--json", default="")
    parser.add_argument("--dry", action="store_true", help="small workloads on the processor, without Weir, with a cost that is planted")
    options = parser.parse_args()
    until = time.perf_counter() + options.seconds
    # Children must be the first to start CUDA, so nothing here may ask the driver.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    import torch

    if options.dry:
        torch.set_num_threads(1)
    began, results = time.perf_counter(), {}
    prepare(options.dry)
    print(f"prepared in {time.perf_counter() - began:.0f} s", flush=True)
    names = options.only.split(",")
    for place, workload in enumerate(names):
        print(f"\n{workload}")
        now, weights = time.perf_counter(), [WEIGHTS.get(name, 1) for name in names[place:]]
        deadline = now + (until - now) * weights[0] / sum(weights)
        comparison = Comparison(torch, workload, options.ways.split(","), options.dry)
        ready = time.perf_counter()
        try:
            comparison.measure(deadline)
            found, requests = comparison.results()
        except Left as reason:
            print(f"  left out: {reason}", flush=True)
            continue
        finally:
            comparison.abandon()
        judge(found, AGAIN)
        show(found, requests, len(comparison.rounds), comparison.count)
        print(f"  ready in {ready - now:.0f} s, measured in {time.perf_counter() - ready:.0f} s", flush=True)
        results[workload] = {"ways": found, "requestsPerStep": requests}
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump(
                    {"gpu": comparison.gpu, "torch": torch.__version__, "seconds": options.seconds, "results": results}, file, indent=1
                )
    print(f"took {time.perf_counter() - began:.0f} s")
    return int(len(results) < len(names))


if __name__ == "__main__":
    sys.exit(main())
