"""Swapping against runs without it: same losses, same gradients, bit for bit, whatever the copies' timing.

On the fake GPU, or with WEIR_SWAP_TEST_DEVICE=cuda on a real one.
"""

import copy
import gc
import json
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "python"), HERE]

import torch  # noqa: E402
from swap_fake import FakeBackend  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from weir import swap  # noqa: E402
from weir.swap import host, optimizer_state, profile  # noqa: E402
from weir.swap.records import GONE  # noqa: E402

DEVICE = os.environ.get("WEIR_SWAP_TEST_DEVICE", "cpu")
FAKE = DEVICE == "cpu"
if FAKE:
    torch.set_num_threads(1)
    WIDTH, LEAST = 64, 4096
    host.CHUNK, host.LEAST_CHUNK, profile.MEASURED = 256 << 10, 4 << 10, 16 << 10
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


def hand_plan(profile, spread=2):
    """Everything that can leave does, early, and comes back a little before it is needed."""
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
            moves.append({"class": "item", "index": index, "size": item["size"], "out": 0, "drop": 2, "back": item["pre"] - 1})
    moves.sort(key=lambda move: move["out"])
    for turn, move in enumerate(sorted(moves, key=lambda move: move["back"])):
        move["turn"] = turn
    assert all(0 <= move["back"] < count for move in moves)
    expected = {"from": 1 << 30, "peak": 1 << 29, "stalls": 0, "moved": 1}
    return {"version": 1, "key": profile["key"], "moves": moves, "expected": expected, "hostBytes": sum(move["size"] for move in moves)}


class Run:
    """A program under swapping, on the fake GPU."""

    def __init__(self, mode="all", order="late", seed=1, spoil=None, host_limit=1 << 30, debug=True, least=LEAST):
        self.backend = FakeBackend(order, seed) if FAKE else None
        self.mode = mode
        self.folder = tempfile.mkdtemp()
        self.profiles = []
        self.spoil = spoil
        options = swap.Options(
            enabled=True, limit=1 if mode == "all" else None, directory=None, debug=debug, quiet=True, host_limit=host_limit, least=least,
            on_profile=self.planned, take_plan=self.take,
        )  # fmt: skip
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
        self.ready = os.path.join(self.folder, f"{len(self.profiles)}.json")
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


class Values(SwapCase):
    def test_everything_at_once(self):
        self.same(plain(), check=swapped)

    def test_following_a_plan(self):
        self.same(plain(10), "plan", check=followed)

    def test_without_debugging(self):
        self.same(plain(10), "plan", debug=False, check=followed)
        self.same(plain(), "all", debug=False, check=swapped)

    def test_momentum(self):
        self.same(plain(10, optimizer="sgd"), "plan", check=followed)

    def test_checkpointing(self):
        for mode in ("all", "plan"):
            self.same(plain(10, checkpointed=True), mode, check=swapped)

    def test_watching_only_changes_nothing(self):
        self.same(plain(3), "plan")

    @unittest.skipUnless(FAKE, "for the fake GPU")
    def test_missing_waits_are_seen(self):
        """The fake GPU is worth something: without the compute stream's waits the results are wrong."""
        expected = plain()()
        with self.assertRaises((RuntimeError, AssertionError)):
            with Run("all", "late") as run:
                run.backend.ignore_compute_waits = True
                found = plain()()
                self.assertEqual(expected[0], found[0])


