"""What the tests here share: each is a function that is registered, run under a time limit, and reported by name."""

import argparse
import faulthandler
import gc
import json
import os
import signal
import subprocess
import sys
import time
import traceback

MIB = 1 << 20
GIB = 1 << 30
TESTS = []
OURS = os.environ.get("WEIR_CHILD_ALLOCATOR") in ("weir", "gmlake")
STORM = {"seconds": 8.0}


def test(seconds=30):
    """Registers a test that is stopped after so many seconds."""

    def register(function):
        TESTS.append((function.__name__, function, seconds))
        return function

    return register


def same(actual, expected, what=""):
    if actual != expected:
        raise AssertionError(f"{what or 'value'}: {actual!r} is not {expected!r}")


def clean():
    import torch

    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def total():
    import torch

    return torch.cuda.mem_get_info()[1]


def child(script, **environment):
    """A Python of its own; a value of None takes a variable away."""
    full = {**os.environ, **{name: value for name, value in environment.items() if value is not None}}
    for name, value in environment.items():
        if value is None:
            full.pop(name, None)
    return subprocess.Popen([sys.executable, "-c", script], env=full, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process, code=0):
    out, err = process.communicate(timeout=90)
    if process.returncode != code:
        raise AssertionError(f"ended with {process.returncode}, not {code}: {out[-300:]} {err[-900:]}")
    return out, err


def small_net(torch):
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 16)).cuda()


def run(name, function, seconds):
    def late(*_):
        raise TimeoutError(f"took more than {seconds} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    # Where a signal's handler does not get its turn, inside a call that hangs.
    faulthandler.dump_traceback_later(seconds + 15, exit=True)
    began = time.monotonic()
    try:
        note, ok = function(), True
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        note, ok = f"{type(error).__name__}: {error}", False
        traceback.print_exc(limit=6, file=sys.stderr)
    finally:
        signal.alarm(0)
        faulthandler.cancel_dump_traceback_later()
    took = time.monotonic() - began
    text = str(note).replace("\n", " ")[:500] if note else ""
    print(f"{'PASS' if ok else 'FAIL'} {name} ({took:.1f} s){': ' + text if text else ''}", flush=True)
    return {"name": name, "ok": ok, "seconds": round(took, 2), "note": text}


def main():
    parser = argparse.ArgumentParser(description="PyTorch's uses of GPU memory, one by one, with Weir in place.")
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument("--storm", type=float, default=STORM["seconds"], help="seconds of the thread storm")
    parser.add_argument("--json", default="", help="write the results there")
    options = parser.parse_args()
    STORM["seconds"] = options.storm
    began = time.monotonic()
    import torch

    print(
        f"torch {torch.__version__} on {torch.cuda.get_device_name()}, allocator {os.environ.get('WEIR_CHILD_ALLOCATOR', 'none')}",
        flush=True,
    )
    only = [name for name in options.only.split(",") if name]
    unknown = set(only) - {name for name, _, _ in TESTS}
    if unknown:
        parser.error(f"no such test: {', '.join(sorted(unknown))}")
    results = [run(*entry) for entry in TESTS if not only or entry[0] in only]
    failed = [result["name"] for result in results if not result["ok"]]
    summary = {
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(),
        "allocator": os.environ.get("WEIR_CHILD_ALLOCATOR", "none"),
        "seconds": round(time.monotonic() - began, 1),
        "results": results,
    }
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(summary, file, indent=1)
            file.write("\n")
    print(
        f"{len(results) - len(failed)} of {len(results)} passed in {summary['seconds']} s"
        + (f"; failed: {', '.join(failed)}" if failed else "")
    )
    sys.stdout.flush()
    return 1 if failed else 0
