"""Optimizers whose steps PyTorch does not announce: their steps are marked and their state is told; nothing else changes."""

import dis
import gc
import inspect
import pickle
import types
import unittest
from collections import defaultdict

import torch
from support import ObserveCase, net, states
from weir_gpu import observe
from weir_gpu.abi import Category
from weir_gpu.observe import other_optimizers

STEP = ["backward", "forward", "optimizer", "step"]


class Momentum:
    """Has groups and a dictionary, as those of torch.optim."""

    def __init__(self, parameters):
        self.param_groups = [{"params": list(parameters)}]
        self.state = {}

    @torch.no_grad()
    def step(self, closure=None):
        """Its own words."""
        if closure is not None:
            with torch.enable_grad():
                closure()
        for parameter in self.param_groups[0]["params"]:
            entry = self.state.setdefault(parameter, {"momentum": torch.zeros_like(parameter)})
            entry["momentum"].mul_(0.9).add_(parameter.grad)
            parameter.sub_(entry["momentum"], alpha=0.1)


class Listed:
    """Everything in lists of its own."""

    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.moments = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.losses = [torch.zeros(3) for _ in self.parameters]  # of other shapes: something else

    @torch.no_grad()
    def step(self):
        self.gradients = [parameter.grad for parameter in self.parameters]
        for parameter, moment in zip(self.parameters, self.moments):
            moment.mul_(0.9).add_(parameter.grad)
            parameter.sub_(moment, alpha=0.1)


class Keyed(Listed):
    """State in dictionaries that have the parameters, or what they are known by, as keys."""

    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.first = {parameter: torch.zeros_like(parameter) for parameter in self.parameters}
        self.second = {id(parameter): {"v": torch.zeros_like(parameter)} for parameter in self.parameters}
        self.metrics = {"loss": torch.zeros(4)}

    @property
    def moments(self):
        return [*self.first.values(), *(entry["v"] for entry in self.second.values())]

    @torch.no_grad()
    def step(self):
        for parameter in self.parameters:
            self.first[parameter].lerp_(parameter.grad, 0.1)


class EightBit(torch.optim.Optimizer):
    """As bitsandbytes has it: state of eight bits, with maps that all parameters share."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.01})
        self.maps = {"dynamic": torch.linspace(-1, 1, 256)}

    @torch.no_grad()
    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            entry = self.state[parameter]
            if not entry:
                entry.update(
                    step=0, state1=torch.zeros_like(parameter, dtype=torch.uint8), absmax1=torch.zeros(1), qmap1=self.maps["dynamic"]
                )
            entry["step"] += 1
            parameter.sub_(parameter.grad, alpha=0.01)


class ScheduleFree(torch.optim.Optimizer):
    """As schedule-free has it: around another one, without the constructor of PyTorch's, and with state of its own."""

    def __init__(self, base):
        self.base = base
        self.state = defaultdict(dict)

    param_groups = property(lambda self: self.base.param_groups)

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter].setdefault("z", parameter.clone())
        self.base.step()


def loss_of(model):
    return model(torch.randn(8, 16)).pow(2).mean()


def train(model, optimizer, steps=4):
    for _ in range(steps):
        model.zero_grad()
        loss_of(model).backward()
        optimizer.step()


