"""Swapping on a GPU: real workloads with and without it, each run in a process of its own.

    PYTHONPATH=python python3 test/gpu/torch/swap.py WORKLOADS_FOLDER --planner "node dist/run/swap-watch-main.js" \
        --workload vgg16-b100 resnet50-b100 --modes off swap off swap --steps 30 [--deterministic] [--debug] [--json FILE]

Modes: off, swap (lowest memory that costs no time), limit=20GiB or limit=0.7 (a share of what `off` allocated), save_on_cpu,
capped=SAME (PyTorch alone under the memory that limit=SAME is given). With --fixed-length N workloads of varying length keep to one.
Programs that leave the plan are in test/python/swap: WEIR_SWAP_TEST_DEVICE=cuda python3 -m unittest discover -s test/python/swap
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

GIB = 1 << 30
HERE = os.path.dirname(os.path.abspath(__file__))
# What a process may hold beside the tensors that the limit is about: fragmentation, workspaces, rounding.
ROOM = 1.12


def one(options):
    """In a process of its own: one workload in one mode."""
    if options.deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    sys.path.insert(0, options.workloads)
    import torch
    import workloads

    if options.fixed_length:
        fixed = type("Fixed", (), {"__init__": lambda self, *_: None, "randint": lambda self, *_: options.fixed_length})
        workloads.random = type("random", (), {"Random": fixed})
    if options.deterministic:
        # Convolution nets have a pooling that is marked, but does not vary here.
        torch.use_deterministic_algorithms(True, warn_only="b100" in options.one)
        torch.backends.cudnn.deterministic = True
    if options.cap:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, options.cap / total))
    from weir import swap

    manager = swap.install() if options.mode.startswith(("swap", "limit")) else None
    torch.manual_seed(0)
    losses, marks = [], []
    backward = torch.Tensor.backward

    def collecting(loss, *arguments, **named):
        losses.append(loss.detach())
        return backward(loss, *arguments, **named)

    torch.Tensor.backward = collecting
    step, _, _ = workloads.WORKLOADS[options.one](torch)
    result = {"workload": options.one, "mode": options.mode}
    around = torch.autograd.graph.save_on_cpu(pin_memory=True) if options.mode == "save_on_cpu" else None
    settled = 8
    try:
        index = 0
        measured = 0
        while measured < options.steps:
            if around:
                with around:
                    step(index)
            else:
                step(index)
            index += 1
            if manager is not None and manager.phase == "awaiting":
                torch.cuda.synchronize()
                deadline = time.monotonic() + 90
                while not os.path.exists(os.path.join(manager.directory, f"{os.getpid()}.swap.json")) and time.monotonic() < deadline:
                    time.sleep(0.05)
            if index < settled:
                continue
            if index == settled:
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            mark = torch.cuda.Event(enable_timing=True)
            mark.record()
            marks.append(mark)
            measured += 1
        torch.cuda.synchronize()
        times = [first.elapsed_time(second) for first, second in zip(marks, marks[1:])]
        result.update(
            ok=True,
            step_ms=statistics.median(times),
            step_ms_quartiles=statistics.quantiles(times, n=4),
            peak_allocated=torch.cuda.max_memory_allocated(),
            peak_reserved=torch.cuda.max_memory_reserved(),
        )
    except torch.cuda.OutOfMemoryError as error:
        result.update(ok=False, error=str(error)[:300])
    result.update(losses=[float(loss).hex() for loss in losses], swap=swap.report())
    with open(options.result, "w", encoding="utf-8") as target:
        json.dump(result, target)
    # Reports are written at exit; a process that ran out of memory may not get there.
    sys.stdout.flush()


def bytes_of(text, peak):
    text = text.strip()
    for unit, size in (("GiB", GIB), ("MiB", 1 << 20)):
        if text.endswith(unit):
            return int(float(text[: -len(unit)]) * size)
    return int(float(text) * peak) if float(text) <= 1 else int(text)


def start(options, workload, mode, peaks):
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "WEIR_RUN_DIR": folder}
        environment.pop("WEIR_SWAP", None)
        kind, _, amount = mode.partition("=")
        cap = 0
        if kind == "swap":
            environment["WEIR_SWAP"] = "auto"
        elif kind in ("limit", "capped"):
            limit = bytes_of(amount, peaks.get(workload, 0))
            cap = int(limit * ROOM)
            if kind == "limit":
                environment["WEIR_SWAP"] = str(limit)
        if options.debug:
            environment["WEIR_SWAP_DEBUG"] = "1"
        planner = None
        if kind in ("swap", "limit"):
            planner = subprocess.Popen([*options.planner.split(), folder], stdin=subprocess.PIPE, stderr=sys.stderr)
        result = os.path.join(folder, "result.json")
        command = [sys.executable, os.path.abspath(__file__), options.workloads, "--one", workload, "--mode", mode, "--result", result]
        command += ["--steps", str(options.steps), "--cap", str(cap), "--fixed-length", str(options.fixed_length)]
        command += ["--deterministic"] if options.deterministic else []
        began = time.monotonic()
        try:
            code = subprocess.run(command, env=environment, timeout=options.timeout).returncode
        except subprocess.TimeoutExpired:
            code = "timeout"
        finally:
            if planner:
                planner.stdin.close()
                planner.wait(timeout=30)
        if not os.path.exists(result):
            return {"workload": workload, "mode": mode, "ok": False, "error": f"ended with {code}"}
        with open(result, encoding="utf-8") as source:
            return {**json.load(source), "seconds": time.monotonic() - began, "exit": code}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads")
    parser.add_argument("--workload", nargs="+", default=["resnet50-b100"])
    parser.add_argument("--modes", nargs="+", default=["off", "swap"])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--debug", action="store_true")
    parser.add_argument("--fixed-length", type=int, default=0)
    parser.add_argument("--planner", default="node dist/run/swap-watch-main.js")
    parser.add_argument("--timeout", type=int, default=240)
    parser.add_argument("--json")
    parser.add_argument("--one")
    parser.add_argument("--mode")
    parser.add_argument("--result")
    parser.add_argument("--cap", type=int, default=0)
    options = parser.parse_args()
    options.workloads = os.path.abspath(options.workloads)
    if options.one:
        one(options)
        return
    results, peaks, base = [], {}, {}
    for workload in options.workload:
        for mode in options.modes:
            found = start(options, workload, mode, peaks)
            results.append(found)
            if not found["ok"]:
                print(f"{workload:16} {mode:12} FAILED {found.get('error')}", flush=True)
                continue
            if mode == "off" and workload not in base:
                base[workload] = found
                peaks[workload] = found["peak_allocated"]
            off = base.get(workload)
            line = f"{workload:16} {mode:12} step {found['step_ms']:8.2f} ms  allocated {found['peak_allocated'] / GIB:6.2f}  reserved {found['peak_reserved'] / GIB:6.2f} GiB"
            if off and off is not found:
                count = min(len(off["losses"]), len(found["losses"]))
                differ = [i for i in range(count) if off["losses"][i] != found["losses"][i]]
                line += (
                    f"  time {100 * (found['step_ms'] / off['step_ms'] - 1):+.2f} %  allocated {100 * (found['peak_allocated'] / off['peak_allocated'] - 1):+.1f} %"
                    f"  reserved {100 * (found['peak_reserved'] / off['peak_reserved'] - 1):+.1f} %  losses "
                    + (f"equal ({count})" if not differ else f"DIFFER from {differ[0]} of {count}")
                )
            print(line, flush=True)
            if found["swap"]:
                report = {name: value for name, value in found["swap"].items() if name not in ("version", "pid", "device")}
                print(f"    {json.dumps(report)}", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as target:
            json.dump({"deterministic": options.deterministic, "results": results}, target, indent=1)


if __name__ == "__main__":
    main()
