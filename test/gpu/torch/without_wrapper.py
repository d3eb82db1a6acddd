"""Weir without `weir run`, on a GPU: python3 test/gpu/torch/without_wrapper.py, with dist/python on PYTHONPATH and Node on the PATH.

Trains a small model in processes of its own: on PyTorch's allocator, with weir_gpu.enable(swap="auto", limit=...) before and after
`import torch`, with WEIR=1, and with enable() too late. Losses must be the same to the bit, and summaries must say what happened."""

import json
import os
import subprocess
import sys

LIMIT = "4GiB"
FORMS = ("plain", "enable-before", "enable-after", "variable", "too-late", "no-gpu-used")


def train(torch, steps=30):
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    layers = [module for _ in range(6) for module in (torch.nn.Linear(2048, 2048), torch.nn.GELU())]
    net = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    losses = []
    for _ in range(steps):
        loss = net(torch.randn(4096, 2048, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item().hex())
    return losses


def one(form):
    import weir_gpu

    if form == "enable-before":
        weir_gpu.enable(limit=LIMIT, swap="auto")
    import torch

    if form == "enable-after":
        weir_gpu.enable(limit=LIMIT, swap="auto")
    if form == "too-late":
        torch.ones(1, device="cuda")
        try:
            weir_gpu.enable(limit=LIMIT)
        except weir_gpu.Error as error:
            print(json.dumps({"error": str(error)}))
        return
    if form == "no-gpu-used":
        print(json.dumps({"text": str(weir_gpu.summary()), "started": torch.cuda.is_initialized()}))
        return
    losses = train(torch)
    summary = weir_gpu.summary()
    found = {"losses": losses, "text": str(summary), "peak": torch.cuda.max_memory_reserved()}
    if summary.json:
        found["gpu"] = summary.json["processes"][0]["gpus"][0]
        found["swap"] = summary.json["processes"][0]["swap"]
    print(json.dumps(found))


def run(form):
    ours = ("WEIR", "WEIR_LIMIT", "WEIR_SWAP", "WEIR_QUIET")
    environment = {name: value for name, value in os.environ.items() if name not in ours and not name.startswith("WEIR_CHILD_")}
    environment["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    if form in ("variable", "no-gpu-used"):
        environment.update(WEIR="1", WEIR_LIMIT=LIMIT, WEIR_SWAP="auto")
    done = subprocess.run([sys.executable, os.path.abspath(__file__), form], env=environment, capture_output=True, text=True)
    print(f"== {form}: exit code {done.returncode}\n{done.stderr}", end="")
    return json.loads(done.stdout.strip().splitlines()[-1]) if done.returncode == 0 else {}


def leftovers():
    places = {os.environ.get("XDG_RUNTIME_DIR"), "/dev/shm", os.environ.get("TMPDIR", "/tmp")} - {None}
    return {name for place in places if os.path.isdir(place) for name in os.listdir(place) if name.startswith("weir-run-")}


def main():
    before = leftovers()
    found = {form: run(form) for form in FORMS}
    failures = []

    def must(right, what):
        if not right:
            failures.append(what)

    plain = found["plain"].get("losses")
    must(plain and len(plain) == 30, "the training on PyTorch's allocator runs")
    for form in ("enable-before", "enable-after", "variable"):
        told = found[form]
        must(told.get("losses") == plain, f"{form}: the same losses to the bit")
        must("peak live" in told.get("text", ""), f"{form}: the summary has the peak")
        must("pytorch would have needed" in told.get("text", ""), f"{form}: the summary has the replay")
        must(told.get("gpu", {}).get("limit") == 4 << 30, f"{form}: the limit")
        must(abs(told.get("gpu", {}).get("peakReserved", 0) / told.get("peak", 1) - 1) < 0.01, f"{form}: the peak is what PyTorch reports")
        must((told.get("swap") or {}).get("steps", 0) > 0, f"{form}: swapping has seen the steps")
        print(f"-- {form}\n{told.get('text')}")
    must("already in use" in found["too-late"].get("error", ""), "too late: an error that says so")
    must(found["no-gpu-used"].get("started") is False, "CUDA does not start by itself")
    must("not used a GPU" in found["no-gpu-used"].get("text", ""), "no GPU used: the summary says so")
    must(leftovers() <= before, "nothing is left in shared memory")
    for what in failures:
        print(f"FAILED {what}")
    print(f"{len(failures)} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        one(sys.argv[1])
    else:
        main()
