"""Categories of memory on a GPU, to the byte: python3 test/gpu/torch/categories.py OUT, with `weir` (or WEIR_COMMAND) to be called.

Five workloads, each under `weir record` and under `weir run`. A workload counts its parameters, gradients, optimizer state and buffers
at one moment, and makes that moment the peak of the run by one large request. `weir analyze --json` must tell the same sums.
A sixth run checks `weir record --accesses`: `weir plan --swap` must find a plan in it."""

import concurrent.futures
import copy
import glob
import json
import os
import shlex
import subprocess
import sys
import tempfile

UNIT = 512  # live memory is counted in these
COMMANDS = ("record", "run")
AT_ONCE = 4


def rounded(tensors):
    """Bytes of the memory behind tensors on the GPU, each piece once and rounded up, as Weir counts."""
    pieces = {}
    for tensor in tensors:
        if tensor is not None and tensor.is_cuda:
            storage = tensor.untyped_storage()
            pieces[storage.data_ptr()] = storage.nbytes()
    pieces.pop(0, None)
    return sum((max(1, size) + UNIT - 1) // UNIT * UNIT for size in pieces.values())


def states_of(optimizer):
    return [value for values in optimizer.state.values() for value in values.values() if hasattr(value, "is_cuda")]


def sums(models, optimizer=None):
    parameters = [parameter for model in models for parameter in model.parameters()]
    return {
        "parameter": rounded(parameters),
        "gradient": rounded(parameter.grad for parameter in parameters),
        "optimizerState": rounded(states_of(optimizer)) if optimizer is not None else 0,
        "buffer": rounded(buffer for model in models for buffer in model.buffers()),
    }


def peak(torch):
    """More than anything before, so that live memory peaks here."""
    used = torch.cuda.max_memory_allocated()
    spike = torch.empty(used + (64 << 20), dtype=torch.uint8, device="cuda")
    del spike


def mlp(torch):
    """Adam, gradients that stay; counted between two steps."""
    model = torch.nn.Sequential(*[torch.nn.Linear(1000 + layer, 1001 + layer) for layer in range(8)]).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(5):
        optimizer.zero_grad(set_to_none=False)
        model(torch.randn(64, 1000, device="cuda")).square().mean().backward()
        optimizer.step()
    found = sums([model], optimizer)
    peak(torch)
    model(torch.randn(64, 1000, device="cuda")).square().mean().backward()
    optimizer.step()
    return found


def transformer(torch):
    """Fused AdamW and accumulated gradients; counted while activations are live, after the forward pass of a later part of a step."""
    layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 6).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for step in range(4):
        for part in range(4):
            loss = model(torch.randn(8, 128, 256, device="cuda")).square().mean()
            if (step, part) == (3, 2):
                found = sums([model], optimizer)
                peak(torch)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return found


def convolutions(torch):
    """SGD with momentum, batch normalization with buffers, half precision; counted after a backward pass, before the step."""
    widths = (3, 64, 128, 256, 256)
    layers = [
        module
        for a, b in zip(widths, widths[1:])
        for module in (torch.nn.Conv2d(a, b, 3, padding=1), torch.nn.BatchNorm2d(b), torch.nn.ReLU())
    ]
    model = torch.nn.Sequential(*layers).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for step in range(5):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(torch.randn(8, 3, 64, 64, device="cuda")).square().mean()
        loss.backward()
        if step == 3:
            found = sums([model], optimizer)
            peak(torch)
        optimizer.step()
        optimizer.zero_grad()
    return found


class OwnOptimizer:
    """Not of torch.optim, so it is found by what it holds."""

    def __init__(self, torch, parameters):
        self.torch = torch
        self.parameters = list(parameters)
        self.moments = [torch.zeros_like(parameter) for parameter in self.parameters]

    def step(self):
        with self.torch.no_grad():
            for parameter, moment in zip(self.parameters, self.moments):
                moment.mul_(0.9).add_(parameter.grad)
                parameter.sub_(moment, alpha=0.01)


def own_optimizer(torch):
    """An optimizer of the program's own, and a model that is loaded from a file."""
    model = torch.nn.Sequential(*[torch.nn.Linear(700, 700) for _ in range(10)])
    # Several runs at a time have the same folder.
    with tempfile.NamedTemporaryFile() as file:
        torch.save(model, file.name)
        model = torch.load(file.name, weights_only=False).cuda()
    optimizer = OwnOptimizer(torch, model.parameters())
    for step in range(5):
        model(torch.randn(64, 700, device="cuda")).square().mean().backward()
        if step == 3:
            found = {**sums([model]), "optimizerState": rounded(optimizer.moments)}
            peak(torch)
        optimizer.step()
        model.zero_grad()
    return found


