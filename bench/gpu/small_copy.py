"""How long a value of four bytes takes to the host while large copies to the host are under way: `python3 bench/gpu/small_copy.py`.

The reason why swapped state leaves in the course of a step, and not all at once at its end, where programs read their loss."""

import time

import torch

COUNT, SIZE = 170, 24 << 20

side = torch.cuda.Stream()
sources = [torch.empty(SIZE, dtype=torch.uint8, device="cuda") for _ in range(COUNT)]
target = torch.empty(COUNT * SIZE, dtype=torch.uint8, pin_memory=True)
value = torch.ones(4, device="cuda")


def queue(piece):
    with torch.cuda.stream(side):
        for index, source in enumerate(sources):
            for at in range(0, SIZE, piece):
                target[index * SIZE + at : index * SIZE + at + piece].copy_(source[at : at + piece], non_blocking=True)


def seconds(action):
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
for piece in (24 << 20, 2 << 20):
    torch.cuda.synchronize()
    value.sum().item()
    alone = seconds(lambda: value.sum().item())
    queue(piece)
    behind = seconds(lambda: value.sum().item())
    rest = seconds(torch.cuda.synchronize)
    print(
        f"pieces of {piece >> 20} MiB: alone {alone * 1e6:.0f} us, "
        f"behind {COUNT * SIZE / 1e9:.1f} GB {behind * 1e3:.1f} ms, when {rest * 1e3:.1f} ms of copies were left"
    )
