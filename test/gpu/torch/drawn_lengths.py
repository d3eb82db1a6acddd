"""A language model trained on drawn lengths, in deterministic mode. Prints a hash of its losses and what memory it took, as JSON.

python3 drawn_lengths.py [STEPS]; then weir run -- python3 drawn_lengths.py: the hash is the same, the memory less."""

import hashlib
import json
import os
import random
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch import nn

WIDTH, LAYERS, HEADS, WORDS, BATCH = 768, 8, 12, 8192, 24


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words):
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1], device=words.device)
        return self.head(self.layers(self.embed(words), mask, is_causal=True))


def main(steps):
    torch.manual_seed(0)
    random.seed(0)
    torch.use_deterministic_algorithms(True)
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    losses, times = [], []
    for _ in range(steps):
        words = torch.randint(0, WORDS, (BATCH, 1 + 64 * random.randint(2, 12)), device="cuda")
        torch.cuda.synchronize()
        began = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(words[:, :-1]).flatten(0, 1).float(), words[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item().hex())
        times.append(time.perf_counter() - began)
    allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    found = {
        "torch": torch.__version__,
        "losses": hashlib.sha256(" ".join(losses).encode()).hexdigest()[:16],
        "allocated": allocated,
        "reserved": reserved,
        "ratio": round(reserved / allocated, 4),
        "step": round(sorted(times)[len(times) // 2], 4),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
