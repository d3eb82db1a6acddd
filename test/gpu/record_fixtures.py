"""Records small snapshots on a real GPU that pin corners of PyTorch's allocator: samples/exact/*.pkl.gz.

usage: record_fixtures.py OUT_DIR [NAME ...]   each fixture runs in a process of its own, with its own settings

Every file is a pickle of torch.cuda.memory._snapshot() with the extra keys stats (memory_stats), total (device
bytes) and frac (memory fraction); fixtures named in WITHOUT_LIMITS leave total and frac out, as users' files do.
"""

import gc
import gzip
import os
import pickle
import random
import subprocess
import sys

MIB = 1 << 20


def random_size(rng):
    kind = rng.random()
    if kind < 0.35:
        return rng.randint(1, MIB)
    if kind < 0.6:
        return rng.randint(MIB, 10 * MIB)
    if kind < 0.95:
        return rng.randint(10 * MIB, 200 * MIB)
    return rng.randint(200 * MIB, 1500 * MIB)


def churn(torch, rng, steps, streams=1, record=0.0, busy=0.0, empty=0.0, keep=60):
    """Allocates and frees at random on several streams; `record` is the chance that a tensor is used on another one."""
    lanes = [torch.cuda.current_stream()] + [torch.cuda.Stream() for _ in range(streams - 1)]
    held = []
    for _ in range(steps):
        if busy and rng.random() < busy:
            with torch.cuda.stream(rng.choice(lanes)):
                torch.cuda._sleep(20_000_000)
        if empty and rng.random() < empty:
            torch.cuda.empty_cache()
        while held and (len(held) > keep or rng.random() < 0.48):
            held.pop(rng.randrange(len(held)))
        lane = rng.choice(lanes)
        try:
            with torch.cuda.stream(lane):
                tensor = torch.empty(random_size(rng), dtype=torch.uint8, device="cuda")
            if record and rng.random() < record:
                tensor.record_stream(rng.choice(lanes))
            held.append(tensor)
        except torch.OutOfMemoryError:
            del held[: len(held) // 2]
    return held


def fixture_async(torch, rng):
    """Deferred frees that complete while requests are under memory pressure."""
    torch.cuda.set_per_process_memory_fraction(0.05)
    return churn(torch, rng, 1500, streams=3, record=0.5, busy=0.15)


def fixture_late(torch, rng):
    """Recording that begins with memory already live, cached and pending."""
    torch.cuda.memory._record_memory_history(enabled=None)
    held = churn(torch, rng, 400, streams=2)
    torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=10_000_000)
    held += churn(torch, rng, 800, streams=2, empty=0.005)
    del held[::2]
    return held


def fixture_ring(torch, rng):
    """A ring buffer that overflowed: the beginning is lost."""
    torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=1500)
    return churn(torch, rng, 1500, streams=2)


def fixture_full(torch, rng):
    """A GPU that is really full: cudaMalloc itself fails, no fraction is set."""
    import ctypes

    free, _ = torch.cuda.mem_get_info()
    ballast = ctypes.c_void_p()
    assert torch.cuda.cudart() is not None
    cudart = ctypes.CDLL("libcudart.so.13")
    assert cudart.cudaMalloc(ctypes.byref(ballast), ctypes.c_size_t(free - (7 << 30))) == 0
    return churn(torch, rng, 1500, streams=2, empty=0.002)


def fixture_pools(torch, rng):
    """MemPools and graph capture beside the default pool."""
    held = churn(torch, rng, 200, keep=20)
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        held += churn(torch, rng, 200, keep=20)
    static = torch.zeros(1024, 1024, device="cuda")
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        (static @ static).relu()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        result = (static @ static).relu() + 1
    held += churn(torch, rng, 200, keep=20)
    graph.replay()
    torch.cuda.empty_cache()
    held += churn(torch, rng, 200, keep=20)
    return [held, pool, graph, result]


def fixture_plain(torch, rng):
    return churn(torch, rng, 1500, streams=2, record=0.1, empty=0.002)


def fixture_pressed(torch, rng):
    torch.cuda.set_per_process_memory_fraction(0.05)
    return churn(torch, rng, 1500, streams=2, record=0.1, empty=0.002)


def fixture_skip(torch, rng):
    """A recording whose owner left out the completions."""
    torch.cuda.memory._record_memory_history(enabled="all", context=None, skip_actions=["free_completed"])
    return churn(torch, rng, 500, streams=2)


