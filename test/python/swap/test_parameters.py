"""Parameters between the passes of their layer, where there is a limit to keep."""

import copy
import gc
import io
import unittest

import torch
from support import FAKE, LEAST, ORDERS, WIDTH, Run, SwapCase, Training, draw, plain, trained
from weir_gpu.swap.records import SWAPPED_OUT, SWAPPING_OUT
from weir_gpu.swap.swapped_tensors import SwappedParameter


def moved(run):
    assert run.report["parametersOut"] >= 10 * LEAST, run.report


def followed(run):
    moved(run)
    assert run.report["stepsPlanned"] >= 3 and run.report["misses"] == 0, run.report


def between_passes(act, steps=12, at=(6, 9), **options):
    """A program that does something when forward is over and backward has not begun."""

    def program():
        training = Training(**options)
        for i in range(steps):
            loss = training.loss()
            if i in at:
                loss = act(training, loss)
            loss.backward()
            training.finish(loss)
        return training.result()

    return program


class Passes(SwapCase):
    def test_same_values(self):
        for mode in ("all", "limit"):
            for checkpointed in (False, True):
                check = followed if mode == "limit" else moved
                self.same(plain(12, checkpointed=checkpointed), mode, check=check)

    def test_without_debugging(self):
        self.same(plain(12), "limit", debug=False, check=followed)

    def test_without_a_limit_they_stay(self):
        def stayed(run):
            assert run.report["parametersOut"] == 0 and run.profiles[0]["passages"] == [], run.report

        self.same(plain(12), "plan", check=stayed)

    def test_frozen_layers(self):
        def program():
            training = Training()
            for parameter in training.net.layers[1].parameters():
                parameter.requires_grad_(False)
            training.optimizer = torch.optim.AdamW([p for p in training.net.parameters() if p.requires_grad], lr=1e-3)
            for i in range(12):
                training.step(i)
            return training.result()

        for mode in ("all", "limit"):
            self.same(program, mode, check=moved)

    def test_a_layer_used_twice_and_accumulation(self):
        def program():
            training = Training()
            for _ in range(12):
                for _ in range(2):
                    x = training.net(draw(WIDTH, WIDTH))
                    loss = (training.net.layers[0](x) ** 2).mean()
                    loss.backward()
                training.finish(loss)
            return training.result()

        for mode in ("all", "limit"):
            self.same(program, mode, check=moved)

    def test_tied_parameters_stay(self):
        def program():
            training = Training()
            training.net.layers[3].weight = training.net.layers[0].weight
            training.optimizer = torch.optim.AdamW(training.net.parameters(), lr=1e-3)
            for i in range(12):
                training.step(i)
            return training.result()

        self.same(program, "limit", check=moved)

    def test_exception_in_mid_step(self):
        class Stop(Exception):
            pass

        def program():
            training = Training()
            for i in range(14):
                if i in (6, 9):
                    try:
                        loss = training.loss()
                        raise Stop
                    except Stop:
                        del loss
                    training.optimizer.zero_grad()
                training.step(i)
            return training.result()

        for mode in ("all", "limit"):
            self.same(program, mode, check=moved)

    def test_evaluation_in_mid_step(self):
        def act(training, loss):
            with torch.no_grad():
                training.loss()
            return loss

        for mode in ("all", "limit"):
            self.same(between_passes(act), mode, check=moved)


