"""Swaps inside of inference mode, transforms and dispatch modes, which change or see every operation."""

import unittest

import torch
from support import WIDTH, SwapCase, Training, draw
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

STEPS = 14
MODES = ("all", "plan", "limit")


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        # Any saved-tensor hook has to detach.
        if function != torch.ops.aten.detach.default:
            self.names.append(str(function))
        return function(*arguments, **(named or {}))


class Contexts(SwapCase):
    def same_everywhere(self, program):
        for mode in MODES:
            self.same(program, mode)

    def test_transforms_in_mid_step(self):
        """The model is called inside of a transform, so layers are needed there, and a plan acts there."""

        def program():
            training = Training()
            net, losses = training.net, []
            for _ in range(STEPS):
                loss = training.loss()
                x = draw(8, WIDTH)
                weights = {name: weight.detach() for name, weight in net.named_parameters()}

                def value(weights, x):
                    return (torch.func.functional_call(net, weights, (x,)) ** 2).mean()

                gradients = torch.func.grad(value)(weights, x)
                losses.extend(gradient.sum().item() for gradient in gradients.values())
                losses.append(torch.func.vmap(lambda row: net(row[None]).sum())(x).sum().item())
                del gradients, weights
                loss.backward()
                training.finish(loss)
            training.losses.extend(losses)
            return training.result()

        self.same_everywhere(program)

    def test_forward_derivatives_in_mid_step(self):
        """PyTorch saves tensors of zeros there, which have no memory."""

        def program():
            training = Training()
            for _ in range(STEPS):
                loss = training.loss()
                x = torch.ones(WIDTH, WIDTH, device=loss.device)
                training.losses.append(torch.func.jvp(training.net, (x,), (x,))[1].sum().item())
                with forward_ad.dual_level():
                    result = training.net(forward_ad.make_dual(x, x))
                    training.losses.append(forward_ad.unpack_dual(result).tangent.sum().item())
                del result
                loss.backward()
                training.finish(loss)
            return training.result()

        self.same_everywhere(program)

    def test_inference_in_mid_step(self):
        def program():
            training = Training()
            for _ in range(STEPS):
                node = draw(WIDTH, WIDTH).requires_grad_().exp().grad_fn
                loss = training.loss()
                with torch.inference_mode():
                    training.losses.append((training.net(draw(8, WIDTH)) ** 2).mean().item())
                    training.losses.append(node._saved_result.sum().item())
                    training.losses.extend(parameter.sum().item() for parameter in training.net.parameters())
                node(torch.ones(WIDTH, WIDTH, device=loss.device))
                loss.backward()
                training.finish(loss)
            return training.result()

        self.same_everywhere(program)

    def test_modes_do_not_see_swaps(self):
        def program():
            training = Training()
            names = []
            for _ in range(STEPS):
                loss = training.loss()
                with Seen() as seen:
                    for parameter in training.net.parameters():
                        if parameter in training.optimizer.state:
                            training.optimizer.state[parameter]["exp_avg"].sum()
                    training.net(draw(8, WIDTH))
                    loss.backward()
                    training.optimizer.step()
                names.append(seen.names)
                training.losses.append(loss.item())
                training.optimizer.zero_grad()
            return [[*training.result()[0], *names], training.result()[1]]

        self.same_everywhere(program)


if __name__ == "__main__":
    unittest.main()
