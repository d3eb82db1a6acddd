"""What works without the observers works with them: compilers, transforms, parallel modules, distributed tensors, swapping."""

import os
import sys
import unittest
import warnings

import torch
import torch.nn.utils.prune
from support import ObserveCase, net
from torch._dynamo import convert_frame
from weir_gpu import observe
from weir_gpu.abi import Category

warnings.filterwarnings("ignore")
X = torch.linspace(-1, 1, 64).reshape(4, 16)


class Company(ObserveCase):
    def tearDown(self):
        super().tearDown()
        torch._dynamo.reset()

    def test_nothing_of_ours_runs_in_a_forward_pass(self):
        model = net(layers=30)
        ours = []

        def profile(frame, event, _argument):
            if event == "call" and "weir_gpu" in frame.f_code.co_filename:
                ours.append(frame.f_code.co_name)

        for _ in range(2):
            sys.setprofile(profile)
            out = model(X)
            sys.setprofile(None)
            out.sum().backward()
        self.assertEqual(ours, [])
        self.assertEqual(torch.utils._python_dispatch._get_current_dispatch_mode_stack(), [])

    def test_a_function_mode_of_the_program(self):
        class Seen(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, function, types, arguments=(), named=None):
                found.append(getattr(function, "__name__", function))
                return function(*arguments, **(named or {}))

        def job(fail):
            with Seen():
                model = net()
                model.register_buffer("more", torch.zeros(3))
                model.double().float()
                optimizer = torch.optim.Adam(model.parameters())
                for _ in range(3):
                    model(X).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                fail()

        found = []
        job(lambda: self.watch.failures.observe(0, 1, 2, 3))
        seen, found = found, []
        self.tearDown()
        job(lambda: None)
        self.setUp()
        self.assertEqual(seen, found)

    def test_compiled_modules(self):
        for backend in ("eager", "aot_eager"):
            model = net()
            expected = model(X)
            compiled = torch.compile(model, backend=backend, fullgraph=True)
            self.assertTrue(torch.allclose(compiled(X), expected, atol=1e-5))
            compiled(X).sum().backward()
            self.assertTold([parameter.grad for parameter in model.parameters()], Category.GRADIENT)

    def test_a_compiled_optimizer(self):
        model = net()
        optimizer = torch.optim.Adam(model.parameters())
        # PyTorch itself breaks the graph at its hooks.
        step = torch.compile(optimizer.step, backend="eager")
        for _ in range(3):
            optimizer.zero_grad()
            model(X).sum().backward()
            step()
        state = optimizer.state[next(model.parameters())]["exp_avg"]
        self.assertTold([state], Category.OPTIMIZER_STATE)

    def test_a_compiled_step(self):
        model = net()
        optimizer = torch.optim.Adam(model.parameters())
        compiled = []
        original = convert_frame._compile

        def spy(code, *arguments, **named):
            compiled.append(code.co_filename)
            return original(code, *arguments, **named)

        @torch.compile(backend="eager")
        def step():
            model(X).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        convert_frame._compile = spy
        try:
            for _ in range(3):
                step()
                self.assertTrue(self.watch.passes < 2 or self.watch.misses_steps())
        finally:
            convert_frame._compile = original
        self.assertEqual(self.phases(), ["backward", "forward"] * 3)
        self.assertEqual([name for name in compiled if "weir_gpu" in name], [])
        self.assertGreater(len(compiled), 0)
        self.assertTold([optimizer.state[next(model.parameters())]["exp_avg"]], Category.OPTIMIZER_STATE)
        # So the program says it.
        observe.step()
        self.assertEqual(self.phases()[-1], "step")
        self.assertFalse(self.watch.misses_steps())

    def test_a_first_step_that_failed_was_a_step(self):
        weight = torch.nn.Parameter(torch.ones(4))
        optimizer = torch.optim.Adam([weight])
        for _ in range(3):
            weight.sum().backward()
        self.assertFalse(self.watch.misses_steps())
        # State is there, and then a request for memory fails.
        optimizer.state[weight]["exp_avg"] = torch.zeros(4)
        self.assertTrue(self.watch.misses_steps())
        with self.assertRaises(RuntimeError):
            optimizer.step(lambda: (_ for _ in ()).throw(RuntimeError("out of memory")))
        self.assertFalse(self.watch.misses_steps())

    def test_compiling_is_done_once(self):
        counts = []
        model = net()

        def backend(graph, _inputs):
            counts.append(1)
            return graph

        compiled = torch.compile(model, backend=backend, fullgraph=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            compiled(X).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        self.assertEqual(len(counts), 1)

    def test_transforms(self):
        inner = torch.vmap(torch.func.grad(lambda a: a.sin().sum()))
        self.assertTrue(torch.allclose(inner(X), X.cos()))
        for backend in ("eager", "aot_eager"):
            compiled = torch.compile(lambda x: torch.func.grad(lambda a: (a * a).sum())(x), backend=backend, fullgraph=True)
            self.assertTrue(torch.allclose(compiled(X), 2 * X))
        model = net().eval()
        parameters = dict(model.named_parameters())
        call = torch.func.grad(lambda values: torch.func.functional_call(model, values, (X,)).sum())
        self.assertEqual(set(call(parameters)), set(parameters))
        self.assertTrue(torch.func.jacrev(lambda a: a.sin())(X[0]).shape == (16, 16))

    def test_export_and_script(self):
        model = net().eval()
        exported = torch.export.export(model, (X,))
        self.assertTrue(torch.allclose(exported.module()(X), model(X)))
        self.assertTrue(torch.allclose(torch.jit.script(model)(X), model(X)))
        traced = torch.jit.trace(model, (X,))
        self.assertTrue(torch.allclose(traced(X), model(X)))
        traced(X).sum().backward()

    def test_data_parallel_replicas(self):
        # Replicas are made as DataParallel makes them; without GPUs, here of the same tensors.
        model = net()
        replica = model._replicate_for_data_parallel()
        self.assertEqual(type(replica), type(model))
        wrapped = torch.nn.DataParallel(model)
        wrapped(X).sum().backward()
        self.assertTold([parameter.grad for parameter in model.parameters()], Category.GRADIENT)

    def test_distributed_tensors(self):
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ["MASTER_PORT"] = "0"
        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
        try:
            mesh = init_device_mesh("cpu", (1,))
            model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 16))
            for layer in model:
                fully_shard(layer, mesh=mesh)
            fully_shard(model, mesh=mesh)
            optimizer = torch.optim.Adam(model.parameters())
            for _ in range(2):
                optimizer.zero_grad()
                model(X).sum().backward()
                optimizer.step()
            local = [parameter.to_local() for parameter in model.parameters()]
            gradients = [parameter.grad.to_local() for parameter in model.parameters()]
            state = [optimizer.state[parameter]["exp_avg"].to_local() for parameter in model.parameters()]
            self.assertTold(local, Category.PARAMETER)
            self.assertTold(gradients, Category.GRADIENT)
            self.assertTold(state, Category.OPTIMIZER_STATE)
        finally:
            dist.destroy_process_group()

    def test_meta_and_lazy_modules(self):
        with torch.device("meta"):
            model = net()
        model.to_empty(device="cpu")
        self.assertTold(list(model.parameters()), Category.PARAMETER)
        lazy = torch.nn.LazyLinear(4)
        lazy(X).sum().backward()
        self.assertTold(list(lazy.parameters()), Category.PARAMETER)

    def test_parametrized_and_pruned_modules(self):
        layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(16, 16))
        torch.nn.utils.prune.random_unstructured(layer, "bias", amount=0.5)
        layer(X).sum().backward()
        self.assertTold(list(layer.parameters()), Category.PARAMETER)


if __name__ == "__main__":
    unittest.main()
