"""Workers, CUDA IPC, forks, exits, limits and refusals: all that takes more than one process."""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

from harness import GIB, MIB, OURS, child, clean, finish, same, test

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


def _files():
    return len(os.listdir("/proc/self/fd"))


def _receiver(inbox, outbox):
    """What the other process does with what it is sent: (what, tensor...) until "end"."""
    import torch

    held = []
    parent = os.getppid()
    while True:
        try:
            what, *tensors = inbox.get()
        except RuntimeError as error:
            outbox.put(("not received", str(error)))
            continue
        if what == "end":
            outbox.put("end")
            return
        if what == "add":
            for x in tensors:
                x += 1
            torch.cuda.synchronize()
            outbox.put("done")
        elif what == "same storage":
            a, b = tensors
            answer = a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
            a[0] = 9
            torch.cuda.synchronize()
            outbox.put((answer, int(b[0].item())))
        elif what == "neighbours":
            a, b = tensors
            outbox.put((int(a.sum().item()), int(b.sum().item()), b.data_ptr() - a.data_ptr()))
        elif what == "wait and read":
            # No synchronization of ours: what the sender had enqueued must come first.
            outbox.put(int((tensors[0] == 7).sum().item()))
        elif what == "keep":
            held += tensors
            outbox.put("kept")
        elif what == "outlive":
            while os.getppid() == parent:
                time.sleep(0.01)
            print("sum", int(held.pop().sum().item()), flush=True)
        elif what == "files":
            outbox.put(_files())
        elif what == "allocator":
            outbox.put(os.environ.get("WEIR_CHILD_ALLOCATOR"))
        del tensors
        x = a = b = None


class Other:
    """A process that is sent tensors, with Weir in place or with PyTorch alone."""

    def __init__(self, plain=False):
        import torch.multiprocessing as multiprocessing

        context = multiprocessing.get_context("spawn")
        self.inbox, self.outbox = context.Queue(), context.Queue()
        self.process = context.Process(target=_receiver, args=(self.inbox, self.outbox))
        ours = {name: os.environ.pop(name) for name in list(os.environ) if plain and name.startswith("WEIR_CHILD_")}
        try:
            self.process.start()
        finally:
            os.environ.update(ours)

    def __call__(self, what, *tensors):
        self.inbox.put((what, *tensors))
        return self.outbox.get(timeout=60)

    def end(self):
        self("end")
        self.process.join(30)
        same(self.process.exitcode, 0, "the other process")


SENDER = """
import os, torch, torch.multiprocessing as multiprocessing
from features_processes import _receiver
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    context.Process(target=_receiver, args=(inbox, outbox)).start()
    x = torch.full((5 << 20,), 3, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    inbox.put(("keep", x))
    assert outbox.get(timeout=60) == "kept"
    inbox.put(("outlive",))
    inbox.put(("end",))
    inbox.close()
    inbox.join_thread()
    os._exit(0)
"""


