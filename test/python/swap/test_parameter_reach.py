"""Who else gets at a parameter: others' hooks, transforms, traces, modes, C++, conversions, other models."""

import contextlib
import unittest

import torch
from support import DEVICE, FAKE, LEAST, ORDERS, WIDTH, Run, SwapCase, Training, draw, plain, trained
from test_parameters import between_passes, moved
from weir_gpu.swap.swapped_tensors import SwappedParameter

MODES = ("all", "limit")


class Others(SwapCase):
    def both(self, program, check=None):
        for mode in MODES:
            self.same(program, mode, orders=ORDERS[:2], check=check)

    def test_saving_for_backward(self):
        """A convolution saves the parameter itself, and these hooks keep it as it is."""

        def program():
            torch.manual_seed(0)
            width = 64 if FAKE else 512
            net = torch.nn.Sequential(*[torch.nn.Conv1d(width, width, 3, padding=1) for _ in range(3)]).to(DEVICE)
            training = Training()
            training.net, training.optimizer = net, torch.optim.SGD(net.parameters(), lr=1e-3)
            for _ in range(8):
                with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
                    loss = (net(draw(8, width, 16)) ** 2).mean()
                loss.backward()
                training.finish(loss)
            return training.result()

        self.both(program)

    def test_transforms(self):
        def grad(net):
            return torch.func.grad(lambda w: (w**2).sum())(net.layers[0].weight)

        def vmap(net):
            return torch.func.vmap(lambda row: row.sum())(net.layers[0].weight)

        def jvp(net):
            weight = net.layers[0].weight.detach()
            return torch.func.jvp(lambda w: w * 2, (net.layers[0].weight,), (weight,))[1]

        def called(net):
            weights = dict(net.named_parameters())
            x = torch.ones(4, WIDTH, device=DEVICE)
            return torch.func.grad(lambda w: torch.func.functional_call(net, w, (x,)).sum())(weights)["layers.0.weight"]

        for transform in (grad, vmap, jvp, called):
            with self.subTest(transform.__name__):
                seen = []

                def act(training, loss, transform=transform, seen=seen):
                    seen.append(transform(training.net).sum().item())
                    return loss

                self.both(between_passes(act, steps=8, at=(5,)), check=moved)
                self.assertEqual(len(set(seen)), 1)

    def test_modes_and_traces(self):
        from torch._subclasses import FakeTensorMode

        def fake(net):
            with FakeTensorMode(allow_non_fake_inputs=True):
                torch.ones(4) + 1
                net.layers[1].weight + 1

        def trace(net):
            torch.jit.trace(net.layers[1], (torch.ones(2, WIDTH, device=DEVICE),), check_trace=False)

        for look in (fake, trace):
            with self.subTest(look.__name__):

                def act(training, loss, look=look):
                    with torch.no_grad():
                        look(training.net)
                    return loss

                self.both(between_passes(act, steps=8, at=(5,)), check=moved)

    def test_something_in_cpp_that_holds_one(self):
        with Run("all", *ORDERS[0]):
            training = trained()
            held = torch.jit.trace(training.net.layers[1], (torch.ones(2, WIDTH, device=DEVICE),), check_trace=False)
            loss = training.loss()
            self.assertIs(type(training.net.layers[1].weight), torch.nn.Parameter)
            self.assertIs(type(training.net.layers[0].weight), SwappedParameter)
            held(torch.ones(2, WIDTH, device=DEVICE))
            loss.backward()
            training.finish(loss)

    def test_another_stream(self):
        """Freeing memory does not wait for work there."""
        with Run("all", *ORDERS[0]) as run:
            training = trained()
            side = None if FAKE else torch.cuda.Stream()
            x = draw(2, WIDTH)
            with contextlib.nullcontext() if FAKE else torch.cuda.stream(side):
                run.manager.backend.aside = True
                training.net.layers[1](x)
                run.manager.backend.aside = False
            loss = training.loss()
            self.assertIs(type(training.net.layers[1].weight), torch.nn.Parameter)
            self.assertIs(type(training.net.layers[0].weight), SwappedParameter)
            loss.backward()
            training.finish(loss)

    @unittest.skipUnless(FAKE, "for the fake GPU")
    def test_memory_of_another_library(self):
        """PyTorch cannot free it, so it stays. Here NumPy has it."""

        def program():
            training = Training()
            training.net.layers[0].weight.detach().numpy()
            for i in range(8):
                training.step(i)
                training.optimizer.state[training.net.layers[1].weight]["exp_avg"].numpy()
            return training.result()

        self.both(program, check=moved)

    def test_a_graph_from_before_layers_were_known(self):
        def program():
            training = Training()
            kept = training.net(draw(WIDTH, WIDTH))
            for i in range(8):
                training.step(i)
            del kept
            return training.result()

        self.both(program, check=moved)

    def test_a_closure_inside_of_step(self):
        def program():
            training = Training()
            trunk = Training(seed=5).net
            for parameter in trunk.parameters():
                parameter.requires_grad_(False)
            both = torch.nn.Sequential(trunk, training.net)
            for _ in range(8):
                x = draw(WIDTH, WIDTH)

                def closure(x=x):
                    training.optimizer.zero_grad()
                    loss = (both(x) ** 2).mean()
                    loss.backward()
                    return loss

                training.losses.append(training.optimizer.step(closure).item())
            return training.result()

        self.both(program, check=moved)


