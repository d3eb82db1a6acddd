"""FSDP2 and other tensors that consist of tensors: their optimizer state leaves by its local parts. Values stay the same to the bit."""

import copy
import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import torch
import torch.distributed as dist
from support import DEVICE, FAKE, ORDERS, WIDTH, Net, Run, SwapCase, Training, draw, followed, swapped
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Shard
from weir_gpu import swap
from weir_gpu.swap import element_wise, streamed_step
from weir_gpu.swap.records import RESIDENT, SWAPPED_OUT

STEPS = 20


def join(rank=0, size=1, path=None):
    if not dist.is_initialized():
        store = dist.FileStore(path, size) if path else dist.HashStore()
        dist.init_process_group("gloo" if FAKE else "nccl", store=store, rank=rank, world_size=size)
    return init_device_mesh(DEVICE, (size,))


class Sharded(Training):
    """The same training, where each layer and the whole are sharded."""

    def __init__(self, mesh, seed=0, checkpointed=False, accumulate=1, layers=4, foreach=None, **more):
        torch.manual_seed(seed)
        self.net = Net(checkpointed=checkpointed, layers=layers).to(DEVICE)
        for layer in self.net.layers:
            fully_shard(layer, mesh=mesh, **more)
        fully_shard(self.net, mesh=mesh, **more)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3, foreach=foreach)
        self.batch, self.losses, self.accumulate = WIDTH, [], accumulate
        self.most_out = 0

    def step(self, i):
        for _ in range(self.accumulate):
            loss = self.loss()
            if swap._manager is not None and swap._manager.backend is not None:
                items = swap._manager.guard.items
                self.most_out = max(self.most_out, sum(item.state == SWAPPED_OUT for item in items if item.names))
            loss.backward()
        self.finish(loss)

    def result(self):
        losses, tensors = super().result()
        return losses, [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors]


class ShardedCase(SwapCase):
    @classmethod
    def setUpClass(cls):
        cls.mesh = join()

    @classmethod
    def tearDownClass(cls):
        dist.destroy_process_group()

    def trained(self, steps=STEPS, **options):
        most = []

        def program():
            training = Sharded(self.mesh, **options)
            for i in range(steps):
                training.step(i)
            most.append(training.most_out)
            return training.result()

        program.most = most
        return program