class OtherOptimizers(ObserveCase):
    def tearDown(self):
        super().tearDown()
        self.assertEqual(other_optimizers._replaced, [])
        self.assertEqual(other_optimizers._listeners, [])

    def test_steps_and_state(self):
        for kind in (Momentum, Listed, Keyed):
            self.tearDown()
            self.setUp()
            own, model = kind.step, net()
            optimizer = kind(model.parameters())
            train(model, optimizer)
            # It is found after two backward passes without a step.
            self.assertEqual(self.phases(), [*STEP[:2], *STEP, *STEP, *STEP], kind)
            moments = states(optimizer) if kind is Momentum else optimizer.moments
            self.assertTold(moments, Category.OPTIMIZER_STATE)
            self.assertTold(list(model.parameters()), Category.PARAMETER)
            self.assertTold([parameter.grad for parameter in model.parameters()], Category.GRADIENT)
            self.assertTold(getattr(optimizer, "losses", []), Category.UNKNOWN)
            self.assertTold(list(getattr(optimizer, "metrics", {}).values()), Category.UNKNOWN)
            self.tearDown()
            self.assertIs(kind.step, own)
            self.setUp()

    def test_state_that_is_made_anew(self):
        model = net()
        optimizer = Listed(model.parameters())
        train(model, optimizer, 5)
        optimizer.moments = [torch.zeros_like(parameter) for parameter in optimizer.parameters]
        train(model, optimizer, 1)
        self.assertTold(optimizer.moments, Category.OPTIMIZER_STATE)

    def test_libraries_that_derive_from_pytorch(self):
        model = net()
        optimizer = EightBit(model.parameters())
        train(model, optimizer)
        self.assertEqual(self.phases(), STEP * 4)
        self.assertTold(states(optimizer), Category.OPTIMIZER_STATE)
        self.assertEqual(other_optimizers._replaced, [], "PyTorch announces them, so nothing is searched for")

    def test_a_wrapper_around_one_of_pytorch(self):
        """Its own state is found where all objects are looked at: after a failure."""
        model = net()
        optimizer = ScheduleFree(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
        train(model, optimizer)
        self.assertEqual(self.phases(), STEP * 4)
        self.assertTold(states(optimizer.base), Category.OPTIMIZER_STATE)
        self.watch.failures.observe(0, 0, 0, 0)
        self.assertTold(states(optimizer), Category.OPTIMIZER_STATE)

    def test_a_failure_in_the_first_step(self):
        model = net()
        optimizer = Momentum(model.parameters())
        train(model, optimizer, 1)
        self.assertTold(states(optimizer), Category.UNKNOWN)
        self.watch.failures.observe(0, 0, 0, 0)
        self.assertTold(states(optimizer), Category.OPTIMIZER_STATE)
        self.assertTold(list(model.parameters()), Category.PARAMETER)
        self.assertTold([parameter.grad for parameter in model.parameters()], Category.GRADIENT)

    def test_beside_one_of_pytorch_nothing_is_searched_for(self):
        model = net()
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.1), Momentum(model.parameters())]
        for _ in range(4):
            loss_of(model).backward()
            for optimizer in optimizers:
                optimizer.step()
        self.assertEqual(self.phases(), STEP * 4)
        self.assertEqual(other_optimizers._listeners, [])

    def test_a_trainer_with_accumulation(self):
        """It has a step and parameters, and is found before its optimizer has stepped. Then that one tells the phases."""

        class Trainer:
            def __init__(self):
                self.model = net()
                self.parameters = list(self.model.parameters())
                self.optimizer = torch.optim.SGD(self.parameters, lr=0.1)

            def step(self):
                for _ in range(4):
                    loss_of(self.model).backward()
                self.optimizer.step()

        trainer = Trainer()
        for _ in range(3):
            trainer.step()
        own = ["backward", "forward"] * 4
        self.assertEqual(self.phases(), [*own, "optimizer", "step"] * 3)
        trainer = Trainer()
        self.marks.clear()
        for _ in range(2):
            loss_of(trainer.model).backward()
        trainer.step()
        self.assertEqual(self.phases(), [*["backward", "forward"] * 2, *own, "optimizer", "step"])

    def test_a_trainer_that_is_found_before_any_optimizer_steps(self):
        class Trainer:
            def __init__(self):
                self.model = net()
                self.parameters = list(self.model.parameters())
                self.optimizer = torch.optim.SGD(self.parameters, lr=0.1)

            def step(self, is_last):
                loss_of(self.model).backward()
                if is_last:
                    self.optimizer.step()

        trainer = Trainer()
        for call in range(8):
            trainer.step(is_last=call % 4 == 3)
        self.assertEqual(self.phases()[-10:], [*["backward", "forward"] * 4, "optimizer", "step"])
        # The third call counts as a step: nothing else was known then.
        self.assertEqual(self.watch.phases.steps, 3)

    def test_a_step_with_the_whole_training_in_it(self):
        """Once it is known to have passes inside, its beginning is a forward pass."""

        class Whole(Listed):
            def step(self):
                loss_of(model).backward()
                super().step()

        model = net()
        whole = Whole(model.parameters())
        for _ in range(6):
            model.zero_grad()
            whole.step()
        self.assertEqual(self.phases()[-6:], ["backward", "optimizer", "step"] * 2)

    def test_closures_and_results(self):
        model = net()
        optimizer = Momentum(model.parameters())
        calls = []
        train(model, optimizer, 2)
        optimizer.step(closure=lambda: calls.append(loss_of(model).backward()))
        self.assertEqual(len(calls), 1)
        self.assertEqual(self.phases()[-4:], ["optimizer", "backward", "optimizer", "step"])

    def test_errors_pass(self):
        class Failing(Momentum):
            def step(self, fails=False):
                if fails:
                    raise MemoryError("of the program")
                super().step()

        model = net()
        optimizer = Failing(model.parameters())
        train(model, optimizer, 3)
        with self.assertRaisesRegex(MemoryError, "of the program"):
            optimizer.step(fails=True)
        self.marks.clear()
        train(model, optimizer, 2)
        self.assertEqual(self.phases(), STEP * 2)

    def test_a_step_that_is_awaited_is_left_alone(self):
        class Awaited(Listed):
            async def step(self):
                return 1

        model = net()
        awaited, optimizer = Awaited(model.parameters()), Momentum(model.parameters())
        train(model, optimizer)
        self.assertNotEqual(other_optimizers._replaced, [])
        self.assertTrue(inspect.iscoroutinefunction(awaited.step))

    def test_what_the_program_sees_of_the_step(self):
        model = net()
        optimizer = Momentum(model.parameters())
        before = inspect.signature(Momentum.step), inspect.getsource(Momentum.step)
        train(model, optimizer)
        self.assertNotEqual(other_optimizers._replaced, [])
        self.assertEqual((inspect.signature(Momentum.step), inspect.getsource(Momentum.step)), before)
        self.assertEqual((Momentum.step.__doc__, Momentum.step.__qualname__), ("Its own words.", "Momentum.step"))
        self.assertIs(pickle.loads(pickle.dumps(Momentum.step)), Momentum.step)
        self.assertEqual(pickle.loads(pickle.dumps(optimizer.step)).__func__, Momentum.step)

    def test_a_step_that_is_pickled_with_its_code(self):
        """As cloudpickle does with classes of a script: what the function refers to must be loadable where Weir is not."""
        model = net()
        optimizer = Momentum(model.parameters())
        train(model, optimizer)
        step = vars(Momentum)["step"]
        self.assertEqual([cell.cell_contents for cell in step.__closure__], [step.__wrapped__])
        used = [vars(other_optimizers)[one.argval] for one in dis.get_instructions(step) if one.opname == "LOAD_GLOBAL"]
        self.assertEqual(used and {type(value) for value in used}, {types.ModuleType})
        self.assertEqual([value.__name__ for value in used if value.__name__.startswith("weir")], [])

    def test_compiled_as_one_graph(self):
        """Before and after it is found, and compiled anew then."""
        model = net()
        optimizer = Momentum(model.parameters())

        @torch.compile(backend="eager", fullgraph=True)
        def update():
            optimizer.step()

        for _ in range(4):
            model.zero_grad()
            loss_of(model).backward()
            update()
        self.assertNotEqual(other_optimizers._replaced, [])
        self.assertTrue(all(torch.isfinite(value).all() for value in states(optimizer)))
        self.assertEqual(self.phases(), ["backward", "forward"] * 4)

    def test_a_search_asks_no_object_for_its_attributes(self):
        asked = []

        class Proxy:
            def __getattribute__(self, name):
                asked.append(name)
                return object.__getattribute__(self, name)

            def step(self):
                pass

        proxy = Proxy()
        model = net()
        optimizer = Momentum(model.parameters())
        train(model, optimizer)
        self.watch.failures.observe(0, 0, 0, 0)
        self.assertEqual(asked, [])
        del proxy

    def test_it_is_not_kept_alive(self):
        model = net()
        optimizer = Momentum(model.parameters())
        train(model, optimizer)
        count = len(self.watch.optimizers.all())
        del optimizer
        gc.collect()
        self.assertEqual(len(self.watch.optimizers.all()), count - 1)

    def test_steps_that_the_program_marks(self):
        model = net()
        optimizer = Momentum(model.parameters())
        for _ in range(4):
            loss_of(model).backward()
            optimizer.step()
            observe.step()
        self.assertEqual(self.phases().count("step"), 4)

    def test_shared_with_swapping(self):
        """Two that ask for the same steps: one step in the place of its own, and both hear of it."""
        heard = []
        second = other_optimizers.OtherOptimizers(lambda *_: heard.append("before"), lambda *_: heard.append("after"))
        model = net()
        optimizer = Momentum(model.parameters())
        train(model, optimizer, 2)
        second.look_after(2)
        train(model, optimizer, 1)
        self.assertEqual(heard, ["before", "after"])
        self.assertEqual(len(other_optimizers._replaced), 1)
        self.watch.close()
        train(model, optimizer, 1)
        self.assertEqual(heard, ["before", "after"] * 2)
        second.close()
        train(model, optimizer, 1)
        self.assertEqual(heard, ["before", "after"] * 2)


if __name__ == "__main__":
    unittest.main()