def fixture_newest(torch, rng):
    """What PyTorch 2.12 to 2.14 added: pools that end, annotations, pinned host memory."""
    memory = torch.cuda.memory
    if not hasattr(memory, "_annotate_tensor"):
        raise SystemExit("this fixture needs PyTorch 2.14")
    memory._record_memory_history(enabled="all", context=None, max_entries=10_000_000, record_pinned_host_memory=True)
    memory._set_memory_metadata("weights")
    held = [torch.empty(8 * MIB, dtype=torch.uint8, device="cuda")]
    memory._set_memory_metadata("")
    memory._annotate_tensor(held[0], "annotated later")
    pinned = [torch.empty(size, dtype=torch.uint8, pin_memory=True) for size in (3 * MIB, 5 * MIB, 12 * MIB)]
    del pinned[1]
    for _ in range(3):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            inside = churn(torch, rng, 50, keep=5)
        del inside, pool
        held += churn(torch, rng, 50, keep=10)
    torch.cuda.empty_cache()
    held += churn(torch, rng, 200, streams=2, keep=20)
    print("host memory", {key: value for key, value in torch.cuda.host_memory_stats().items() if key.startswith("allocated_bytes")})
    return [held, pinned]


# name: (function, PYTORCH_CUDA_ALLOC_CONF)
FIXTURES = {
    "async": (fixture_async, ""),
    "async-exp": (fixture_async, "expandable_segments:True"),
    "late": (fixture_late, ""),
    "late-exp": (fixture_late, "expandable_segments:True"),
    "ring": (fixture_ring, ""),
    "ring-exp": (fixture_ring, "expandable_segments:True"),
    "full": (fixture_full, ""),
    "full-exp": (fixture_full, "expandable_segments:True"),
    "pools": (fixture_pools, ""),
    "pools-exp": (fixture_pools, "expandable_segments:True"),
    "large-segment": (fixture_plain, "large_segment_size_mb:32"),
    "large-segment-exp": (fixture_plain, "large_segment_size_mb:50,expandable_segments:True"),
    "rounding": (fixture_pressed, "max_split_size_mb:64,max_non_split_rounding_mb:256"),
    "split-exp": (fixture_pressed, "max_split_size_mb:128,expandable_segments:True"),
    "gc-exp": (fixture_pressed, "garbage_collection_threshold:0.7,expandable_segments:True"),
    "gc-split": (fixture_pressed, "garbage_collection_threshold:0.8,max_split_size_mb:256"),
    "round-exp": (fixture_plain, "roundup_power2_divisions:[64:8,256:4,>:1],expandable_segments:True"),
    "skip": (fixture_skip, ""),
    "newest": (fixture_newest, ""),
    "newest-exp": (fixture_newest, "expandable_segments:True"),
}
WITHOUT_LIMITS = {"late", "late-exp", "ring", "ring-exp", "full", "full-exp", "pools", "pools-exp", "skip", "newest", "newest-exp"}


def record(out, name):
    import torch

    torch.cuda.init()
    torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=10_000_000)
    rng = random.Random(name)
    held = FIXTURES[name][0](torch, rng)
    snapshot = torch.cuda.memory._snapshot()
    snapshot["stats"] = dict(torch.cuda.memory_stats())
    if name not in WITHOUT_LIMITS:
        snapshot["total"] = torch.cuda.get_device_properties(0).total_memory
        snapshot["frac"] = torch.cuda.get_per_process_memory_fraction()
    with gzip.open(f"{out}/{name}.pkl.gz", "wb", 9) as file:
        pickle.dump(snapshot, file, protocol=4)
    stats = snapshot["stats"]
    print(
        name,
        len(snapshot["device_traces"][0]),
        "events",
        "ooms",
        stats["num_ooms"],
        "retries",
        stats["num_alloc_retries"],
        "peak reserved",
        stats["reserved_bytes.all.peak"],
        flush=True,
    )
    del held
    gc.collect()


def main(out, names):
    os.makedirs(out, exist_ok=True)
    for name in names or FIXTURES:
        env = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": FIXTURES[name][1]}
        code = subprocess.run([sys.executable, os.path.abspath(__file__), out, "--one", name], env=env).returncode
        if code:
            print(name, "FAILED", code, flush=True)


if __name__ == "__main__":
    if sys.argv[2:3] == ["--one"]:
        record(sys.argv[1], sys.argv[3])
    else:
        main(sys.argv[1], sys.argv[2:])
