"""A training of the real PyTorch whose memory on the stand-in GPU grows with its batch, for `weir fit`: fit_training.py BATCH [WORD].

WORD: `alternating` has a second optimizer; `inference` has none and calls weir_gpu.step(); `both` has one and calls it too;
`nothing` marks no step."""

import sys

import standin_gpu
import torch
import weir_gpu

MIB = standin_gpu.MIB
batch = int(sys.argv[1])
word = sys.argv[2] if len(sys.argv) > 2 else ""
weights = [standin_gpu.Block(8 * MIB) for _ in range(3)]
model = torch.nn.Linear(4, 4)
optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2 if word == "alternating" else 1)]

for step in range(50):
    if word in ("inference", "both"):
        weir_gpu.step()
    blocks = [standin_gpu.Block((layer + 1) * MIB * batch) for layer in range(3)]
    for block in reversed(blocks):
        block.free()
    if word in ("inference", "nothing"):
        continue
    for optimizer in optimizers:
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    print("step", step, flush=True)
    # What a run that was cut short must not do.
    if step == 40:
        open("checkpoint", "w").close()
