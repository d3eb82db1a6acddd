"""Steps of optimizers that must not be taken in chunks: their state comes back as a whole, and the bits are the same."""

import functools
import unittest
from collections import defaultdict
from unittest import mock

import torch
from streamed_support import ADAM, PARAMETERS, STEPS, Bag, StreamedCase, program_of
from support import DEVICE, FAKE, ORDERS, WIDTH, Run, draw
from weir_gpu import swap
from weir_gpu.swap import element_wise, streamed_step
from weir_gpu.swap.copies import Corrupted

adam = ADAM.adam


class LeftOut(StreamedCase):
    """Whatever was not shown to give the same bits is done by PyTorch as a whole."""

    def left_out(self, do=Bag.step, **options):
        self.same(program_of(do, **options), "all", orders=ORDERS[:1], check=self.not_streamed)

    def test_ways(self):
        self.left_out(fused=True)
        everything = lambda groups: [parameter for group in groups for parameter in group["params"]]  # noqa: E731
        self.left_out(own=lambda groups, lr: torch.optim.AdamW(everything(groups), lr=torch.tensor(lr), foreach=False))
        self.left_out(own=lambda groups, lr: torch.optim.ASGD(groups, lr=lr))

    def test_ways_that_need_a_gpu(self):
        bag = Bag()
        bag.backward()
        kind, group = element_wise.kind_of(bag.optimizer), bag.optimizer.param_groups[0]
        self.assertTrue(element_wise.is_uniform(bag.optimizer, kind, group, lambda tensor: True))
        for way in ("fused", "capturable", "differentiable"):
            self.assertFalse(element_wise.is_uniform(bag.optimizer, kind, {**group, way: True}, lambda tensor: True), way)

    def test_complex_numbers(self):
        """Kernels for lists see pairs of real ones, if the whole group is known to have some."""

        def program():
            torch.manual_seed(0)
            parameters = [torch.nn.Parameter(draw(WIDTH, WIDTH, dtype=torch.complex64)) for _ in range(4)]
            optimizer = torch.optim.AdamW(parameters, lr=1e-2, foreach=True)
            losses = []
            for _ in range(4):
                x = draw(WIDTH, WIDTH).to(torch.complex64)
                loss = sum((x @ parameter).abs().square().mean() for parameter in parameters)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.item())
            return losses, [parameter.detach().clone() for parameter in parameters]

        self.same(program, "all", orders=ORDERS[:1], check=self.not_streamed)

    def test_state_that_lies_otherwise(self):
        """Kernels for lists treat all of a list in the slow way then."""
        wholes = []
        uniform = streamed_step.is_uniform

        def watched(*arguments):
            is_so = uniform(*arguments)
            wholes.append(is_so)
            return is_so

        def step(bag, i):
            if i == 2:
                entry = bag.optimizer.state[bag.parameters[1]]
                entry["exp_avg"] = entry["exp_avg"].t().contiguous().t()
            wholes.clear()
            bag.step(0)
            assert swap._manager is None or wholes == [i < 2, True, True], (i, wholes)

        with mock.patch.object(streamed_step, "is_uniform", watched):
            self.same(program_of(step, foreach=True), "all", orders=ORDERS[:1])

    def test_classes_of_the_program(self):
        class Own(torch.optim.AdamW):
            pass

        class AdamW(torch.optim.AdamW):
            pass

        self.left_out(own=Own)
        self.left_out(own=AdamW)

    def test_gradients_that_lie_otherwise(self):
        """A hook of the program may change them, after ours."""

        def turn(parameter):
            parameter.grad = parameter.grad.t().contiguous().t()

        def others(optimizer, arguments, named):
            for group in optimizer.param_groups[1:]:
                turn(group["params"][0])

        def step(bag, i):
            bag.backward()
            turn(bag.parameters[1])
            if i == 0:
                bag.optimizer.register_step_pre_hook(others)
            bag.optimizer.step()
            bag.optimizer.zero_grad()

        self.left_out(step)

    def test_parameters_that_share_memory(self):
        def program():
            torch.manual_seed(0)
            memory = draw(WIDTH + 1, WIDTH)
            parameters = [torch.nn.Parameter(memory[:-1]), torch.nn.Parameter(memory[1:])]
            # On a GPU, kernels for lists write to shared memory in any order.
            optimizer = torch.optim.AdamW(parameters, lr=1e-3, foreach=False)
            losses = []
            for _ in range(4):
                loss = sum(torch.tanh(draw(WIDTH, WIDTH) @ parameter).square().mean() for parameter in parameters)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.item())
            return losses, [memory.clone()]

        self.same(program, "all", orders=ORDERS[:1], check=self.not_streamed)

    def test_sparse_gradients(self):
        def program(make):
            def run():
                torch.manual_seed(0)
                table = torch.nn.Embedding(4 * WIDTH, WIDTH, sparse=True).to(DEVICE)
                weight = torch.nn.Parameter(draw(WIDTH, WIDTH))
                optimizer = make([*table.parameters(), weight])
                losses = []
                for _ in range(5):
                    loss = torch.tanh(table(torch.arange(WIDTH, device=DEVICE)) @ weight).square().mean()
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    losses.append(loss.item())
                return losses, [table.weight.detach().clone(), weight.detach().clone()]

            return run

        for make in (lambda p: torch.optim.Adagrad(p, lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)):
            self.same(program(make), "all", orders=ORDERS[:1], check=self.not_streamed)

    def test_momentum_of_some(self):
        """SGD computes a list with new and old momentum one by one, and any other list at once."""

        def step(bag, i):
            bag.backward(2 if i < 2 else 0)
            bag.optimizer.step()
            bag.optimizer.zero_grad()

        wholes = []
        uniform = streamed_step.is_uniform

        def watched(*arguments):
            is_so = uniform(*arguments)
            wholes.extend([] if is_so else [1])
            return is_so

        def check(run):
            # In the third step one parameter gets its first momentum. Groups without it are streamed.
            self.assertEqual(run.manager.copies.counts["steps_streamed"], STEPS)
            self.assertEqual(len(wholes), 1)

        with mock.patch.object(streamed_step, "is_uniform", watched):
            self.same(program_of(step, kind="SGD", momentum=0.9), "all", orders=ORDERS[:1], check=check)

    def test_a_pytorch_with_other_functions(self):
        with mock.patch.dict(element_wise.KNOWN, {"AdamW": ("adam", ("params_with_grad", "grads", "exp_avgs"), 3)}):
            self.left_out()
        with mock.patch.dict(element_wise.KNOWN, {"AdamW": ("adamw", *element_wise.KNOWN["AdamW"][1:])}):
            self.left_out()

    def test_a_group_that_nobody_computes_is_an_error(self):
        with Run("all", *ORDERS[0]):
            bag = Bag()
            original = ADAM.adam
            bag.step()
            ours = ADAM.adam
            # After it was decided that the step is streamed.
            bag.optimizer.register_step_pre_hook(lambda *_: setattr(ADAM, "adam", original))
            try:
                with self.assertRaises(Corrupted):
                    bag.step(1)
            finally:
                ADAM.adam = ours

    def test_state_that_parameters_share(self):
        """Kernels for lists write for all parameters, and then read."""

        def share_step(entries):
            step = torch.tensor(3.0)
            for entry in entries:
                entry["step"] = step

        def share_mean(entries):
            for entry in entries[1:3]:
                entry["exp_avg"] = entries[0]["exp_avg"]

        # On a GPU, kernels for lists write to a shared mean in any order, so PyTorch differs from itself.
        for share in (share_step, share_mean) if FAKE else (share_step,):
            for kind in ("AdamW", "NAdam", "Adamax"):

                def program(share=share, kind=kind):
                    torch.manual_seed(0)
                    parameters = [torch.nn.Parameter(draw(WIDTH, WIDTH) / WIDTH**0.5) for _ in range(PARAMETERS)]
                    optimizer = getattr(torch.optim, kind)(parameters, lr=1e-3, foreach=True)
                    losses = []
                    for i in range(5):
                        x = draw(WIDTH, WIDTH)
                        for parameter in parameters:
                            x = torch.tanh(x @ parameter) + x
                        loss = x.square().mean()
                        loss.backward()
                        optimizer.step()
                        optimizer.zero_grad()
                        losses.append(loss.item())
                        if i == 2:
                            stored = optimizer.state_dict()
                            share(list(stored["state"].values()))
                            optimizer.load_state_dict(stored)
                    return losses, [parameter.detach().clone() for parameter in parameters]

                with self.subTest(kind, share=share.__name__):
                    self.same(program, "all", orders=ORDERS[:1])

    def test_a_hook_that_replaces_the_state(self):
        seen = []

        def step(bag, i):
            if i == 0:
                bag.steps = 0

                def before(optimizer, *_):
                    bag.steps += 1
                    if bag.steps == 3:
                        optimizer.state = defaultdict(dict)

                def after(optimizer, *_):
                    seen.append(sum(value.double().sum().item() for entry in optimizer.state.values() for value in entry.values()))

                bag.optimizer.register_step_pre_hook(before)
                bag.optimizer.register_step_post_hook(after)
            bag.step(i)

        self.same(program_of(step), "all", orders=ORDERS[:2])
        self.assertEqual(seen[:STEPS], seen[STEPS : 2 * STEPS])
        self.assertEqual(seen[:STEPS], seen[2 * STEPS :])

    def test_state_that_somebody_else_holds(self):
        """Before the first step. The guarded dictionary would take its place, and the other one would stay empty."""

        def step(bag, i):
            if i == 0:
                bag.held = bag.optimizer.state
            bag.step(i)
            assert len(bag.held) == PARAMETERS

        self.same(program_of(step), "all", orders=ORDERS[:1], check=self.not_streamed_at_first)

    def not_streamed_at_first(self, run):
        # Once the first step has made the state, both have the same entries.
        self.assertLess(run.manager.copies.counts["steps_streamed"], STEPS)

    def test_functions_that_are_wrapped_later(self):
        def decaying(adam):
            def wrapper(parameters, *arguments, **named):
                adam(parameters, *arguments, **named)
                for parameter in parameters:
                    parameter.mul_(0.999)

            return functools.wraps(adam)(wrapper)

        def step(bag, i):
            if i == 3:
                bag.patch = mock.patch.object(ADAM, "adam", decaying(ADAM.adam))
                bag.patch.start()
            bag.step(i)
            if i == STEPS - 1:
                bag.patch.stop()

        self.same(program_of(step, kind="Adam"), "all", orders=ORDERS[:1], check=self.streamed(3))

    def test_functions_of_the_program_before_the_first_step(self):
        """They look at all gradients of a group."""

        def norming(function):
            def wrapper(parameters, gradients, *arguments, **named):
                whole = sum(gradient.square().sum().item() for gradient in gradients)
                for gradient in gradients:
                    gradient.div_(whole + 1e-6)
                function(parameters, gradients, *arguments, **named)

            return functools.wraps(function)(wrapper)

        for name in ("adam", "_single_tensor_adam", "_multi_tensor_adam"):
            with self.subTest(name), mock.patch.object(ADAM, name, norming(getattr(ADAM, name))):
                self.left_out(kind="Adam", foreach="multi" in name)

    def test_a_step_of_the_program(self):
        """Made of PyTorch's functions: what it does between them is for all parameters of a group."""

        @torch.no_grad()
        def step(optimizer, closure=None):
            for group in optimizer.param_groups:
                lists = [[] for _ in range(6)]
                has_complex = optimizer._init_group(group, *lists)
                gradients = lists[1]
                whole = sum(gradient.square().sum().item() for gradient in gradients)
                for gradient in gradients:
                    gradient.div_(whole + 1e-6)
                beta1, beta2 = group["betas"]
                names = ("foreach", "capturable", "differentiable", "fused", "amsgrad", "lr", "weight_decay", "eps", "maximize")
                adam(*lists, beta1=beta1, beta2=beta2, has_complex=has_complex, **{name: group[name] for name in names})

        step = torch.optim.Optimizer.profile_hook_step(step)
        step.hooked = True
        with mock.patch.object(torch.optim.Adam, "step", step):
            self.left_out(kind="Adam")

    def test_a_program_that_collects_by_itself(self):
        """Of the optimizer's functions, `step()` alone is led astray."""
        counts = []

        def step(bag, i):
            if i == 0:

                def before(optimizer, *_):
                    lists = [[] for _ in range(6)]
                    optimizer._init_group(optimizer.param_groups[0], *lists)
                    counts.append(len(lists[0]))

                bag.optimizer.register_step_pre_hook(before)
            bag.step(i)

        self.same(program_of(step, kind="Adam"), "all", orders=ORDERS[:1], check=self.streamed())
        self.assertEqual(counts[:STEPS], counts[STEPS:])
        self.assertGreater(min(counts), 0)

    def test_groups_of_another_class(self):
        class Group(dict):
            def __getitem__(self, name):
                return 0.5 if name == "lr" else super().__getitem__(name)

        def step(bag, i):
            if i == 0:
                bag.optimizer.param_groups[:] = [Group(group) for group in bag.optimizer.param_groups]
            bag.step(i)

        self.same(program_of(step, kind="SGD", momentum=0.9), "all", orders=ORDERS[:1], check=self.not_streamed)


if __name__ == "__main__":
    unittest.main()
