"""Workers, CUDA IPC, forks, exits, limits and refusals: all that takes more than one process."""

import os

from harness import GIB, MIB, child, clean, finish, same, test

# ---- Processes.


class Numbers:
    def __len__(self):
        return 64

    def __getitem__(self, index):
        import torch

        return torch.full((1000,), float(index))


@test(90)
def data_loader_workers():
    import torch

    for method in ("fork", "spawn"):
        loader = torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2, pin_memory=True, multiprocessing_context=method)
        seen = 0
        for batch in loader:
            on_gpu = batch.cuda(non_blocking=True)
            seen += int(on_gpu[:, 0].sum().item())
        same(seen, sum(range(64)), method)


def _add_one(queue, done):
    x = queue.get()
    x += 1
    import torch

    torch.cuda.synchronize()
    del x
    done.set()


def _send(x):
    import torch.multiprocessing as multiprocessing

    context = multiprocessing.get_context("spawn")
    queue, done = context.Queue(), context.Event()
    process = context.Process(target=_add_one, args=(queue, done))
    process.start()
    queue.put(x)
    assert done.wait(60), "the other process did not answer"
    process.join(30)
    same(process.exitcode, 0, "the other process")


@test(120)
def cuda_ipc():
    import torch

    x = torch.zeros(5 * MIB, dtype=torch.uint8, device="cuda")
    refusal = ""
    try:
        x.untyped_storage()._share_cuda_()
    except RuntimeError as error:
        refusal = str(error).split("\n")[0]
        assert "--allocator expandable" in refusal, refusal
    if not refusal:
        y = torch.zeros(5 * MIB, dtype=torch.uint8, device="cuda")
        _send(y)
        assert (y == 1).all()
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        z = torch.zeros(5 * MIB, dtype=torch.uint8, device="cuda")
    _send(z)
    assert (z == 1).all(), "the other process' writing is not there"
    del z, x
    return f"refused: {refusal}; works from a MemPool" if refusal else "works"


FORK = """
import os, sys, torch
pid = os.fork()
x = torch.full((1000,), 4.0, device="cuda")
assert x.sum().item() == 4000 and torch.cuda.memory_allocated() > 0
import weir
assert weir.check(3) == 0
sys.stdout.flush()
if pid == 0: os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
# A child that inherits tensors and drops them: never uses CUDA.
pid = os.fork()
if pid == 0:
    del x
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
print("good")
"""

EXIT = """
import torch
held = torch.full((64 << 20,), 1.0, device="cuda")
side = torch.cuda.Stream()
held.record_stream(side)
class Late:
    def __init__(self): self.x = torch.ones(1000, device="cuda")
late = Late(); late.me = late
print("good")
"""

LIMIT = """
import torch
x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
try:
    torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
    print("no error")
except torch.OutOfMemoryError as error:
    print("--limit" in str(error), torch.cuda.memory_reserved() <= 2 << 30)
"""

PASSTHROUGH = """
import torch, weir
kept = [torch.empty(n << 20, dtype=torch.uint8, device="cuda") for n in (1, 5, 50)]
del kept[1]
g = weir.gauges(0)
assert g["allocations"] == 3 and g["frees"] == 1, g
assert g["live"] == 51 << 20 and g["peak_live"] == 56 << 20, g
assert g["reserved"] == torch.cuda.memory_reserved() and g["peak_reserved"] == torch.cuda.max_memory_reserved(), g
assert g["allocated"] == torch.cuda.memory_allocated() and g["peak_allocated"] == torch.cuda.max_memory_allocated(), g
weir.step()
try:
    torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
    print("no error")
except torch.OutOfMemoryError:
    expandable = any(s["is_expandable"] for s in torch.cuda.memory_snapshot())
    print("good", expandable)
"""


@test(120)
def other_processes():
    """Forks, ends with tensors alive, limits, PyTorch's own allocators recorded, a backend that is refused."""
    allocator = os.environ.get("WEIR_ALLOCATOR", "weir")
    running = {
        "fork": child(FORK, WEIR_ALLOCATOR=allocator),
        "exit": child(EXIT, WEIR_ALLOCATOR=allocator),
        "limit": child(LIMIT, WEIR_ALLOCATOR="weir", WEIR_LIMIT=str(2 * GIB)),
        "pytorch": child(PASSTHROUGH, WEIR_ALLOCATOR="pytorch", WEIR_LIMIT=str(2 * GIB)),
        "expandable": child(PASSTHROUGH, WEIR_ALLOCATOR="expandable", WEIR_LIMIT=str(2 * GIB)),
        "backend": child("import torch", WEIR_ALLOCATOR="weir", WEIR_REQUIRED="1", WEIR_RUN_DIR=None, PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync"),
        "faults": child(
            "import torch\nfor n in range(200):\n  try: x = torch.full((1000 * n + 1,), 1.0, device='cuda'); assert (x == 1).all()\n"
            "  except torch.OutOfMemoryError: torch.cuda.empty_cache()\nimport weir\nassert weir.check(3) == 0\nprint('good')",
            WEIR_ALLOCATOR="weir",
            WEIR_FAULTS="20000:1",
        ),
    }
    problems = []
    expected = {"fork": "good", "exit": "good", "limit": "True True", "pytorch": "good False", "expandable": "good True", "faults": "good", "backend": ""}
    for name, process in running.items():
        try:
            out, err = finish(process, 125 if name == "backend" else 0)
            same(out.strip(), expected[name], name)
            if name == "exit":
                assert not any(word in err for word in ("Error", "terminate", "Traceback", "weir:", "CUDA")), err
            if name == "backend":
                assert "cudaMallocAsync" in err, err
        except Exception as error:
            problems.append(f"{name}: {error}")
    if problems:
        raise AssertionError("; ".join(problems))


@test(60)
def still_sound_at_the_end():
    import torch
    import weir

    clean()
    same(weir.check(3), 0, "check")
    levels = weir.gauges(0)
    same(levels["reserved"] if levels else torch.cuda.memory_reserved(), torch.cuda.memory_reserved(), "reserved")
    return f"{torch.cuda.memory_allocated()} bytes allocated, {torch.cuda.memory_reserved()} reserved"