class Deviations(SwapCase):
    def mixed(self, deviate, steps=14, at=(7, 10), **options):
        def program():
            training = Training(**options)
            for i in range(steps):
                if i in at:
                    deviate(training, i)
                else:
                    training.step(i)
            return training.result()

        return program

    def both(self, deviate, check=None, **options):
        self.same(self.mixed(deviate, **options), "plan", check=check)
        self.same(self.mixed(deviate, **options), "all")

    def recovers(self, run):
        assert run.report["stepsPlanned"] >= 4, run.report

    def test_evaluation_between_steps(self):
        def deviate(training, i):
            with torch.no_grad():
                training.loss()
            training.step(i)

        self.both(deviate, self.recovers)

    def test_evaluation_that_saves_tensors(self):
        def deviate(training, i):
            training.loss()
            training.step(i)

        self.both(deviate, self.recovers)

    def test_evaluation_kept_over_a_step(self):
        kept = []

        def deviate(training, i):
            x = torch.full((WIDTH, WIDTH), 0.5, device=DEVICE, requires_grad=True)
            kept.append((x, (x.exp() * x.sin()).sum()))
            training.step(i)
            if len(kept) == 2:
                x, loss = kept.pop(0)
                loss.backward()
                training.losses.append(x.grad.sum().item())
                kept.clear()

        self.same(self.mixed(deviate), "plan", orders=ORDERS[:3], check=self.recovers)

    def test_longer_batch(self):
        def deviate(training, i):
            loss = training.loss(WIDTH + 32)
            loss.backward()
            training.finish(loss)

        self.both(deviate, self.recovers)

    def test_two_shapes_in_turn(self):
        def program():
            training = Training()
            for i in range(40):
                loss = training.loss(WIDTH if i % 2 else WIDTH + 32)
                loss.backward()
                training.finish(loss)
            return training.result()

        def check(run):
            assert run.report["stepsPlanned"] >= 4, run.report

        self.same(program, "plan", orders=ORDERS[:2], check=check)

    def test_exception_in_mid_step(self):
        class Stop(Exception):
            pass

        def deviate(training, i):
            try:
                loss = training.loss()
                if i == 7:
                    raise Stop
                loss.register_hook(lambda gradient: None)
                handle = training.net.layers[1].register_full_backward_hook(lambda *_: (_ for _ in ()).throw(Stop()))
                try:
                    loss.backward()
                finally:
                    handle.remove()
            except Stop:
                training.optimizer.zero_grad(set_to_none=True)

        self.both(deviate, self.recovers)

    def test_tensor_kept_by_the_user(self):
        def program():
            training = Training()
            kept = []
            hook = training.net.layers[2].register_forward_hook(lambda module, inputs, output: kept.append((inputs[0], output)))
            for i in range(12):
                training.step(i)
                if len(kept) > 3:
                    kept.pop(0)
            hook.remove()
            losses, tensors = training.result()
            return losses, tensors + [tensor.detach().clone() for pair in kept for tensor in pair]

        self.same(program, "plan")
        self.same(program, "all")

    def test_retained_graph(self):
        def deviate(training, i):
            loss = training.loss()
            loss.backward(retain_graph=True)
            loss.backward()
            training.finish(loss)

        self.both(deviate, self.recovers)
        always = self.mixed(deviate, at=tuple(range(14)))
        self.same(always, "plan")
        self.same(always, "all")

    def test_double_backward(self):
        def deviate(training, i):
            loss = training.loss()
            parameters = list(training.net.parameters())
            gradients = torch.autograd.grad(loss, parameters, create_graph=True)
            (loss + sum((gradient**2).sum() for gradient in gradients)).backward()
            training.finish(loss)

        self.both(deviate, self.recovers)
        self.same(self.mixed(deviate, at=tuple(range(14))), "plan")
        self.same(self.mixed(deviate, at=tuple(range(14))), "all")

    def test_accumulation(self):
        def deviate(training, i):
            for _ in range(3):
                loss = training.loss()
                (loss / 3).backward()
            training.finish(loss)

        self.same(self.mixed(deviate, at=tuple(range(14))), "plan", check=self.recovers)
        self.both(deviate, self.recovers)

    def test_autocast(self):
        def deviate(training, i):
            with torch.autocast(DEVICE, dtype=torch.bfloat16):
                loss = training.loss()
            loss.backward()
            training.finish(loss)

        self.same(self.mixed(deviate, at=tuple(range(14))), "plan", check=self.recovers)
        self.same(self.mixed(deviate, at=tuple(range(14))), "all")

    def test_views_and_changes_in_place(self):
        def deviate(training, i):
            x = draw(WIDTH, WIDTH, requires_grad=True)
            y = training.net(x)
            a, b = y.chunk(2, dim=1)
            loss = (a.t() @ b).relu_().square().mean() + (a * b).mean()
            if FAKE:
                loss = loss + torch.nn.functional.max_pool1d(y[None], 2).sum() * 1e-3
            loss.backward()
            training.finish(loss)

        self.same(self.mixed(deviate, at=tuple(range(14))), "plan")
        self.same(self.mixed(deviate, at=tuple(range(14))), "all")

    def test_two_optimizers(self):
        def program():
            training = Training()
            other = Training(seed=3, optimizer="sgd")
            for i in range(12):
                training.step(i)
                other.step(i)
            one, two = training.result(), other.result()
            return one[0] + two[0], one[1] + two[1]

        self.same(program, "plan")
        self.same(program, "all")

    @unittest.skipUnless(FAKE, "for the fake GPU")
    def test_another_stream(self):
        def program():
            training = Training()
            for i in range(8):
                loss = training.loss()
                backend = swap._manager.backend if swap._manager else None
                if backend and i % 2:
                    backend.aside = True
                loss.backward()
                if backend:
                    backend.aside = False
                training.finish(loss)
            return training.result()

        torch.Tensor.record_stream, original = lambda tensor, stream: None, torch.Tensor.record_stream
        try:
            self.same(program, "all")
        finally:
            torch.Tensor.record_stream = original


