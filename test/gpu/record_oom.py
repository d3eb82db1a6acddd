"""Trains GPT-2 XL with sequences of varying length on a GPU cut down to LIMIT GiB, until it is done or out of memory.

usage: record_oom.py WORKLOADS_DIR OUT_FILE LIMIT_GIB STACKS   (PYTORCH_CUDA_ALLOC_CONF as you like)
Writes torch.cuda.memory._dump_snapshot(), gzipped, and prints what PyTorch itself counted.
"""

import gzip
import json
import random
import shutil
import sys
import time


def main(workloads, out, limit_gib, stacks):
    import torch

    sys.path.insert(0, workloads)
    from workloads import WORKLOADS

    torch.manual_seed(0)
    random.seed(0)
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(float(limit_gib) * 2**30 / total)
    context = "alloc" if stacks == "stacks" else None
    torch.cuda.memory._record_memory_history(enabled="all", context=context, stacks="python", max_entries=3_000_000)
    step, steps, _ = WORKLOADS["gpt2xl-R-var"](torch)
    done, message = 0, ""
    started = time.time()
    try:
        for index in range(steps):
            torch.cuda.memory._set_memory_metadata(f"step {index}")
            step(index)
            done = index + 1
    except torch.OutOfMemoryError as error:
        message = str(error)
    torch.cuda.memory._dump_snapshot(out)
    with open(out, "rb") as plain, gzip.open(out + ".gz", "wb", 9) as packed:
        shutil.copyfileobj(plain, packed)
    stats = torch.cuda.memory_stats()
    keys = ["num_ooms", "num_alloc_retries", "reserved_bytes.all.peak", "allocated_bytes.all.peak", "active_bytes.all.peak"]
    print(
        json.dumps(
            {
                "out": out,
                "limit": limit_gib,
                "total": total,
                "allowed": int(float(limit_gib) * 2**30 / total * total),
                "steps": done,
                "message": message,
                "seconds": round(time.time() - started, 1),
                **{key: stats[key] for key in keys},
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main(*sys.argv[1:5])
