"""Who gets at a swapped-out parameter or gradient outside of Python: collectives, copies between GPUs, DLPack, scripts, held storages."""

import copy
import ctypes
import io
import os
import pickle
import subprocess
import sys
import tempfile
import unittest
import warnings
from multiprocessing.reduction import ForkingPickler

import numpy
import torch
import torch.distributed as dist
from support import DEVICE, FAKE, HERE, LEAST, ORDERS, WIDTH, Run, draw, trained
from torch.distributed import _functional_collectives as functional
from weir_gpu.swap.native_calls import NativeCalls
from weir_gpu.swap.swapped_tensors import SwappedGradient, SwappedParameter

warnings.filterwarnings("ignore")
BACKEND = "gloo" if FAKE else "nccl"


def setUpModule():
    global _folder
    _folder = tempfile.TemporaryDirectory()
    dist.init_process_group(BACKEND, init_method=f"file://{_folder.name}/store", rank=0, world_size=1)


def tearDownModule():
    dist.destroy_process_group()
    _folder.cleanup()


def empty():
    return torch.zeros(WIDTH, WIDTH, device=DEVICE)


def filled(collective):
    """What a collective writes."""
    out = empty()
    collective(out)
    return out


def group():
    return dist.group.WORLD


def backend():
    return group()._get_backend(torch.device(DEVICE))


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch._C._to_dlpack(x.detach()) and x.detach() * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


@torch.library.custom_op("weir_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def pickled(value):
    return pickle.loads(pickle.dumps(value))


def saved(value):
    content = io.BytesIO()
    torch.save(value, content)
    content.seek(0)
    return torch.load(content)


def shared(value):
    """As multiprocessing sends it."""
    return pickle.loads(ForkingPickler.dumps(value))


def address_of(value):
    size = value.numel() * 4
    return torch.frombuffer(bytearray((ctypes.c_char * size).from_address(value.data_ptr()).raw), dtype=torch.float32)


def scripted(value):
    return torch.jit.script(_script)(value)


def _script(x: torch.Tensor) -> torch.Tensor:
    return x * 2


COLLECTIVES = {
    "all_reduce": lambda q: dist.all_reduce(q),
    "broadcast": lambda q: dist.broadcast(q, 0),
    "reduce": lambda q: dist.reduce(q, 0),
    "all_gather": lambda q: filled(lambda out: dist.all_gather([out], q)),
    "all_gather_into_tensor": lambda q: filled(lambda out: dist.all_gather_into_tensor(out, q)),
    "reduce_scatter_tensor": lambda q: filled(lambda out: dist.reduce_scatter_tensor(out, q)),
    "scatter": lambda q: filled(lambda out: dist.scatter(out, [q], 0)),
    "gather": lambda q: filled(lambda out: dist.gather(q, [out], 0)),
    "all_to_all_single": lambda q: filled(lambda out: dist.all_to_all_single(out, q)),
    "all_reduce_coalesced": lambda q: dist.all_reduce_coalesced([q]),
    "group.allreduce": lambda q: group().allreduce([q]).wait(),
    "group.broadcast": lambda q: group().broadcast([q]).wait(),
    "group.allgather": lambda q: filled(lambda out: group().allgather([[out]], [q]).wait()),
    "backend.allreduce": lambda q: backend().allreduce([q]).wait(),
    "_broadcast_coalesced": lambda q: dist._broadcast_coalesced(group(), [q], 1 << 20, 0),
    "functional": lambda q: functional.all_reduce(q, "sum", group()) + 0,
}
OTHERS = {
    "autograd.Function": lambda q: Twice.apply(q),
    "torch.ops": lambda q: torch.ops.aten.mul.Tensor(q, 2),
    "custom op": lambda q: twice(q),
    "custom op by name": lambda q: torch.ops.weir_test.twice(q),
    "foreach": lambda q: torch._foreach_add([q], 1.0)[0],
    "foreach in place": lambda q: torch._foreach_add_([q], 1.0),
    "data": lambda q: q.data + 1,
    "data in place": lambda q: q.data.add_(1),
    "storage": lambda q: torch.tensor(q.untyped_storage().nbytes()),
    "typed storage": lambda q: torch.tensor(len(q.storage())),
    "from_dlpack": lambda q: torch.from_dlpack(q.detach()) + 1,
    "to_dlpack": lambda q: torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(q.detach())) + 1,
    "_to_dlpack": lambda q: torch.from_dlpack(torch._C._to_dlpack(q.detach())) + 1,
    "deepcopy": copy.deepcopy,
    "copy": lambda q: copy.copy(q) + 0,
    "pickle": pickled,
    "torch.save": saved,
    "script": scripted,
    "Parameter": lambda q: torch.nn.Parameter(q),
    "Parameter of data": lambda q: torch.nn.Parameter(q.data),
    "out=": lambda q: torch.add(q.detach(), 1, out=empty()),
    "copy_": lambda q: empty().copy_(q),
    "into": lambda q: q.copy_(torch.ones(WIDTH, WIDTH, device=DEVICE)),
    "swap_tensors": lambda q: torch.utils.swap_tensors(empty(), q.clone()),
    "make_subclass": lambda q: torch.Tensor._make_subclass(torch.Tensor, q.detach()) + 1,
    "tolist": lambda q: torch.tensor(q.tolist()),
    "repr": lambda q: torch.tensor(len(repr(q))),
    "norm": lambda q: torch.nn.utils.clip_grad_norm_([q], 1e9),
    "vector": lambda q: torch.nn.utils.parameters_to_vector([q]),
    "export": lambda q: torch.export.export(torch.nn.Identity(), (q.detach(),)).module()(q.detach()) + 1,
}
ON_THE_CPU = {
    # CUDA does not open memory of its own process.
    "multiprocessing": shared,
    "numpy": lambda q: torch.from_numpy(numpy.asarray(q.detach()) + 1),
    "array": lambda q: torch.from_numpy(numpy.array(q.detach().numpy()) + 1),
    "ctypes": address_of,
}


