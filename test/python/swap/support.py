"""Swapping against runs without it: same losses, same gradients, bit for bit, whatever the copies' timing.

On the fake GPU, or with WEIR_SWAP_TEST_DEVICE=cuda on a real one: python3 -m unittest discover -s test/python/swap
"""

import json
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")
# What is packed for a GPU machine has dist/ only.
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "dist", "python"), HERE]

import torch  # noqa: E402
from fake_gpu import FakeBackend  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from weir_gpu import swap  # noqa: E402
from weir_gpu.swap import host, pinning, profile  # noqa: E402

# With the observers, as under `weir run`: they must not keep anything from being swapped, nor swap anything in.
if os.environ.get("WEIR_SWAP_TEST_OBSERVE"):
    from weir_gpu import observe

    observe.install(lambda device, known: None, lambda mark: None, device_of=lambda tensor: 0)

DEVICE = os.environ.get("WEIR_SWAP_TEST_DEVICE", "cpu")
FAKE = DEVICE == "cpu"
if FAKE:
    torch.set_num_threads(1)
    WIDTH, LEAST = 64, 4096
    host.CHUNK, pinning.PIECE, pinning.CLAIM, profile.MEASURED = 256 << 10, 32 << 10, 64 << 10, 16 << 10
    ORDERS = [("late", 1), ("early", 1), ("random", 1), ("random", 2), ("random", 3)]
else:
    WIDTH, LEAST = 1024, 1 << 20
    ORDERS = [("real", 1), ("real", 2)]
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.deterministic = True


def draw(*shape, **more):
    return torch.randn(*shape, device=DEVICE, **more)


class Net(torch.nn.Module):
    def __init__(self, width=WIDTH, layers=4, checkpointed=False):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(width, width) for _ in range(layers)])
        self.norm = torch.nn.LayerNorm(width)
        self.checkpointed = checkpointed

    def block(self, layer, x):
        return torch.nn.functional.gelu(layer(x)) * torch.sigmoid(x)

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(self.block, layer, x, use_reentrant=False) if self.checkpointed else self.block(layer, x)
        return self.norm(x)


class Training:
    """Keeps everything a run is judged by."""

    def __init__(self, seed=0, checkpointed=False, optimizer="adam", batch=WIDTH):
        torch.manual_seed(seed)
        self.net = Net(checkpointed=checkpointed).to(DEVICE)
        kinds = {"adam": torch.optim.AdamW, "sgd": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9)}
        self.optimizer = kinds[optimizer](self.net.parameters(), lr=1e-3)
        self.batch = batch
        self.losses = []

    def loss(self, batch=None):
        x = draw(batch or self.batch, WIDTH)
        return (self.net(x) ** 2).mean()

    def step(self, i):
        loss = self.loss()
        loss.backward()
        self.finish(loss)

    def finish(self, loss):
        self.losses.append(loss.item())
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def result(self):
        state = [value for entry in self.optimizer.state_dict()["state"].values() for value in entry.values()]
        tensors = [*self.net.parameters(), *[value for value in state if isinstance(value, torch.Tensor)]]
        return [loss.hex() for loss in self.losses], [tensor.detach().clone() for tensor in tensors]


def trained(steps=3, **options):
    """A training after some steps: layers are known, and swapped if there is a limit."""
    training = Training(**options)
    for i in range(steps):
        training.step(i)
    return training


