"""One training run under one allocator, in a process of its own: losses to the bit, weights, step times, memory figures.

A server process imports the libraries once and forks for each run, so that a run costs seconds; CUDA starts in the fork."""

import contextlib
import gc
import json
import os
import random
import sys
import time
import traceback

ODD_MULTIPLIER = 0x9E3779B97F4A7C15 - (1 << 64)


def be_deterministic(torch):
    """Makes PyTorch identical to itself from run to run; without it no comparison to the bit means anything."""
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.nn.AdaptiveAvgPool2d.forward = exact_pooling


def exact_pooling(self, images):
    """PyTorch's own has no deterministic backward. The vision nets use it to average all of an image, or to change nothing."""
    size = self.output_size if isinstance(self.output_size, tuple) else (self.output_size, self.output_size)
    if tuple(images.shape[-2:]) == size:
        return images
    if size == (1, 1):
        return images.mean((-2, -1), keepdim=True)
    raise NotImplementedError(f"pooling to {size}")


def checksum(torch, tensors):
    """Depends on every bit and its place; the same on every run of the same machine."""
    total = 0
    with torch.no_grad():
        for tensor in tensors:
            bits = tensor.detach().contiguous().view(-1).view(torch.int16)
            for start in range(0, bits.numel(), 1 << 24):
                part = bits[start : start + (1 << 24)].to(torch.int64)
                place = torch.arange(start, start + part.numel(), device=part.device) * ODD_MULTIPLIER
                total = (total * 31 + int(((part + 1) * (place | 1)).sum().item())) & ((1 << 64) - 1)
    return f"{total:016x}"


def watch(torch):
    """The workloads keep their losses and optimizers to themselves: both pass through here."""
    losses, optimizers = [], []
    backward = torch.Tensor.backward
    create = torch.optim.Optimizer.__init__

    def keep_loss(self, *args, **kwargs):
        losses.append(self.detach().float().clone())
        return backward(self, *args, **kwargs)

    def keep_optimizer(self, *args, **kwargs):
        create(self, *args, **kwargs)
        optimizers.append(self)

    torch.Tensor.backward = keep_loss
    torch.optim.Optimizer.__init__ = keep_optimizer
    return losses, optimizers


def activate(torch, allocator, environment):
    if "WEIR_CHILD_ALLOCATOR" in os.environ:
        return  # `weir run` has put its allocator in place.
    os.environ.update(environment)
    if "WEIR_FAULTS" in environment:
        # The package has no native/testing, which makes the faults.
        os.environ["WEIR_NATIVE"] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "native")
    if allocator == "expandable" and "WEIR_CHILD_RUN_DIR" not in environment:
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    elif allocator not in ("native", "cudaMallocAsync", "expandable"):
        os.environ["WEIR_CHILD_ALLOCATOR"] = allocator
        os.environ["WEIR_CHILD_REQUIRED"] = "1"
        import weir_gpu.activate

        weir_gpu.activate.activate()


def build_workload(torch, workloads, name, batch):
    """NAME as in workloads.py; a batch of its own where the largest one that fits is sought."""
    if batch is None:
        return workloads.WORKLOADS[name](torch)
    if name == "vgg16":
        return workloads._vision("vgg16", batch)(torch)
    if name == "resnet50":
        return workloads._vision("resnet50", batch)(torch)
    if name == "bert-one-stream":
        # The same two trainings, one after the other on one stream.
        make, only = torch.cuda.Stream, torch.cuda.current_stream()
        torch.cuda.Stream = lambda *given, **named: make(*given, **named) if given or named else only
        try:
            return workloads._wavelet(batch)(torch)
        finally:
            torch.cuda.Stream = make
    if name == "gpt2xl-fixed":
        return workloads._llm("gpt2", 48, 1600, 25, 6400, 50257, R=True, batch=batch, lens=(1024,), n=8)(torch)
    if name == "opt1b3-fixed":
        return workloads._llm("opt", 24, 2048, 32, 8192, 50272, batch=batch, lens=(1024,), n=20)(torch)
    if name == "convnext-fixed":
        return workloads._vision("convnext_base", batch)(torch)
    if name == "llama-lora-fixed":
        return workloads._llm("llama", 32, 4096, 32, 11008, 32000, L=True, R=True, batch=batch, lens=(1024,), n=20)(torch)
    if name == "gpt2xl-var":
        return workloads._llm("gpt2", 48, 1600, 25, 6400, 50257, R=True, batch=batch, lens=(256, 1024), n=16)(torch)
    if name == "opt1b3-var":
        return workloads._llm("opt", 24, 2048, 32, 8192, 50272, batch=batch, lens=(200, 1200), n=20)(torch)
    raise KeyError(name)