class Errors(SwapCase):
    def test_change_in_place_is_still_refused(self):
        def attempt():
            x = draw(WIDTH, WIDTH, requires_grad=True)
            y = x * 2
            z = y.exp()
            w = (z * z).sum()
            del y
            with torch.no_grad():
                z.add_(1)
            w.backward()

        def small():
            x = draw(4, requires_grad=True)
            z = x.exp()
            w = (z * z).sum()
            with torch.no_grad():
                z.add_(1)
            w.backward()

        for program in (attempt, small):
            for mode in ("all", "plan"):
                with Run(mode):
                    for _ in range(2):
                        Training().step(0)
                    with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                        program()

    def test_change_in_place_after_it_left(self):
        """The tensor is away, its version counter is not."""
        with Run("all"):
            x = draw(WIDTH, WIDTH, requires_grad=True)
            y = (x * 2).exp()
            z = y * 3
            counter = y.detach()[:0]
            loss = (y * y).sum() + z.sum()
            del y, z
            for _ in range(6):
                draw(WIDTH, WIDTH, requires_grad=True).exp()
            with torch.no_grad():
                counter.add_(1)
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                loss.backward()

    def test_backward_twice_is_still_refused(self):
        with Run("all"):
            loss = Training().loss()
            loss.backward()
            with self.assertRaisesRegex(RuntimeError, "backward through the graph a second time"):
                loss.backward()

    def test_no_cycles(self):
        with Run("all"):
            gc.collect()
            gc.disable()
            try:
                x = draw(WIDTH, WIDTH, requires_grad=True)
                y = x.exp()
                storage = y.untyped_storage()._weak_ref()
                del y
                self.assertTrue(torch.UntypedStorage._expired(storage))
                torch.UntypedStorage._free_weak_ref(storage)
            finally:
                gc.enable()

    def test_an_error_of_ours_ends_the_swapping_only(self):
        def broken(*_):
            raise ValueError("on purpose")

        places = {"saved": ("leave", "drop"), "traffic": ("act", "react", "fetch_ahead", "state_leaves"), "steps": ("begin",)}
        for part, where in ((part, where) for part, names in places.items() for where in names):
            for mode in ("all", "plan"):
                expected = plain(10)()
                with Run(mode) as run:
                    training = Training()
                    for i in range(10):
                        if i == 7:
                            setattr(getattr(run.manager, part), where, broken)
                        training.step(i)
                    found = training.result()
                self.assertEqual(expected[0], found[0], where)
                for one, other in zip(expected[1], found[1], strict=True):
                    self.assertTrue(torch.equal(one, other))

    def test_bad_plans_are_refused(self):
        def late(plan):
            plan["moves"][0]["back"] = 10**6

        def twice(plan):
            plan["moves"].append(plan["moves"][0])

        def other(plan):
            plan["key"] = "x"

        def sizes(plan):
            plan["moves"][0]["size"] += 1

        def inside(plan):
            move = next(move for move in plan["moves"] if move["class"] == "record")
            move["back"] = len(plan["moves"]) and 10**3

        def nonsense(plan):
            plan.clear()

        for spoil in (late, twice, other, sizes, inside, nonsense):
            self.same(plain(8), "plan", orders=ORDERS[:1], spoil=spoil, check=lambda run: self.assertEqual(run.report["plans"], 0))

    def test_full_gpu_on_return(self):
        """A prefetch that finds no room is put off; only a return that is needed may fail."""
        expected = plain(10)()
        with Run("plan") as run:
            training = Training()
            for i in range(10):
                if i == 6:
                    saved, traffic, inside = run.manager.saved, run.manager.traffic, []
                    original, act = saved.begin_return, traffic.act

                    def acting(*arguments):
                        inside.append(True)
                        act(*arguments)
                        inside.pop()

                    def full(record):
                        if inside:
                            raise torch.cuda.OutOfMemoryError("full")
                        original(record)

                    traffic.act, saved.begin_return = acting, full
                try:
                    training.step(i)
                except torch.cuda.OutOfMemoryError:
                    self.fail("the program saw it")
            found = training.result()
        self.assertEqual(expected[0], found[0])
        self.assertGreater(run.report["misses"], 0)


