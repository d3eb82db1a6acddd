"""What `import torch` costs more with weir_gpu installed and not asked for: `python3 bench/import_cost.py`, with PyTorch, after a build.

Fresh processes, with and without the package on the path in turn. `entry point`: finding the package's metadata, importing it and
calling it, as PyTorch does at the end of its import. `import torch`: the whole import, whose own noise is larger than the difference.
Processor time, because other programs on the machine make the time of the clock mean little."""

import importlib.metadata
import os
import platform
import statistics
import subprocess
import sys

ROUNDS = 30
PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "dist", "python")
BEGIN = "import time; begin = time.process_time(); "
END = "; print((time.process_time() - begin) * 1e3)"
# As torch/__init__.py does it.
ENTRY = "[entry.load()() for entry in entry_points(group='torch.backends')]"
PROGRAMS = {
    "entry point": f"from importlib.metadata import entry_points; {BEGIN}{ENTRY}{END}",
    "import torch": f"{BEGIN}import torch{END}",
}


def measure(program, path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEIR") and name != "PYTHONPATH"}
    environment["PYTHONPATH"] = path
    run = subprocess.run([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, check=True, cwd="/")
    return float(run.stdout)


def main():
    versions = f"Python {platform.python_version()}, PyTorch {importlib.metadata.version('torch')}"
    print(f"{versions}, ms of processor time, median (quartiles) of {ROUNDS} runs each")
    for name, program in PROGRAMS.items():
        times = {path: [] for path in ("", PACKAGE)}
        for path in times:
            measure(program, path)  # fills the file cache, and writes bytecode
        for _ in range(ROUNDS):
            for path in times:
                times[path].append(measure(program, path))
        without, with_it = times[""], times[PACKAGE]
        pairs = [after - before for before, after in zip(without, with_it)]
        cells = [
            f"{statistics.median(cell):.2f} ({quartile(cell, 0):.2f} to {quartile(cell, 2):.2f})" for cell in (without, with_it, pairs)
        ]
        print(f"{name:<14} {'  |  '.join(cells)}")


def quartile(values, which):
    return statistics.quantiles(values, n=4)[which]


if __name__ == "__main__":
    main()
