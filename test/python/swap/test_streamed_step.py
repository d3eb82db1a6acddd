"""Steps of optimizers whose state passes through the GPU in chunks: the same bits, whatever the optimizer is asked for."""

import copy
import gc
import unittest
import weakref
from unittest import mock

import torch
from streamed_support import ADAM, PARAMETERS, SIZE, STEPS, Bag, StreamedCase, program_of
from support import DEVICE, FAKE, ORDERS, WIDTH, Run, Training, draw
from weir_gpu import swap
from weir_gpu.swap import element_wise, streamed_step
from weir_gpu.swap.mover import Mover
from weir_gpu.swap.records import RESIDENT, SWAPPED_OUT

WAYS = {
    "Adam": [{}, {"weight_decay": 0.1, "amsgrad": True}, {"maximize": True, "weight_decay": 0.1}],
    "AdamW": [{}, {"amsgrad": True, "maximize": True}],
    "SGD": [
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        {"momentum": 0.5, "dampening": 0.2, "maximize": True},
    ],
    "RMSprop": [{}, {"momentum": 0.9, "centered": True, "weight_decay": 0.1}, {"momentum": 0.9, "maximize": True}],
    "Adagrad": [{}, {"lr_decay": 0.1, "weight_decay": 0.1}],
    "Adadelta": [{}, {"weight_decay": 0.1, "maximize": True}],
    "Adamax": [{}, {"weight_decay": 0.1}],
    "NAdam": [{}, {"weight_decay": 0.1, "decoupled_weight_decay": True}],
    "RAdam": [{}, {"weight_decay": 0.1, "decoupled_weight_decay": True}],
    "Rprop": [{}, {"maximize": True}],
}  # fmt: skip


