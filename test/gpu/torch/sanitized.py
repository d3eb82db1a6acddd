"""Small trainings for compute-sanitizer: blocks are stitched, lent between streams and swapped within three steps.

weir run --limit 1GiB --swap 400MiB -- compute-sanitizer --error-exitcode 9 python3 sanitized.py vision|text"""

import sys

import torch
from torch import nn

STEPS = 3


def vision():
    net = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(8))
    net = nn.Sequential(net, nn.Flatten(), nn.Linear(4096, 512), nn.ReLU(), nn.Linear(512, 10))
    return net, lambda step: torch.randn(16 + 8 * step, 3, 96, 96, device="cuda")


def text():
    layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 4, 1024, 0.0, batch_first=True), 3, enable_nested_tensor=False)
    return layers, lambda step: torch.randn(8, 128 + 96 * step, 256, device="cuda")


def main(which):
    torch.manual_seed(0)
    net, batch = {"vision": vision, "text": text}[which]()
    net = net.cuda()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    side = torch.cuda.Stream()
    pieces = []
    for step in range(STEPS):
        x = batch(step)
        # A second stream that works beside the first and gives up what the first then takes, and the other way round.
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            noise = [torch.randn(6 + 4 * n, 1 << 18, device="cuda") for n in range(4)]
            total = sum(part.square().mean() for part in noise)
            del noise
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.current_stream().wait_stream(side)
        # Every second piece goes, so that the large one after it can only be stitched.
        pieces = [torch.full((20 << 20,), number, dtype=torch.uint8, device="cuda") for number in range(12)][::2]
        large = torch.full((100 << 20,), 7, dtype=torch.uint8, device="cuda")
        assert bool((large[::512] == 7).all()) and all(bool((piece[::512] == 2 * at).all()) for at, piece in enumerate(pieces))
        del large
        print(f"step {step}: loss {loss.item():.6f}, beside it {total.item():.6f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
