"""Optimizer state between steps, and the host memory it waits in."""

import copy
import unittest
import weakref

import torch
from fake_gpu import FakeBackend
from support import FAKE, Run, SwapCase, Training, plain
from weir_gpu.swap import host
from weir_gpu.swap.records import SWAPPED_OUT


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

    def test_state_changed_during_its_swap_out(self):
        """Right after the step, and in the forward pass, when copies have begun and nothing is swapped out yet."""

        def program():
            training = Training()
            for i in range(14):
                loss = training.loss()
                for parameter in list(training.net.parameters())[i % 3 :: 3]:
                    if parameter in training.optimizer.state:
                        training.optimizer.state[parameter]["exp_avg_sq"].mul_(1.5)
                loss.backward()
                training.finish(loss)
                for entry in training.optimizer.state.values() if i % 2 else ():
                    entry["exp_avg"].mul_(0.5)
            return training.result()

        self.same(program, "plan")
        self.same(program, "all")

    def test_views_and_weak_references_over_a_forward_pass(self):
        def program(look):
            def run():
                training = Training()
                seen = []
                for i in range(10):
                    state = training.optimizer.state
                    before = look(state) if i > 4 else None
                    loss = training.loss()
                    if before is not None:
                        seen.extend(tensor.clone() for tensor in before())
                    loss.backward()
                    training.finish(loss)
                losses, tensors = training.result()
                return losses, tensors + seen

            return run

        def values(state):
            view = state.values()
            return lambda: [entry["exp_avg"] for entry in view]

        def items(state):
            pairs = iter(state.items())
            return lambda: [entry["exp_avg_sq"] for _, entry in pairs]

        def weak(state):
            references = [weakref.ref(entry["exp_avg"]) for entry in state.values()]
            return lambda: [reference() for reference in references]

        def printed(state):
            return lambda: [torch.tensor(float(len(repr(state)) > 0))]

        for look in (values, items, weak, printed):
            with self.subTest(look.__name__):
                self.same(program(look), "plan")
                self.same(program(look), "all")

    @unittest.skipUnless(FAKE, "counts waits")
    def test_swaps_at_the_same_tick_wait_once(self):
        with Run("plan") as run:
            training = Training()
            for i in range(9):
                training.step(i)
            before = run.backend.compute_waits
            training.step(9)
            moves = next(iter(run.manager.steps.plans.values())).moves
        items = sum(who[0] == "item" for who in moves)
        self.assertGreaterEqual(items, 8)
        # All state is swapped out at one tick and in at another; saved tensors are swapped one by one.
        self.assertLessEqual(run.backend.compute_waits - before, 2 + 2 * (len(moves) - items))

    def test_a_replaced_tensor_is_swapped_as_before(self):
        def moving(replace):
            with Run("plan") as run:
                training = Training()
                for i in range(9):
                    training.step(i)
                for entry in training.optimizer.state.values() if replace else ():
                    entry["exp_avg"] = entry["exp_avg"].clone()
                for i in range(9, 16):
                    training.step(i)
                training.loss()
                return run.manager.guard.moving

        self.assertGreater(moving(False), 0)
        self.assertEqual(moving(True), moving(False))

    def test_state_held_by_the_user_stays(self):
        def program():
            training = Training()
            training.step(0)
            held = [entry["exp_avg"] for entry in training.optimizer.state.values()]
            sums = []
            for _ in range(9):
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

    def test_an_optimizer_that_is_deleted(self):
        def program():
            training = Training()
            for i in range(14):
                if i == 7:
                    training.optimizer = torch.optim.SGD(training.net.parameters(), lr=1e-3, momentum=0.9)
                training.step(i)
            return training.result()

        self.same(program, "plan")
        self.same(program, "all")

    def test_a_swapped_storage_is_empty(self):
        with Run("all") as run:
            training = Training()
            training.step(0)
            training.step(1)
            training.loss()
            swapped = [item for item in run.manager.guard.items if item.state == SWAPPED_OUT]
            self.assertGreater(len(swapped), 4)
            self.assertTrue(all(item.storage.nbytes() == 0 for item in swapped))
            training.optimizer.state_dict()
            self.assertEqual(run.manager.guard.moving, 0)

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
                self.assertGreater(run.manager.guard.moving, 0, name)
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
        slab = host.HostSlab(FakeBackend(), 16 << 20, lambda *text: said.append(text))
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


if __name__ == "__main__":
    unittest.main()
