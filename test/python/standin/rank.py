"""One rank under torchrun with WEIR=1, whose data comes from DataLoader workers; prints what it found as one line of JSON."""

import json
import os
import sys

import standin_gpu
import torch
import torch.distributed as dist
import weir_gpu
from torch.utils.data import DataLoader, TensorDataset


def main():
    dist.init_process_group("gloo")
    standin_gpu.train()
    total = 0.0
    for method in ("fork", "spawn"):
        batches = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=2, num_workers=2, multiprocessing_context=method)
        for (batch,) in batches:
            standin_gpu.train(steps=1)
            total += float(batch.sum())
    value = torch.tensor([total])
    dist.all_reduce(value)
    text = str(weir_gpu.summary(what_if=False))
    dist.barrier()
    found = {"rank": dist.get_rank(), "total": value.item(), "text": text, "limit": weir_gpu.gauges()["limit"]}
    # In one piece, since the ranks share the pipe.
    os.write(1, (json.dumps(found) + "\n").encode())
    dist.destroy_process_group()
    sys.exit(0)


if __name__ == "__main__":
    main()