class FullyShard(ShardedCase):
    def test_same_values_over_20_steps(self):
        for mode, check in (("all", swapped), ("plan", followed), ("limit", followed)):
            program = self.trained()
            self.same(program, mode, orders=ORDERS[:4], check=check)
            # Two tensors of each layer's weight.
            self.assertGreaterEqual(min(program.most[1:]), 8, mode)

    def test_checkpointing_and_accumulation(self):
        for options in ({"checkpointed": True}, {"accumulate": 3}, {"reshard_after_forward": False}):
            for mode in ("all", "plan"):
                self.same(self.trained(10, **options), mode, orders=ORDERS[:3], check=swapped)

    def test_state_that_passes_through_in_chunks(self):
        def check(run):
            self.assertGreaterEqual(run.manager.copies.counts["steps_streamed"], 9)

        for foreach in (True, False):
            with mock.patch.object(streamed_step, "CHUNK", 1):
                self.same(self.trained(10, foreach=foreach), "all", orders=ORDERS[:3], check=check)

    def test_what_is_not_taken_in_chunks(self):
        """Lists of sharded and plain tensors, and sums that are not made yet."""
        sharded = DTensor.from_local(draw(WIDTH, WIDTH), self.mesh, [Shard(0)])
        partial = DTensor.from_local(draw(WIDTH, WIDTH), self.mesh, [Partial()])
        self.assertIs(element_wise.part_of(sharded), sharded._local_tensor)
        self.assertIsNone(element_wise.part_of(partial))
        parameters = [torch.nn.Parameter(sharded), torch.nn.Parameter(draw(WIDTH, WIDTH))]
        for parameter in parameters:
            parameter.grad = parameter.detach().clone()
        for chosen, is_so in ((parameters[:1], True), (parameters[1:], True), (parameters, False)):
            optimizer = torch.optim.AdamW(chosen)
            kind = element_wise.kind_of(optimizer)
            self.assertEqual(element_wise.is_uniform(optimizer, kind, optimizer.param_groups[0], lambda part: True), is_so)

    def test_gathered_parameters_are_left_alone(self):
        """Views of them are saved, and FSDP frees and fills their memory itself."""
        with Run("all", *ORDERS[0]) as run:
            training = Sharded(self.mesh)
            for i in range(4):
                training.step(i)
            self.assertEqual(run.manager.copies.counts["parameters_out"], 0)
            self.assertIsNone(run.manager.stopped)

    def swapped_out(self, run):
        training = Sharded(self.mesh)
        for i in range(3):
            training.step(i)
        loss = training.loss()
        items = [item for item in run.manager.guard.items if item.state == SWAPPED_OUT]
        self.assertGreater(len(items), 3)
        return training, loss, items

    def test_whoever_reads_state_finds_it(self):
        def reads(optimizer):
            parameter = optimizer.param_groups[0]["params"][0]
            return {
                "an entry": lambda: optimizer.state[parameter]["exp_avg"].full_tensor(),
                "all of it": lambda: torch.cat([entry["exp_avg_sq"].to_local().flatten() for entry in optimizer.state.values()]),
                "a state dict": lambda: optimizer.state_dict()["state"][0]["exp_avg"].to_local().clone(),
                "a copy": lambda: next(iter(copy.deepcopy(optimizer.state).values()))["exp_avg"].to_local(),
            }

        names = list(reads(Sharded(self.mesh).optimizer))
        for name in names:
            expected = None
            for swapping in (False, True):
                if swapping:
                    with Run("all", *ORDERS[0]) as run:
                        training, loss, _ = self.swapped_out(run)
                        found = reads(training.optimizer)[name]()
                        self.assertTrue(torch.equal(expected, found), name)
                        loss.backward()
                        training.finish(loss)
                        self.assertIsNone(run.manager.stopped)
                else:
                    training = Sharded(self.mesh)
                    for i in range(3):
                        training.step(i)
                    training.loss()
                    expected = reads(training.optimizer)[name]()

    def test_what_somebody_holds_stays(self):
        def hold(entry):
            return {
                "the sharded tensor": lambda: entry()["exp_avg"],
                "its local part": lambda: entry()["exp_avg"]._local_tensor,
                "what to_local gives": lambda: entry()["exp_avg"].to_local(),
                "a view": lambda: entry()["exp_avg"][:2],
                "the memory": lambda: entry()["exp_avg"]._local_tensor.untyped_storage(),
            }

        for name in hold(None):
            with Run("all", *ORDERS[0]) as run:
                training = Sharded(self.mesh)
                for i in range(3):
                    training.step(i)
                parameter = training.optimizer.param_groups[0]["params"][0]
                held = hold(lambda training=training, parameter=parameter: training.optimizer.state[parameter])[name]()
                training.step(3)
                training.loss()
                guard = run.manager.guard
                local = dict.__getitem__(training.optimizer.state, parameter)["exp_avg"]._local_tensor
                states = {item.state for item in guard.items if item.tensor is local}
                self.assertEqual(states, {RESIDENT}, name)
                self.assertGreater(sum(item.state == SWAPPED_OUT for item in guard.items), 2, name)
                del held, local

    def test_state_that_is_replaced(self):
        def program():
            training = Sharded(self.mesh)
            for i in range(12):
                training.step(i)
                if i in (4, 8):
                    training.optimizer.load_state_dict(copy.deepcopy(training.optimizer.state_dict()))
            return training.result()

        self.same(program, "all", orders=ORDERS[:3], check=swapped)
        self.same(program, "plan", orders=ORDERS[:3])


