"""Parts of the programs that are recorded: transformer blocks, convolutions and a training step."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Attention(nn.Module):
    """Attention over a batch; with `cache`, keys and values of earlier tokens are concatenated."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, cache: list[torch.Tensor] | None = None) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        if cache is not None:
            if cache:
                k = torch.cat([cache[0], k], 2)
                v = torch.cat([cache[1], v], 2)
            cache[:] = [k, v]
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, factor: int = 4) -> None:
        super().__init__()
        self.first = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.second = nn.LayerNorm(width)
        self.up = nn.Linear(width, factor * width)
        self.down = nn.Linear(factor * width, width)

    def forward(self, x: torch.Tensor, cache: list[torch.Tensor] | None = None) -> torch.Tensor:
        x = x + self.attention(self.first(x), cache)
        return x + self.down(F.gelu(self.up(self.second(x))))


class Transformer(nn.Module):
    """`recompute`: activations inside a block are computed again in the backward pass."""

    def __init__(self, width: int, depth: int, heads: int, words: int, recompute: bool = False) -> None:
        super().__init__()
        self.recompute = recompute
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def hidden(self, x: torch.Tensor, caches: list[list[torch.Tensor]] | None = None) -> torch.Tensor:
        for index, block in enumerate(self.blocks):
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x, None if caches is None else caches[index])
        return self.norm(x)

    def forward(self, tokens: torch.Tensor, caches: list[list[torch.Tensor]] | None = None) -> torch.Tensor:
        return self.head(self.hidden(self.embedding(tokens), caches))


def tokens(batch: int, length: int) -> torch.Tensor:
    return torch.zeros(batch, length, dtype=torch.long)


def text_loss(logits: torch.Tensor) -> torch.Tensor:
    labels = torch.zeros(logits.shape[0] * logits.shape[1], dtype=torch.long)
    return F.cross_entropy(logits.float().flatten(0, 1), labels)


class Residual(nn.Module):
    def __init__(self, inner: int, outer: int, dims: int = 2) -> None:
        super().__init__()
        conv = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[dims]
        self.first = conv(inner, outer, 3, padding=1)
        self.norm1 = nn.GroupNorm(8, outer)
        self.second = conv(outer, outer, 3, padding=1)
        self.norm2 = nn.GroupNorm(8, outer)
        self.skip = conv(inner, outer, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.silu(self.norm1(self.first(x)))
        return F.silu(self.norm2(self.second(y)) + self.skip(x))


class Unet(nn.Module):
    def __init__(self, channels: int, levels: int, dims: int = 2, inputs: int = 4, attention: bool = False) -> None:
        super().__init__()
        widths = [channels * 2**level for level in range(levels)]
        self.down = nn.ModuleList(Residual(i, o, dims) for i, o in zip([inputs, *widths[:-1]], widths))
        self.up = nn.ModuleList(Residual(o + i, i, dims) for i, o in zip(widths[:-1], widths[1:]))
        self.middle = Block(widths[-1], 8) if attention else None
        self.out = Residual(channels, 8, dims)
        self.pool = {2: F.max_pool2d, 3: F.max_pool3d}[dims]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for index, layer in enumerate(self.down):
            x = layer(x if index == 0 else self.pool(x, 2))
            kept.append(x)
        if self.middle is not None:
            shape = x.shape
            x = self.middle(x.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(shape)
        for index in reversed(range(len(self.up))):
            x = F.interpolate(x, size=kept[index].shape[2:], mode="nearest")
            x = self.up[index](torch.cat([x, kept[index]], 1))
        return self.out(x)


def step(loss: torch.Tensor, optimizer: Any = None) -> None:
    loss.backward()
    if optimizer is not None:
        optimizer.step()
        optimizer.zero_grad()
