"""Steps that go another way than planned."""

import unittest
from unittest import mock

import torch
from support import DEVICE, FAKE, ORDERS, WIDTH, Run, SwapCase, Training, draw
from weir_gpu import swap


class Deviations(SwapCase):
    def mixed(self, deviate, steps=14, at=(7, 10), **options):
        def program():
            training = Training(**options)
            for i in range(steps):
                if i in at:
                    deviate(training, i)
                else:
                    training.step(i)
            return training.result()

        return program

    def both(self, deviate, check=None, **options):
        self.same(self.mixed(deviate, **options), "plan", check=check)
        self.same(self.mixed(deviate, **options), "all")

    def recovers(self, run):
        assert run.report["stepsPlanned"] >= 4, run.report

    def test_evaluation_between_steps(self):
        def deviate(training, i):
            with torch.no_grad():
                training.loss()
            training.step(i)

        self.both(deviate, self.recovers)

    def test_evaluation_that_saves_tensors(self):
        def deviate(training, i):
            training.loss()
            training.step(i)

        self.both(deviate, self.recovers)

    def test_evaluation_kept_over_a_step(self):
        kept = []

        def deviate(training, i):
            x = torch.full((WIDTH, WIDTH), 0.5, device=DEVICE, requires_grad=True)
            kept.append((x, (x.exp() * x.sin()).sum()))
            training.step(i)
            if len(kept) == 2:
                x, loss = kept.pop(0)
                loss.backward()
                training.losses.append(x.grad.sum().item())
                kept.clear()

        self.same(self.mixed(deviate), "plan", orders=ORDERS[:3], check=self.recovers)

    def test_longer_batch(self):
        def deviate(training, i):
            loss = training.loss(WIDTH + 32)
            loss.backward()
            training.finish(loss)

        self.both(deviate, self.recovers)

    def test_the_recording_says_so(self):
        def deviate(training, i):
            loss = training.loss(WIDTH + 32)
            loss.backward()
            training.finish(loss)

        program = self.mixed(deviate)
        with Run("plan") as run:
            program()
        self.assertEqual(run.marks.count("weir step"), run.report["steps"])
        marks = [mark for mark in run.marks if mark != "weir step"]
        self.assertRegex(marks[0], r"^weir swap plan 1: planned \S+ -> \S+ GiB$")
        self.assertEqual(marks.count("weir swap plan left"), run.report["offPlan"])
        self.assertGreater(run.report["offPlan"], 0)

    def test_two_shapes_in_turn(self):
        def program():
            training = Training()
            for i in range(40):
                loss = training.loss(WIDTH if i % 2 else WIDTH + 32)
                loss.backward()
                training.finish(loss)
            return training.result()

        def check(run):
            assert run.report["stepsPlanned"] >= 4, run.report

        self.same(program, "plan", orders=ORDERS[:2], check=check)

    def test_exception_in_mid_step(self):
        class Stop(Exception):
            pass

        def deviate(training, i):
            try:
                loss = training.loss()
                if i == 7:
                    raise Stop
                loss.register_hook(lambda gradient: None)
                handle = training.net.layers[1].register_full_backward_hook(lambda *_: (_ for _ in ()).throw(Stop()))
                try:
                    loss.backward()
                finally:
                    handle.remove()
            except Stop:
                training.optimizer.zero_grad(set_to_none=True)

        self.both(deviate, self.recovers)

    def test_tensor_kept_by_the_user(self):
        def program():
            training = Training()
            kept = []
            hook = training.net.layers[2].register_forward_hook(lambda module, inputs, output: kept.append((inputs[0], output)))
            for i in range(12):
                training.step(i)
                if len(kept) > 3:
                    kept.pop(0)
            hook.remove()
            losses, tensors = training.result()
            return losses, tensors + [tensor.detach().clone() for pair in kept for tensor in pair]

        self.same(program, "plan")
        self.same(program, "all")

    def test_retained_graph(self):
        def deviate(training, i):
            loss = training.loss()
            loss.backward(retain_graph=True)
            loss.backward()
            training.finish(loss)

        self.both(deviate, self.recovers)
        always = self.mixed(deviate, at=tuple(range(14)))
        self.same(always, "plan")
        self.same(always, "all")

    def test_double_backward(self):
        def deviate(training, i):
            loss = training.loss()
            parameters = list(training.net.parameters())
            gradients = torch.autograd.grad(loss, parameters, create_graph=True)
            (loss + sum((gradient**2).sum() for gradient in gradients)).backward()
            training.finish(loss)

        self.both(deviate, self.recovers)
        self.same(self.mixed(deviate, at=tuple(range(14))), "plan")
        self.same(self.mixed(deviate, at=tuple(range(14))), "all")

    def test_accumulation(self):
        def deviate(training, i):
            for _ in range(3):
                loss = training.loss()
                (loss / 3).backward()
            training.finish(loss)

        self.same(self.mixed(deviate, at=tuple(range(14))), "plan", check=self.recovers)
        self.both(deviate, self.recovers)

    def test_autocast(self):
        def deviate(training, i):
            with torch.autocast(DEVICE, dtype=torch.bfloat16):
                loss = training.loss()
            loss.backward()
            training.finish(loss)

        self.same(self.mixed(deviate, at=tuple(range(14))), "plan", check=self.recovers)
        self.same(self.mixed(deviate, at=tuple(range(14))), "all")

    def test_views_and_changes_in_place(self):
        def deviate(training, i):
            x = draw(WIDTH, WIDTH, requires_grad=True)
            y = training.net(x)
            a, b = y.chunk(2, dim=1)
            loss = (a.t() @ b).relu_().square().mean() + (a * b).mean()
            if FAKE:
                loss = loss + torch.nn.functional.max_pool1d(y[None], 2).sum() * 1e-3
            loss.backward()
            training.finish(loss)

        self.same(self.mixed(deviate, at=tuple(range(14))), "plan")
        self.same(self.mixed(deviate, at=tuple(range(14))), "all")

    def test_two_optimizers(self):
        def program():
            training = Training()
            other = Training(seed=3, optimizer="sgd")
            for i in range(12):
                training.step(i)
                other.step(i)
            one, two = training.result(), other.result()
            return one[0] + two[0], one[1] + two[1]

        self.same(program, "plan")
        self.same(program, "all")

    @unittest.skipUnless(FAKE, "for the fake GPU")
    def test_another_stream(self):
        def program():
            training = Training()
            for i in range(8):
                loss = training.loss()
                backend = swap._manager.backend if swap._manager else None
                if backend and i % 2:
                    backend.aside = True
                loss.backward()
                if backend:
                    backend.aside = False
                training.finish(loss)
            return training.result()

        with mock.patch.object(torch.Tensor, "record_stream", lambda tensor, stream: None):
            self.same(program, "all")

    @unittest.skipUnless(FAKE, "for the fake GPU")
    def test_a_layer_that_another_stream_needs_before_it_leaves(self):
        """That use makes no tick, so the plan goes on and wants the layer out after its use."""

        def later(plan):
            for move in plan["moves"]:
                if move["class"] == "layer":
                    move["out"], move["drop"] = move["drop"], move["drop"] + 1

        def program():
            training = Training()
            gradients = []
            for _ in range(14):
                x = draw(WIDTH, WIDTH).requires_grad_()
                y = training.net.layers[0](x)
                backend = swap._manager.backend if swap._manager else None
                if backend:
                    backend.aside = True
                training.losses.append(y.grad_fn._saved_mat2.sum().item())
                if backend:
                    backend.aside = False
                for layer in training.net.layers[1:]:
                    y = layer(y.tanh())
                loss = (training.net.norm(y) ** 2).mean()
                del y
                loss.backward()
                gradients.append(x.grad)
                training.finish(loss)
            losses, tensors = training.result()
            return losses, tensors + gradients

        with mock.patch.object(torch.Tensor, "record_stream", lambda tensor, stream: None):
            self.same(program, "limit", spoil=later)


if __name__ == "__main__":
    unittest.main()