def _stitched(torch):
    """A block of pieces: memory is short, and no free piece is large enough."""
    whole = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(min(1.0, (torch.cuda.memory_reserved() + 2.1 * GIB) / whole))
    try:
        blocks = [torch.empty(512 * MIB, dtype=torch.uint8, device="cuda") for _ in range(4)]
        blocks[0] = blocks[2] = None
        return torch.full((900 * MIB,), 5, dtype=torch.uint8, device="cuda"), blocks
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@test(240)
def cuda_ipc():
    import torch
    import weir_gpu

    clean()
    other = Other()
    notes = []
    try:
        x = torch.zeros(5 * MIB, dtype=torch.uint8, device="cuda")
        other("add", x)
        assert (x == 1).all(), "a plain tensor: the other process' writing is not there"
        wide = torch.zeros(4 * MIB, dtype=torch.uint8, device="cuda")
        other("add", wide[MIB + 512 : 2 * MIB])
        same((int(wide.sum().item()), int(wide[MIB + 512 : 2 * MIB].sum().item())), (MIB - 512, MIB - 512), "a view at an offset")
        same(other("same storage", wide[:10], wide[:20]), (True, 9), "two tensors of one block")
        a, b = torch.ones(1000, dtype=torch.uint8, device="cuda"), torch.full((1000,), 2, dtype=torch.uint8, device="cuda")
        same(other("neighbours", a, b)[:2], (1000, 2000), "two small blocks")
        for _ in range(20):
            late = torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda")
            torch.cuda._sleep(20_000_000)
            late.fill_(7)
            same(other("wait and read", late), 64 * MIB, "work that was under way")
            del late
        if OURS:
            before = weir_gpu.gauges(0)["stitches"]
            pieces, rest = _stitched(torch)
            notes.append(f"{weir_gpu.gauges(0)['stitches'] - before} stitches")
            other("add", pieces)
            assert (pieces == 6).all(), "a block in pieces"
            del pieces, rest
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            z = torch.zeros(5 * MIB, dtype=torch.uint8, device="cuda")
        other("add", z)
        assert (z == 1).all(), "a tensor of a MemPool"
        # Memory that comes and goes, sent over and over.
        here = there = None
        for round_ in range(6):
            for _ in range(50):
                y = torch.zeros(3 * MIB + 512 * round_, dtype=torch.uint8, device="cuda")
                other("add", y)
                del y
            clean()
            torch.cuda.ipc_collect()
            if round_ == 1:
                here, there = _files(), other("files")
        notes.append(f"files here {here} -> {_files()}, there {there} -> {other('files')}")
        assert _files() <= here + 4 and other("files") <= there + 4, notes[-1]
    finally:
        other.end()
    folder = os.path.dirname(os.path.abspath(__file__))
    paths = os.pathsep.join(path for path in (folder, os.environ.get("PYTHONPATH", "")) if path)
    with tempfile.TemporaryDirectory() as place:
        script = os.path.join(place, "sender.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write(SENDER)
        # The receiver has the script's pipes too, so they end when it does: later than the sender.
        done = subprocess.run(
            [sys.executable, script], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=120
        )
    same(done.returncode, 0, "a sender that ends first: " + done.stderr[-500:])
    same(done.stdout.split(), ["sum", str(15 * MIB)], "read after its sender ended: " + done.stderr[-500:])
    return "; ".join(notes)


def _lies_in_one(torch, tensor):
    """Whether the driver knows the memory of the tensor as one allocation, as UCX and others ask it."""
    start, size = ctypes.c_uint64(), ctypes.c_size_t()
    torch.cuda.synchronize()
    same(_driver().cuMemGetAddressRange_v2(ctypes.byref(start), ctypes.byref(size), ctypes.c_uint64(tensor.data_ptr())), 0, "the range")
    return start.value <= tensor.data_ptr() and tensor.data_ptr() + tensor.nbytes <= start.value + size.value


def _driver():
    return ctypes.CDLL("libcuda.so.1")


@test(180)
def contiguous_memory():
    """Libraries that look behind a tensor: the range of its memory, and CUDA IPC with a PyTorch that has no Weir."""
    import torch
    import weir_gpu

    clean()
    notes = []
    if OURS:
        pieces, rest = _stitched(torch)
        assert not _lies_in_one(torch, pieces), "a stitched tensor is what this test is about"
        del pieces, rest
    with weir_gpu.contiguous():
        one = torch.zeros(300 * MIB, dtype=torch.uint8, device="cuda")
        with weir_gpu.contiguous():
            small = torch.zeros(1000, dtype=torch.uint8, device="cuda")
    outside = torch.zeros(5 * MIB, dtype=torch.uint8, device="cuda")
    assert _lies_in_one(torch, one) and _lies_in_one(torch, small)
    in_threads = []

    def allocate():
        with weir_gpu.contiguous():
            in_threads.append(torch.zeros(30 * MIB, dtype=torch.uint8, device="cuda"))

    threads = [threading.Thread(target=allocate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(in_threads) == 4 and all(_lies_in_one(torch, x) for x in in_threads)
    other = Other(plain=True)
    try:
        same(other("allocator"), None, "the other process' allocator")
        for x in (one, small, one[MIB + 512 : 2 * MIB]):
            before = int(x[0].item())
            same(other("add", x), "done")
            assert (x == before + 1).all(), "the other process' writing is not there"
        if OURS:
            answer = other("add", outside)
            same(answer[0], "not received", "a tensor of Weir's own memory")
            notes.append(answer[1].splitlines()[0])
    finally:
        other.end()
    in_threads.clear()
    del one, small, outside, x
    clean()
    return "; ".join(notes)


@test()
def kinds_of_memory():
    """Memory that network cards may use, where the GPU can, and that other processes may have."""
    import torch

    x = torch.empty(8 * MIB, dtype=torch.uint8, device="cuda")
    driver, supported = _driver(), {}
    for name, attribute in (("file", 103), ("rdma", 110), ("fabric", 128)):
        value = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, torch.cuda.current_device())
        supported[name] = value.value
    rdma, types = ctypes.c_int(), ctypes.c_uint64()
    asked = [
        driver.cuPointerGetAttribute(ctypes.byref(value), attribute, ctypes.c_uint64(x.data_ptr()))
        for attribute, value in ((15, rdma), (14, types))
    ]
    if OURS:
        same(asked, [0, 0], "the driver's answers")
        same(bool(rdma.value), bool(supported["rdma"]), "RDMA")
        same(types.value & 1, supported["file"], "files")
    return f"announced {supported}, has RDMA {rdma.value}, handle types {types.value}"


FORK = """
import os, sys, torch
pid = os.fork()
x = torch.full((1000,), 4.0, device="cuda")
assert x.sum().item() == 4000 and torch.cuda.memory_allocated() > 0
import weir_gpu
assert weir_gpu.check(3) == 0
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
import torch, weir_gpu
kept = [torch.empty(n << 20, dtype=torch.uint8, device="cuda") for n in (1, 5, 50)]
del kept[1]
g = weir_gpu.gauges(0)
assert g["allocations"] == 3 and g["frees"] == 1, g
assert g["live"] == 51 << 20 and g["peak_live"] == 56 << 20, g
assert g["reserved"] == torch.cuda.memory_reserved() and g["peak_reserved"] == torch.cuda.max_memory_reserved(), g
assert g["allocated"] == torch.cuda.memory_allocated() and g["peak_allocated"] == torch.cuda.max_memory_allocated(), g
weir_gpu.step()
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
    allocator = os.environ.get("WEIR_CHILD_ALLOCATOR", "weir")
    running = {
        "fork": child(FORK, WEIR_CHILD_ALLOCATOR=allocator),
        "exit": child(EXIT, WEIR_CHILD_ALLOCATOR=allocator),
        "limit": child(LIMIT, WEIR_CHILD_ALLOCATOR="weir", WEIR_CHILD_LIMIT=str(2 * GIB)),
        "pytorch": child(PASSTHROUGH, WEIR_CHILD_ALLOCATOR="pytorch", WEIR_CHILD_LIMIT=str(2 * GIB)),
        "expandable": child(PASSTHROUGH, WEIR_CHILD_ALLOCATOR="expandable", WEIR_CHILD_LIMIT=str(2 * GIB)),
        "backend": child(
            "import torch",
            WEIR_CHILD_ALLOCATOR="weir",
            WEIR_CHILD_REQUIRED="1",
            WEIR_CHILD_RUN_DIR=None,
            PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync",
        ),
        "faults": child(
            "import torch\nfor n in range(200):\n  try: x = torch.full((1000 * n + 1,), 1.0, device='cuda'); assert (x == 1).all()\n"
            "  except torch.OutOfMemoryError: torch.cuda.empty_cache()\nimport weir_gpu\nassert weir_gpu.check(3) == 0\nprint('good')",
            WEIR_CHILD_ALLOCATOR="weir",
            WEIR_FAULTS="20000:1",
            # The package has no native/testing, which makes the faults.
            WEIR_NATIVE=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "native"),
        ),
    }
    problems = []
    expected = {
        "fork": "good",
        "exit": "good",
        "limit": "True True",
        "pytorch": "good False",
        "expandable": "good True",
        "faults": "good",
        "backend": "",
    }
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


REGISTERS = """
import os, torch
os.environ["TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"] = "1"
torch.cuda.set_device(0)
torch.distributed.init_process_group("nccl", init_method="file://" + os.environ["STORE"], rank=0, world_size=1)
torch.distributed.all_reduce(torch.ones(1000, device="cuda"))
"""


@test(120)
def nccl_registers_all_memory():
    """NCCL may not register memory that is mapped anew: refused at the start, or where the program asks for it later."""
    if not OURS:
        return "PyTorch's allocator allows it"
    variable = {"TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK": "1"}
    start = child("import torch", WEIR_CHILD_REQUIRED="1", WEIR_CHILD_RUN_DIR=None, **variable)
    assert "unset it, or run with --allocator expandable" in finish(start, 125)[1]
    with tempfile.TemporaryDirectory() as folder:
        # PyTorch's process group has threads by then, so that an error in its constructor ends the process.
        later = child(REGISTERS, STORE=os.path.join(folder, "store"))
        assert "unset it, or run with --allocator expandable" in finish(later, -signal.SIGABRT)[1]


MAKES_ROOM = """
import os, torch
import weir_gpu.swap
torch.manual_seed(1)
net = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096, bias=False) for _ in range(4)]).cuda()
optimizer = torch.optim.AdamW(net.parameters())
def step():
    loss = net(torch.randn(256, 4096, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()
losses = [step() for _ in range(3)]
if os.environ.get("WEIR_CHILD_LIMIT"):
    large = torch.empty(int(os.environ["WEIR_CHILD_LIMIT"]) - torch.cuda.memory_allocated() + (200 << 20), dtype=torch.uint8, device="cuda")
    large.fill_(1)
    assert weir_gpu.swap.report()["reliefs"] > 0, weir_gpu.swap.report()
    del large
print([loss.hex() for loss in losses + [step() for _ in range(3)]])
"""


@test(120)
def swapping_makes_room():
    """A request that finds no memory is served after optimizer state has left; nobody plans."""
    with tempfile.TemporaryDirectory() as folder:
        swapping = {"WEIR_CHILD_SWAP": "auto", "WEIR_CHILD_RUN_DIR": folder, "WEIR_CHILD_LIMIT": str(2 * GIB)}
        outputs = [finish(child(MAKES_ROOM, WEIR_CHILD_ALLOCATOR="weir", **more))[0] for more in ({}, swapping)]
    same(outputs[1], outputs[0], "losses")


@test(60)
def still_sound_at_the_end():
    import torch
    import weir_gpu

    clean()
    same(weir_gpu.check(3), 0, "check")
    levels = weir_gpu.gauges(0)
    same(levels["reserved"] if levels else torch.cuda.memory_reserved(), torch.cuda.memory_reserved(), "reserved")
    return f"{torch.cuda.memory_allocated()} bytes allocated, {torch.cuda.memory_reserved()} reserved"
