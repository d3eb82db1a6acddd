"""One rank of a language model's training over NCCL, FSDP2 or DDP, that writes its losses, step times and memory.

torchrun --nproc-per-node 2 two_ranks.py fsdp2|ddp OUTPUT [STEPS [LENGTH]]

Without LENGTH, a multiple of 64, each step draws one. With it, all steps are alike, and swapping can plan them."""

import json
import os
import random
import sys
import time

from shared_gpu import share_gpu

RANK = share_gpu()
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

WIDTH, LAYERS, HEADS, WORDS, BATCH = 512, 8, 8, 8192, 64


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (part.view(batch, length, HEADS, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words):
        x = self.embed(words)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def wrap(model, way):
    if way == "ddp":
        return nn.parallel.DistributedDataParallel(model, bucket_cap_mb=8)
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    return fully_shard(model, mp_policy=policy)


def main(way, output, steps=100, length=None):
    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    random.seed(RANK)
    # PyTorch is then identical to itself from run to run, so that any difference is an allocator's.
    torch.use_deterministic_algorithms(True)
    model = wrap(Model().cuda(), way)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    # Words that follow a rule, so that the loss falls and says whether the values were right.
    rule = torch.randperm(WORDS, device="cuda")
    losses, times = [], []
    for _ in range(steps):
        drawn = 64 * random.randint(2, 12) if length is None else length
        words = [torch.randint(0, WORDS, (BATCH, 1), device="cuda")]
        for _ in range(drawn):
            words.append(rule[words[-1]])
        words = torch.cat(words, 1)
        torch.cuda.current_stream().synchronize()
        began = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16, enabled=way == "ddp"):
            loss = nn.functional.cross_entropy(model(words[:, :-1]).flatten(0, 1).float(), words[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        torch.cuda.current_stream().synchronize()
        times.append(time.perf_counter() - began)
    report = {
        "rank": RANK,
        "way": way,
        "losses": losses,
        "times": times,
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
    }
    with open(f"{output}.{RANK}.json", "w", encoding="utf-8") as file:
        json.dump(report, file)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *(int(number) for number in sys.argv[3:]))
