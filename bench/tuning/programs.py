"""Programs of many kinds, each drawn from its own seed. `python3 programs.py FOLDER [NAME...]` records them (see recorder.py)."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from layers import Block, Residual, Transformer, Unet, step, text_loss, tokens
from recorder import Recorder
from torch import nn

PROGRAMS: dict[str, Callable[[random.Random], None]] = {}


def program(run: Callable[[random.Random], None]) -> Callable[[random.Random], None]:
    PROGRAMS[run.__name__] = run
    return run


class Experts(nn.Module):
    """A mixture of experts. How many tokens each expert gets is drawn anew for every batch."""

    def __init__(self, width: int, count: int, draw: random.Random) -> None:
        super().__init__()
        self.draw = draw
        self.router = nn.Linear(width, count)
        self.up = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(count))
        self.down = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(0, 1)
        weights = F.softmax(self.router(flat), -1)
        shares = [self.draw.gammavariate(2, 1) for _ in self.up]
        out = torch.zeros_like(flat)
        for index, share in enumerate(shares):
            count = max(1, int(2 * flat.shape[0] * share / sum(shares)))
            chosen = torch.zeros(count, dtype=torch.long)
            part = flat[chosen]
            part = self.down[index](F.silu(self.up[index](part))) * weights[chosen, index].unsqueeze(1)
            out = out.index_add(0, chosen, part)
        return out.view_as(x)


@program
def moe(draw: random.Random) -> None:
    width = 1024
    layers = nn.ModuleList(nn.ModuleList([Block(width, 16), Experts(width, 8, draw)]) for _ in range(8)).bfloat16()
    embedding = nn.Embedding(32000, width).bfloat16()
    optimizer = torch.optim.AdamW([*layers.parameters(), *embedding.parameters()])
    for _ in range(24):
        x = embedding(tokens(8, draw.randrange(512, 2048)))
        for block, experts in layers:
            x = block(x)
            x = x + experts(x)
        step(text_loss(F.linear(x, embedding.weight)), optimizer)


@program
def speech(draw: random.Random) -> None:
    front = nn.Sequential(nn.Conv1d(80, 512, 3, stride=2, padding=1), nn.GELU(), nn.Conv1d(512, 512, 3, stride=2, padding=1), nn.GELU())
    blocks = nn.ModuleList(nn.ModuleList([Block(512, 8), Residual(512, 512, 1)]) for _ in range(16))
    head = nn.Linear(512, 5000)
    optimizer = torch.optim.AdamW([*front.parameters(), *blocks.parameters(), *head.parameters()])
    for _ in range(40):
        length = draw.choice([800, 1200, 1600, 2400, 3000]) + draw.randrange(200)
        x = front(torch.randn(max(4, 40000 // length), 80, length)).transpose(1, 2)
        for block, conv in blocks:
            x = block(x)
            x = x + conv(x.transpose(1, 2)).transpose(1, 2)
        step(F.log_softmax(head(x), -1).mean(), optimizer)


@program
def detection(draw: random.Random) -> None:
    widths = [64, 128, 256, 512]
    stem = nn.Conv2d(3, 64, 7, stride=4, padding=3)
    stages = nn.ModuleList(nn.Sequential(Residual(i, o), Residual(o, o)) for i, o in zip([64, *widths], widths))
    sides = nn.ModuleList(nn.Conv2d(width, 256, 1) for width in widths)
    heads = nn.Conv2d(256, 15, 3, padding=1)
    boxes = nn.Sequential(nn.Linear(256 * 49, 1024), nn.ReLU(), nn.Linear(1024, 400))
    masks = nn.Sequential(Residual(256, 256), Residual(256, 80))
    optimizer = torch.optim.SGD([p for m in (stem, stages, sides, heads, boxes, masks) for p in m.parameters()], momentum=0.9)
    for _ in range(40):
        height, wide = draw.randrange(640, 800, 32), draw.randrange(800, 1333, 32)
        x = stem(torch.randn(4, 3, height, wide))
        loss = torch.zeros(())
        maps = []
        for index, (stage, side) in enumerate(zip(stages, sides)):
            x = stage(x if index == 0 else F.max_pool2d(x, 2))
            maps.append(side(x))
        for index in (2, 1, 0):
            maps[index] = maps[index] + F.interpolate(maps[index + 1], size=maps[index].shape[2:], mode="nearest")
        for level in maps:
            loss = loss + heads(level).mean()
        found, shown = draw.randrange(500, 2048), draw.randrange(20, 300)
        features = maps[0].flatten(2).mean(-1)[torch.zeros(found, dtype=torch.long) % 4]
        loss = loss + boxes(features.unsqueeze(-1).expand(-1, -1, 49).flatten(1)).mean()
        loss = loss + masks(features[:shown, :, None, None].expand(-1, -1, 28, 28)).mean()
        step(loss, optimizer)


@program
def diffusion(draw: random.Random) -> None:
    model = Unet(128, 4, attention=True).bfloat16()
    average = [p.detach().float() for p in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(24):
        side = draw.choice([(64, 64), (48, 80), (80, 48), (56, 72), (96, 96)])
        noisy = torch.randn(24, 4, *side, dtype=torch.bfloat16)
        step(F.mse_loss(model(noisy).float()[:, :4], torch.randn(24, 4, *side)), optimizer)
        with torch.no_grad():
            for mean, p in zip(average, model.parameters()):
                mean.lerp_(p.float(), 0.001)


@program
def graphs(draw: random.Random) -> None:
    layers = nn.ModuleList(nn.Linear(2 * 256, 256) for _ in range(6))
    enter, leave = nn.Linear(128, 256), nn.Linear(256, 64)
    optimizer = torch.optim.Adam([*layers.parameters(), *enter.parameters(), *leave.parameters()])
    for _ in range(60):
        nodes = int(60000 * draw.lognormvariate(0, 0.4))
        edges = int(nodes * draw.uniform(4, 14))
        source, target = torch.zeros(edges, dtype=torch.long), torch.zeros(edges, dtype=torch.long)
        x = enter(torch.randn(nodes, 128))
        for layer in layers:
            messages = x.index_select(0, source)
            gathered = torch.zeros(nodes, 256).index_add(0, target, messages)
            x = F.relu(layer(torch.cat([x, gathered], 1))) + x
        step(leave(x).mean(), optimizer)


def generate(model: Transformer, batch: int, prompt: int, count: int) -> None:
    with torch.no_grad():
        caches: list[list[torch.Tensor]] = [[] for _ in model.blocks]
        model(tokens(batch, prompt), caches)
        for _ in range(count):
            torch.argmax(model(tokens(batch, 1), caches)[:, -1], -1)


@program
def reinforcement(draw: random.Random) -> None:
    policy = Transformer(1024, 12, 16, 32000, recompute=True).bfloat16()
    reference = Transformer(1024, 12, 16, 32000).bfloat16().requires_grad_(False)
    critic = Transformer(768, 8, 12, 32000).bfloat16()
    optimizer = torch.optim.AdamW([*policy.parameters(), *critic.parameters()])
    for _ in range(6):
        batch, prompt, answer = 32, draw.randrange(64, 256), draw.randrange(60, 160)
        generate(policy, batch, prompt, answer)
        with torch.no_grad():
            past = F.log_softmax(reference(tokens(batch, prompt + answer)).float(), -1).amax(-1)
        for _ in range(2):
            now = F.log_softmax(policy(tokens(batch, prompt + answer)).float(), -1).amax(-1)
            value = critic.hidden(critic.embedding(tokens(batch, prompt + answer))).mean()
            step((now - past).exp().mean() + value, optimizer)


@program
def long_context(draw: random.Random) -> None:
    model = Transformer(2048, 16, 16, 32000, recompute=True).bfloat16()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(20):
        step(text_loss(model(tokens(1, draw.randrange(4096, 16384)))), optimizer)


class Adapted(nn.Module):
    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Linear(base.in_features, 16, bias=False).to(base.weight.dtype)
        self.b = nn.Linear(16, base.out_features, bias=False).to(base.weight.dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.b(self.a(F.dropout(x, 0.1)))

    def merged(self) -> torch.Tensor:
        return self.base.weight + self.b.weight.float().mm(self.a.weight.float()).to(self.base.weight.dtype)


@program
def adapter_merge(draw: random.Random) -> None:
    model = Transformer(2560, 20, 20, 32000, recompute=True).bfloat16().requires_grad_(False)
    adapted = []
    for block in model.blocks:
        for owner, name in ((block.attention, "qkv"), (block, "up"), (block, "down")):
            layer = Adapted(getattr(owner, name))
            setattr(owner, name, layer)
            adapted.append(layer)
    model.embedding.weight.requires_grad_(True)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    for number in range(24):
        step(text_loss(model(tokens(4, draw.randrange(256, 1024)))), optimizer)
        if number % 8 == 7:
            with torch.no_grad():
                weights = [layer.merged() for layer in adapted]
                model(tokens(8, draw.randrange(128, 512)))
                del weights


@program
def two_models(draw: random.Random) -> None:
    vision = nn.Sequential(nn.Conv2d(3, 1024, 14, stride=14), nn.Flatten(2))
    encoder = nn.ModuleList(Block(1024, 16) for _ in range(12)).requires_grad_(False)
    bridge = nn.Linear(1024, 1536)
    language = Transformer(1536, 16, 16, 32000)
    optimizer = torch.optim.AdamW([*bridge.parameters(), *language.parameters()])
    for _ in range(16):
        images = draw.randrange(2, 12)
        with torch.no_grad():
            x = vision(torch.randn(images, 3, 336, 336)).transpose(1, 2)
            for block in encoder:
                x = block(x)
        prefix = bridge(x).flatten(0, 1).unsqueeze(0)
        text = language.embedding(tokens(1, draw.randrange(200, 1500)))
        step(text_loss(language.head(language.hidden(torch.cat([prefix, text], 1)))), optimizer)


@program
def evaluated(draw: random.Random) -> None:
    model = Transformer(1024, 24, 16, 30522)
    optimizer = torch.optim.AdamW(model.parameters())
    for number in range(24):
        step(text_loss(model(tokens(16, draw.randrange(96, 384)))), optimizer)
        if number % 6 == 5:
            with torch.no_grad():
                scores = [F.softmax(model(tokens(32, draw.randrange(64, 512)))[:, -1], -1) for _ in range(4)]
                torch.cat(scores)


@program
def small_images(draw: random.Random) -> None:
    model = nn.Sequential(Residual(3, 64), nn.MaxPool2d(2), Residual(64, 128), nn.MaxPool2d(2), Residual(128, 256), nn.MaxPool2d(2))
    head = nn.Linear(256, 10)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], momentum=0.9)
    for _ in range(80):
        side = draw.choice([28, 32, 40, 48])
        step(head(model(torch.randn(draw.choice([96, 128]), 3, side, side)).mean((2, 3))).mean(), optimizer)


@program
def ramp(draw: random.Random) -> None:
    model = nn.Sequential(nn.Conv2d(3, 96, 4, stride=4), *(Residual(96, 96) for _ in range(8)))
    optimizer = torch.optim.AdamW(model.parameters())
    for number in range(48):
        side = 128 + 8 * (number // 2) + draw.randrange(2) * 4
        step(model(torch.randn(16, 3, side, side)).mean(), optimizer)


@program
def decoding(draw: random.Random) -> None:
    model = Transformer(2048, 16, 16, 32000).bfloat16()
    for _ in range(10):
        generate(model, draw.randrange(4, 24), draw.randrange(64, 700), draw.randrange(40, 120))


@program
def mixed_precision(draw: random.Random) -> None:
    model = Transformer(1600, 24, 25, 50257, recompute=True)
    optimizer = torch.optim.AdamW(model.parameters())

    # As autocast does it: weights are cast once for each pass, and the copies live until it ends.
    copies: dict[nn.Module, torch.Tensor] = {}

    def cast(module: nn.Module) -> torch.Tensor:
        if module not in copies:
            copies[module] = module.weight.bfloat16()
        return copies[module]

    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.forward = lambda x, module=module: F.linear(x.bfloat16(), cast(module))
        elif isinstance(module, nn.LayerNorm):
            module.forward = lambda x, module=module: F.layer_norm(x.float(), module.normalized_shape, module.weight, module.bias)
    for number in range(20):
        logits = model(tokens(8, draw.randrange(256, 1024)))
        copies.clear()
        step(text_loss(logits) / 2, optimizer if number % 2 else None)


@program
def volumes(draw: random.Random) -> None:
    model = Unet(32, 4, dims=3, inputs=2)
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.99, nesterov=True)
    for number in range(24):
        shape = [draw.randrange(64, 129, 16) for _ in range(3)]
        if number % 5 == 4:
            with torch.no_grad():
                total = torch.zeros(8, 192, 192, 128)
                for _ in range(4):
                    total[:, :96, :96, :96] += model(torch.randn(1, 2, 96, 96, 96))[0]
        step(model(torch.randn(2, 2, *shape)).mean(), optimizer)


@program
def adversarial(draw: random.Random) -> None:
    generator = Unet(48, 4, inputs=3)
    critic = nn.Sequential(*(layer for i, o in ((8, 64), (64, 128), (128, 256)) for layer in (Residual(i, o), nn.MaxPool2d(2))))
    first = torch.optim.Adam(generator.parameters())
    second = torch.optim.Adam(critic.parameters())
    for _ in range(24):
        side = draw.choice([192, 224, 256])
        fake = generator(torch.randn(4, 3, side, side))
        step(critic(fake.detach()).mean() + critic(torch.randn(4, 8, side, side)).mean(), second)
        step(critic(fake).mean(), first)


def record(programs: dict[str, Callable[[random.Random], None]]) -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or programs:
        recorder = Recorder()
        torch.manual_seed(0)
        with torch.device("meta"), recorder:
            programs[name](random.Random(name))
        recorder.save(folder / f"meta-{name.replace('_', '-')}.requests.gz")
        print(f"{name}: {recorder.slots} requests, peak {recorder.peak / 2**30:.2f} GiB", flush=True)


if __name__ == "__main__":
    record(PROGRAMS)