class Models(SwapCase):
    def test_lazy_modules(self):
        def program():
            training = Training()
            training.net = torch.nn.Sequential(*[torch.nn.LazyLinear(WIDTH) for _ in range(3)]).to(DEVICE)
            training.net(draw(2, WIDTH))
            training.optimizer = torch.optim.SGD(training.net.parameters(), lr=1e-3)
            for i in range(8):
                training.step(i)
            return training.result()

        for mode in MODES:
            self.same(program, mode, orders=ORDERS[:1], check=moved)

    def test_converted_in_mid_run(self):
        def program():
            training = Training()
            for i in range(12):
                if i == 5:
                    training.net.to(torch.float64).to(torch.float32)
                training.step(i)
            return training.result()

        for mode in MODES:
            self.same(program, mode, orders=ORDERS[:1], check=moved)

    def test_exchanged_tensors(self):
        flag = torch.__future__.get_swap_module_params_on_conversion()
        torch.__future__.set_swap_module_params_on_conversion(True)
        try:
            with Run("all", *ORDERS[0]):
                training = trained()
                training.net.to(torch.float64).to(torch.float32)
                training.step(3)
        finally:
            torch.__future__.set_swap_module_params_on_conversion(flag)

    def test_one_after_another(self):
        with Run("all", *ORDERS[0]) as run:
            for seed in range(3):
                before = run.manager.report().parameters_out
                training = trained(5, seed=seed)
                self.assertEqual(len(run.manager.layers.layers), 4)
                self.assertGreater(run.manager.report().parameters_out - before, 4 * LEAST)
                training.net = training.optimizer = None

    def test_a_layer_still_leaving_when_its_model_goes(self):
        for end in ("compile", "model"):
            with self.subTest(end), Run("all", *ORDERS[0]):
                training = trained()
                weight = training.net.layers[3].weight
                loss = training.loss()
                self.assertIs(type(weight), SwappedParameter)
                if end == "compile":
                    torch.compile(lambda x: x, backend="eager")
                else:
                    training.net = training.optimizer = None
                    del loss
                self.assertGreater(weight.detach().abs().sum().item(), 0)
                self.assertIs(type(weight), torch.nn.Parameter)

    def test_autocast_needs_them_in_step_only(self):
        def program():
            training = Training()
            for _ in range(12):
                with torch.autocast(torch.device(DEVICE).type, dtype=torch.bfloat16):
                    loss = training.loss()
                loss.backward()
                training.finish(loss)
            return training.result()

        def check(run):
            moved(run)
            self.assertTrue(all(passage["needed"] > passage["left"] for passage in run.profiles[0]["passages"]))
            self.assertEqual(run.report["misses"], 0)

        self.same(program, "limit", orders=ORDERS[:2], check=check)

    def test_untouched_by_all_that(self):
        names = [(torch, "compile"), (torch.UntypedStorage, "_share_cuda_"), (torch.autograd.graph.saved_tensors_hooks, "__enter__")]
        before = [getattr(owner, name, None) for owner, name in names]
        with Run("all", *ORDERS[0]):
            plain(2)()
        self.assertEqual([getattr(owner, name, None) for owner, name in names], before)
        self.assertFalse(torch.nn.modules.module._has_any_global_hook())


if __name__ == "__main__":
    unittest.main()
