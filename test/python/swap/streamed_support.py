"""Optimizers whose steps are streamed, for the tests of that."""

import sys
from unittest import mock

import torch
from support import WIDTH, SwapCase, draw
from weir_gpu.swap import streamed_step

# torch.optim hides its modules.
ADAM = sys.modules["torch.optim.adam"]
SIZE = 4 * WIDTH * WIDTH
PARAMETERS = 8
STEPS = 7


class Bag:
    """Parameters of two kinds of numbers in several groups. Some have no gradient in some steps."""

    def __init__(self, kind="AdamW", seed=0, own=None, **options):
        torch.manual_seed(seed)
        kinds = [torch.float64 if i % 4 == 3 else torch.float32 for i in range(PARAMETERS)]
        self.parameters = [torch.nn.Parameter((draw(WIDTH, WIDTH) / WIDTH**0.5).to(kind)) for kind in kinds]
        groups = [
            {"params": self.parameters[:5]},
            {"params": self.parameters[5:7], "lr": 2e-3, **({} if kind == "Rprop" else {"weight_decay": 0.05})},
            {"params": self.parameters[7:]},
        ]
        make = own or getattr(torch.optim, kind)
        self.optimizer = make(groups, lr=1e-3, **options)
        self.losses = []

    def backward(self, i=0):
        x = draw(WIDTH, WIDTH)
        for number, parameter in enumerate(self.parameters):
            # SGD treats lists of some new and some old momentum otherwise, and that has a test of its own.
            if number == 2 and i % 3 == 2:
                continue
            x = torch.tanh(x.to(parameter.dtype) @ parameter).float() + x
        loss = x.square().mean()
        loss.backward()
        self.losses.append(loss.item())

    def step(self, i=0):
        self.backward(i)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def result(self):
        state = [value for entry in self.optimizer.state_dict()["state"].values() for value in entry.values()]
        tensors = [*self.parameters, *[value for value in state if isinstance(value, torch.Tensor)]]
        return [loss.hex() for loss in self.losses], [tensor.detach().clone() for tensor in tensors]


def program_of(do=Bag.step, steps=STEPS, **options):
    def program():
        bag = Bag(**options)
        for i in range(steps):
            do(bag, i)
        return bag.result()

    return program


class StreamedCase(SwapCase):
    def setUp(self):
        # Three chunks of two parameters' state each are less than half of it.
        patch = mock.patch.object(streamed_step, "CHUNK", 3 * SIZE)
        patch.start()
        self.addCleanup(patch.stop)

    def streamed(self, at_least=STEPS - 1):
        return lambda run: self.assertGreaterEqual(run.manager.copies.counts["steps_streamed"], at_least)

    def not_streamed(self, run):
        self.assertEqual(run.manager.copies.counts["steps_streamed"], 0)
