"""One training on the fake GPU, planned by a supervisor over the folder of a run; prints what there is to judge it by, as JSON."""

import json
import os
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "..", "python"), HERE]

import torch  # noqa: E402
from fake_gpu import FakeBackend  # noqa: E402
from weir_gpu import swap  # noqa: E402
from weir_gpu.abi import SwapPlan  # noqa: E402
from weir_gpu.swap import host, pinning, profile, streamed_step  # noqa: E402
from weir_gpu.swap.records import SWAPPED_OUT  # noqa: E402

torch.set_num_threads(1)
host.CHUNK, pinning.PIECE, pinning.CLAIM, profile.MEASURED = 256 << 10, 32 << 10, 64 << 10, 16 << 10
STEPS = 14
streamed_step.CHUNK = 64 << 10
# FOLDER [LIMIT ["state"]], in bytes; with state that does not fit, or without any
limit = int(sys.argv[2]) if len(sys.argv) > 2 else None
has_state = limit is None or sys.argv[3:] == ["state"]


def train(pause):
    torch.manual_seed(1)
    net = torch.nn.Sequential(*[module for _ in range(8) for module in (torch.nn.Linear(64, 64), torch.nn.Tanh())])
    for module in net:
        module.register_forward_hook(lambda *_: time.sleep(pause))
        module.register_full_backward_hook(lambda *_: time.sleep(pause))
    # If parameters are to be swapped, there must be no state to swap instead.
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3) if has_state else torch.optim.SGD(net.parameters(), lr=1e-3)
    losses = []
    for _ in range(STEPS):
        loss = net(torch.randn(256, 64)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item().hex())
        manager = swap._manager
        # Planning takes the supervisor a moment; real steps are longer than these.
        deadline = time.time() + 60
        while (
            manager and manager.phase == "awaiting" and not os.path.exists(os.path.join(manager.directory, f"{os.getpid()}{SwapPlan.FILE}"))
        ):
            time.sleep(0.05)
            if time.time() > deadline:
                break
        # So does pinning, in a thread.
        while manager and not is_ready(manager) and time.time() < deadline:
            time.sleep(0.005)
    return losses


def is_ready(manager):
    with manager.lock:
        return manager.copies.slab is None or manager.copies.slab.is_ready()


class Measured(FakeBackend):
    def in_background(self, work):
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        return thread

    def allocated(self):
        return self.take_peak()[0]

    def take_peak(self):
        manager = swap._manager
        live = sum(
            record.size for reference in manager.saved.records if (record := reference()) is not None and record.state != SWAPPED_OUT
        )
        state = sum(item.size for item in manager.guard.items if item.state != SWAPPED_OUT)
        weights = sum(weight.size for layer in manager.layers.layers for weight in layer.weights if weight.state != SWAPPED_OUT)
        return live + state + weights, live + state + weights


expected = train(0)
backend = Measured("random", 4)
swap.install(
    swap.Options(
        limit=limit,
        directory=sys.argv[1],
        debug=True,
        quiet=True,
        host_limit=1 << 28,
        least=4096,
        is_device=lambda tensor: True,
        make_backend=lambda tensor: backend,
    )
)
found = train(0.001)
report = swap.report()
swap.uninstall()
print(json.dumps({"same": expected == found, "faults": backend.faults, "freed": backend.freed, "report": report}))
