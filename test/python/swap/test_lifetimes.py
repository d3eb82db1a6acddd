"""What dies with its owner: optimizer state, host copies, records of graphs. Nothing grows with the number of passes."""

import copy
import gc
import threading
import unittest
import weakref

import torch
from support import DEVICE, ORDERS, WIDTH, Net, Run, SwapCase, Training, draw, trained
from weir_gpu.swap import passes

MODES = ("plan", "all", "limit")


def state_of(run):
    """Weak references to all swappable state. It is not read, so it stays where it is."""
    return [weakref.ref(item.tensor) for item in run.manager.guard.items]


def alive(references):
    return sum(reference() is not None for reference in references)


class OptimizerState(unittest.TestCase):
    def in_all_ways(self, act):
        """Trainings in which state is resident, being copied, or swapped out."""
        for mode in MODES:
            for order, seed in ORDERS[:2]:
                for done in (2, 12):
                    with self.subTest(mode=mode, order=order, steps=done), Run(mode, order, seed) as run:
                        training = trained(done)
                        references = state_of(run)
                        self.assertEqual(alive(references), 8)
                        act(run, training, references)
                        # Copies that are left over find their memory.
                        run.manager.backend.synchronize()

    def gone(self, run, references):
        self.assertEqual(alive(references), 0)
        guard, copies = run.manager.guard, run.manager.copies
        self.assertEqual(guard.moving, 0)
        self.assertEqual(copies.swapped_out, 0)
        self.assertEqual(len(copies.pending_frees), 0)
        self.assertEqual([item for item in guard.items if item.slot is not None or item.storage is not None], [])

    def test_goes_with_the_optimizer(self):
        """Without a tick after it."""

        def act(run, training, references):
            training.optimizer = training.net = None
            gc.collect()
            self.gone(run, references)
            self.assertEqual(run.manager.copies.slab.used, 0)

        self.in_all_ways(act)

    def test_goes_while_it_is_swapped(self):
        """In mid-step, some state is on its way out or in."""
        for mode in MODES:
            with self.subTest(mode), Run(mode, *ORDERS[0]) as run:
                training = trained(12)
                references = state_of(run)
                loss = training.loss()
                training.optimizer = training.net = None
                gc.collect()
                self.assertEqual(alive(references), 0)
                self.assertEqual(run.manager.guard.moving, 0)
                loss.backward()
                self.assertIsNone(run.manager.stopped)

    def test_goes_if_another_thread_lets_it_go(self):
        with Run("all", *ORDERS[0]) as run:
            training = trained(4)
            references = state_of(run)

            def drop():
                training.optimizer = training.net = None
                gc.collect()

            thread = threading.Thread(target=drop)
            thread.start()
            thread.join()
            self.gone(run, references)

    def test_goes_once_the_lock_is_free(self):
        with Run("all", *ORDERS[0]) as run:
            training = trained(4)
            references = state_of(run)
            with run.manager.lock:
                training.optimizer = training.net = None
                gc.collect()
                self.assertEqual(alive(references), 0)
                self.assertGreater(run.manager.copies.slab.used, 0)
            self.gone(run, references)
            self.assertEqual(run.manager.copies.slab.used, 0)

    def test_replaced_by_load_state_dict(self):
        def act(run, training, references):
            saved = copy.deepcopy(training.optimizer.state_dict())
            training.optimizer.load_state_dict(saved)
            del saved
            gc.collect()
            self.gone(run, references)
            for i in range(4):
                training.step(i)

        self.in_all_ways(act)

    def test_replaced_tensors(self):
        def act(run, training, references):
            for entry in training.optimizer.state.values():
                for key, value in entry.items():
                    entry[key] = value.clone()
            del entry, value
            gc.collect()
            self.gone(run, references)
            training.step(0)

        self.in_all_ways(act)

    def test_state_that_the_program_keeps(self):
        def act(_, training, references):
            expected = [value.clone() for entry in training.optimizer.state.values() for value in entry.values()]
            state = training.optimizer.state
            training.optimizer = None
            gc.collect()
            self.assertEqual(alive(references), len(references))
            found = [value for entry in state.values() for value in entry.values()]
            self.assertTrue(all(torch.equal(one, other) for one, other in zip(expected, found, strict=True)))

        self.in_all_ways(act)

    def test_one_training_after_another(self):
        """Host memory of the first serves the second."""
        with Run("all", *ORDERS[0]) as run:
            used = []
            for seed in range(3):
                training = trained(4, seed=seed)
                used.append(run.manager.copies.slab.used)
                training.optimizer = training.net = None
                del training
                gc.collect()
            self.assertEqual(len(set(used)), 1, used)
            self.assertEqual(run.manager.copies.slab.used, 0)
            # So do places in lists.
            self.assertLessEqual(len(run.manager.guard.optimizers), 2)

    def test_pinned_memory_is_given_back(self):
        with Run("all", *ORDERS[1]) as run:
            training = trained(4)
            self.assertGreater(run.manager.copies.slab.capacity, 0)
            training.optimizer = training.net = None
            gc.collect()
            self.assertEqual(run.manager.copies.slab.capacity, 0)
            trained(4)
            self.assertIsNone(run.manager.stopped)

    def test_pinned_memory_that_a_copy_uses_stays(self):
        with Run("all", *ORDERS[1]) as run:
            training = trained(4)
            run.manager.backend.has_no_copies = lambda: False
            training.optimizer = training.net = None
            gc.collect()
            self.assertGreater(run.manager.copies.slab.capacity, 0)