class OptimizerState(SwapCase):
    def test_reading_state_between_steps(self):
        def program():
            training = Training()
            seen = []
            for i in range(10):
                loss = training.loss()
                if i > 5:
                    first = next(iter(training.net.parameters()))
                    seen.append(training.optimizer.state[first]["exp_avg"].clone())
                    seen.append(copy.deepcopy(training.optimizer.state_dict())["state"][0]["exp_avg_sq"])
                loss.backward()
                training.finish(loss)
            losses, tensors = training.result()
            return losses, tensors + seen

        self.same(program, "plan")
        self.same(program, "all")

    def test_state_held_by_the_user_stays(self):
        def program():
            training = Training()
            training.step(0)
            held = [entry["exp_avg"] for entry in training.optimizer.state.values()]
            sums = []
            for i in range(9):
                loss = training.loss()
                sums.extend(tensor.sum().reshape(1) for tensor in held)
                loss.backward()
                training.finish(loss)
            losses, tensors = training.result()
            return losses, tensors + sums

        self.same(program, "plan")
        self.same(program, "all")

    def test_state_that_is_loaded(self):
        def program():
            training = Training()
            for i in range(12):
                if i == 6:
                    saved = copy.deepcopy(training.optimizer.state_dict())
                if i == 8:
                    training.optimizer.load_state_dict(saved)
                training.step(i)
            return training.result()

        self.same(program, "plan")
        self.same(program, "all")

    def test_an_optimizer_that_goes_away(self):
        def program():
            training = Training()
            for i in range(14):
                if i == 7:
                    training.optimizer = torch.optim.SGD(training.net.parameters(), lr=1e-3, momentum=0.9)
                training.step(i)
            return training.result()

        self.same(program, "plan")
        self.same(program, "all")

    def test_away_means_empty(self):
        with Run("all") as run:
            training = Training()
            training.step(0)
            training.step(1)
            training.loss()
            away = [item for item in run.manager.guard.items if item.state == GONE]
            self.assertGreater(len(away), 4)
            self.assertTrue(all(item.storage.nbytes() == 0 for item in away))
            training.optimizer.state_dict()
            self.assertEqual(run.manager.guard.away, 0)

    def test_ways_around_the_guard(self):
        with Run("all") as run:
            training = Training()
            training.step(0)
            training.step(1)
            state = training.optimizer.state
            key = next(iter(state))
            ways = {
                "item": lambda: state[key],
                "get": lambda: state.get(key),
                "values": lambda: list(state.values()),
                "items": lambda: list(state.items()),
                "dict": lambda: dict(state),
                "copy": lambda: state.copy(),
                "or": lambda: state | {},
                "update": lambda: {}.update(state),
                "star": lambda: {**state},
                "deepcopy": lambda: copy.deepcopy(state),
                "copy.copy": lambda: copy.copy(state),
            }
            for name, way in ways.items():
                training.loss()
                self.assertGreater(run.manager.guard.away, 0, name)
                got = way()
                entry = next(item.entry for item in run.manager.guard.items)
                self.assertGreater(entry.values["exp_avg"].untyped_storage().nbytes(), 0, name)
                del got
                training.step(2)