class Uses(SwapCase):
    """Using a parameter that is swapped out swaps it in first."""

    def test_a_penalty_on_all_parameters(self):
        def act(training, loss):
            return loss + 1e-3 * sum(p.square().sum() for p in training.net.parameters())

        for mode in ("all", "limit"):
            self.same(between_passes(act), mode, check=moved)

    def test_ways_to_the_content(self):
        uses = {
            "state_dict": lambda net: [value.sum() for value in net.state_dict().values()],
            "deepcopy": lambda net: self.assertEqual({type(p) for p in copy.deepcopy(net).parameters()}, {torch.nn.Parameter}),
            "save": lambda net: torch.save(net.state_dict(), io.BytesIO()),
            "data": lambda net: [p.data.sum() for p in net.parameters()],
            "storage": lambda net: [p.untyped_storage().nbytes() for p in net.parameters()],
            "foreach": lambda net: torch._foreach_norm(list(net.parameters())),
            "in a list": lambda net: torch.cat([p.flatten() for p in net.parameters()]),
            "vector": lambda net: torch.nn.utils.parameters_to_vector(net.parameters()),
            "address": lambda net: [p.data_ptr() for p in net.parameters()],
            "item": lambda net: [p[0, 0].item() for p in net.parameters() if p.dim() == 2],
            "to": lambda net: [p.to(torch.float64) for p in net.parameters()],
            "text": lambda net: [repr(p) for p in net.parameters()],
            "operator": lambda net: [torch.ops.aten.sum(p) for p in net.parameters()],
        }
        for name, use in uses.items():
            with self.subTest(name):

                def act(training, loss, use=use):
                    kinds = {type(p) for p in training.net.parameters()}
                    if moving:
                        self.assertIn(SwappedParameter, kinds)
                    with torch.no_grad():
                        use(training.net)
                    self.assertEqual({type(p) for p in training.net.parameters()}, {torch.nn.Parameter})
                    return loss

                moving = False
                program = between_passes(act, at=(6,), steps=8)
                expected = program()
                with Run("all", *ORDERS[0]):
                    moving = True
                    found = program()
                self.assertEqual(expected[0], found[0])

    @unittest.skipUnless(FAKE, "for the fake GPU")
    def test_reading_metadata_swaps_nothing_in(self):
        with Run("all", "late") as run:
            training = trained()
            loss = training.loss()
            swapped = [p for p in training.net.parameters() if type(p) is SwappedParameter]
            self.assertGreater(len(swapped), 0)
            for parameter in swapped:
                self.assertEqual(parameter.numel(), WIDTH * WIDTH)
                self.assertEqual((tuple(parameter.shape), parameter.dtype, parameter.requires_grad), ((WIDTH, WIDTH), torch.float32, True))
                self.assertIsNone(parameter.grad)
                parameter.grad = None
                self.assertTrue(parameter.is_leaf and isinstance(parameter, torch.nn.Parameter))
                hash(parameter)
            training.optimizer.zero_grad()
            self.assertTrue(all(type(p) is SwappedParameter for p in swapped))
            states = [w.state for layer in run.manager.layers.layers for w in layer.weights]
            self.assertEqual(states.count(SWAPPED_OUT) + states.count(SWAPPING_OUT), len(swapped))
            self.assertGreater(states.count(SWAPPED_OUT), 0)
            loss.backward()
            training.finish(loss)

    def test_a_change_that_pytorch_does_not_count(self):
        """Through .data, after the copy has begun: the swap-in gives what was written."""

        class Changing(torch.nn.Module):
            def __init__(self, net):
                super().__init__()
                self.net = net

            def forward(self, x):
                for layer in self.net.layers:
                    x = torch.tanh(layer(x))
                    layer.weight.data.mul_(0.5)
                return x

        def program():
            training = Training()
            net = Changing(training.net)
            for _ in range(12):
                loss = (net(draw(WIDTH, WIDTH)) ** 2).mean()
                loss.backward()
                training.finish(loss)
            return training.result()

        for mode in ("all", "limit"):
            self.same(program, mode)

    def test_a_change_in_place_is_still_refused(self):
        def act(training, loss):
            with torch.no_grad():
                training.net.layers[1].weight.add_(1)
            return loss

        def attempt():
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                between_passes(act, at=(4,))()

        attempt()
        with Run("all", *ORDERS[0]):
            attempt()

    def test_memory_put_in_place_of_the_old(self):
        def program():
            training = Training()
            for i in range(12):
                if i == 6:
                    for parameter in training.net.parameters():
                        parameter.data = parameter.data.clone()
                training.step(i)
            return training.result()

        for mode in ("all", "limit"):
            self.same(program, mode, check=moved)

    def test_what_somebody_holds_stays(self):
        with Run("all", *ORDERS[0]) as run:
            training = trained()
            held = training.net.layers[0].weight.detach()
            training.step(3)
            loss = training.loss()
            self.assertIs(type(training.net.layers[0].weight), torch.nn.Parameter)
            self.assertIs(type(training.net.layers[1].weight), SwappedParameter)
            self.assertGreater(held.abs().sum().item(), 0)
            loss.backward()
            training.finish(loss)
            self.assertIsNone(run.manager.stopped)


class Ends(SwapCase):
    def test_stopping_swaps_everything_in(self):
        with Run("all", *ORDERS[0]) as run:
            training = trained()
            loss = training.loss()
            self.assertIn(SwappedParameter, {type(p) for p in training.net.parameters()})
            run.manager.stop("for a test", report=False)
            self.assertEqual({type(p) for p in training.net.parameters()}, {torch.nn.Parameter})
            loss.backward()
            training.finish(loss)

    def test_a_model_that_is_deleted(self):
        def program():
            first = Training()
            for i in range(4):
                first.step(i)
            weight = first.net.layers[0].weight
            first.net = None
            first.optimizer = None
            gc.collect()
            total = weight.detach().clone()
            second = Training(seed=3)
            for i in range(8):
                second.step(i)
            losses, tensors = second.result()
            return losses, [*tensors, total]

        self.same(program, "all")

    @unittest.skipUnless(FAKE, "for the fake GPU")
    def test_compiling_ends_it(self):
        original = torch.compile
        with Run("all", "late") as run:
            training = trained()
            self.assertGreater(len(run.manager.layers.layers), 0)
            torch.compile(lambda x: x + 1, backend="eager")
            self.assertEqual(run.manager.layers.layers, [])
            before = run.manager.report().parameters_out
            training.step(3)
            self.assertEqual(run.manager.report().parameters_out, before)
        self.assertIs(torch.compile, original)
        self.assertFalse(torch.nn.modules.module._has_any_global_hook())

    def test_models_are_saved_as_they_are(self):
        with Run("all", *ORDERS[0]):
            training = trained()
            loss = training.loss()
            target = io.BytesIO()
            torch.save(training.net.layers[0], target)
            loss.backward()
            training.finish(loss)
        target.seek(0)
        self.assertNotIn(b"weir", target.getvalue())


if __name__ == "__main__":
    unittest.main()
