"""Parameters, gradients, optimizer state, buffers and caches are told, of all kinds of modules and optimizers."""

import copy
import gc
import io
import pickle
import unittest
import warnings
import weakref

import torch
from support import ObserveCase, address, net, states
from torch.utils.checkpoint import checkpoint
from weir_gpu.abi import Category


class PlainAdam:
    """An optimizer that PyTorch does not know."""

    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.moments = [torch.zeros_like(parameter) for parameter in self.parameters]

    def step(self):
        with torch.no_grad():
            for parameter, moment in zip(self.parameters, self.moments):
                moment.mul_(0.9).add_(parameter.grad)
                parameter.sub_(0.1 * moment)


def train(model, optimizer, steps=2, set_to_none=True):
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=set_to_none)
        model(torch.randn(8, 16)).sum().backward()
        optimizer.step()


class Categories(ObserveCase):
    def test_a_training_step(self):
        model = net()
        optimizer = torch.optim.Adam(model.parameters())
        train(model, optimizer)
        self.assertTold(list(model.parameters()), Category.PARAMETER)
        self.assertTold([parameter.grad for parameter in model.parameters()], Category.GRADIENT)
        self.assertTold(states(optimizer), Category.OPTIMIZER_STATE)
        self.assertTold(list(model.buffers()), Category.BUFFER)

    def test_modules_are_told_before_any_step(self):
        model = net().double()
        self.assertTold(list(model.parameters()), Category.PARAMETER)
        self.assertTold(list(model.buffers()), Category.BUFFER)

    def test_new_gradients_of_every_step(self):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(6):
            train(model, optimizer, 1)
            self.assertTold([parameter.grad for parameter in model.parameters()], Category.GRADIENT)
            self.told = {address: category for address, category in self.told.items() if category != Category.GRADIENT}

    def test_accumulated_gradients_are_told_once(self):
        model = net()
        for _ in range(3):
            model(torch.randn(8, 16)).sum().backward()
        self.assertTold([parameter.grad for parameter in model.parameters()], Category.GRADIENT)
        before = self.calls
        for _ in range(10):
            model(torch.randn(8, 16)).sum().backward()
        # Everything is told again after four and after eight passes.
        self.assertLessEqual(self.calls - before, 2)

    def test_an_optimizer_of_its_own_kind(self):
        model = net()
        optimizer = PlainAdam(model.parameters())
        for _ in range(3):
            model.zero_grad()
            model(torch.randn(8, 16)).sum().backward()
            optimizer.step()
        self.assertTold(list(model.parameters()), Category.PARAMETER)
        self.assertTold([parameter.grad for parameter in model.parameters()], Category.GRADIENT)
        self.assertTold(optimizer.moments, Category.OPTIMIZER_STATE)

    def test_tensors_without_a_module(self):
        weight = torch.randn(16, requires_grad=True)
        optimizer = torch.optim.Adam([weight])
        for _ in range(2):
            (weight**2).sum().backward()
            optimizer.step()
        self.assertTold([weight], Category.PARAMETER)
        self.assertTold([weight.grad], Category.GRADIENT)
        self.assertTold([optimizer.state[weight]["exp_avg"]], Category.OPTIMIZER_STATE)

    def test_an_optimizer_for_each_parameter_inside_of_backward(self):
        model = net()
        optimizers = {parameter: torch.optim.Adam([parameter]) for parameter in model.parameters()}
        seen = []

        def use(parameter):
            seen.append(parameter.grad)
            optimizers[parameter].step()
            optimizers[parameter].zero_grad()

        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(use)
        for _ in range(3):
            seen.clear()
            model(torch.randn(8, 16)).sum().backward()
        self.assertTold(seen, Category.GRADIENT)
        self.assertTold([state for optimizer in optimizers.values() for state in states(optimizer)], Category.OPTIMIZER_STATE)
        self.assertEqual(self.phases(), ["backward", "step"] * 3)

    def test_copies_and_unpickled_modules(self):
        model = net()
        average = copy.deepcopy(model)
        buffer = io.BytesIO()
        torch.save(model, buffer)
        buffer.seek(0)
        loaded = torch.load(buffer, weights_only=False)
        pickled = pickle.loads(pickle.dumps(model))
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        for copied in (average, loaded, pickled):
            self.assertTold(list(copied.parameters()), Category.PARAMETER)
            self.assertTold(list(copied.buffers()), Category.BUFFER)

    def test_modules_and_optimizers_that_were_there_before(self):
        self.tearDown()
        model = net()
        optimizer = torch.optim.Adam(model.parameters())
        self.setUp()
        model.float()
        train(model, optimizer)
        self.assertTold(list(model.parameters()), Category.PARAMETER)
        self.assertTold([parameter.grad for parameter in model.parameters()], Category.GRADIENT)
        self.assertTold(states(optimizer), Category.OPTIMIZER_STATE)

    def test_caches_of_keys_and_values(self):
        class Attention(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.project = torch.nn.Linear(4, 4)
                self.register_buffer("k_cache", torch.zeros(8))
                self.register_buffer("mask", torch.zeros(8))
                self.cache_v = torch.zeros(8)
                self.kv_cache = [torch.zeros(8), torch.zeros(8)]
                self.scale = torch.zeros(8)

            def forward(self, x):
                return self.project(x)

        model = Attention()
        model(torch.randn(2, 4)).sum().backward()
        self.assertTold([model.k_cache, model.cache_v, *model.kv_cache], Category.KV_CACHE)
        self.assertTold([model.mask, model.scale], Category.BUFFER)

    def test_tied_and_frozen_parameters(self):
        first, second = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)
        second.weight = first.weight
        second.bias.requires_grad_(False)
        model = torch.nn.Sequential(first, second)
        train(model, torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.requires_grad]))
        self.assertTold(list(model.parameters()), Category.PARAMETER)
        self.assertIsNone(second.bias.grad)

    def test_views_are_told_by_their_memory(self):
        flat = torch.randn(64)
        module = torch.nn.Module()
        module.weight = torch.nn.Parameter(flat[32:])
        self.watch.tell_all().send()
        self.assertTold([flat], Category.PARAMETER)

    def test_activations_after_a_failure(self):
        model = net()
        optimizer = torch.optim.Adam(model.parameters())
        train(model, optimizer)
        x = torch.randn(8, 16)
        hidden = torch.relu(model[0](x))
        out = model[1](hidden).exp()
        plain = torch.randn(8)
        unpacked = []
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor.clone(), lambda packed: unpacked.append(1) or packed):
            hooked = out.sin()
        # Memory of earlier gradients has been freed, and may be in use again. A recording has the frees, this dictionary has not.
        self.told.clear()
        self.watch.failures.observe(0, 1, 2, 3)
        self.assertTold([hidden, out, x, hooked], Category.ACTIVATION)
        self.assertTold(list(model.parameters()), Category.PARAMETER)
        self.assertTold(states(optimizer), Category.OPTIMIZER_STATE)
        self.assertTold([plain], Category.UNKNOWN)
        self.assertEqual(unpacked, [])
        self.assertEqual(self.marks[-1], "weir:failure")

    def test_a_failure_in_backward(self):
        model = net()
        seen = []

        def fail(_gradient):
            self.watch.failures.observe(0, 1, 2, 3)
            raise MemoryError

        x = torch.randn(8, 16)
        hidden = model[0](x)
        hidden.register_hook(fail)
        out = model[1](hidden)
        seen.append(out)
        with self.assertRaises(MemoryError):
            out.sum().backward()
        self.assertTold([hidden], Category.ACTIVATION)
        self.assertEqual(len(self.watch.phases.passes), 0)

    def test_a_failure_among_many_tensors_is_looked_at_in_linear_time_and_not_for_long(self):
        telling = self.watch.telling()
        many = [torch.zeros(1) for _ in range(4)]
        telling.add(many[0], Category.ACTIVATION)
        known = telling.by_device[0]
        for tensor in many:
            telling.add(tensor, Category.PARAMETER)
        self.assertIs(telling.by_device[0], known)
        self.assertEqual([known[address(tensor)] for tensor in many], [Category.ACTIVATION, *[Category.PARAMETER] * 3])
        weight = torch.ones(1, requires_grad=True)
        made = [weight * number for number in range(2000)]
        now = 0.0

        def clock():
            nonlocal now
            now += 1.0
            return now

        self.watch.failures.clock = clock
        self.watch.failures.observe(0, 1, 2, 3)
        told = sum(self.category(tensor) == Category.ACTIVATION for tensor in made)
        self.assertLess(told, len(made))
        self.assertEqual(self.marks[-1], "weir:failure")

    def test_many_failures_are_looked_at_rarely(self):
        for _ in range(20):
            self.watch.failures.observe(0, 1, 2, 3)
        self.assertEqual(self.marks.count("weir:failure"), 8)

    def test_nothing_is_kept_alive(self):
        def job():
            model = net()
            optimizer = torch.optim.Adam(model.parameters())
            train(model, optimizer, 3)
            out = model(torch.randn(8, 16))
            self.watch.failures.observe(0, 1, 2, 3)
            everything = [model, optimizer, out, *model.parameters(), *states(optimizer), *(p.grad for p in model.parameters())]
            return [weakref.ref(thing) for thing in everything]

        references = job()
        gc.collect()
        self.assertEqual([reference for reference in references if reference() is not None], [])
        self.assertEqual((len(self.watch.modules.by_id), len(self.watch.optimizers.by_id)), (0, 0))

    def test_wrapper_subclasses_are_told_by_what_they_hold(self):
        from torch.testing._internal.two_tensor import TwoTensor

        a, b = torch.randn(8), torch.randn(8)
        module = torch.nn.Module()
        module.weight = torch.nn.Parameter(TwoTensor(a, b))
        self.watch.tell_all().send()
        self.assertTold([a, b], Category.PARAMETER)

    def test_attributes_of_subclasses_are_not_asked(self):
        asked = []

        def spied(name):
            original = getattr(torch.Tensor, name)
            return property(lambda tensor: asked.append(name) or original.__get__(tensor), original.__set__)

        names = ("grad", "grad_fn", "requires_grad", "is_leaf", "_base", "data", "device")
        spy = {name: spied(name) for name in names}
        Weight, Value = type("Weight", (torch.nn.Parameter,), spy), type("Value", (torch.Tensor,), spy)
        module = torch.nn.Module()
        module.weight = Weight(torch.ones(4))
        module.value = torch.ones(4).as_subclass(Value)
        asked.clear()
        for _ in range(2):
            (torch.nn.Parameter.sum(module.weight)).backward()
        self.watch.failures.observe(0, 1, 2, 3)
        self.assertEqual(asked, [])
        self.assertTold([torch._C.TensorBase.grad.__get__(module.weight)], Category.GRADIENT)

    def test_results_among_parameters_are_not_asked_for_gradients(self):
        class Inner(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4, 4)

            def forward(self, x):
                y = self.layer(x).sum()
                (gradient,) = torch.autograd.grad(y, x, create_graph=True)
                return y + gradient.sum()

        model = Inner()
        x = torch.randn(2, 4, requires_grad=True)
        model(x).backward()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            for made in (lambda value: value * 2, lambda value: (value * 2).view(value.shape)):
                fast = {name: made(value) for name, value in model.named_parameters()}
                torch.func.functional_call(model, fast, (x,)).backward()
        self.assertEqual([str(warning.message) for warning in warned], [])

    def test_views_that_are_leaves(self):
        flat = torch.randn(64)
        weight = flat[32:].requires_grad_()
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(2):
            (weight**2).sum().backward()
            optimizer.step()
        self.assertTold([flat], Category.PARAMETER)
        self.assertTold([weight.grad], Category.GRADIENT)

    def test_nodes_of_views_are_made_as_without(self):
        """A view whose base has changed gets its node when somebody asks. Nodes run in the order of their numbers."""

        def gradient(look):
            torch.manual_seed(0)
            module = torch.nn.Linear(64, 64)
            x = torch.randn(512, 64, requires_grad=True)
            own = torch.nn.Parameter(torch.ones(1))
            for _ in range(3):
                hidden = module(x)
                module.last = hidden[:, 3:40]
                module._parameters["view"] = hidden[:, 5:30]
                hidden.mul_(1.7)
                look(own)
                several = (hidden.sin() * 1.3).sum() + (hidden.cos() / 3.7).exp().sum()
                (several + (module.last * 0.37).tanh().sum() + (module._parameters.pop("view") * 0.7).tanh().sum()).backward()
                del module.last
            return x.grad

        def watched(own):
            own.sum().backward()
            self.watch.failures.tell()

        seen = gradient(watched)
        self.tearDown()
        plain = gradient(lambda own: own.sum().backward())
        self.setUp()
        self.assertTrue(torch.equal(seen, plain))

    def test_proxies_are_not_asked(self):
        asked = []

        class Proxy:
            @property
            def __class__(self):
                asked.append(1)
                raise RuntimeError

        model = net()
        model.__dict__["proxy"] = Proxy()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        self.watch.failures.observe(0, 1, 2, 3)
        self.assertEqual(asked, [])

    def test_results_are_the_same(self):
        def losses():
            torch.manual_seed(3)
            model = net()
            optimizer = torch.optim.Adam(model.parameters())
            found = []
            for _ in range(3):
                x = model[0](torch.randn(8, 16))
                loss = model(checkpoint(model[1], x, use_reentrant=False)).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                found.append(loss.item())
            return found

        watched = losses()
        self.tearDown()
        plain = losses()
        self.setUp()
        self.assertEqual(watched, plain)

    def test_everything_is_removed(self):
        self.tearDown()
        names = ("_apply", "__setstate__")
        functions = [torch.nn.Module.__dict__[name] for name in names]
        self.assertFalse(any(hasattr(function, "__wrapped__") for function in functions))
        self.assertFalse(hasattr(torch.autograd.graph._engine_run_backward, "__wrapped__"))
        self.assertFalse(hasattr(torch.optim.Optimizer._patch_step_function, "__wrapped__"))
        self.setUp()


if __name__ == "__main__":
    unittest.main()
