"""Trainings for large.py, with random weights and data made on the GPU: decoders, ViT-L, FSDP2, compiled layers.

One run: python3 large_models.py JOB TOLD, where JOB is the JSON of a `Job`. Each rank writes TOLD.<rank>.json."""

import contextlib
import json
import os
import sys
from dataclasses import dataclass, field, replace
from typing import Optional

from shared_gpu import share_gpu
from swap_runs import StepLog, be_strict, tell

LEARNING_RATE = 1e-4
IMAGE, PATCH, CLASSES = 224, 16, 1000


@dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    heads: int
    batch: int
    length: int = 0  # tokens; 0 for images
    vocabulary: int = 0
    gated: Optional[int] = None  # width inside of a gated MLP; None for a plain one of 4 times the width
    tied: bool = False  # the embedding is also the last layer


@dataclass(frozen=True)
class Workload:
    shape: Shape
    recompute: bool = False
    half: bool = False  # parameters in bf16; otherwise in fp32, with autocast
    ranks: int = 1  # more than one: FSDP2
    compiled: bool = False
    gib: int = 0  # about its peak, to run several at once


# Steps of 0.2 to 0.6 s on an H200.
WORKLOADS = {
    "opt1b3": Workload(Shape(24, 2048, 32, batch=8, length=1024, vocabulary=50272, tied=True), recompute=True, gib=36),
    "gpt2xl": Workload(Shape(48, 1600, 25, batch=8, length=1024, vocabulary=50257, tied=True), recompute=True, gib=42),
    "vitl": Workload(Shape(24, 1024, 16, batch=192), gib=60),
    "decoder1b5": Workload(Shape(28, 2048, 16, batch=4, length=2048, vocabulary=32000, gated=5504), half=True, gib=50),
    "fsdp2": Workload(Shape(16, 1024, 16, batch=8, length=1024, vocabulary=8192), ranks=2, gib=40),
    "compiled": Workload(Shape(24, 2048, 16, batch=4, length=1024, vocabulary=32000), compiled=True, gib=50),
}


def tiny(workload):
    """The same with little memory, for a machine without a GPU."""
    shape = workload.shape
    small = replace(shape, layers=3, hidden=64, heads=4, batch=4, length=min(shape.length, 32), vocabulary=min(shape.vocabulary, 128))
    return replace(workload, shape=replace(small, gated=96 if shape.gated else None))


@dataclass
class Job:
    """One run."""

    workload: str
    steps: int
    device: str = "cuda"
    is_tiny: bool = False
    fraction: Optional[int] = None  # bytes that PyTorch's own allocator may hold
    ways: list = field(default_factory=list)  # "save_on_cpu", "offload": FSDP2's own

    def resolved(self):
        return tiny(WORKLOADS[self.workload]) if self.is_tiny else WORKLOADS[self.workload]