class HostMemory(SwapCase):
    @unittest.skipUnless(FAKE, "for the fake GPU")
    def test_less_room_means_less_swapping(self):
        self.same(plain(10), "plan", host_limit=70 << 10)
        self.same(plain(10), "all", host_limit=70 << 10)
        self.same(plain(10), "all", host_limit=0, check=lambda run: self.assertEqual(run.backend.freed, 0))

    def test_slots_never_overlap(self):
        import random

        drawn = random.Random(5)
        said = []
        slab = host.HostSlab(lambda size: torch.zeros(size, dtype=torch.uint8), 16 << 20, lambda *text: said.append(text))
        slots = []
        for _ in range(2000):
            if slots and drawn.random() < 0.5:
                slots.pop(drawn.randrange(len(slots))).release()
            else:
                slot = slab.take(drawn.randint(1, 1 << 20))
                if slot is not None:
                    slots.append(slot)
            ranges = sorted((slot.chunk, slot.at, slot.at + slot.room) for slot in slots)
            ranges += sorted((place[0], place[1], place[1] + place[2]) for place in slab.free)
            ranges.sort()
            for one, other in zip(ranges, ranges[1:]):
                self.assertTrue(one[0] != other[0] or one[2] <= other[1])
        for slot in slots:
            slot.release()
        self.assertEqual(slab.used, 0)
        self.assertEqual(len(slab.free), len(slab.chunks))

    @unittest.skipUnless(FAKE, "for the fake GPU")
    def test_no_pinned_memory(self):
        with Run("all") as run:
            run.backend.pin_room = 0
            found = plain()()
        self.assertEqual(plain()()[0], found[0])


