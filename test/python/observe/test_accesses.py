"""Operators of some steps, with what they read and write. Other steps are left alone."""

import threading
import unittest
import warnings

import torch
from support import ObserveCase, address, net

warnings.filterwarnings("ignore")


class Accesses(ObserveCase):
    accesses = 2

    def named(self, name):
        return [known for found, _, _, known in self.operators if name in found]

    def test_operators_of_the_steps_asked_for(self):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        counts = []
        for _ in range(6):
            model(torch.randn(8, 16)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            counts.append(len(self.operators))
        self.assertEqual(counts[:2], [0, 0])
        self.assertGreater(counts[2], 10)
        # The last operator of a step may be recorded after its mark.
        self.assertEqual(counts[3], counts[4])
        self.assertEqual(counts[4], counts[5])
        weights = {address(layer.weight) for layer in model if isinstance(layer, torch.nn.Linear)}
        read = {at for _, _, _, known in self.operators for at, written in known.items() if not written}
        self.assertTrue(weights <= read)
        self.assertTrue(any("mm" in name for name, _, _, _ in self.operators))
        self.assertTrue(all(duration >= 0 for _, _, duration, _ in self.operators))
        self.assertEqual(torch.utils._python_dispatch._get_current_dispatch_mode_stack(), [])

    def test_an_optimizer_that_is_not_of_torch(self):
        class Plain:
            def __init__(self, parameters):
                self.parameters = list(parameters)

            @torch.no_grad()
            def step(self):
                for parameter in self.parameters:
                    parameter.sub_(parameter.grad, alpha=0.1)

        model = net()
        optimizer = Plain(model.parameters())
        for _ in range(8):
            model(torch.randn(8, 16)).sum().backward()
            optimizer.step()
            model.zero_grad()
        self.assertTrue(any("mm" in name for name, _, _, _ in self.operators))
        self.assertEqual(torch.utils._python_dispatch._get_current_dispatch_mode_stack(), [])

    def begin(self):
        weight = torch.nn.Parameter(torch.randn(4))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(2):
            optimizer.step()
        self.operators.clear()
        return optimizer

    def test_an_operator_that_runs_others_is_one(self):
        self.begin()
        x = torch.ones(4)
        made = torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos(), (x,))
        found = self.named("cond")[-1]
        self.assertEqual([found[address(x)], found[address(made)]], [False, True])

    def test_reads_writes_and_views(self):
        self.begin()
        a, b = torch.ones(4, 4), torch.ones(4, 4)
        self.operators.clear()
        c = torch.mm(a, b)
        self.assertEqual(self.named("mm")[-1], {address(a): False, address(b): False, address(c): True})
        a.add_(b)
        self.assertEqual(self.named("add_")[-1], {address(a): True, address(b): False})
        count = len(self.operators)
        c.t()[1:].reshape(-1, 1)
        self.assertEqual([name for name, *_ in self.operators[count:] if "view" in name or "slice" in name or ".t." in name], [])
        torch.mul(a, b, out=c)
        self.assertTrue(self.named("mul")[-1][address(c)])
        torch._foreach_add_([a, b], 1.0)
        self.assertEqual(self.named("_foreach_add_")[-1], {address(a): True, address(b): True})

    def test_a_mode_of_the_program(self):
        from torch.utils._python_dispatch import TorchDispatchMode

        class Counting(TorchDispatchMode):
            count = 0

            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                Counting.count += 1
                return func(*args, **(kwargs or {}))

        optimizer = self.begin()
        with Counting():
            torch.ones(2) + 1
            for _ in range(3):
                optimizer.step()
        self.assertGreater(Counting.count, 0)
        optimizer.step()
        self.assertEqual(torch.utils._python_dispatch._get_current_dispatch_mode_stack(), [])

    def test_a_step_that_ends_in_another_thread(self):
        from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

        class Own(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                return func(*args, **(kwargs or {}))

        optimizer = self.begin()
        left = []

        def other():
            own = Own()
            with own:
                for _ in range(3):
                    optimizer.step()
                left.append(_get_current_dispatch_mode_stack() == [own])

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        self.assertEqual(left, [True])
        optimizer.step()
        self.assertEqual(_get_current_dispatch_mode_stack(), [])

    def test_looks_that_fail(self):
        def fail():
            raise ValueError

        optimizer = self.begin()
        self.watch.look_at_parameters = fail
        for _ in range(2):
            optimizer.step()
        self.assertEqual(torch.utils._python_dispatch._get_current_dispatch_mode_stack(), [])

    def test_scripts(self):
        self.begin()

        def double(x: torch.Tensor):
            return x * 2 + 1.5

        x = torch.ones(3)
        for script in (torch.jit.trace(double, (x,)), torch.jit.script(double)):
            for _ in range(3):
                self.assertTrue(torch.equal(script(x), double(x)))
            self.assertEqual(script(x.half()).dtype, torch.half)
            self.assertIn("3.5", str(script(x)))
        self.assertTrue(torch.equal(torch.tensor(2) * torch.ones(2, dtype=torch.int8), torch.full((2,), 2, dtype=torch.int8)))

    def test_compiled_code(self):
        self.begin()
        model = net()
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        x = torch.randn(8, 16)
        model.eval()
        self.assertTrue(torch.allclose(compiled(x), model(x), atol=1e-6))
        compiled(x).sum().backward()
        self.assertTrue(torch.allclose(torch.func.grad(lambda a: (a * a).sum())(x), 2 * x))
        torch._dynamo.reset()


if __name__ == "__main__":
    unittest.main()
