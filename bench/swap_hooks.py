"""What the hooks of swapping cost where nothing moves: `python3 bench/swap_hooks.py`, with PyTorch and without a GPU.

Microseconds for a small tensor saved for backward, for its use, and for the call of a module; best of many."""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "test", "python", "swap"))
import torch
from support import Run, trained

COUNT = 1000
ROUNDS = 50
small = torch.ones(8, requires_grad=True)
modules = torch.nn.Sequential(*[torch.nn.Identity() for _ in range(COUNT)])


def measure():
    best = [1e9] * 3
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        x = small
        for _ in range(COUNT):
            x = x.sin()
        saved = time.perf_counter()
        x.sum().backward()
        used = time.perf_counter()
        modules(small)
        called = time.perf_counter()
        best = [min(pair) for pair in zip(best, (saved - begin, used - saved, called - used))]
    return [seconds / COUNT * 1e6 for seconds in best]


alone = measure()
# With a limit to keep all hooks are there.
with Run("all", "late"):
    trained()
    hooked = measure()
print(f"PyTorch {torch.__version__}, us each")
for name, before, after in zip(("saving a small tensor", "using it", "calling a module"), alone, hooked):
    print(f"{name:22} {before:5.2f} -> {after:5.2f}  {after - before:+.2f}")