class Graphs(SwapCase):
    def setUp(self):
        self.limits, passes.MOST_PASSES = (passes.MOST_PASSES, passes.MOST_TICKS), 30

    def tearDown(self):
        passes.MOST_PASSES, passes.MOST_TICKS = self.limits

    def passes(self, run, count, backward=True):
        net = Net().to(DEVICE)
        for _ in range(count):
            loss = (net(draw(WIDTH, WIDTH)) ** 2).mean()
            if backward:
                loss.backward()
                net.zero_grad()
            del loss
        return self.kept(run)

    def kept(self, run):
        manager = run.manager
        profile = manager.steps.profile
        return (
            len(manager.saved.records) + len(manager.saved.by_cdata) + len(manager.saved.dead) + len(manager.mover.pending)
            + len(manager.mover.resting) + len(manager.layers.passages) + len(manager.copies.pending_frees)
            + (len(profile.kinds) + len(profile.events) if profile is not None else 0)
        )  # fmt: skip

    def test_passes_without_a_step(self):
        for mode in MODES:
            for backward in (True, False):
                with self.subTest(mode, backward=backward), Run(mode, *ORDERS[1]) as run:
                    first = self.passes(run, 20, backward)
                    self.assertLessEqual(first, 40)
                    self.assertLessEqual(self.passes(run, 50, backward), first)
                    self.assertEqual(len([name for name in run.marks if name == "weir step"]), 0)

    def test_passes_after_training(self):
        """With the optimizer alive, but idle, also in the middle of a watched step and under a plan."""
        for mode in MODES:
            for done in (3, 5, 12):
                with self.subTest(mode, done=done), Run(mode, *ORDERS[1]) as run:
                    training = trained(done)

                    def go_on(count, training=training):
                        for _ in range(count):
                            training.loss().backward()

                    go_on(passes.MOST_PASSES + 2)
                    first = self.kept(run)
                    go_on(2 * passes.MOST_PASSES)
                    self.assertLessEqual(self.kept(run), first + 40)
                    self.assertIsNone(run.manager.stopped)
                    training.optimizer.zero_grad()
                    out = run.manager.copies.counts["bytes_out"]
                    for i in range(12):
                        training.step(i)
                    self.assertGreater(run.manager.copies.counts["bytes_out"], out)

    def test_values_of_passes_without_a_step(self):
        def program():
            training = Training()
            for i in range(2 * passes.MOST_PASSES + 30):
                loss = training.loss()
                loss.backward()
                if i % 50 == 0:
                    training.losses.append(loss.item())
                with torch.no_grad():
                    for parameter in training.net.parameters():
                        parameter.sub_(parameter.grad, alpha=0.01)
                        parameter.grad = None
            for i in range(12):
                training.step(i)
            return training.result()

        for mode in MODES:
            self.same(program, mode, orders=ORDERS[:1])

    def test_one_graph_that_grows(self):
        """A graph that is never dropped."""
        passes.MOST_TICKS = 500
        with Run("plan", *ORDERS[1]) as run:
            trained(3)
            x = draw(WIDTH, WIDTH, requires_grad=True)
            y = x
            for _ in range(1200):
                y = torch.sin(y)
            self.assertLess(run.manager.steps.tick_count, 500)
            y.sum().backward()
            self.assertTrue(torch.isfinite(x.grad).all())
            self.assertIsNone(run.manager.stopped)

    def test_graphs_from_before_it_was_found_endless(self):
        def program():
            training = trained(3)
            loss = sum(training.loss() for _ in range(4))
            loss.backward()
            training.finish(loss)
            return training.result()

        passes.MOST_TICKS = 30
        for mode in MODES:
            self.same(program, mode, orders=ORDERS[:2])

    def test_a_tensor_that_is_saved_again_and_again(self):
        with Run("plan", *ORDERS[1]) as run:
            x = draw(WIDTH, WIDTH, requires_grad=True) * 1
            kept = [x * x]
            for _ in range(500):
                x * x
            records = [record for reference in run.manager.saved.records if (record := reference()) is not None]
            self.assertLess(max(len(record.handles) for record in records), 100)
            del kept

    def test_steps_that_never_repeat(self):
        with Run("all", *ORDERS[1]) as run:
            training = Training()
            for i in range(100):
                loss = training.loss(WIDTH + i)
                loss.backward()
                training.finish(loss)
            self.assertLess(len(run.manager.steps.successor), 80)


if __name__ == "__main__":
    unittest.main()
