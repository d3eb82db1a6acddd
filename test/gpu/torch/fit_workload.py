"""A workload whose memory grows with its batch, for test/gpu/fit.ts: fit_workload.py NAME BATCH [--steps N] [--length N].

resnet, vit: vision. gpt, gpt-recompute: fine-tuning without and with recomputation. lora: frozen weights with low-rank adapters.
kv: inference with a KV cache. All are plain PyTorch with random weights and data."""

import argparse

import torch
import weir_gpu
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.layers = nn.Sequential(
            *(nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
            *(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
            *(nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)),
        )
        self.shortcut = nn.Identity()
        if inputs != outputs or stride != 1:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return F.relu(self.layers(x) + self.shortcut(x), inplace=True)


def resnet():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, (width, count) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)]):
        for index in range(count):
            layers.append(Bottleneck(inputs, width, 2 if stage > 0 and index == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


class Block(nn.Module):
    """A layer of a transformer. With a cache, keys and values of earlier tokens are kept."""

    def __init__(self, hidden, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(2))
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x, cache=None):
        batch, length, hidden = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norms[0](x)).chunk(3, -1))
        if cache is not None:
            k, v = (torch.cat([old, new], 2) if old is not None else new for old, new in zip(cache, (k, v)))
            cache[:] = [k, v]
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal and length > 1)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, hidden))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Transformer(nn.Module):
    def __init__(self, layers, hidden, heads, vocabulary, recompute=False):
        super().__init__()
        self.recompute = recompute
        self.embed = nn.Embedding(vocabulary, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads, True) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, tokens, caches=None):
        x = self.embed(tokens)
        for index, block in enumerate(self.blocks):
            if self.recompute:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x, None if caches is None else caches[index])
        return self.head(self.norm(x))


class Vision(nn.Module):
    def __init__(self, layers=12, hidden=768, heads=12):
        super().__init__()
        self.patches = nn.Conv2d(3, hidden, 16, 16)
        self.blocks = nn.Sequential(*(Block(hidden, heads, False) for _ in range(layers)))
        self.head = nn.Linear(hidden, 1000)

    def forward(self, images):
        return self.head(self.blocks(self.patches(images).flatten(2).transpose(1, 2)).mean(1))


class LowRank(nn.Module):
    def __init__(self, base, rank=16):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a, self.b = nn.Linear(base.in_features, rank, bias=False), nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.b.weight)

    def forward(self, x):
        return self.base(x) + self.b(self.a(x))


def with_adapters(model):
    model.requires_grad_(False)
    for block in model.blocks:
        for name in ("qkv", "out", "up", "down"):
            setattr(block, name, LowRank(getattr(block, name)))
    return model


def train_vision(model, batch, steps, autocast):
    model = model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(steps):
        images, labels = torch.randn(batch, 3, 224, 224, device="cuda"), torch.randint(1000, (batch,), device="cuda")
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return loss.item()


def train_language(model, batch, length, steps, vocabulary):
    model = model.to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    for _ in range(steps):
        tokens = torch.randint(vocabulary, (batch, length), device="cuda")
        scores = model(tokens)
        loss = F.cross_entropy(scores.flatten(0, 1).float(), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return loss.item()


@torch.no_grad()
def generate(model, batch, length, steps, vocabulary, new=32):
    model = model.to("cuda", torch.bfloat16)
    for _ in range(steps):
        weir_gpu.step()
        caches = [[None, None] for _ in model.blocks]
        tokens = torch.randint(vocabulary, (batch, length), device="cuda")
        for _ in range(new):
            tokens = model(tokens, caches)[:, -1].argmax(-1, keepdim=True)
    weir_gpu.step()
    return tokens.sum().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("batch", type=int)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--length", type=int, default=512)
    given = parser.parse_args()
    torch.manual_seed(0)
    vocabulary = 32000
    if given.name == "resnet":
        result = train_vision(resnet(), given.batch, given.steps, False)
    elif given.name == "vit":
        result = train_vision(Vision(), given.batch, given.steps, True)
    elif given.name in ("gpt", "gpt-recompute"):
        model = Transformer(16, 1536, 16, vocabulary, given.name == "gpt-recompute")
        result = train_language(model, given.batch, given.length, given.steps, vocabulary)
    elif given.name == "lora":
        result = train_language(with_adapters(Transformer(24, 2048, 16, vocabulary)), given.batch, given.length, given.steps, vocabulary)
    elif given.name == "kv":
        result = generate(Transformer(24, 2048, 16, vocabulary), given.batch, given.length, given.steps, vocabulary)
    else:
        parser.error(f"there is no workload {given.name}")
    print("result", result)


if __name__ == "__main__":
    main()