class Optimizers(StreamedCase):
    def test_same_bits(self):
        self.assertEqual(set(WAYS), set(element_wise.KNOWN))
        for kind, ways in WAYS.items():
            for way in ways:
                for foreach in (True, False):
                    with self.subTest(kind, **way, foreach=foreach):
                        program = program_of(kind=kind, foreach=foreach, **way)
                        self.same(program, "all", orders=ORDERS[:3], check=self.streamed())

    def test_state_is_made_and_computed_in_chunks(self):
        most = []
        keep = streamed_step.Step._keep

        def look(step, group, chunk, parts):
            keep(step, group, chunk, parts)
            entries = step.optimizer.state
            there = sum(value.untyped_storage().nbytes() for entry in dict.values(entries) for value in entry.values() if value.dim() > 0)
            most.append(there / SIZE)

        for kind, tensors in (("AdamW", 2), ("SGD", 1)):
            most.clear()
            with mock.patch.object(streamed_step.Step, "_keep", look), Run("all", *ORDERS[0]) as run:
                bag = Bag(kind, **({"momentum": 0.9} if kind == "SGD" else {}))
                for i in range(3):
                    bag.step(i)
                    self.assertEqual({item.state for item in run.manager.guard.items}, {SWAPPED_OUT}, (kind, i))
                    self.assertEqual(len(run.manager.guard.items), tensors * (PARAMETERS))
            # Two of the eight parameters have twice the size.
            whole = tensors * (PARAMETERS + 2)
            self.assertLessEqual(max(most), 0.6 * whole, kind)
            self.assertGreater(len(most), 3 * 3)

    def test_swapping_with_a_plan(self):
        """A plan has brought back what it could. The rest comes in chunks."""

        def program():
            bag = Bag()
            for i in range(14):
                bag.backward()
                if swap._manager is not None and FAKE:
                    swap._manager.backend.current_bytes = (1 << 40) if i > 9 else 0
                bag.optimizer.step()
                bag.optimizer.zero_grad()
            return bag.result()

        def check(run):
            self.assertEqual(run.manager.copies.counts["steps_streamed"], 4 if FAKE else 0)

        self.same(program, "limit", orders=ORDERS[:3], check=check)

    @unittest.skipUnless(FAKE, "the memory there is is made up")
    def test_a_plan_leaves_streamed_state_to_the_step(self):
        """It moves everything else, and does not count state as memory of the step."""
        most = 1 << 40

        def program():
            bag = Bag()
            for _ in range(14):
                bag.backward()
                if swap._manager is not None:
                    swap._manager.backend.current_bytes = most
                bag.optimizer.step()
                bag.optimizer.zero_grad()
            return bag.result()

        def check(run):
            (profile,) = run.profiles
            self.assertEqual({item["pre"] for item in profile["items"]}, {-1})
            self.assertEqual(len(profile["items"]), 2 * PARAMETERS)
            self.assertEqual(profile["ticks"]["peak"][0], most)
            self.assertEqual(run.manager.copies.counts["steps_streamed"], 14)
            self.assertGreaterEqual(run.manager.copies.counts["steps_planned"], 6)
            (plan,) = run.manager.steps.plans.values()
            self.assertEqual({who[0] for who in plan.moves}, {"record"})
            # At the end, the program reads all of the state.
            self.assertEqual(run.manager.copies.counts["misses"], 2 * PARAMETERS)

        self.same(program, "limit", orders=ORDERS[:4], check=check)

    @unittest.skipUnless(FAKE, "the memory there is is made up")
    def test_steps_that_begin_to_be_streamed_are_watched_again(self):
        """Profiles of steps whose state stayed are not put together with those of streamed ones."""

        def program():
            bag = Bag()
            for i in range(16):
                if swap._manager is not None and swap._manager.backend is not None:
                    swap._manager.backend.current_bytes = (1 << 40) if i >= 2 else 0
                bag.step()
            return bag.result()

        def check(run):
            self.assertEqual(run.manager.copies.counts["steps_streamed"], 14)
            for profile in run.profiles:
                self.assertEqual({item["pre"] for item in profile["items"]}, {-1})
                self.assertEqual(profile["ticks"]["peak"][0], 1 << 40)
            self.assertEqual(len(run.profiles), 1)

        self.same(program, "limit", orders=ORDERS[:2], check=check)

    @unittest.skipUnless(FAKE, "the memory there is is made up")
    def test_results_count_as_memory_of_the_step(self):
        """Kernels for lists have those of a whole group at once."""
        # Two tensors for each parameter, two of which have twice the size.
        state = 2 * (PARAMETERS + 2) * SIZE
        for foreach, streamed in ((True, 4), (False, 0)):
            with Run("limit", *ORDERS[0]) as run:
                bag = Bag(foreach=foreach)
                for i in range(6):
                    bag.backward()
                    run.backend.current_bytes = (1 << 40) - state - 3 * SIZE if i > 1 else 0
                    bag.optimizer.step()
                    bag.optimizer.zero_grad()
                self.assertEqual(run.manager.copies.counts["steps_streamed"], streamed, foreach)

    def test_what_fits_is_not_streamed(self):
        self.same(program_of(), "limit", orders=ORDERS[:1], check=self.not_streamed)
        self.same(program_of(steps=12), "plan", orders=ORDERS[:1], check=self.not_streamed)