class Packed(torch.Tensor):
    """Numbers of eight bits and their scale, as quantized optimizer state has them."""

    @staticmethod
    def __new__(cls, codes, scale):
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32, device=codes.device)

    def __init__(self, codes, scale):
        self.codes, self.scale = codes, scale

    def __tensor_flatten__(self):
        return ["codes", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, meta, size, stride):
        return cls(inner["codes"], inner["scale"])

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), named=None):
        if function is torch.ops.aten.detach.default:
            return cls(arguments[0].codes, arguments[0].scale)
        raise NotImplementedError(function)


class PackedMomentum(torch.optim.Optimizer):
    def __init__(self, parameters, lr=1e-2):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            entry = self.state[parameter]
            if not entry:
                entry["packed"] = Packed(torch.zeros_like(parameter), torch.ones((), device=parameter.device))
            packed = entry["packed"]
            packed.codes.mul_(packed.scale * 0.9).add_(parameter.grad)
            packed.scale.copy_(packed.codes.abs().max() + 1e-6)
            packed.codes.div_(packed.scale)
            parameter.sub_(packed.codes, alpha=self.param_groups[0]["lr"])


class OtherWrappers(SwapCase):
    def test_same_values(self):
        most = []

        def program():
            training = Training()
            training.optimizer = PackedMomentum(training.net.parameters())
            out = 0
            for _ in range(12):
                loss = training.loss()
                if swap._manager is not None:
                    out = max(out, sum(item.state == SWAPPED_OUT for item in swap._manager.guard.items))
                loss.backward()
                training.finish(loss)
            most.append(out)
            codes = [entry["packed"].codes.clone() for entry in training.optimizer.state.values()]
            return [loss.hex() for loss in training.losses], [*codes, *[p.detach().clone() for p in training.net.parameters()]]

        for mode in ("all", "plan"):
            most.clear()
            self.same(program, mode, orders=ORDERS[:4], check=swapped)
            self.assertGreaterEqual(min(most[1:]), 4)

    def test_a_class_that_raises_when_it_is_asked(self):
        class Odd(Packed):
            def __tensor_flatten__(self):
                raise ValueError("not now")

        with Run("all", *ORDERS[0]) as run:
            training = Training()
            training.optimizer = PackedMomentum(training.net.parameters())
            for i in range(3):
                training.step(i)
                for entry in training.optimizer.state.values():
                    entry["packed"] = Odd(entry["packed"].codes, entry["packed"].scale)
            self.assertIsNone(run.manager.stopped)
            self.assertEqual(len(run.manager.guard.items), 0)


def rank(number, path, mode):
    """One of two ranks, each with a GPU of its own."""
    mesh = join(number, 2, path)

    def program():
        training = Sharded(mesh)
        torch.manual_seed(100 + number)
        for i in range(STEPS):
            training.step(i)
        return training.result(), training.most_out

    expected, _ = program()
    with Run(mode, "random", number + 1) as run:
        found, most = program()
        stopped = run.manager.stopped
    same = expected[0] == found[0] and all(torch.equal(one, other) for one, other in zip(expected[1], found[1], strict=True))
    print(f"same {same}, stopped {stopped}, swapped {most}, checked {run.report['checked'] > 10}, losses {hash(tuple(found[0]))}")
    dist.destroy_process_group()


@unittest.skipUnless(FAKE, "starts processes that share a GPU otherwise")
class TwoRanks(unittest.TestCase):
    def test_same_values(self):
        for mode in ("all", "plan"):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "store")
                ranks = [
                    subprocess.Popen([sys.executable, __file__, "rank", str(number), path, mode], stdout=subprocess.PIPE, text=True)
                    for number in range(2)
                ]
                told = [process.communicate(timeout=200)[0] for process in ranks]
            for number, text in enumerate(told):
                self.assertIn("same True, stopped None", text, (mode, number))
                self.assertIn("checked True", text, (mode, number))
                # Half of the state of each weight is on each rank.
                self.assertNotIn("swapped 0", text, (mode, number))


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        rank(int(sys.argv[2]), sys.argv[3], sys.argv[4])
    else:
        unittest.main()
