"""Emergency swap-outs: a request that finds no memory, at any point of the program. Values stay the same."""

import ctypes
import math
import random
import threading
import unittest
import warnings

import torch
from fake_gpu import FakeBackend
from support import FAKE, ORDERS, WIDTH, Run, SwapCase, Training, draw, trained
from weir_gpu import adapter, swap
from weir_gpu.swap.records import RESIDENT, SWAPPED_OUT


class Own(torch.optim.AdamW):
    """Its state is not streamed, so it is there to be swapped out."""


def short_of_memory(seed, share=0.3, wanted=4 * 4 * WIDTH * WIDTH):
    """A program whose modules and backward find no memory now and then."""

    def program():
        chance = random.Random(seed)

        def ask(*_):
            if swap._manager is not None and chance.random() < share:
                swap._manager.relieve(swap._manager.backend.index if swap._manager.backend else 0, chance.randrange(1, wanted))

        training = Training()
        training.optimizer = Own(training.net.parameters(), lr=1e-3)
        for layer in training.net.layers:
            layer.register_forward_hook(ask)
            layer.register_full_backward_hook(ask)
        for i in range(12):
            ask()
            loss = training.loss(WIDTH + 32 if i in (5, 9) else None)
            ask()
            loss.backward()
            ask()
            training.finish(loss)
        return training.result()

    return program


