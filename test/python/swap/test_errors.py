"""What PyTorch refuses is still refused; errors, bad plans and full GPUs end well."""

import contextlib
import gc
import unittest
from unittest import mock

import torch
from support import ORDERS, WIDTH, Run, SwapCase, Training, draw, plain
from torch.optim import optimizer as optimizers
from weir_gpu import swap
from weir_gpu.refusal import Refusal
from weir_gpu.swap import hooks


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
        """The tensor is swapped out, its version counter is not."""
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

        places = {
            "saved": ("begin_swap_out", "end_swap_out"),
            "mover": ("act", "react", "fetch_ahead", "after_optimizer"),
            "steps": ("begin",),
        }
        for part, where in ((part, where) for part, names in places.items() for where in names):
            for mode in ("all", "plan"):
                expected = plain(10)()
                with Run(mode) as run:
                    training = Training()
                    for i in range(10):
                        if i == 7:
                            owner = getattr(run.manager, part)
                            self.assertTrue(callable(getattr(owner, where)))
                            setattr(owner, where, broken)
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
        """A prefetch that finds no room is put off, and is no out-of-memory error; only a return that is needed may fail."""
        expected = plain(10)()
        attempts = []
        run = Run("plan")

        @contextlib.contextmanager
        def attempting():
            attempts.append(True)
            try:
                yield
            finally:
                attempts.pop()

        run.options.attempting = attempting
        with run:
            training = Training()
            for i in range(10):
                if i == 6:
                    saved, mover, inside = run.manager.saved, run.manager.mover, []
                    original, act = saved.begin_swap_in, mover.act

                    def acting(*arguments):
                        inside.append(True)
                        act(*arguments)
                        inside.pop()

                    def full(record):
                        self.assertEqual(bool(inside), bool(attempts))
                        if inside:
                            raise torch.cuda.OutOfMemoryError("full")
                        original(record)

                    mover.act, saved.begin_swap_in = acting, full
                try:
                    training.step(i)
                except torch.cuda.OutOfMemoryError:
                    self.fail("the program saw it")
            found = training.result()
        self.assertEqual(expected[0], found[0])
        self.assertGreater(run.report["misses"], 0)

    def test_a_pytorch_that_is_not_as_expected(self):
        """Nothing of ours stays in it."""

        def traces():
            disable, enable = torch._C._autograd._saved_tensors_hooks_disable, torch._C._autograd._saved_tensors_hooks_enable
            return [
                torch._C._autograd._top_saved_tensors_default_hooks(True) or None,
                vars(torch.autograd.Function)["apply"],
                *(disable, enable, torch.compile, torch.cuda.graphs.CUDAGraph.capture_begin, torch.Stream),
                *(len(hooks) for hooks in (optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks)),
            ]

        before = traces()
        for limit in (None, 1 << 40):
            for part in ("FunctionSaves", "ModuleHooks", "StreamHooks"):
                if part == "ModuleHooks" and limit is None:
                    continue
                options = swap.Options(limit=limit, on_profile=lambda _: None)
                with mock.patch.object(hooks, part, side_effect=AttributeError("not there")), self.assertRaises(AttributeError):
                    swap.install(options)
                self.assertEqual(traces(), before, part)
                self.assertIsNone(swap.report())

    def test_a_pytorch_that_is_too_old(self):
        """Up to 2.7 nothing tells which hooks are on top of the stack."""
        autograd = torch._C._autograd
        top = autograd._top_saved_tensors_default_hooks
        del autograd._top_saved_tensors_default_hooks
        try:
            with self.assertRaisesRegex(Refusal, "swapping needs PyTorch 2.8 or newer"):
                swap.install(swap.Options(on_profile=lambda _: None))
        finally:
            autograd._top_saved_tensors_default_hooks = top
        self.assertIsNone(swap.report())


if __name__ == "__main__":
    unittest.main()