def adapters(torch):
    """A frozen model, tied weights, trained adapters, an average of the weights, checkpointing and a compiled part."""
    from torch.utils.checkpoint import checkpoint

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words = torch.nn.Embedding(5000, 512)
            self.base = torch.nn.ModuleList([torch.nn.Linear(512, 512) for _ in range(6)])
            self.down = torch.nn.ModuleList([torch.nn.Linear(512, 8, bias=False) for _ in range(6)])
            self.up = torch.nn.ModuleList([torch.nn.Linear(8, 512, bias=False) for _ in range(6)])
            self.head = torch.nn.Linear(512, 5000, bias=False)
            self.head.weight = self.words.weight
            self.register_buffer("positions", torch.randn(64, 512))

        def block(self, index, x):
            return torch.relu(self.base[index](x) + self.up[index](self.down[index](x)))

        def forward(self, tokens):
            x = self.words(tokens) + self.positions
            for index in range(6):
                x = checkpoint(self.block, index, x, use_reentrant=False)
            return self.head(x)

    model = Net().cuda()
    for part in (model.words, model.base):
        part.requires_grad_(False)
    average = copy.deepcopy(model)
    optimizer = torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.requires_grad], foreach=True)
    score = torch.compile(lambda logits: logits.float().square().mean(), backend="aot_eager", fullgraph=True)
    for step in range(6):
        loss = score(model(torch.randint(0, 5000, (8, 64), device="cuda")))
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for own, new in zip(average.parameters(), model.parameters()):
                own.lerp_(new, 0.1)
        if step == 4:
            found = sums([model, average], optimizer)
            peak(torch)
        optimizer.zero_grad()
    return found


WORKLOADS = {"mlp": mlp, "transformer": transformer, "convolutions": convolutions, "own-optimizer": own_optimizer, "adapters": adapters}


def workload(name, out):
    import torch

    torch.manual_seed(0)
    found = WORKLOADS[name](torch)
    torch.cuda.synchronize()
    with open(out, "w") as file:
        json.dump(found, file)


def weir(*words):
    command = shlex.split(os.environ.get("WEIR_COMMAND", "weir"))
    result = subprocess.run([*command, *words], capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(f"weir {' '.join(words)} ended with {result.returncode}:\n{result.stdout[-2000:]}{result.stderr[-4000:]}")
    return result.stdout


def recorded(command, name, folder, *options):
    """Runs a workload under `weir record` or `weir run`. Returns its own sums, and the recording."""
    base = os.path.join(folder, f"{name}-{command}{''.join(options)}")
    told = f"{base}.sums.json"
    for old in [told, *glob.glob(f"{glob.escape(base)}.*weir")]:
        if os.path.exists(old):
            os.remove(old)
    weir(command, "--no-what-if", *options, "-o", f"{base}.weir", "--", sys.executable, os.path.abspath(__file__), name, told)
    with open(told) as file:
        counted = json.load(file)
    (path,) = glob.glob(f"{glob.escape(base)}.*weir")
    return counted, path


def check(command, name, folder):
    counted, path = recorded(command, name, folder)
    analysis = json.loads(weir("analyze", "--json", path).splitlines()[0])
    at_peak = analysis["peakByCategory"]
    faults = [
        f"{category}: counted {size}, told {at_peak['bytes'][category]}"
        for category, size in counted.items()
        if at_peak["bytes"][category] != size
    ]
    live = analysis["trace"]["peakLive"]
    for part in ("bytes", "ways"):
        total = sum(at_peak[part].values())
        if total != live or at_peak["live"] != live:
            faults.append(f"{part} add up to {total}, not to peak live {live}")
    # Gradients are told only while looking at them is cheap; else phases show them.
    least = sum(size for category, size in counted.items() if category != "gradient")
    if at_peak["ways"]["told"] < least:
        faults.append(f"only {at_peak['ways']['told']} bytes were told, of at least {least}")
    shown = ", ".join(f"{category} {size}" for category, size in at_peak["bytes"].items() if size)
    lines = [f"{'FAIL' if faults else 'ok'}  {command} {name}: peak live {live}: {shown}", *(f"      {fault}" for fault in faults)]
    print("\n".join(lines), flush=True)
    return not faults


def check_accesses(folder):
    _, path = recorded("record", "mlp", folder, "--accesses=3")
    plan = json.loads(weir("plan", "--swap", "--json", path))
    good = plan["verified"] is True and plan["peak"] > 0
    print(f"{'ok' if good else 'FAIL'}  record --accesses=3: swap plan, peak {plan['peak']}, limit without stalls {plan['zeroStallLimit']}")
    return good


def main(folder):
    os.makedirs(folder, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        checks = [pool.submit(check, command, name, folder) for name in WORKLOADS for command in COMMANDS]
        checks.append(pool.submit(check_accesses, folder))
    results = [done.result() for done in checks]
    print(f"{results.count(False)} of {len(results)} failed")
    return int(not all(results))


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in WORKLOADS:
        workload(sys.argv[1], sys.argv[2])
    elif len(sys.argv) == 2:
        sys.exit(main(sys.argv[1]))
    else:
        sys.exit(__doc__)