def classes():
    """Made on demand: the script that starts the runs needs no PyTorch."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self, shape, causal):
            super().__init__()
            hidden, inner = shape.hidden, shape.gated or 4 * shape.hidden
            self.heads, self.causal, self.gated = shape.heads, causal, shape.gated is not None
            norm = nn.RMSNorm if self.gated else nn.LayerNorm
            self.norm1, self.norm2 = norm(hidden), norm(hidden)
            self.qkv, self.out = nn.Linear(hidden, 3 * hidden, bias=not self.gated), nn.Linear(hidden, hidden, bias=not self.gated)
            self.up = nn.Linear(hidden, 2 * inner if self.gated else inner, bias=not self.gated)
            self.down = nn.Linear(inner, hidden, bias=not self.gated)

        def forward(self, x):
            batch, length, hidden = x.shape
            q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, hidden))
            inner = self.up(self.norm2(x))
            if self.gated:
                gate, inner = inner.chunk(2, -1)
                return x + self.down(F.silu(gate) * inner)
            return x + self.down(F.gelu(inner))

    class Decoder(nn.Module):
        def __init__(self, workload):
            super().__init__()
            shape = workload.shape
            self.recompute = workload.recompute
            self.embed, self.places = nn.Embedding(shape.vocabulary, shape.hidden), nn.Embedding(shape.length, shape.hidden)
            self.blocks = nn.ModuleList(Block(shape, True) for _ in range(shape.layers))
            self.norm, self.head = nn.LayerNorm(shape.hidden), nn.Linear(shape.hidden, shape.vocabulary, bias=False)
            nn.init.normal_(self.embed.weight, std=0.02)
            if shape.tied:
                self.head.weight = self.embed.weight

        def forward(self, words):
            from torch.utils.checkpoint import checkpoint

            x = self.embed(words) + self.places(torch.arange(words.shape[1], device=words.device))
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
            return self.head(self.norm(x))

    class Vision(nn.Module):
        def __init__(self, workload):
            super().__init__()
            shape = workload.shape
            # A linear layer on patches: a convolution would choose its kernel.
            self.patches = nn.Linear(3 * PATCH * PATCH, shape.hidden)
            self.blocks = nn.ModuleList(Block(shape, False) for _ in range(shape.layers))
            self.norm, self.head = nn.LayerNorm(shape.hidden), nn.Linear(shape.hidden, CLASSES)

        def forward(self, images):
            x = self.patches(images)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x.mean(1)))

    return Decoder, Vision


class Trainer:
    """A model, its optimizer and its data. Tests train it step by step."""

    def __init__(self, workload, device="cuda", offload=False, compiler="inductor"):
        import torch

        self.torch, self.device, self.shape = torch, device, workload.shape
        decoder, vision = classes()
        torch.manual_seed(0)
        torch.set_default_dtype(torch.bfloat16 if workload.half else torch.float32)
        try:
            with torch.device(device):
                self.net = (decoder if workload.shape.length else vision)(workload)
        finally:
            torch.set_default_dtype(torch.float32)
        self.autocast = not workload.half and workload.ranks == 1
        if workload.ranks > 1:
            self._shard(offload)
        if workload.compiled:
            for block in self.net.blocks:
                block.compile(backend=compiler)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=LEARNING_RATE)

    def _shard(self, offload):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

        torch = self.torch
        more = {
            "mesh": init_device_mesh(self.device, (torch.distributed.get_world_size(),)),
            "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
        }
        if offload:
            more["offload_policy"] = CPUOffloadPolicy()
        for block in self.net.blocks:
            fully_shard(block, **more)
        fully_shard(self.net, **more)

    def step(self, read):
        """`read` gets the loss when all of the step's work is enqueued."""
        torch, shape, device = self.torch, self.shape, self.device
        if shape.length:
            words = torch.randint(shape.vocabulary, (shape.batch, shape.length + 1), device=device)
            inputs, wanted = words[:, :-1], words[:, 1:].flatten()
        else:
            inputs = torch.randn(shape.batch, (IMAGE // PATCH) ** 2, 3 * PATCH * PATCH, device=device)
            wanted = torch.randint(CLASSES, (shape.batch,), device=device)
        with torch.autocast(device, torch.bfloat16, enabled=self.autocast):
            loss = torch.nn.functional.cross_entropy(self.net(inputs).float().flatten(0, -2), wanted)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        read(loss)


def train(job, told):
    workload = job.resolved()
    rank = share_gpu() if workload.ranks > 1 else 0
    be_strict()
    import torch

    if job.device == "cuda":
        torch.cuda.set_device(0)
        if job.fraction is not None:
            torch.cuda.set_per_process_memory_fraction(job.fraction / torch.cuda.get_device_properties(0).total_memory)
    if workload.ranks > 1:
        torch.distributed.init_process_group("nccl" if job.device == "cuda" else "gloo")
    log = StepLog(job.device)
    trainer = Trainer(workload, job.device, "offload" in job.ways)
    if job.device == "cuda":
        # What building has left behind is not memory of the steps.
        torch.cuda.empty_cache()
    # Ranks draw data of their own.
    torch.manual_seed(1000 + rank)
    around = torch.autograd.graph.save_on_cpu if "save_on_cpu" in job.ways else None
    for _ in range(job.steps):
        with log.step() as read, around(pin_memory=True) if around else contextlib.nullcontext():
            trainer.step(read)
    about = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name() if job.device == "cuda" else "none"}
    tell(told, {**log.told(trainer.net.parameters()), **about}, rank)
    if workload.ranks > 1:
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def command(job, port):
    """What starts a run. The path to tell to comes last."""
    words = [os.path.abspath(__file__), json.dumps(job.__dict__)]
    ranks = job.resolved().ranks
    if ranks == 1:
        return [sys.executable, *words]
    return [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", f"--master-port={port}", *words]


if __name__ == "__main__":
    train(Job(**json.loads(sys.argv[1])), sys.argv[2])
