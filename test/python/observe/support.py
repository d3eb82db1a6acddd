"""What the observers tell about tensors in host memory, which stand in for those of GPU 0."""

import gc
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "..", "python"), HERE]

import torch  # noqa: E402
from weir_gpu import observe  # noqa: E402
from weir_gpu.abi import Category, PhaseMark  # noqa: E402

torch.set_num_threads(1)
PHASES = {PhaseMark.STEP: "step", PhaseMark.FORWARD: "forward", PhaseMark.BACKWARD: "backward", PhaseMark.OPTIMIZER: "optimizer"}


def address(tensor):
    return tensor.untyped_storage().data_ptr()


class ObserveCase(unittest.TestCase):
    accesses = 0

    def setUp(self):
        self.told = {}  # address -> last category
        self.calls = 0
        self.marks = []
        self.operators = []
        self.watch = observe.install(
            self.tell,
            self.marks.append,
            lambda *row: self.operators.append(row),
            accesses=self.accesses,
            device_of=lambda tensor: 0 if torch.Tensor.device.__get__(tensor).type == "cpu" else -1,
            quiet=True,
        )
        if self.accesses:
            observe._accesses.recorder.wait = lambda device: True

    def tearDown(self):
        observe.uninstall()
        gc.collect()

    def tell(self, device, known):
        self.assertEqual(device, 0)
        self.calls += 1
        self.told.update(known)

    def phases(self):
        return [PHASES.get(mark, mark) for mark in self.marks]

    def category(self, tensor):
        return self.told.get(address(tensor), Category.UNKNOWN)

    def assertTold(self, tensors, category):
        self.assertEqual([self.category(tensor) for tensor in tensors], [category for _ in tensors])


def net(width=16, layers=3):
    return torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(layers)], torch.nn.BatchNorm1d(width))


def states(optimizer):
    return [value for values in optimizer.state.values() for value in values.values() if isinstance(value, torch.Tensor)]
