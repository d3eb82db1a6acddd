"""What works with torch.compile works under swapping: transforms, masks, modules and optimizers, with the same results."""

import os
import subprocess
import sys
import unittest
import warnings

import torch
from support import DEVICE, HERE, ORDERS, WIDTH, Run, SwapCase, Training, draw

warnings.filterwarnings("ignore")
X = torch.linspace(-1, 1, WIDTH * WIDTH, device=DEVICE).reshape(WIDTH, WIDTH)


def vmap():
    return torch.compile(lambda x: torch.vmap(lambda a: (a * 2).sum())(x), backend="eager", fullgraph=True)(X)


def vmap_of_grad():
    inner = torch.vmap(torch.func.grad(lambda a: a.sin().sum()))
    return torch.compile(lambda x: inner(x), backend="aot_eager", fullgraph=True)(X)


def grad(backend="aot_eager"):
    return torch.compile(lambda x: torch.func.grad(lambda a: (a * a).sum())(x), backend=backend, fullgraph=True)(X)


def grad_in_eager():
    return grad("eager")


def grad_of_grad():
    once = torch.func.grad(lambda a: (a * a * a).sum())
    return torch.compile(lambda x: torch.func.grad(lambda a: once(a).sum())(x), backend="aot_eager", fullgraph=True)(X)


def jacrev():
    return torch.compile(lambda x: torch.func.jacrev(lambda a: (a * a).sum(0))(x), backend="aot_eager", fullgraph=True)(X[:8, :8])


def hooks_disabled_by_the_program():
    def disabled(x):
        with torch.autograd.graph.disable_saved_tensors_hooks("none here"):
            return x * 2

    return torch.compile(disabled, backend="aot_eager", fullgraph=True)(X)


def block_mask():
    from torch.nn.attention.flex_attention import create_block_mask

    make = torch.compile(create_block_mask, backend="aot_eager")
    return make(lambda b, h, q, k: q >= k, None, None, 256, 256, device=DEVICE).to_dense()


def flex_attention():
    from torch.nn.attention import flex_attention as of

    q = X.reshape(1, 1, WIDTH, WIDTH)[..., :16].contiguous()
    return torch.compile(of.flex_attention, backend="aot_eager", fullgraph=True)(q, q, q, score_mod=lambda s, b, h, i, k: s + i - k)


def module():
    training = Training()
    compiled = torch.compile(training.net, backend="aot_eager", fullgraph=True)
    for _ in range(6):
        loss = (compiled(X) ** 2).mean()
        loss.backward()
        training.finish(loss)
    return torch.cat([parameter.detach().flatten() for parameter in training.net.parameters()])


def optimizer():
    training = Training()
    step = torch.compile(lambda: training.optimizer.step(), backend="aot_eager")
    for _ in range(5):
        (training.net(X) ** 2).mean().backward()
        step()
        training.optimizer.zero_grad()
    return torch.cat([parameter.detach().flatten() for parameter in training.net.parameters()])


def optimizer_between_steps_that_are_not_compiled():
    """Without a plan, these are streamed."""
    training = Training()
    step = torch.compile(lambda: training.optimizer.step(), backend="aot_eager")
    for i in range(7):
        (training.net(X) ** 2).mean().backward()
        step() if 2 < i < 5 else training.optimizer.step()
        training.optimizer.zero_grad()
    return torch.cat([parameter.detach().flatten() for parameter in training.net.parameters()])


PROGRAMS = (
    vmap, vmap_of_grad, grad, grad_in_eager, grad_of_grad, jacrev, hooks_disabled_by_the_program, block_mask, flex_attention,
    module, optimizer, optimizer_between_steps_that_are_not_compiled,
)  # fmt: skip


def result_of(program):
    torch._dynamo.reset()
    torch.manual_seed(0)
    return program()


class Compiled(SwapCase):
    def test_the_same_results(self):
        for program in PROGRAMS:
            expected = result_of(program)
            for mode in ("plan", "all", "limit"):
                with self.subTest(program.__name__, mode=mode), Run(mode, *ORDERS[0]) as run:
                    self.assertTrue(torch.equal(expected, result_of(program)))
                    self.assertIsNone(run.manager.stopped)
                    self.assertTrue(run.manager.hooks.is_top())

    def test_training_goes_on_after_a_transform(self):
        """The hooks come back: the steps after it are swapped."""

        def program():
            training = Training()
            sums = []
            for i in range(10):
                training.step(i)
                sums.append(result_of(grad))
            losses, tensors = training.result()
            return losses, tensors + sums

        self.same(program, "plan", orders=ORDERS[:1], check=lambda run: self.assertGreater(run.report["bytesOut"], 0))

    def test_a_transform_inside_of_backward(self):
        """There the hooks are on the stack of one of autograd's threads."""

        class Doubled(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * 2

            @staticmethod
            def backward(ctx, gradient):
                (x,) = ctx.saved_tensors
                return gradient * 2 + 0 * torch.func.grad(lambda a: (a * a).sum())(x.detach())

        def program():
            training = Training()
            for _ in range(10):
                loss = (training.net(Doubled.apply(draw(WIDTH, WIDTH).requires_grad_())) ** 2).mean()
                loss.backward()
                training.finish(loss)
            return training.result()

        self.same(program, "plan", orders=ORDERS[:1], check=lambda run: self.assertGreater(run.report["bytesOut"], 0))

    def test_hooks_of_the_program_still_forbid_transforms(self):
        with Run("plan", *ORDERS[0]) as run, torch.autograd.graph.save_on_cpu():
            with self.assertRaisesRegex(RuntimeError, "saved tensor hooks"):
                torch.func.grad(lambda a: (a * a).sum())(X)
            self.assertTrue(run.manager.hooks.pushed)

    def test_hooks_removed_inside_of_a_transform(self):
        with Run("plan", *ORDERS[0]) as run:

            def removing(a):
                run.manager.hooks.remove()
                return (a * a).sum()

            torch.func.grad(removing)(X)
            self.assertFalse(run.manager.hooks.pushed)
            self.assertFalse(run.manager.hooks.is_top())

    def test_swapping_that_started_before_the_compiler_was_loaded(self):
        code = (
            "from support import Run\n"
            "with Run('plan', 'late') as run:\n"
            "    import test_compile as t\n"
            "    print([t.result_of(p).sum().item() for p in (t.grad, t.grad_in_eager, t.jacrev)])"
        )
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=HERE, env={**os.environ, "PYTHONPATH": HERE})
        self.assertEqual(run.returncode, 0, run.stderr[-2000:])
        self.assertEqual(run.stdout.strip(), str([result_of(program).sum().item() for program in (grad, grad_in_eager, jacrev)]))


if __name__ == "__main__":
    unittest.main()