NAME_THE_LOADER = """import sys, traceback
class Loader:
    def find_spec(name, *_):
        if name == 'torch._dynamo': traceback.print_stack()
sys.meta_path.insert(0, Loader)
"""


class Reach(unittest.TestCase):
    def result(self, use, run=None, of_gradient=False):
        """What the use returns, and what it leaves, between a layer's forward and backward pass."""
        training = trained(2)
        if of_gradient:
            training.loss().backward()
        loss = training.loss()
        used = training.net.layers[1].weight
        self.assertIs(type(used), SwappedParameter if run is not None else torch.nn.Parameter)
        if of_gradient:
            used = used.grad
            self.assertIs(type(used), SwappedGradient if run is not None else torch.Tensor)
        with torch.no_grad():
            found = use(used)
        left = used.detach().clone()
        del used
        if not of_gradient:
            loss.backward()
        return [value.detach().clone() for value in (found, left) if isinstance(value, torch.Tensor)]

    def check(self, uses, of_gradient=False):
        for name, use in uses.items():
            with self.subTest(name):
                expected = self.plainly(use, of_gradient)
                with Run("all", *ORDERS[0]) as run:
                    try:
                        found = self.result(use, run, of_gradient)
                    except RuntimeError as error:
                        if "modified by an inplace operation" not in str(error):
                            raise
                        found = str(error)[:60]
                    self.assertIsNone(run.manager.stopped)
                self.assertEqual(len(expected), len(found))
                if isinstance(expected, str):
                    self.assertEqual(expected, found)
                    continue
                for one, other in zip(expected, found, strict=True):
                    self.assertTrue(torch.equal(one, other))

    def plainly(self, use, of_gradient):
        try:
            return self.result(use, None, of_gradient)
        except RuntimeError as error:
            return str(error)[:60]

    def test_collectives_of_parameters(self):
        self.check(COLLECTIVES)

    def test_collectives_of_gradients(self):
        self.check(COLLECTIVES, of_gradient=True)

    def test_other_uses_of_parameters(self):
        self.check({**OTHERS, **(ON_THE_CPU if FAKE else {})})

    def test_other_uses_of_gradients(self):
        without = {name: use for name, use in OTHERS.items() if name != "swap_tensors"}
        self.check({**without, **(ON_THE_CPU if FAKE else {})}, of_gradient=True)

    def test_a_function_that_nobody_knows(self):
        """It must not work on nothing in silence."""
        native = dist.ProcessGroup.allreduce
        with Run("all", *ORDERS[0]):
            training = trained(2)
            loss = training.loss()
            weight = training.net.layers[1].weight
            with self.assertRaises(RuntimeError):
                native(group(), [weight]).wait()
            self.assertIs(type(weight), SwappedParameter)
            self.assertTrue(torch.isfinite(weight).all())
            loss.backward()
            training.finish(loss)

    def test_while_its_copy_out_is_under_way(self):
        """Otherwise what is written would be lost."""

        def known(weight):
            group().broadcast([weight]).wait()
            self.assertIs(type(weight), torch.nn.Parameter)

        def unknown(weight):
            with torch._C.DisableTorchFunctionSubclass():
                weight.mul_(2)

        for write in (known, unknown):
            with self.subTest(write.__name__), Run("limit", *ORDERS[1]) as run:
                training = trained(2)
                layers = run.manager.layers
                layer = layers.layers[1]
                weight = training.net.layers[1].weight
                self.assertIs(layer.weights[0].parameter(), weight)
                expected = 2 * weight.detach() if write is unknown else weight.detach().clone()
                layers.begin_layer_swap_out(layer)
                self.assertIs(type(weight), SwappedParameter)
                with torch.no_grad():
                    write(weight)
                layers.end_layer_swap_out(layer)
                self.assertTrue(torch.equal(weight, expected))

    def test_replicas_of_nn_parallel(self):
        if FAKE:
            self.skipTest("needs a GPU")
        with Run("all", *ORDERS[0]):
            training = trained(2)
            loss = training.loss()
            (copied,) = torch.nn.parallel.replicate(training.net, [0])
            self.assertTrue(torch.isfinite(copied.layers[1].weight).all())
            loss.backward()

    def test_distributed_data_parallel_made_in_mid_step(self):
        with Run("all", *ORDERS[0]):
            training = trained(2)
            training.loss()
            self.assertIs(type(training.net.layers[1].weight), SwappedParameter)
            parallel = torch.nn.parallel.DistributedDataParallel(training.net)
            for _ in range(4):
                loss = (parallel(draw(WIDTH, WIDTH)) ** 2).mean()
                self.assertIs(type(training.net.layers[1].weight), torch.nn.Parameter)
                loss.backward()
                training.finish(loss)

    def test_a_storage_that_the_program_holds(self):
        for hold in (
            lambda p: p.untyped_storage(),
            lambda p: p.storage(),
            lambda p: p.data,
            lambda p: p.detach().view(-1)[3:5],
            lambda p: torch.utils.dlpack.to_dlpack(p.detach()),
        ):
            with Run("all", *ORDERS[0]):
                training = trained(2)
                held = hold(training.net.layers[1].weight)
                training.loss()
                self.assertIs(type(training.net.layers[1].weight), torch.nn.Parameter)
                self.assertIs(type(training.net.layers[0].weight), SwappedParameter)
                del held

    def test_a_storage_of_a_gradient_that_the_program_holds(self):
        with Run("all", *ORDERS[0]):
            training = trained(2)
            training.loss().backward()
            held = training.net.layers[1].weight.grad.untyped_storage()
            training.loss()
            self.assertIs(type(training.net.layers[1].weight.grad), torch.Tensor)
            self.assertIs(type(training.net.layers[0].weight.grad), SwappedGradient)
            self.assertGreaterEqual(held.nbytes(), LEAST)

    def test_functions_that_ask_no_class(self):
        """They raise an error. Without a GPU, only writing can be stopped."""
        if FAKE:
            self.skipTest("needs a GPU")
        uses = {
            "tensor": torch.tensor,
            "as_tensor": torch.as_tensor,
            "asarray": torch.asarray,
            "new_tensor": lambda q: empty().new_tensor(q),
            "set_": lambda q: torch.empty(0, device=DEVICE).set_(q),
            "make_subclass": lambda q: torch.Tensor._make_subclass(torch.Tensor, q),
        }
        for name, use in uses.items():
            with self.subTest(name), Run("all", *ORDERS[0]):
                training = trained(2)
                training.loss()
                weight = training.net.layers[1].weight
                self.assertIs(type(weight), SwappedParameter)
                try:
                    with torch.no_grad():
                        found = use(weight) + 0
                except RuntimeError as error:
                    self.assertIn("weir: this tensor is swapped out", str(error))
                else:
                    self.assertTrue(torch.equal(found, weight))

    def test_nothing_is_left_replaced(self):
        before = (
            dist._broadcast_coalesced,
            vars(dist.ProcessGroup)["allreduce"],
            torch.utils.dlpack.to_dlpack,
            torch.autograd.Function.apply,
        )
        for end in ("uninstalled", "compiled"):
            with Run("all", *ORDERS[0]):
                self.assertIsNot(dist._broadcast_coalesced, before[0])
                if end == "compiled":
                    torch.compile(lambda x: x, backend="eager")
                    self.assertIs(dist._broadcast_coalesced, before[0])
            self.assertIs(dist._broadcast_coalesced, before[0])
            self.assertIs(vars(dist.ProcessGroup)["allreduce"], before[1])
            self.assertIs(torch.utils.dlpack.to_dlpack, before[2])
            self.assertEqual(torch.autograd.Function.apply, before[3])

    def test_every_collective_of_a_group_is_known(self):
        calls = NativeCalls()
        try:
            for owner in (dist.ProcessGroup, torch._C._distributed_c10d.Backend):
                for name in ("allreduce", "broadcast", "reduce", "allgather", "gather", "scatter", "alltoall", "send", "recv"):
                    self.assertTrue(hasattr(vars(owner)[name], "__wrapped__"), name)
        finally:
            calls.close()

    def test_swapping_does_not_load_the_compiler(self):
        """Loading it takes seconds."""
        # PyTorch 2.11 loads it for deterministic algorithms, which `support` asks for.
        code = (
            f"{NAME_THE_LOADER}from support import Run\n"
            "is_there = 'torch._dynamo' in sys.modules\n"
            "with Run('all'): assert is_there or 'torch._dynamo' not in sys.modules"
        )
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": HERE})
        self.assertEqual(run.returncode, 0, run.stderr[-2000:])


if __name__ == "__main__":
    unittest.main()
