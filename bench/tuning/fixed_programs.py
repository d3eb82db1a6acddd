"""Trainings of fixed shape, for plans. `python3 fixed_programs.py FOLDER [NAME...]` records them (see recorder.py)."""

from __future__ import annotations

import random
from typing import Any

import torch
import torch.nn.functional as F
from layers import Residual, Transformer, Unet, step, text_loss, tokens
from programs import record
from torch import nn
from torch.utils.checkpoint import checkpoint

STEPS = 7


def train(model: nn.Module, optimizer: Any, loss: Any, parts: int = 1) -> None:
    for _ in range(STEPS):
        for part in range(parts):
            step(loss(model), optimizer if part == parts - 1 else None)


def gpt2_xl(_: random.Random) -> None:
    model = Transformer(1600, 48, 25, 50257, recompute=True).bfloat16()
    train(model, torch.optim.AdamW(model.parameters()), lambda net: text_loss(net(tokens(16, 1024))))


def text_plain(_: random.Random) -> None:
    model = Transformer(1024, 24, 16, 32000)
    train(model, torch.optim.AdamW(model.parameters(), foreach=False), lambda net: text_loss(net(tokens(8, 512))))


def accumulated(_: random.Random) -> None:
    model = Transformer(2048, 16, 16, 50272, recompute=True).bfloat16()
    train(model, torch.optim.AdamW(model.parameters()), lambda net: text_loss(net(tokens(4, 1024))), parts=4)


def diffusion(_: random.Random) -> None:
    model = Unet(128, 4, attention=True).bfloat16()
    average = [p.detach().float() for p in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(STEPS):
        noisy = torch.randn(24, 4, 64, 64, dtype=torch.bfloat16)
        step(F.mse_loss(model(noisy).float()[:, :4], torch.randn(24, 4, 64, 64)), optimizer)
        with torch.no_grad():
            for mean, p in zip(average, model.parameters()):
                mean.lerp_(p.float(), 0.001)


def kept_gradients(_: random.Random) -> None:
    model = Transformer(1280, 24, 20, 50257)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(STEPS):
        text_loss(model(tokens(8, 768))).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


def images(_: random.Random) -> None:
    widths = [64, 64, 128, 128, 256, 256, 512, 512]
    stages = [Residual(i, o) for i, o in zip([8, *widths[:-1]], widths)]
    model = nn.Sequential(*(layer for stage in stages for layer in (stage, nn.Identity())), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    head = nn.Linear(512, 1000)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.01, momentum=0.9, nesterov=True)
    for _ in range(STEPS):
        x = torch.randn(48, 8, 96, 96)
        labels = torch.zeros(48, dtype=torch.long)
        step(F.cross_entropy(head(model(x)), labels), optimizer)


def volumes(_: random.Random) -> None:
    model = Unet(32, 4, dims=3)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(STEPS):
        step(model(torch.randn(2, 4, 64, 64, 64)).square().mean(), optimizer)


class Adapter(nn.Module):
    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Linear(base.in_features, 16, bias=False, dtype=torch.bfloat16)
        self.b = nn.Linear(16, base.out_features, bias=False, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.b(self.a(x))


def adapters(_: random.Random) -> None:
    model = Transformer(4096, 16, 32, 32000).bfloat16()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for block in model.blocks:
        block.up = Adapter(block.up)
        block.down = Adapter(block.down)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    train(model, torch.optim.AdamW(trained), lambda net: text_loss(net(tokens(4, 1024))))


def adversarial(_: random.Random) -> None:
    generator, critic = Unet(64, 4), Unet(64, 3, inputs=8)
    first = torch.optim.Adam(generator.parameters())
    second = torch.optim.Adam(critic.parameters())
    for _ in range(STEPS):
        fake = generator(torch.randn(4, 4, 192, 192))
        step(critic(fake.detach()).mean() + critic(torch.randn(4, 8, 192, 192)).mean(), second)
        step(critic(fake).mean(), first)


def mixed_precision(_: random.Random) -> None:
    model = Transformer(1536, 20, 16, 32000)
    optimizer = torch.optim.AdamW(model.parameters())
    blocks = model.blocks

    def forward(block: nn.Module, x: torch.Tensor) -> torch.Tensor:
        halves = {name: parameter.bfloat16() for name, parameter in block.named_parameters()}
        return torch.func.functional_call(block, halves, (x,))

    for _ in range(STEPS):
        x = model.embedding(tokens(8, 1024)).bfloat16()
        for block in blocks:
            x = checkpoint(forward, block, x, use_reentrant=False)
        step(text_loss(F.linear(model.norm(x.float()).bfloat16(), model.head.weight.bfloat16())), optimizer)


PROGRAMS = {
    run.__name__: run
    for run in (
        gpt2_xl,
        text_plain,
        accumulated,
        diffusion,
        kept_gradients,
        images,
        volumes,
        adapters,
        adversarial,
        mixed_precision,
    )
}

if __name__ == "__main__":
    record(PROGRAMS)