class Surroundings(StreamedCase):
    def test_hooks_schedulers_and_state_dicts(self):
        called = []

        def program():
            called.clear()
            bag = Bag(foreach=True)
            optimizer = bag.optimizer
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)

            def before(optimizer, arguments, named):
                called.append(("before", [len(group["params"]) for group in optimizer.param_groups]))
                for parameter in bag.parameters:
                    if parameter.grad is not None:
                        parameter.grad.mul_(0.5)

            def after(optimizer, arguments, named):
                called.append(("after", float(sum(entry["exp_avg"].sum() for entry in optimizer.state.values()))))

            optimizer.register_step_pre_hook(before)
            optimizer.register_step_post_hook(after)
            for i in range(8):
                bag.step()
                schedule.step()
                if i == 3:
                    saved = copy.deepcopy(optimizer.state_dict())
                if i == 5:
                    optimizer.load_state_dict(saved)
            self.assertEqual(len(called), 16)
            program.called = list(called)
            return bag.result()

        expected = (program(), program.called)[1]
        self.same(program, "all", orders=ORDERS[:3], check=self.streamed(8))
        self.assertEqual(program.called, expected)

    def test_grad_scaler(self):
        def program():
            bag = Bag()
            scaler = torch.amp.GradScaler(DEVICE, init_scale=256.0, growth_interval=3)
            for i in range(8):
                x = draw(WIDTH, WIDTH)
                for parameter in bag.parameters:
                    x = torch.tanh(x.to(parameter.dtype) @ parameter).float() + x
                loss = x.square().mean() * (float("inf") if i == 4 else 1.0)
                scaler.scale(loss).backward()
                scaler.step(bag.optimizer)
                scaler.update()
                bag.optimizer.zero_grad()
                bag.losses.append(scaler.get_scale())
            return bag.result()

        self.same(program, "all", orders=ORDERS[:3], check=self.streamed(7))

    def test_a_step_in_a_hook_of_another(self):
        """Even if it fails: the outer step is computed, though not in chunks."""

        def program():
            inner = Bag(seed=3, foreach=False)
            outer = Bag(seed=4)

            def before(optimizer, arguments, named):
                inner.backward()
                if len(inner.losses) % 2:
                    inner.optimizer.step()
                else:
                    with mock.patch.object(torch.Tensor, "lerp_", side_effect=MemoryError), self.assertRaises(MemoryError):
                        inner.optimizer.step()
                inner.optimizer.zero_grad()

            outer.optimizer.register_step_pre_hook(before)
            for i in range(6):
                outer.step(i)
            return outer.result()

        self.same(program, "all", orders=ORDERS[:2], check=self.streamed(3))

    def test_closures_are_not_streamed(self):
        def step(bag, i):
            def closure():
                bag.optimizer.zero_grad()
                bag.backward()
                return torch.zeros(())

            if i % 2:
                bag.optimizer.step(closure)
            else:
                bag.optimizer.step(closure=closure)

        self.same(program_of(step), "all", orders=ORDERS[:1], check=self.not_streamed)

    def test_an_error_in_the_middle(self):
        """The parameters before it are stepped, all others are as before, and training goes on."""
        small = {"lr": 1e-3, "foreach": True}

        def program():
            torch.manual_seed(1)
            training = Training()
            parameters = [parameter for parameter in training.net.parameters() if parameter.dim() == 2]
            training.optimizer = torch.optim.AdamW(parameters, **small)
            for i in range(8):
                loss = training.loss()
                loss.backward()
                if i == 4 and swap._manager is None:
                    for parameter in parameters[2:]:
                        parameter.grad = None
                if i == 4 and swap._manager is not None:
                    self.fail_at_third(training.optimizer)
                else:
                    training.optimizer.step()
                training.losses.append(loss.item())
                training.optimizer.zero_grad()
            return training.result()

        with mock.patch.object(streamed_step, "CHUNK", 1):
            self.same(program, "all", orders=ORDERS[:4], check=self.streamed(7))

    def fail_at_third(self, optimizer):
        original, calls = torch.optim.Optimizer._group_tensors_by_device_and_dtype, []

        def failing(*arguments, **named):
            calls.append(1)
            if len(calls) == 3:
                raise MemoryError("in the middle")
            return original(*arguments, **named)

        with mock.patch.object(torch.optim.Optimizer, original.__name__, failing), self.assertRaises(MemoryError):
            optimizer.step()
        self.assertEqual(len(calls), 3)

    def test_a_step_that_fails_keeps_nothing(self):
        """Programs that ran out of memory free everything and try again with less."""
        with Run("all", *ORDERS[0]) as run:
            bag = Bag(foreach=False)
            bag.step()
            bag.backward(1)
            with mock.patch.object(torch.Tensor, "lerp_", side_effect=MemoryError), self.assertRaises(MemoryError):
                bag.optimizer.step()
            self.streamed(1)(run)
            gone = [weakref.ref(thing) for thing in (bag.optimizer, *bag.parameters)]
            del bag
            gc.collect()
            self.assertEqual([reference() is None for reference in gone], [True] * len(gone))

    def test_a_step_that_fails_between_collecting_and_computing(self):
        """It has no part in the next step, which is not streamed."""

        def step(bag, i):
            if i == 2:
                bag.backward()
                eps = bag.optimizer.param_groups[0].pop("eps")
                with self.assertRaises(KeyError):
                    bag.optimizer.step()
                bag.optimizer.param_groups[0]["eps"] = eps
                bag.optimizer.step(lambda: torch.zeros(()))
                bag.optimizer.zero_grad()
            bag.step(i)

        self.same(program_of(step), "all", orders=ORDERS[:2], check=self.streamed())

    def test_a_class_is_not_kept_alive(self):
        with Run("all", *ORDERS[0]):

            class Own(torch.optim.Adam):
                pass

            bag = Bag(own=Own)
            bag.step()
            gone = weakref.ref(Own)
            del bag, Own
            gc.collect()
            self.assertIsNone(gone())

    @unittest.skipUnless(FAKE, "counts waits")
    def test_a_hook_that_chooses_another_stream(self):
        """That stream reads the state, so it waits for the compute stream."""
        with Run("all", *ORDERS[0]) as run:
            bag = Bag()
            bag.step()
            backend = run.backend
            bag.optimizer.register_step_pre_hook(lambda *_: setattr(backend, "aside", True))
            bag.optimizer.register_step_post_hook(lambda *_: setattr(backend, "aside", False))
            with mock.patch.object(backend, "wait_current", wraps=backend.wait_current) as waits:
                bag.step(1)
            self.assertGreater(waits.call_count, 0)

    def test_an_error_of_ours_ends_swapping_and_not_the_step(self):
        expected = program_of()()
        for name in ("begin_swap_out", "begin_swap_in", "end_swap_out"):
            with Run("all", *ORDERS[0]) as run:
                bag = Bag()
                bag.step()
                once = [ValueError("of ours")]
                original = getattr(run.manager.guard, name)

                def failing(item):
                    if once:
                        raise once.pop()
                    return original(item)

                bag.backward(1)
                with mock.patch.object(run.manager.guard, name, failing):
                    bag.optimizer.step()
                bag.optimizer.zero_grad()
                self.assertEqual(once, [], name)
                for i in range(2, STEPS):
                    bag.step(i)
                found = bag.result()
                self.assertIn("error in", run.manager.stopped)
                self.assertTrue(all(item.state == RESIDENT for item in run.manager.guard.items))
            self.assertEqual(expected[0], found[0])

    def test_no_memory_for_the_next_chunk(self):
        """It comes when its turn has come."""
        asked = []

        with mock.patch.object(Mover, "has_room_for", lambda mover, begin, what: asked.append(what) or False):
            self.same(program_of(), "all", orders=ORDERS[:3], check=self.streamed())
        self.assertGreater(len(asked), STEPS)

    def test_another_program_of_pytorch_is_left_alone(self):
        """What is replaced is put back, and other optimizers of the same class are computed by PyTorch alone."""
        before = torch.optim.Adam._init_group, ADAM.adam
        with Run("all", *ORDERS[0]):
            bag = Bag()
            bag.step()
            self.assertIsNot(ADAM.adam, before[1])
            other = torch.optim.Adam([torch.nn.Parameter(torch.ones(4))], lr=0.5)
            other.param_groups[0]["params"][0].grad = torch.ones(4)
            other.step()
            self.assertAlmostEqual(other.param_groups[0]["params"][0][0].item(), 0.5, places=5)
        self.assertEqual((torch.optim.Adam._init_group, ADAM.adam), before)


if __name__ == "__main__":
    unittest.main()
