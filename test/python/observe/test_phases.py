"""Marks of phases and steps: accumulation, closures, several optimizers, errors, threads, nested passes."""

import threading
import unittest

import torch
from support import ObserveCase, net
from torch.utils.checkpoint import checkpoint


def loss_of(model):
    return model(torch.randn(8, 16)).pow(2).mean()


class Phases(ObserveCase):
    def test_a_step(self):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            loss_of(model).backward()
            optimizer.step()
        self.assertEqual(self.phases(), ["backward", "forward", "optimizer", "step"] * 2)
        self.assertEqual(self.watch.phases.steps, 2)

    def test_accumulation(self):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            loss_of(model).backward()
        optimizer.step()
        self.assertEqual(self.phases(), [*["backward", "forward"] * 3, "optimizer", "step"])

    def test_a_closure(self):
        model = net()
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=1)

        def closure():
            optimizer.zero_grad()
            loss = loss_of(model)
            loss.backward()
            return loss

        optimizer.step(closure)
        self.assertEqual(self.phases()[:3], ["optimizer", "backward", "optimizer"])
        self.assertEqual(self.phases()[-1], "step")

    def test_two_optimizers_in_turn(self):
        first, second = net(), net()
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (first, second)]
        for _ in range(3):
            for model, optimizer in zip((first, second), optimizers):
                loss_of(model).backward()
                optimizer.step()
        self.assertEqual(self.watch.phases.steps, 3)
        self.assertEqual(self.phases().count("step"), 3)
        self.assertEqual(self.phases().count("optimizer"), 6)

    def test_steps_that_the_program_marks(self):
        import weir_gpu

        weir_gpu.step()
        weir_gpu.step("epoch")
        self.assertEqual(self.phases(), ["step"])
        torch.optim.SGD(net().parameters(), lr=0.1).step()
        weir_gpu.step()
        self.assertEqual(self.phases(), ["step", "optimizer", "step"])

    def test_an_anchor_that_is_gone(self):
        model = net()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.step()
        self.assertEqual(self.watch.phases.steps, 4)

    def test_errors(self):
        model = net()

        class Failing(torch.optim.SGD):
            def step(self, closure=None):
                raise MemoryError

        failing = Failing(model.parameters(), lr=0.1)
        loss = loss_of(model)
        with self.assertRaises(RuntimeError):
            (loss * torch.ones(3)).backward()
        with self.assertRaises(MemoryError):
            failing.step()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss.backward()
        optimizer.step()
        with self.assertRaises(MemoryError):
            failing.step()
        self.assertEqual(len(self.watch.phases.passes), 0)

    def test_an_optimizer_that_fails_and_never_steps_again(self):
        weight = torch.nn.Parameter(torch.ones(4))

        def fail():
            raise MemoryError

        first, second = (torch.optim.SGD([weight], lr=0.1) for _ in range(2))
        with self.assertRaises(MemoryError):
            first.step(fail)
        self.marks.clear()
        for _ in range(3):
            weight.sum().backward()
            second.step()
        self.assertEqual(self.phases(), ["backward", "forward", "optimizer", "step"] * 3)

    def test_an_optimizer_inside_of_another(self):
        weight = torch.nn.Parameter(torch.ones(4))
        outer, inner, failing = (torch.optim.SGD([weight], lr=0.1) for _ in range(3))

        def fail():
            raise MemoryError

        def closure():
            with self.assertRaises(MemoryError):
                failing.step(fail)
            weight.sum().backward()
            inner.step()

        for _ in range(2):
            outer.step(closure)
        self.assertEqual(self.phases(), ["optimizer", "backward", "optimizer", "step"] * 2)

    def test_optimizers_in_two_threads(self):
        weights = [torch.nn.Parameter(torch.ones(4)) for _ in range(2)]
        first, second = (torch.optim.SGD([weight], lr=0.1) for weight in weights)
        other = threading.Thread(target=second.step)

        def closure():
            other.start()
            other.join()
            weights[0].sum().backward()

        second.step()
        first.step(closure)
        # Each runs in its own thread, and the second is the anchor.
        second_steps = ["optimizer", "step"]
        self.assertEqual(self.phases(), [*second_steps, "optimizer", *second_steps, "backward", "optimizer", "forward"])

    def test_an_interrupt_before_a_pass_is_counted(self):
        model = net()
        begins = self.watch.phases._pass_begins

        def interrupted(_this):
            raise KeyboardInterrupt

        self.watch.phases._pass_begins = interrupted
        loss = loss_of(model)
        with self.assertRaises(KeyboardInterrupt):
            loss.backward()
        self.watch.phases._pass_begins = begins
        loss.backward()
        self.assertEqual(self.phases(), ["backward", "forward"])

    def test_a_handler_of_a_signal_while_the_lock_is_held(self):
        loss = loss_of(net())

        def handle():
            with self.watch.phases.lock:
                loss.backward()

        thread = threading.Thread(target=handle, daemon=True)
        thread.start()
        thread.join(20)
        self.assertFalse(thread.is_alive())

    def test_a_mark_that_fails(self):
        def fail(_text):
            raise MemoryError

        self.watch.phases.mark = fail
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss_of(model).backward()
        optimizer.step()
        self.assertEqual(self.watch.phases.steps, 1)

    def test_passes_inside_of_passes(self):
        model = net()
        x = torch.randn(8, 16, requires_grad=True)
        checkpoint(model, x, use_reentrant=True).sum().backward()
        self.assertEqual(self.phases(), ["backward", "forward"])

    def test_threads(self):
        models = [net() for _ in range(4)]
        threads = [threading.Thread(target=lambda model=model: [loss_of(model).backward() for _ in range(20)]) for model in models]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(self.watch.phases.passes), 0)
        self.assertEqual(self.phases().count("backward"), self.phases().count("forward"))

    def test_gradients_by_function(self):
        x = torch.randn(4, requires_grad=True)
        (gradient,) = torch.autograd.grad((x**2).sum(), x)
        self.assertTrue(torch.equal(gradient, 2 * x))
        self.assertEqual(self.phases(), ["backward", "forward"])


if __name__ == "__main__":
    unittest.main()
