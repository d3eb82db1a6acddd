"""What an allocation and its free cost: PyTorch's own allocator against Weir's, each in child processes that take turns.

    PYTHONPATH=dist/python python3 test/gpu/torch/pair.py [--rounds 5] [--json FILE]

Four ways: none (PyTorch alone), weir, weir with a recording, pytorch with a recording. Medians over the rounds, in nanoseconds."""

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
WAYS = {"pytorch alone": ("", False), "weir": ("weir", False), "weir, recorded": ("weir", True), "pytorch, recorded": ("pytorch", True)}
KIB, MIB = 1 << 10, 1 << 20


def compile_pair(folder):
    import torch
    from weir_gpu import machine, settings

    torch_folder = os.path.dirname(os.path.abspath(torch.__file__))
    target = os.path.join(folder, "pair.so")
    here = settings.read()
    plus, _ = machine.compilers(here)
    headers = ["-isystem", os.path.join(torch_folder, "include"), "-isystem", machine.cuda_headers(torch_folder, here)]
    libraries = ["-L" + os.path.join(torch_folder, "lib"), "-lc10", "-lc10_cuda"]
    source = os.path.join(HERE, "pair.cpp")
    subprocess.run([plus, "-std=c++17", "-O2", "-fPIC", "-shared", "-pthread", *headers, source, "-o", target, *libraries], check=True)
    return target


def measure(path):
    """In a child: everything once."""
    import torch

    torch.empty(1, device="cuda")
    wanted = os.environ.get("WEIR_CHILD_ALLOCATOR")
    if wanted:
        import weir_gpu

        # Without the metadata of dist/python PyTorch does not load our package, and PyTorch's own allocator would be measured.
        assert weir_gpu.gauges() is not None, f"{wanted} is not in place"
    library = ctypes.CDLL(path)
    for name in ("pair_single", "pair_tensor", "pair_mixed", "pair_threads"):
        function = getattr(library, name)
        function.restype = ctypes.c_double
        function.argtypes = [ctypes.c_size_t] * (3 if name == "pair_threads" else 2)
    results = {}
    for size, label in ((4 * KIB, "4 KiB"), (2 * MIB, "2 MiB"), (64 * MIB, "64 MiB")):
        library.pair_single(size, 2000)
        results[f"raw pair, {label}"] = library.pair_single(size, 100_000)
        results[f"DataPtr pair, {label}"] = library.pair_tensor(size, 100_000)
        began = time.perf_counter()
        for _ in range(20_000):
            x = torch.empty(size, dtype=torch.uint8, device="cuda")
            del x
        results[f"torch.empty + del, {label}"] = (time.perf_counter() - began) / 20_000 * 1e9
    library.pair_mixed(4096, 20_000)
    results["mixed, 4096 slots, per operation"] = library.pair_mixed(4096, 200_000)
    results["4 threads on 4 streams, 4 KiB, per pair"] = library.pair_threads(4 * KIB, 50_000, 4)
    print(json.dumps(results))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", default="")
    parser.add_argument("--measure", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = compile_pair(folder)
        found = {way: [] for way in WAYS}
        for round_ in range(options.rounds):
            for way, (allocator, recorded) in WAYS.items():
                environment = {**os.environ, "WEIR_CHILD_ALLOCATOR": allocator, "WEIR_CHILD_REQUIRED": "1"}
                environment.pop("WEIR_CHILD_RUN_DIR", None)
                if recorded:
                    environment["WEIR_CHILD_RUN_DIR"] = os.path.join(folder, f"{way}-{round_}".replace(", ", "-"))
                    os.makedirs(environment["WEIR_CHILD_RUN_DIR"])
                done = subprocess.run(
                    [sys.executable, os.path.abspath(__file__), "--measure", path],
                    env=environment,
                    check=True,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                found[way].append(json.loads(done.stdout.splitlines()[-1]))
    names = list(found["weir"][0])
    medians = {
        name: {way: round(statistics.median(result[name] for result in results)) for way, results in found.items()} for name in names
    }
    print(f"{'':45}" + "".join(f"{way:>20}" for way in WAYS))
    for name in names:
        print(f"{name:45}" + "".join(f"{medians[name][way]:>20}" for way in WAYS))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"rounds": options.rounds, "medians": medians, "all": found}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
