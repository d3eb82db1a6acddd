"""Optimizers that PyTorch does not know or announce: their steps are seen, and their state is swapped where it can be guarded."""

import copy
import gc
import pickle
import unittest
import weakref
from collections import defaultdict

import torch
from support import ORDERS, Run, SwapCase, Training, swapped
from weir_gpu import swap
from weir_gpu.observe import other_optimizers
from weir_gpu.observe.optimizers import is_like_one
from weir_gpu.swap.optimizer_state import GuardedState
from weir_gpu.swap.records import SWAPPED_OUT


class Handmade:
    """Adam without anything of torch.optim."""

    state_class = dict

    def __init__(self, parameters, lr=1e-3):
        self.param_groups = [{"params": list(parameters), "lr": lr}]
        self.state = self.state_class() if self.state_class is dict else defaultdict(dict)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                if parameter not in self.state:
                    self.state[parameter] = {"m": torch.zeros_like(parameter), "v": torch.zeros_like(parameter)}
                entry = self.state[parameter]
                self.update(parameter, entry, group["lr"])

    def update(self, parameter, entry, lr):
        entry["m"].lerp_(parameter.grad, 0.1)
        entry["v"].lerp_(parameter.grad.square(), 0.001)
        parameter.sub_(entry["m"] / (entry["v"].sqrt() + 1e-8), alpha=lr)

    def zero_grad(self, set_to_none=True):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def state_dict(self):
        places = {id(parameter): place for group in self.param_groups for place, parameter in enumerate(group["params"])}
        return {"state": {places[id(parameter)]: dict(entry) for parameter, entry in self.state.items()}}


class WithDefault(Handmade):
    state_class = defaultdict


class Inherited(Handmade):
    """Both it and the class that it inherits from have a step."""

    def step(self):
        super().step()


class Quantized(Handmade):
    """State of eight bits and a scale, as 8-bit optimizers have."""

    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            if parameter not in self.state:
                self.state[parameter] = {"state1": torch.zeros_like(parameter, dtype=torch.uint8), "scale": torch.ones(())}
            entry = self.state[parameter]
            moved = (entry["state1"].float() - 128) * entry["scale"] * 0.9 + parameter.grad
            entry["scale"] = moved.abs().max() / 127
            entry["state1"].copy_((moved / entry["scale"]).round() + 128)
            parameter.sub_((entry["state1"].float() - 128) * entry["scale"], alpha=1e-2)


class Unannounced(torch.optim.Optimizer):
    """Inherits from PyTorch's class without its constructor, so nobody has wrapped its step."""

    def __init__(self, parameters, lr=1e-3):
        self.param_groups = [{"params": list(parameters), "lr": lr}]
        self.state = defaultdict(dict)

    step, update, zero_grad, state_dict = Handmade.step, Handmade.update, Handmade.zero_grad, Handmade.state_dict


class ScheduleFree(torch.optim.Optimizer):
    """Announced. Its parameters are swapped with its state for evaluation."""

    def __init__(self, parameters, lr=1e-3):
        super().__init__(parameters, {"lr": lr, "train": True})

    @torch.no_grad()
    def turn(self, train):
        for group in self.param_groups:
            for parameter in group["params"]:
                if group["train"] != train and "z" in self.state[parameter]:
                    parameter.lerp_(self.state[parameter]["z"], 0.1 if train else 1 - 1 / 0.9)
            group["train"] = train

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                entry = self.state[parameter]
                if "z" not in entry:
                    entry["z"] = parameter.clone()
                parameter.lerp_(entry["z"], 0.1).sub_(parameter.grad, alpha=group["lr"])
                entry["z"].sub_(parameter.grad, alpha=group["lr"])


