"""One rank of a training on one GPU, alone, or started by torchrun, by `accelerate launch`, or by itself with multiprocessing.

weir run -- torchrun --nproc-per-node=2 rank.py
weir run -- accelerate launch --num_processes 1 rank.py accelerate
weir run -- python3 rank.py spawn"""

import os
import sys

import torch


def train(rank, world, accelerator=None):
    torch.manual_seed(rank)
    device = torch.device("cuda", 0)
    model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(8))).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    if accelerator is not None:
        model, optimizer = accelerator.prepare(model, optimizer)
    elif world > 1:
        # Ranks share the GPU, which NCCL refuses: gradients are summed up on the host.
        torch.distributed.init_process_group("gloo", rank=rank, world_size=world)
    for step in range(6):
        loss = model(torch.randn(256 + 64 * (step % 3), 2048, device=device)).square().mean()
        if accelerator is not None:
            accelerator.backward(loss)
        else:
            loss.backward()
        if world > 1:
            for parameter in model.parameters():
                whole = parameter.grad.cpu()
                torch.distributed.all_reduce(whole)
                parameter.grad.copy_(whole / world)
        optimizer.step()
        optimizer.zero_grad()
    # In one piece: where Python does not buffer, print() writes the end of the line apart, and lines of two ranks run together.
    sys.stdout.write(f"rank {rank} of {world}: {loss.item():.6f}\n")
    sys.stdout.flush()
    if world > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    how = sys.argv[1] if len(sys.argv) > 1 else ""
    if how == "accelerate":
        import accelerate

        train(0, 1, accelerate.Accelerator())
    elif how == "spawn":
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517")
        torch.multiprocessing.spawn(train, args=(2,), nprocs=2)
    else:
        train(int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))
