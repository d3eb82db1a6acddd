"""A training of the real PyTorch on the CPU that swaps, as weir_gpu.enable(swap=...) has it, or `plain`; prints losses and more as JSON.

Swapping works on the fake GPU of test/python/swap. Its swap plans come from the supervisor that this process has started."""

import json
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "swap"))

import weir_gpu  # noqa: E402

PLAIN = sys.argv[1] == "plain"


def on_fake_gpu(of):
    def options(settings, **more):
        from fake_gpu import FakeBackend
        from weir_gpu.swap import host, profile

        host.CHUNK, host.LEAST_CHUNK, profile.MEASURED = 256 << 10, 4 << 10, 16 << 10
        made = of(settings, **more)
        made.debug, made.least, made.is_device = True, 4096, lambda tensor: True
        backends.append(FakeBackend("random", 4))
        made.make_backend = lambda tensor: backends[0]
        return made

    return options


backends = []
if not PLAIN:
    from weir_gpu import swap

    swap.Options.of = on_fake_gpu(swap.Options.of)
    weir_gpu.enable(swap="auto", swap_host="256MiB")

import torch  # noqa: E402

torch.set_num_threads(1)


def train(steps):
    torch.manual_seed(1)
    net = torch.nn.Sequential(*[module for _ in range(8) for module in (torch.nn.Linear(64, 64), torch.nn.Tanh())])
    for module in net:
        module.register_forward_hook(lambda *_: time.sleep(0.001))
        module.register_full_backward_hook(lambda *_: time.sleep(0.001))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    losses = []
    for _ in range(steps):
        loss = net(torch.randn(256, 64)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item().hex())
        await_plan()
    return losses


def await_plan():
    """Planning takes the supervisor a moment. Real steps are longer than these."""
    from weir_gpu.abi import SwapPlan

    manager = None if PLAIN else swap._manager
    deadline = time.time() + 60
    while manager and manager.phase == "awaiting" and time.time() < deadline:
        if os.path.exists(os.path.join(manager.directory, f"{os.getpid()}{SwapPlan.FILE}")):
            return
        time.sleep(0.05)


if PLAIN:
    print(json.dumps({"losses": train(14)}))
else:
    import standin_gpu

    block = standin_gpu.Block(3 << 20)
    losses = train(14)
    block.free()
    told = weir_gpu.summary()
    print(json.dumps({"losses": losses, "faults": backends[0].faults, "text": str(told), "report": told.json["processes"][0]["swap"]}))