def train(job, workloads):
    import torch

    activate(torch, job["allocator"], job.get("environment", {}))
    if job.get("deterministic"):
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        be_deterministic(torch)
    if job.get("limit"):
        # PyTorch's own way to act as a smaller GPU; weir is given its limit by WEIR_CHILD_LIMIT.
        if job["allocator"] in ("native", "expandable"):
            total = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction(job["limit"] / total)
    torch.manual_seed(0)
    random.seed(0)
    losses, optimizers = watch(torch)
    result = {
        key: job[key] for key in ("workload", "allocator", "deterministic", "batch", "limit", "saveOnCpu", "environment") if key in job
    }
    times, before, settled_from, calls_before = [], {}, 0, None
    # As a loop that reads its loss does. Copies on streams that are Weir's own may go on into the next step.
    wait = torch.cuda.synchronize if job["workload"].startswith("bert") else torch.cuda.current_stream().synchronize
    try:
        step, default_steps, _ = build_workload(torch, workloads, job["workload"], job.get("batch"))
        steps = job.get("steps") or default_steps
        for number in range(steps):
            wait()
            if number == -(-2 * steps // 3):
                before, settled_from = take_peaks(torch), number
                calls_before = driver_calls()
            begin = time.perf_counter()
            with torch.autograd.graph.save_on_cpu(pin_memory=True) if job.get("saveOnCpu") else contextlib.nullcontext():
                step(number)
            wait()
            times.append(time.perf_counter() - begin)
    except torch.OutOfMemoryError as error:
        result["oom"] = str(error)[:800]
    figures = torch.cuda.memory_stats()
    settled = take_peaks(torch)
    peaks = {name: max(value, before.get(name, 0)) for name, value in settled.items()}
    result |= {
        "steps": len(times),
        "losses": [loss.item().hex() for loss in losses],
        "times": [round(seconds, 6) for seconds in times],
        "peakAllocated": peaks["allocated"],
        "peakRequested": peaks["requested"],
        "peakReserved": peaks["reserved"],
        "settledAllocated": settled["allocated"],
        "settledReserved": settled["reserved"],
        "reserved": figures["reserved_bytes.all.current"],
        "allocations": figures["allocation.all.allocated"],
        "retries": figures["num_alloc_retries"],
        "ooms": figures["num_ooms"],
    }
    if "oom" not in result and job.get("sumWeights"):
        params = [p for o in optimizers for group in o.param_groups for p in group["params"]]
        result["weights"] = checksum(torch, params)
    gauges = gauges_of_weir()
    if gauges:
        result["weir"] = gauges
        if calls_before is not None:
            result |= {"settledCalls": gauges["driver_calls"] - calls_before, "settledSteps": len(times) - settled_from}
    return result


def take_peaks(torch):
    """The most since the last call."""
    figures = torch.cuda.memory_stats()
    torch.cuda.reset_peak_memory_stats()
    return {name: figures[f"{name}_bytes.all.peak"] for name in ("allocated", "requested", "reserved")}


def driver_calls():
    gauges = gauges_of_weir()
    return gauges["driver_calls"] if gauges else None


def gauges_of_weir():
    try:
        import weir_gpu.adapter

        return weir_gpu.adapter.gauges(0)
    except Exception:
        return None


def serve(workloads_dir):
    """Jobs as JSON lines on stdin, results as JSON lines on stdout, as many at a time as `parallel` says."""
    sys.path.insert(0, workloads_dir)
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    import torch  # noqa: F401
    import torchvision  # noqa: F401
    import transformers.models.bert.modeling_bert
    import transformers.models.gpt2.modeling_gpt2
    import transformers.models.llama.modeling_llama
    import transformers.models.opt.modeling_opt  # noqa: F401
    import workloads

    # Python would look through all that was imported in one step or another of each run, for some 0.3 s.
    gc.collect()
    gc.freeze()
    running = {}

    def reap(block):
        while running:
            pid, status = os.waitpid(-1, 0 if block else os.WNOHANG)
            if pid == 0:
                return
            job, path = running.pop(pid)
            try:
                with open(path) as file:
                    result = json.load(file)
            except (OSError, ValueError):
                result = {**job, "failed": f"ended with status {status} and no result"}
            result["status"] = status
            print(json.dumps(result), flush=True)
            block = False

    for line in sys.stdin:
        job = json.loads(line)
        if job.get("barrier"):
            while running:
                reap(True)
            continue
        while len(running) >= job.get("parallel", 1):
            reap(True)
        path = f"/tmp/weir-bench-{os.getpid()}-{time.monotonic_ns()}.json"
        pid = os.fork()
        if pid == 0:
            code = 0
            # The result line is the server's: whatever a run prints belongs to stderr.
            os.dup2(2, 1)
            try:
                result = train(job, workloads)
            except BaseException:
                result = {**job, "failed": traceback.format_exc()[-2500:]}
                code = 1
            with open(path + ".part", "w") as file:
                json.dump(result, file)
            os.rename(path + ".part", path)
            sys.stderr.flush()
            os._exit(code)
        running[pid] = (job, path)
        reap(False)
    while running:
        reap(True)


def run_alone(workloads_dir, job, path):
    """One run in this very process, for `weir run -- python3 training_run.py WORKLOADS JOB RESULT`."""
    sys.path.insert(0, workloads_dir)
    import workloads

    result = train(json.loads(job), workloads)
    with open(path, "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        run_alone(*sys.argv[1:])
    else:
        serve(sys.argv[1])