class Relief(SwapCase):
    def test_same_values(self):
        def check(run):
            assert run.report["reliefs"] >= 1 and run.report["relievedBytes"] > 0, run.report

        for mode in ("all", "plan", "limit"):
            for seed in (1, 2):
                self.same(short_of_memory(seed), mode, orders=ORDERS[:4], check=check)

    def test_state_is_swapped_out_and_in_again_for_the_step(self):
        with Run("limit") as run:
            training = trained(6)
            manager = run.manager
            state = [item for item in manager.guard.items if item.state == RESIDENT]
            self.assertGreater(len(state), 3)
            self.assertTrue(manager.relieve(0, 4 * 3 * state[0].size))
            swapped = [item for item in manager.guard.items if item.state == SWAPPED_OUT]
            self.assertGreaterEqual(sum(item.size for item in swapped), 3 * state[0].size)
            training.step(0)
            self.assertTrue(all(item.state != SWAPPED_OUT for item in swapped))

    @unittest.skipUnless(FAKE, "the memory there is is made up")
    def test_what_backward_needs_has_room_made_for_it(self):
        class Full(FakeBackend):
            """Has as much room as was freed since it was full."""

            def before_free(self, storage, of_compute_stream):
                self.room += storage.nbytes()
                super().before_free(storage, of_compute_stream)

            def new_storage(self, size):
                storage = super().new_storage(size)
                self.room -= size
                return storage

        def train(run):
            training = trained(6)
            loss = training.loss()
            if run is not None:
                state = sum(item.size for item in run.manager.guard.items if item.state == RESIDENT)
                self.assertGreater(run.manager.copies.swapped_out, state)
                run.backend.room = run.manager.copies.swapped_out - state // 2
            loss.backward()
            if run is not None:
                run.backend.room = 1 << 40
            training.finish(loss)
            return training.result()

        expected = train(None)
        run = Run("limit", host_limit=1 << 30)
        run.backend = Full("random", 2)
        # Saved tensors are swapped out as planned, state only if there is no room.
        run.spoil = lambda plan: plan.update(moves=[move for move in plan["moves"] if move["class"] == "record"])
        with run:
            found = train(run)
        self.assertEqual(expected[0], found[0])
        self.assertTrue(all(torch.equal(one, other) for one, other in zip(expected[1], found[1], strict=True)))
        self.assertGreater(run.report["reliefs"], 0)

    @unittest.skipUnless(FAKE, "replaces a kernel of the CPU's")
    def test_in_the_midst_of_an_operation(self):
        """There PyTorch makes no tensors that share a version; what was changed in place before it was saved must not look changed."""
        asked = []

        def sigmoid(x):
            if swap._manager is not None:
                asked.append(swap._manager.relieve(0, 1 << 20))
            return 1 / (1 + torch.exp(-x))

        def program():
            torch.manual_seed(3)
            layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(4)]
            optimizer = torch.optim.AdamW([parameter for layer in layers for parameter in layer.parameters()])
            losses = []
            for _ in range(8):
                x = draw(WIDTH, WIDTH)
                for layer in layers:
                    x = torch.sigmoid(torch.relu_(layer(x)))
                loss = x.mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.item().hex())
            return losses, []

        library = torch.library.Library("aten", "IMPL")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                library.impl("sigmoid", sigmoid, "CPU")
            for mode in ("plan", "limit"):
                self.same(program, mode, orders=ORDERS[:2])
        finally:
            library._destroy()
        self.assertIn(True, asked)

    @unittest.skipUnless(FAKE, "the interruption is made up")
    def test_an_interruption_loses_nothing(self):
        with Run("limit", debug=False) as run:
            training = trained(6)
            before = [value.clone() for entry in training.optimizer.state_dict()["state"].values() for value in entry.values()]

            def interrupt():
                raise KeyboardInterrupt

            run.manager.copies.after_free = interrupt
            with self.assertRaises(KeyboardInterrupt):
                run.manager.relieve(0, 1 << 20)
            del run.manager.copies.after_free
            after = [value for entry in training.optimizer.state_dict()["state"].values() for value in entry.values()]
            self.assertTrue(all(torch.equal(one, other) for one, other in zip(before, after, strict=True)))
            del before, after
            training.step(0)

    def test_before_there_is_a_plan(self):
        with Run("plan") as run:
            training = trained(1)
            state = training.optimizer.state
            # Whoever has hold of the dictionary is not asked to let go of what is in it.
            self.assertFalse(run.manager.relieve(0, 1 << 20))
            del state
            self.assertTrue(run.manager.relieve(0, 1 << 20))
            training.step(0)

    def test_nothing_to_give(self):
        with Run("plan") as run:
            self.assertFalse(run.manager.relieve(0, 1 << 20))
            training = trained(2)
            held = [value for entry in training.optimizer.state.values() for value in entry.values()]
            self.assertFalse(run.manager.relieve(0, 1 << 20))
            self.assertFalse(run.manager.relieve(7, 1 << 20))
            del held

    def test_not_for_requests_of_its_own(self):
        with Run("limit") as run:
            training = trained(6)
            with run.manager.lock:
                self.assertFalse(run.manager.relieve(0, 1 << 20))
            self.assertTrue(run.manager.relieve(0, 1 << 20))
            training.step(0)

    def test_not_while_another_thread_is_at_it(self):
        with Run("limit") as run:
            training = trained(6)
            entered, leave = threading.Event(), threading.Event()

            def hold():
                with run.manager.lock:
                    entered.set()
                    leave.wait(30)

            other = threading.Thread(target=hold)
            other.start()
            entered.wait(30)
            self.assertFalse(run.manager.relieve(0, 1 << 20))
            leave.set()
            other.join()
            self.assertTrue(run.manager.relieve(0, 1 << 20))
            training.step(0)

    def test_whoever_asks_from_c_gets_an_answer(self):
        class Library:
            def weir_torch_on_shortage(self, pointer):
                self.pointer = pointer

        def answer_of(relieve):
            end = adapter.on_shortage(relieve)
            answer = ctypes.cast(adapter._library.pointer, adapter._Relief)(1, 1 << 40)
            end()
            self.assertIsNone(adapter._library.pointer)
            return answer

        def fail(_device, _size):
            raise RuntimeError

        adapter._library = Library()
        try:
            self.assertEqual(answer_of(lambda device, size: (device, size) == (1, 1 << 40)), 1)
            self.assertEqual(answer_of(lambda device, size: None), 0)
            self.assertEqual(answer_of(fail), 0)
        finally:
            adapter._library = None

    @unittest.skipUnless(FAKE, "errors are made up")
    def test_an_error_ends_the_swapping_and_not_the_training(self):
        with Run("limit") as run:
            training = trained(6)
            run.backend.copy_out = None
            self.assertFalse(run.manager.relieve(0, 1 << 20))
            self.assertIn("relief", run.manager.stopped)
            before = training.losses[-1]
            training.step(0)
            self.assertNotEqual(training.losses[-1], before)
            self.assertTrue(math.isfinite(training.losses[-1]))


if __name__ == "__main__":
    unittest.main()
