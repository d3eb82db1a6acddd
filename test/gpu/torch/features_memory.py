"""Statistics, limits, running out of memory, and what can be observed of it."""

import json
import os
import time

from harness import GIB, MIB, OURS, child, clean, finish, same, small_net, test, total

# ---- In place, and statistics.


@test(60)
def in_place_and_keys():
    import torch

    plain = child(
        "import torch, json; torch.empty(9, device='cuda'); print(json.dumps(sorted(torch.cuda.memory_stats())))", WEIR_CHILD_ALLOCATOR=None
    )
    x = torch.empty(1000, device="cuda")
    import weir_gpu

    levels = weir_gpu.gauges(0)
    if os.environ.get("WEIR_CHILD_ALLOCATOR"):
        assert levels and levels["allocations"] >= 1 and levels["total"] > 0, levels
    same(weir_gpu.check(3), 0, "check")
    same(sorted(torch.cuda.memory_stats()), json.loads(finish(plain)[0]), "keys of memory_stats")
    del x


@test()
def peaks_and_resets():
    import torch

    clean()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    before = torch.cuda.memory_allocated()
    x = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
    y = torch.empty(700, dtype=torch.uint8, device="cuda")
    same(torch.cuda.memory_allocated() - before, 100 * MIB + 1024, "allocated")
    stats = torch.cuda.memory_stats()
    same(stats["allocation.all.allocated"], 2)
    same((stats["allocation.small_pool.allocated"], stats["allocation.large_pool.allocated"]), (1, 1), "pools")
    same(stats["requested_bytes.all.allocated"], 100 * MIB + 700)
    del x, y
    same(torch.cuda.memory_allocated(), before)
    same(torch.cuda.max_memory_allocated() - before, 100 * MIB + 1024, "peak")
    assert torch.cuda.max_memory_reserved() >= torch.cuda.memory_reserved() >= 100 * MIB
    torch.cuda.reset_peak_memory_stats()
    same(torch.cuda.max_memory_allocated(), before)
    torch.cuda.reset_accumulated_memory_stats()
    same(torch.cuda.memory_stats()["allocation.all.allocated"], 0)
    assert "Allocated memory" in torch.cuda.memory_summary()
    assert torch.cuda.memory_summary(abbreviated=True)


@test()
def empty_cache_and_free_memory():
    import torch

    clean()
    x = torch.empty(3 * GIB, dtype=torch.uint8, device="cuda")
    x.fill_(1)
    torch.cuda.synchronize()
    del x
    reserved, free = torch.cuda.memory_reserved(), torch.cuda.mem_get_info()[0]
    torch.cuda.empty_cache()
    fell, rose = reserved - torch.cuda.memory_reserved(), torch.cuda.mem_get_info()[0] - free
    assert fell >= 3 * GIB, fell
    same(rose, fell, "free memory rose by")


@test()
def fraction_and_out_of_memory():
    import torch

    clean()
    same(torch.cuda.get_per_process_memory_fraction(), 1.0)
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(lambda device, asked, all_, free: seen.append((device, asked, all_, free)))
    torch.cuda.set_per_process_memory_fraction(0.1)
    try:
        ooms = torch.cuda.memory_stats()["num_ooms"]
        try:
            torch.empty(int(total() * 0.15), dtype=torch.uint8, device="cuda")
            raise AssertionError("no error")
        except torch.OutOfMemoryError as error:
            message = str(error)
        assert message.startswith("CUDA out of memory. Tried to allocate"), message
        if OURS:
            assert "set_per_process_memory_fraction" in message and "would have fit" in message, message
        same(torch.cuda.memory_stats()["num_ooms"] - ooms, 1, "num_ooms")
        assert len(seen) == 1 and seen[0][0] == 0 and seen[0][1] >= int(total() * 0.15), seen
        x = torch.empty(int(total() * 0.05), dtype=torch.uint8, device="cuda")
        assert torch.cuda.memory_reserved() <= total() * 0.1
        del x
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    x = torch.empty(int(total() * 0.15), dtype=torch.uint8, device="cuda")
    del x
    clean()
    return message


@test()
def accelerator():
    import torch

    x = torch.empty(10 * MIB, dtype=torch.uint8, device="cuda")
    same(torch.accelerator.memory_allocated(), torch.cuda.memory_allocated())
    same(torch.accelerator.memory_reserved(), torch.cuda.memory_reserved())
    torch.accelerator.reset_peak_memory_stats()
    same(torch.accelerator.max_memory_allocated(), torch.cuda.memory_allocated())
    same(torch.accelerator.memory_stats()["allocated_bytes.all.current"], torch.cuda.memory_allocated())
    torch.accelerator.empty_cache()
    del x