class Surroundings(SwapCase):
    def test_torch_func(self):
        def program():
            training = Training()
            sums = []
            for i in range(8):
                training.step(i)
                sums.append(torch.func.grad(lambda x: (x**3).sum())(draw(WIDTH, WIDTH)))
                sums.append(torch.func.vmap(torch.func.grad(lambda x: x.sin().sum()))(draw(WIDTH, WIDTH)))
            losses, tensors = training.result()
            return losses, tensors + sums

        self.same(program, "plan")

    def test_hooks_of_the_user_take_precedence(self):
        def program():
            training = Training()
            for i in range(10):
                with torch.autograd.graph.save_on_cpu():
                    loss = training.loss()
                loss.backward()
                training.finish(loss)
            return training.result()

        self.same(program, "plan")

    def test_compiled(self):
        def program():
            torch._dynamo.reset()
            training = Training()
            compiled = torch.compile(training.net, backend="aot_eager")
            for i in range(10):
                loss = (compiled(draw(WIDTH, WIDTH)) ** 2).mean()
                loss.backward()
                training.finish(loss)
            return training.result()

        self.same(program, "plan", orders=ORDERS[:1])
        self.same(program, "all", orders=ORDERS[:1])

    def test_without_an_optimizer(self):
        def program():
            training = Training()
            for i in range(10):
                loss = training.loss()
                loss.backward()
                training.losses.append(loss.item())
                with torch.no_grad():
                    for parameter in training.net.parameters():
                        parameter.sub_(parameter.grad, alpha=0.1)
                        parameter.grad = None
                swap.step()
            return training.result()

        self.same(program, "plan", check=lambda run: self.assertGreater(run.report["stepsPlanned"], 3))

    def test_steps_that_never_repeat(self):
        def program():
            training = Training()
            for i in range(24):
                loss = training.loss(WIDTH + i)
                loss.backward()
                training.finish(loss)
            return training.result()

        self.same(program, "plan", orders=ORDERS[:1], check=lambda run: self.assertFalse(run.manager.hooks.pushed))
        self.same(program, "all", orders=ORDERS[:2])

    def test_nothing_is_left_behind(self):
        with Run("plan") as run:
            training = Training()
            for i in range(12):
                training.step(i)
            del training
            gc.collect()
            run.manager.steps.clear_away()
            gc.collect()
            self.assertEqual(run.manager.copies.slab.used, 0)
            self.assertEqual(len(run.manager.copies.graveyard), 0)
            self.assertEqual(run.manager.copies.away, 0)
            self.assertEqual([reference for reference in run.manager.saved.by_cdata.values() if reference() is not None], [])
        self.assertIsNone(torch._C._autograd._top_saved_tensors_default_hooks(True) or None)

    @unittest.skipIf(FAKE, "needs a GPU")
    def test_a_captured_graph_ends_the_swapping(self):
        for mode in ("all", "plan"):
            with Run(mode) as run:
                training = Training()
                for i in range(12):
                    if i == 8:
                        training.loss()
                        x = torch.ones(WIDTH, WIDTH, device=DEVICE)
                        graph = torch.cuda.CUDAGraph()
                        with torch.cuda.graph(graph):
                            y = x * 2
                        graph.replay()
                        self.assertEqual(y.sum().item(), 2 * WIDTH * WIDTH)
                        self.assertIn("graph", run.manager.stopped)
                        self.assertEqual(run.manager.guard.away, 0)
                        torch.manual_seed(77)
                    training.step(i)
                found = training.result()

            def reference():
                training = Training()
                for i in range(12):
                    if i == 8:
                        torch.manual_seed(77)
                    training.step(i)
                return training.result()

            self.assertEqual(reference()[0], found[0])

    @unittest.skipUnless(FAKE, "for the fake GPU")
    def test_ownership_counts(self):
        parameter = torch.nn.Parameter(torch.randn(4096))
        optimizer = torch.optim.Adam([parameter])
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        guard = optimizer_state.StateGuard(type("C", (), {"backend": FakeBackend()}), None, 1024)
        guard.scan(optimizer)
        ours = lambda: [optimizer_state.is_ours(item) for item in guard.items]  # noqa: E731
        self.assertEqual(ours(), [True, True])
        for hold in (
            lambda: optimizer.state[parameter],
            lambda: optimizer.state[parameter]["exp_avg"],
            lambda: optimizer.state[parameter]["exp_avg"][3:5],
            lambda: optimizer.state[parameter]["exp_avg"].untyped_storage(),
            lambda: optimizer.state[parameter]["exp_avg"].data,
            lambda: optimizer.state_dict(),
        ):
            held = hold()
            self.assertFalse(ours()[0])
            del held
            self.assertEqual(ours(), [True, True])


if __name__ == "__main__":
    unittest.main(verbosity=1)