class Listed:
    """Keeps its state in lists beside its parameters: only its steps can be seen."""

    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.moments = [torch.zeros_like(parameter) for parameter in self.parameters]

    @torch.no_grad()
    def step(self):
        for parameter, moment in zip(self.parameters, self.moments):
            moment.lerp_(parameter.grad, 0.1)
            parameter.sub_(moment, alpha=0.1)

    def zero_grad(self, set_to_none=True):
        for parameter in self.parameters:
            parameter.grad = None

    def state_dict(self):
        return {"state": {place: {"moment": moment} for place, moment in enumerate(self.moments)}}


def training_with(kind, steps=14):
    def program():
        training = Training()
        training.optimizer = kind(training.net.parameters())
        for i in range(steps):
            training.step(i)
        return training.result()

    return program


class OtherOptimizers(SwapCase):
    def test_same_values_with_state_that_leaves(self):
        for kind in (Handmade, WithDefault, Inherited, Quantized, Unannounced, ScheduleFree):
            for mode in ("all", "plan"):
                seen = []

                def program(kind=kind, seen=seen):
                    training = Training()
                    training.optimizer = kind(training.net.parameters())
                    for _ in range(14):
                        loss = training.loss()
                        manager = swap._manager
                        if manager is not None:
                            seen.append(sum(item.state == SWAPPED_OUT for item in manager.guard.items))
                        loss.backward()
                        training.finish(loss)
                    return training.result()

                self.same(program, mode, orders=ORDERS[:3], check=swapped)
                # Tensors of eight bits of the smallest matrix are below what is swapped at all.
                self.assertGreater(max(seen), 2, (kind, mode))
            self.assertNotEqual(kind.step.__code__.co_filename, other_optimizers.__file__, "its own step is back in its place")

    def test_state_in_lists_stays_but_steps_are_seen(self):
        def check(run):
            self.assertGreaterEqual(run.report["stepsPlanned"], 3)
            self.assertEqual(run.items, 0)

        expected = training_with(Listed)()
        with Run("plan") as run:
            found = training_with(Listed)()
            run.items = len(run.manager.guard.items)
            self.assertIsNone(run.manager.stopped)
        self.assertEqual(expected[0], found[0])
        check(run)

    def test_the_order_of_bases_stays(self):
        """A class that inherits its step gets none of its own: it would hide the step of a later base."""

        class Base(Handmade):
            def step(self, scale=1.0):
                super().step()
                self.scales.append(scale)

        class Plain(Base):
            scales = []  # noqa: RUF012

        class Scaled(Base):
            def step(self, scale=1.0):
                super().step(scale=0.5 * scale)

        class Both(Plain, Scaled):
            pass

        with Run("plan") as run:
            training, other = Training(), Plain(Training().net.parameters())
            training.optimizer = Both(training.net.parameters())
            for i in range(4):
                training.step(i)
            self.assertEqual(Plain.scales, [0.5] * 4)
            self.assertEqual(run.marks.count("weir step"), 2)
            self.assertNotIn("step", vars(Plain))
            del other

    def test_arguments_with_any_name(self):
        class Named(Handmade):
            def step(self, optimizer=None, self_=None):
                assert (optimizer, self_) == (1, 2)
                super().step()

        with Run("plan") as run:
            training = Training()
            training.optimizer = Named(training.net.parameters())
            for _ in range(4):
                training.loss().backward()
                training.optimizer.step(optimizer=1, self_=2)
            self.assertEqual(run.marks.count("weir step"), 2)

    def test_what_holds_no_weak_reference_is_left_alone(self):
        taken = {name: vars(Handmade)[name] for name in ("__init__", "step", "update", "zero_grad", "state_dict", "state_class")}
        slotted = type("Slotted", (), {**taken, "__slots__": ("__dict__",)})
        self.same(training_with(slotted, 6), "plan", orders=ORDERS[:1])

    def test_a_class_is_not_kept_alive(self):
        gone = []

        def train():
            training = Training()

            class Local(Handmade):
                def step(self):
                    assert training is not None
                    super().step()

            weakref.finalize(Local, gone.append, 1)
            training.optimizer = Local(training.net.parameters())
            for i in range(4):
                training.step(i)

        with Run("plan") as run:
            train()
            self.assertEqual(run.marks.count("weir step"), 2)
            gc.collect()
            self.assertEqual(gone, [1])

    def test_a_search_makes_no_nodes(self):
        """A view whose base was changed in place gets its node when it is asked whether it is a leaf."""

        class Cell:
            def step(self):
                pass

        weight, asked = torch.ones(4, requires_grad=True), []
        base = weight * 1
        view = base[:2]
        base.mul_(2)
        cell = Cell()
        cell.hidden = [view]

        class Watcher(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, function, types, arguments=(), named=None):
                asked.append(function)
                return function(*arguments, **(named or {}))

        with Watcher():
            self.assertFalse(is_like_one(cell))
        self.assertEqual(asked, [])
        later = weight * 2
        self.assertGreater(view.grad_fn._sequence_nr(), later.grad_fn._sequence_nr())

    def test_a_step_counts_once(self):
        for kind in (Handmade, Inherited, Unannounced):
            with Run("plan") as run:
                other = Handmade(Training().net.parameters())
                training_with(kind, 8)()
                del other
            # The first passes belong to one step, until the optimizer is found.
            self.assertEqual(run.marks.count("weir step"), 6, kind)

    def test_a_class_that_pytorch_wraps_later_is_announced_by_it(self):
        class Late(Unannounced):
            def __init__(self, parameters, lr=1e-3, proper=False):
                if proper:
                    torch.optim.Optimizer.__init__(self, parameters, {"lr": lr})
                else:
                    super().__init__(parameters, lr)

            def step(self, closure=None):
                Handmade.step(self)

        called = []
        with Run("plan") as run:
            training = Training()
            training.optimizer = Late(training.net.parameters())
            for i in range(4):
                training.step(i)
            before = run.marks.count("weir step")
            self.assertGreater(before, 0)
            training.optimizer = Late(training.net.parameters(), proper=True)
            training.optimizer.register_step_post_hook(lambda *_: called.append(1))
            for i in range(3):
                training.step(i)
            self.assertEqual(len(called), 3)
            self.assertEqual(run.marks.count("weir step"), before + 3)

    def test_the_state_is_a_dictionary_to_everybody(self):
        with Run("all", *ORDERS[0]):
            training = Training()
            training.optimizer = Handmade(training.net.parameters())
            for i in range(6):
                training.step(i)
            state = training.optimizer.state
            self.assertIs(type(state), GuardedState)
            self.assertIs(type(state.copy()), dict)
            self.assertIs(type(copy.deepcopy(state)), dict)
            self.assertIs(type(pickle.loads(pickle.dumps(state))), dict)
            with self.assertRaises(KeyError):
                state["missing"]
            parameter = next(training.net.parameters())
            self.assertTrue(torch.isfinite(state[parameter]["m"]).all())

    def test_objects_that_raise_when_asked(self):
        class Odd:
            step = property(lambda self: 1 / 0)

            def __getattr__(self, name):
                raise ValueError(name)

        class Static:
            """Its step does not get the object."""

            def __init__(self, parameters):
                self.parameters = list(parameters)

            @staticmethod
            def step(number):
                return number

        class Called(Static):
            step = type("Meter", (), {"__call__": lambda self, number: number})()

        class Meta(type):
            def __getattr__(cls, name):
                raise RuntimeError(name)

        class Odder(metaclass=Meta):
            pass

        parameters = list(Training().net.parameters())
        odd = [Odd(), Odder(), Static(parameters), Called(parameters)]
        with Run("plan") as run:
            training_with(Handmade, 8)()
            self.assertIsNone(run.manager.stopped)
            self.assertEqual([odd[2].step(5), odd[3].step(6)], [5, 6])
            self.assertIn(Handmade, [owner() for owner, _ in other_optimizers._replaced])
        del odd
        gc.collect()


if __name__ == "__main__":
    unittest.main()