# ---- Observation.


@test(60)
def profiler():
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as prof:
        x = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
        y = x + 1
        del x, y
    most = max(abs(getattr(event, "device_memory_usage", 0) or getattr(event, "cuda_memory_usage", 0)) for event in prof.events())
    assert most >= 64 * MIB, most


@test()
def history_and_snapshot():
    import torch

    clean()
    torch.cuda.memory._record_memory_history(max_entries=1000)
    try:
        kept = [torch.empty(n, dtype=torch.uint8, device="cuda") for n in (100, 5 * MIB, 50 * MIB)]
        gone = torch.empty(7 * MIB, dtype=torch.uint8, device="cuda")
        address = gone.data_ptr()
        del gone
        snapshot = torch.cuda.memory._snapshot()
        same(sum(s["total_size"] for s in snapshot["segments"]), torch.cuda.memory_reserved(), "segments")
        same(sum(s["allocated_size"] for s in snapshot["segments"]), torch.cuda.memory_allocated(), "allocated in segments")
        for segment in snapshot["segments"]:
            same(sum(b["size"] for b in segment["blocks"]), segment["total_size"], "blocks")
        live = {b["address"]: b for s in snapshot["segments"] for b in s["blocks"] if b["state"] == "active_allocated"}
        for x in kept:
            block = live[x.data_ptr()]
            same(block["requested_size"], x.numel())
            assert any(f["name"] == "history_and_snapshot" for f in block["frames"]), block["frames"][:3]
        actions = [e["action"] for e in snapshot["device_traces"][0] if e.get("addr") == address]
        same(actions[-3:], ["alloc", "free_requested", "free_completed"])
        times = [e["time_us"] for e in snapshot["device_traces"][0]]
        same(times, sorted(times), "times")
        assert abs(times[-1] / 1e6 - time.time()) < 60
        assert snapshot["allocator_settings"]
        assert torch.cuda.memory_snapshot()
        torch.cuda.memory._record_memory_history(enabled=None)
        same(torch.cuda.memory._snapshot()["device_traces"][0], [])
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    del kept


@test()
def raw_allocations():
    import torch

    before = torch.cuda.memory_allocated()
    address = torch.cuda.caching_allocator_alloc(5 * MIB)
    assert address and torch.cuda.memory_allocated() - before >= 5 * MIB
    torch.cuda.caching_allocator_delete(address)
    same(torch.cuda.memory_allocated(), before)
    same(torch.cuda.memory.get_allocator_backend(), "native")


# ---- Out of memory, and on.


@test()
def out_of_memory_in_backward():
    import torch

    class Greedy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            torch.empty(total() * 2, dtype=torch.uint8, device="cuda")
            return gradient

    x = torch.ones(10, device="cuda", requires_grad=True)
    try:
        Greedy.apply(x).sum().backward()
        raise AssertionError("no error")
    except torch.OutOfMemoryError:
        pass
    (x * 2).sum().backward()
    assert (x.grad == 2).all()


@test(60)
def fill_fail_and_train_on():
    import torch

    clean()
    kept = []
    try:
        while True:
            kept.append(torch.empty(GIB, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError as error:
        message = str(error)
    filled = len(kept)
    assert filled * GIB > total() * 0.9, filled
    del kept[::2]
    model = small_net(torch)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        loss = model(torch.randn(4096, 256, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert torch.isfinite(loss).item()
    # Half of it is free, in pieces of 1 GiB: does a larger request get them?
    larger = torch.empty(8 * GIB, dtype=torch.uint8, device="cuda") if OURS else None
    del kept, larger, model, optimizer, loss
    clean()
    return f"{filled} GiB; {message}"


@test(60)
def private_pool_gets_our_cache():
    import torch

    clean()
    x = torch.empty(int(total() * 0.85), dtype=torch.uint8, device="cuda")
    del x  # cached
    ooms = torch.cuda.memory_stats()["num_ooms"]
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        y = torch.full((int(total() * 0.4),), 1, dtype=torch.uint8, device="cuda")
    assert (y[::MIB] == 1).all()
    same(torch.cuda.memory_stats()["num_ooms"], ooms, "num_ooms")
    del y, pool
    # And back again.
    z = torch.empty(int(total() * 0.8), dtype=torch.uint8, device="cuda")
    del z
    clean()
