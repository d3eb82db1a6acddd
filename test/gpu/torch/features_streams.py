"""Libraries, graphs, compilation, streams and threads."""

import threading
import time

from harness import GIB, MIB, STORM, clean, same, small_net, test, total

# ---- Libraries and graphs.


@test(60)
def cudnn_benchmark():
    import torch

    torch.backends.cudnn.benchmark = True
    try:
        net = torch.nn.Conv2d(16, 32, 3, padding=1).cuda()
        x = torch.randn(8, 16, 64, 64, device="cuda", requires_grad=True)
        net(x).sum().backward()
        torch.cuda.synchronize()
        assert torch.isfinite(x.grad).all()
    finally:
        torch.backends.cudnn.benchmark = False


@test()
def mem_pool():
    import torch

    clean()
    torch.cuda.reset_peak_memory_stats()
    base = torch.cuda.memory_allocated()
    x = torch.empty(GIB, dtype=torch.uint8, device="cuda")
    del x
    torch.cuda.empty_cache()
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        y = torch.full((GIB,), 7, dtype=torch.uint8, device="cuda")
    z = torch.full((GIB // 4,), 9, dtype=torch.uint8, device="cuda")
    assert (y[::MIB] == 7).all() and (z[::MIB] == 9).all()
    del z
    clean()
    grown = torch.cuda.max_memory_allocated() - base
    assert grown < 1.9 * GIB, f"peak {grown} counts the two GiB as if they had been there at once"
    segments = torch.cuda.memory_snapshot()
    assert any(tuple(s["segment_pool_id"]) == tuple(pool.id) for s in segments), "the pool is in the snapshot"
    same(sum(s["total_size"] for s in segments), torch.cuda.memory_reserved(), "segments")
    y.record_stream(torch.cuda.Stream())
    del y, pool
    clean()
    same(torch.cuda.memory_allocated(), base)


@test(60)
def graph_training():
    import torch

    data, target = torch.randn(64, 256, device="cuda"), torch.randn(64, 16, device="cuda")

    def train(model, optimizer):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(data), target)
        loss.backward()
        optimizer.step()
        return loss

    eager, graphed = small_net(torch), small_net(torch)
    eager_optimizer = torch.optim.SGD(eager.parameters(), lr=0.1)
    optimizer = torch.optim.SGD(graphed.parameters(), lr=0.1)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            train(graphed, optimizer)
    torch.cuda.current_stream().wait_stream(side)
    for _ in range(3):
        train(eager, eager_optimizer)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = train(graphed, optimizer)
    for _ in range(5):
        graph.replay()
        junk = torch.randn(1000, 1000, device="cuda")  # the pool must not be given to others
        expected = train(eager, eager_optimizer)
        del junk
    same(loss.item(), expected.item(), "loss")
    for a, b in zip(eager.parameters(), graphed.parameters()):
        assert torch.equal(a, b), "weights differ"
    del graph, loss
    optimizer.zero_grad(set_to_none=True)
    clean()


@test()
def frees_while_capturing():
    """A block used by another stream, freed while a graph is being captured: no event may be asked then."""
    import torch

    side, other = torch.cuda.Stream(), torch.cuda.Stream()
    x = torch.full((8 * MIB,), 5, dtype=torch.uint8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    y = torch.zeros(1000, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(other):
        torch.cuda._sleep(200_000_000)  # some 100 ms: longer than the capture
        copy = x.clone()
    x.record_stream(other)
    with torch.cuda.stream(side):
        graph.capture_begin()
        try:
            z = y + 1
            del x
            for _ in range(20):
                t = torch.empty(4 * MIB, dtype=torch.uint8, device="cuda")
                del t
        finally:
            graph.capture_end()
    graph.replay()
    torch.cuda.synchronize()
    assert (z == 1).all() and (copy == 5).all()
    del graph, z, y, copy
    clean()


def _compiled(mode):
    import torch

    torch._dynamo.reset()
    model = small_net(torch)
    compiled = torch.compile(model, mode=mode)
    worst = 0.0
    for step in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        x = torch.randn(32, 256, device="cuda", generator=torch.Generator("cuda").manual_seed(step))
        model.zero_grad(set_to_none=True)
        expected = model(x)
        expected.sum().backward()
        gradient = model[0].weight.grad.clone()
        model.zero_grad(set_to_none=True)
        result = compiled(x)
        result.sum().backward()
        worst = max(worst, (result - expected).abs().max().item(), (model[0].weight.grad - gradient).abs().max().item())
        del result
    assert worst < 1e-2, worst
    del compiled, model
    torch._dynamo.reset()
    clean()
    return f"largest difference {worst}"


@test(120)
def compile_default():
    return _compiled(None)


@test(120)
def compile_reduce_overhead():
    return _compiled("reduce-overhead")


# ---- Streams and threads.


@test()
def record_stream():
    import torch

    side = torch.cuda.Stream()
    for _ in range(5):
        x = torch.full((64 * MIB,), 1, dtype=torch.uint8, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(50_000_000)
            y = x.clone()
        x.record_stream(side)
        del x
        others = [torch.full((64 * MIB,), 2, dtype=torch.uint8, device="cuda") for _ in range(3)]
        torch.cuda.synchronize()
        assert (y == 1).all(), "a block was used again while another stream read it"
        del others, y
    clean()


@test()
def one_stream_after_the_other():
    """Memory that one stream has cached serves another."""
    import torch

    clean()
    bytes_ = int(total() * 0.6)
    x = torch.empty(bytes_, dtype=torch.uint8, device="cuda")
    del x
    with torch.cuda.stream(torch.cuda.Stream()):
        y = torch.empty(bytes_, dtype=torch.uint8, device="cuda")
    del y
    clean()


@test()
def streams_of_others():
    """Streams that the program makes itself, and destroys while memory that was allocated on them lives on."""
    import ctypes

    import torch

    clean()
    cudart = torch.cuda.cudart()
    tensors = []
    for value in range(1, 5):
        handle = ctypes.c_ulonglong(0)
        torch.cuda.check_error(cudart.cudaStreamCreate(ctypes.addressof(handle)))
        with torch.cuda.stream(torch.cuda.ExternalStream(handle.value)):
            tensors.append(torch.full((200 * MIB,), value, dtype=torch.uint8, device="cuda"))
        torch.cuda.synchronize()
        torch.cuda.check_error(cudart.cudaStreamDestroy(handle.value))
    for value, tensor in enumerate(tensors, 1):
        assert (tensor[::4096] == value).all()
    del tensor
    tensors.clear()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        large = torch.full((600 * MIB,), 9, dtype=torch.uint8, device="cuda")
    side.synchronize()
    assert (large[::4096] == 9).all()
    del large
    clean()
    same(torch.cuda.memory_reserved() // GIB, 0, "GiB that are still reserved")


@test()
def streams_of_others_by_handle():
    """Memory for a stream that the program made, asked for with the bare handle, as CuPy and Numba do."""
    import ctypes

    import torch

    clean()
    cudart = torch.cuda.cudart()
    torch.cuda.set_per_process_memory_fraction(min(1.0, (torch.cuda.memory_reserved() + 1.2 * GIB) / total()))
    try:
        for round_ in range(6):
            handle = ctypes.c_ulonglong(0)
            torch.cuda.check_error(cudart.cudaStreamCreate(ctypes.addressof(handle)))
            pointer = torch.cuda.caching_allocator_alloc(GIB, 0, handle.value)
            torch.cuda.caching_allocator_delete(pointer)
            torch.cuda.synchronize()
            torch.cuda.check_error(cudart.cudaStreamDestroy(handle.value))
            # No other memory is left for it.
            with torch.cuda.stream(torch.cuda.Stream()):
                large = torch.full((900 * MIB,), round_, dtype=torch.uint8, device="cuda")
                assert (large[::4096] == round_).all()
            del large
            torch.cuda.synchronize()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    clean()


@test()
def caching_turned_off():
    import torch

    clean()
    kept = torch.full((16 * MIB,), 1, dtype=torch.uint8, device="cuda")
    allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    torch.cuda.caching_allocator_enable(False)
    try:
        free = torch.cuda.mem_get_info()[0]
        x = torch.full((512 * MIB,), 2, dtype=torch.uint8, device="cuda")
        assert torch.cuda.mem_get_info()[0] <= free - 512 * MIB, "it did not come from the driver"
        same((torch.cuda.memory_allocated(), torch.cuda.memory_reserved()), (allocated, reserved), "what is counted")
        x.record_stream(torch.cuda.Stream())
        assert (x == 2).all() and (kept == 1).all()
        del x
        assert torch.cuda.mem_get_info()[0] >= free - 64 * MIB, "it was cached"
        late = torch.full((16 * MIB,), 3, dtype=torch.uint8, device="cuda")
        del kept
    finally:
        torch.cuda.caching_allocator_enable(True)
    again = torch.full((16 * MIB,), 4, dtype=torch.uint8, device="cuda")
    assert (late == 3).all() and (again == 4).all()
    del late, again
    clean()


@test(120)
def several_gpus():
    """nn.DataParallel: NCCL inside one process reaches from one GPU into the memory of another."""
    import torch

    if torch.cuda.device_count() < 2:
        return "there is one GPU only"
    net = torch.nn.DataParallel(small_net(torch))
    data = torch.randn(64, 256, device="cuda")
    expected = net.module(data)
    for _ in range(5):
        net.zero_grad()
        result = net(data)
        assert torch.allclose(result, expected, atol=1e-5)
        result.sum().backward()
    del net, data, expected, result
    clean()


@test(300)
def thread_storm():
    import random

    import torch

    streams = [torch.cuda.Stream() for _ in range(4)]
    wrong, counts, errors = [], [], []
    end = time.monotonic() + STORM["seconds"]

    def work(number):
        draw = random.Random(number)
        kept, done = [], 0
        try:
            while time.monotonic() < end:
                with torch.cuda.stream(streams[draw.randrange(4)]):
                    stream = torch.cuda.current_stream()
                    size = draw.choice((draw.randrange(1, 5000), draw.randrange(1, 3 * MIB), draw.randrange(1, 40 * MIB)))
                    pattern = draw.randrange(256)
                    block = torch.full((size,), pattern, dtype=torch.uint8, device="cuda")
                    kept.append((block, pattern, stream))
                    done += 1
                if len(kept) > 12:
                    block, pattern, stream = kept.pop(draw.randrange(len(kept)))
                    if draw.random() < 0.3:
                        other = streams[draw.randrange(4)]
                        other.wait_stream(stream)
                        with torch.cuda.stream(other):
                            good = (block == pattern).all()
                        block.record_stream(other)
                        del block
                        other.synchronize()
                    else:
                        with torch.cuda.stream(stream):
                            good = (block == pattern).all()
                        del block
                        stream.synchronize()
                    if not bool(good):
                        wrong.append((number, pattern))
                if done % 400 == 0 and number == 0:
                    torch.cuda.empty_cache()
        except Exception as error:
            errors.append(error)
        counts.append(done)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    same(wrong, [], "blocks with wrong contents")
    import weir_gpu

    same(weir_gpu.check(3), 0, "check")
    clean()
    return f"{sum(counts)} blocks"


@test()
def growth_first_in_a_thread():
    import torch

    clean()
    got = []

    def grow():
        got.append(torch.full((2 * GIB,), 3, dtype=torch.uint8, device="cuda"))

    thread = threading.Thread(target=grow)
    thread.start()
    thread.join()
    assert got and (got[0] == 3).all()
    got.clear()
    clean()
