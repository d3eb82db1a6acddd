"""What a look of the observers costs at so many parameters: gradients, state, samples. Needs torch, no GPU.

PYTHONPATH=python python3 bench/observe_looks.py [PARAMETERS]"""

import array
import sys
import time

import torch
from weir_gpu import observe
from weir_gpu.abi import Category
from weir_gpu.observe import modules, optimizers, tensors

COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
REPEATS = 50


def tell(_device, known):
    array.array("Q", known)
    bytes(known.values())


def fastest(function):
    best = float("inf")
    for _ in range(REPEATS):
        began = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - began)
    return best * 1e3


watch = observe.install(tell, lambda _: None, device_of=torch._C.TensorBase.element_size)
model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(COUNT // 2)])
optimizer = torch.optim.Adam(model.parameters())
for parameter in model.parameters():
    parameter.grad = torch.zeros_like(parameter)
optimizer.step()


def gradients():
    telling = watch.telling()
    telling.add_all(tensors.gradients_of(watch.parameters()), Category.GRADIENT)
    telling.send()


def state():
    telling = watch.telling()
    optimizers.add_state(telling, optimizer)
    telling.send()


def parameters():
    telling = watch.telling()
    found = watch.modules.all()
    watch.add_parameters(telling, found)
    modules.add_others(telling, found)
    telling.send()
    watch.choose_samples(found)


def nothing_new():
    watch.gradient_pace.looks = watch.parameter_pace.looks = 1000
    watch.gradient_pace.last = watch.parameter_pace.last = watch.state_pace.last = time.perf_counter() + 1e6
    watch.passes = 4
    watch.told_at = 4
    watch.backward_begins()
    watch.backward_ends()
    watch.optimizer_ends(optimizer)
    watch.step_ends()


print(f"PyTorch {torch.__version__}, {COUNT} parameters, milliseconds (fastest of {REPEATS}):")
for name, function in (("gradients", gradients), ("state", state), ("parameters", parameters), ("nothing new", nothing_new)):
    print(f"  {name:12} {fastest(function):.3f}")