def hand_plan(profile, spread=2):
    """A plan that swaps out everything it can, early, and swaps it in a little before it is needed."""
    moves = []
    count = len(profile["ticks"]["kind"])
    for index, record in enumerate(profile["records"]):
        if record["sole"] < 0 or not record["uses"]:
            continue
        out, use = record["sole"], record["uses"][0]
        drop = min(out + spread, use - 1)
        back = max(drop + 1, use - spread)
        if out <= drop < back <= use:
            moves.append({"class": "record", "index": index, "size": record["size"], "out": out, "drop": drop, "back": back})
    for index, item in enumerate(profile["items"]):
        if item["pre"] > 4 and item["post"] == 0:
            moves.append({"class": "item", "index": index, "size": item["size"], "out": 1, "drop": 2, "back": item["pre"] - 1})
    for index, passage in enumerate(profile["passages"]):
        left, needed = passage["left"], passage["needed"]
        if needed > left + 1:
            drop = min(left + spread, needed - 1)
            back = max(drop + 1, needed - spread)
            moves.append({"class": "layer", "index": index, "size": passage["size"], "out": left, "drop": drop, "back": back})
    moves.sort(key=lambda move: move["out"])
    for turn, move in enumerate(sorted(moves, key=lambda move: move["back"])):
        move["turn"] = turn
    assert all(0 <= move["back"] < count for move in moves)
    expected = {"from": 1 << 30, "peak": 1 << 29, "stalls": 0, "stallUs": 0, "moved": 1, "periodUs": 1, "keepsLimit": True}
    return {"version": 1, "key": profile["key"], "moves": moves, "expected": expected, "hostBytes": sum(move["size"] for move in moves)}


class Run:
    """A program under swapping: "all" at once for want of a plan, by a "plan", or by one that has a "limit" to keep."""

    def __init__(self, mode="all", order="late", seed=1, spoil=None, host_limit=1 << 30, debug=True, least=LEAST, quiet=True):
        self.backend = FakeBackend(order, seed) if FAKE else None
        self.mode = mode
        self.folder = tempfile.TemporaryDirectory()
        self.profiles = []
        self.marks = []
        self.steps = []  # (steps that have ended, whether swapping has settled), as the supervisor is told
        self.spoil = spoil
        options = swap.Options(
            limit={"all": 1, "limit": 1 << 40}.get(mode),
            debug=debug,
            quiet=quiet,
            host_limit=host_limit,
            least=least,
            on_profile=self.planned,
            take_plan=self.take,
            mark=self.marks.append,
            steps=lambda *told: self.steps.append(told),
        )
        if FAKE:
            options.is_device, options.make_backend = lambda tensor: True, lambda tensor: self.backend
        if mode == "all":
            options.on_profile = None
        self.options = options
        self.ready = None

    def planned(self, profile):
        profile = json.loads(json.dumps(profile))
        self.profiles.append(profile)
        plan = hand_plan(profile)
        if self.spoil:
            self.spoil(plan)
        self.ready = os.path.join(self.folder.name, f"{len(self.profiles)}.json")
        with open(self.ready, "w", encoding="utf-8") as target:
            json.dump(plan, target)

    def take(self):
        ready, self.ready = self.ready, None
        return ready

    def __enter__(self):
        self.manager = swap.install(self.options)
        return self

    def __exit__(self, *error):
        self.report = swap.report()
        swap.uninstall()
        self.folder.cleanup()
        if error[0] is None and FAKE:
            assert self.backend.faults == [], self.backend.faults[:3]
        return False


class SwapCase(unittest.TestCase):
    def same(self, program, mode="all", orders=ORDERS, check=None, **options):
        expected = program()
        for order, seed in orders:
            with Run(mode, order, seed, **options) as run:
                found = program()
                self.assertIsNone(run.manager.stopped, run.manager.stopped)
            self.assertEqual(expected[0], found[0], f"losses, {mode}, {order} {seed}")
            for one, other in zip(expected[1], found[1], strict=True):
                self.assertTrue(torch.equal(one, other), f"tensors, {mode}, {order} {seed}")
            if check:
                check(run)


def plain(steps=8, **options):
    def program():
        training = Training(**options)
        for i in range(steps):
            training.step(i)
        return training.result()

    return program


def swapped(run):
    assert run.report["bytesIn"] >= 10 * LEAST and run.report["bytesOut"] >= run.report["bytesIn"], run.report
    assert not FAKE or (run.backend.freed > 10 and run.backend.returned > 10), (run.backend.freed, run.backend.returned)


def followed(run):
    swapped(run)
    assert len(run.profiles) == 1, len(run.profiles)
    assert run.report["stepsPlanned"] >= 3, run.report
    assert run.report["stepsOff"] == 0 and run.report["misses"] == 0, run.report
