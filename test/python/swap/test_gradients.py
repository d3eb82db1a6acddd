"""Gradients that are being accumulated, between the passes of their layer, where there is a limit to keep."""

import copy
import unittest

import torch
from support import LEAST, ORDERS, WIDTH, Run, SwapCase, Training, draw, trained
from torch.utils._foreach_utils import _has_foreach_support
from weir_gpu.swap.swapped_tensors import SwappedGradient

MODES = ("all", "limit")


def moved(run):
    assert run.report["gradientsOut"] >= 10 * LEAST, run.report


def accumulating(act=None, parts=3, steps=12, at=(6, 9), backward=None, **options):
    """Several passes to a step; `act` comes between the forward and the backward pass of the last one."""

    def program():
        training = Training(**options)
        for i in range(steps):
            for part in range(parts):
                loss = training.loss()
                if act and i in at and part == parts - 1:
                    act(training)
                if backward:
                    backward(loss)
                else:
                    loss.backward()
            training.finish(loss)
        return training.result()

    return program


class Accumulated(SwapCase):
    def both(self, program, check=moved):
        for mode in MODES:
            self.same(program, mode, check=check)

    def test_same_values(self):
        def followed(run):
            moved(run)
            assert run.report["stepsPlanned"] >= 3 and run.report["misses"] == 0, run.report

        for checkpointed in (False, True):
            self.same(accumulating(checkpointed=checkpointed), "all", check=moved)
            self.same(accumulating(checkpointed=checkpointed), "limit", check=followed)

    def test_kept_over_a_step(self):
        """zero_grad() with zeros: there are gradients in every pass."""

        def program():
            training = Training()
            for _ in range(12):
                loss = training.loss()
                loss.backward()
                training.losses.append(loss.item())
                training.optimizer.step()
                training.optimizer.zero_grad(set_to_none=False)
            return training.result()

        self.both(program)

    def test_uses_in_mid_step(self):
        uses = {
            "clipping": lambda net: torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1),
            "reading": lambda net: [p.grad.sum().item() for p in net.parameters()],
            "writing": lambda net: [p.grad.mul_(0.5) for p in net.parameters()],
            "writing uncounted": lambda net: [p.grad.data.mul_(0.5) for p in net.parameters()],
            "zeros": lambda net: net.zero_grad(set_to_none=False),
            "none": lambda net: net.zero_grad(set_to_none=True),
            "another": lambda net: [setattr(p, "grad", torch.ones_like(p)) for p in net.parameters()],
            "copies": lambda net: [copy.deepcopy(p.grad).add_(1) for p in net.parameters()],
        }
        for name, use in uses.items():
            with self.subTest(name):

                def act(training, use=use):
                    with torch.no_grad():
                        use(training.net)

                self.both(accumulating(act))

    def test_metadata_of_a_swapped_gradient(self):
        with Run("all", *ORDERS[0]):
            training = trained()
            training.loss().backward()
            loss = training.loss()
            swapped = [p for p in training.net.parameters() if type(p.grad) is SwappedGradient]
            self.assertGreater(len(swapped), 2)
            self.assertEqual({tuple(p.grad.shape) for p in swapped}, {(WIDTH, WIDTH)})
            # Else they are clipped by other kernels than without swapping.
            self.assertTrue(_has_foreach_support([p.grad for p in swapped], swapped[0].device))
            self.assertTrue(all(type(p.grad) is SwappedGradient for p in swapped))
            first = swapped[0].grad
            self.assertGreater(first.abs().sum().item(), 0)
            self.assertIs(type(first), torch.Tensor)
            self.assertIs(swapped[0].grad, first)
            loss.backward()
            training.finish(loss)

    def test_only_what_is_there_counts(self):
        """The first of several passes finds no gradients; that is none that had to stay."""
        with Run("all", *ORDERS[0]) as run:
            accumulating(steps=4)()
            self.assertEqual(run.manager.report().kept, 0)

    def test_what_somebody_holds_stays(self):
        with Run("all", *ORDERS[0]):
            training = trained()
            training.loss().backward()
            first, second, third, _ = (layer.weight for layer in training.net.layers)
            alias = first.grad.detach()
            scale = torch.ones((), device=first.device, requires_grad=True)
            product = (second.grad * scale).sum()
            loss = training.loss()
            self.assertEqual([type(p.grad) for p in (first, second, third)], [torch.Tensor, torch.Tensor, SwappedGradient])
            self.assertGreater(alias.abs().sum().item(), 0)
            product.backward()
            self.assertEqual(scale.grad.item(), second.grad.sum().item())
            loss.backward()
            training.finish(loss)

    def test_views_of_a_bucket_stay(self):
        """As DistributedDataParallel arranges them."""
        with Run("all", *ORDERS[0]) as run:
            training = trained()
            bucket = torch.zeros(4 * WIDTH * WIDTH, device=next(training.net.parameters()).device)
            for index, layer in enumerate(training.net.layers):
                layer.weight.grad = bucket[index * WIDTH * WIDTH : (index + 1) * WIDTH * WIDTH].view(WIDTH, WIDTH)
            loss = training.loss()
            self.assertNotIn(SwappedGradient, {type(p.grad) for p in training.net.parameters()})
            loss.backward()
            self.assertGreater(bucket.abs().sum().item(), 0)
            self.assertEqual(run.manager.report().gradients_out, 0)
            training.finish(loss)

    def test_a_graph_of_gradients(self):
        def backward(loss):
            loss.backward(create_graph=True)

        for mode in MODES:
            self.same(accumulating(backward=backward, steps=8), mode, orders=ORDERS[:2])

    def test_exception_in_backward(self):
        class Stop(Exception):
            pass

        def stop(_):
            raise Stop

        def program():
            training = Training()
            for i in range(12):
                training.loss().backward()
                loss = training.loss()
                if i in (6, 9):
                    x = training.net(draw(WIDTH, WIDTH))
                    x.register_hook(stop)
                    try:
                        (x * 2).sum().backward()
                    except Stop:
                        pass
                    del x
                loss.backward()
                training.finish(loss)
            return training.result()

        self.both(program)

    def test_nothing_is_left_behind(self):
        with Run("all", *ORDERS[0]):
            training = trained()
            training.loss().backward()
            loss = training.loss()
        self.assertEqual({type(p.grad) for p in training.net.parameters()}, {torch.Tensor})
        loss.backward()
        torch.compile(lambda x: x, backend="eager")
        training.finish(loss)


if __name__ == "__main__":
    unittest.main()
