"""Tells what memory holds, at the ends of passes and steps: parameters, gradients, optimizer state, buffers.

Each look costs time, so it is taken only if something may have changed, and rarely enough to be a small share of the run."""

import time

import torch

from ..abi import Category
from . import modules as of_modules
from . import optimizers as of_optimizers
from .modules import Modules
from .optimizers import Optimizers
from .phases import Phases
from .tensors import Telling, gradient_of, gradients_of, places, requires_grad

# Looks that are taken in any case.
FIRST_LOOKS = 8
# Later ones take at most this share of the time.
LEAST_GAP = 256
# Parameters that are looked at to see whether there is anything new.
SAMPLES = 16
# Optimizers whose state is looked at after a backward pass: compiled ones do not tell of their steps.
OPTIMIZERS_PER_PASS = 4


class Pace:
    """Whether a look may be taken now."""

    def __init__(self, clock=time.perf_counter):
        self.clock = clock
        self.looks = 0
        self.cost = self.last = 0.0

    def is_due(self):
        return self.looks < FIRST_LOOKS or self.clock() - self.last >= LEAST_GAP * self.cost

    def __enter__(self):
        self.began = self.clock()

    def __exit__(self, *_):
        self.last = self.clock()
        self.cost = self.last - self.began
        self.looks += 1


class Watch:
    """Listens to Phases. `tell(device, {address: category})` and `mark(text)` write into the recording."""

    def __init__(self, tell, mark, device_of):
        self.tell = tell
        self.device_of = device_of
        self.modules = Modules(self.registered, self.moved)
        self.optimizers = Optimizers()
        self.phases = Phases(mark, self)
        self.samples = []  # (module, name): parameters, by weak references
        self.sampled = None  # where they were when parameters were told
        self.failures = None  # set once they are watched
        self.has_foreign = False  # optimizers update tensors that are in no module
        self.expects_gradients = True  # this backward pass makes new ones
        self.tells_gradients = True
        self.passes = self.told_at = 0
        self.next_optimizer = 0
        self.gradient_pace, self.parameter_pace, self.state_pace = Pace(), Pace(), Pace()
        self.on_step = None  # called at the end of each step

    def open(self):
        try:
            self.modules.open()
            self.optimizers.open()
            self.phases.open()
        except BaseException:
            self.close()
            raise

    def close(self):
        for part in (self.phases, self.optimizers, self.modules):
            part.close()

    def telling(self):
        return Telling(self.tell, self.device_of)

    # ---- modules

    def registered(self, tensor, category):
        with torch._C.DisableTorchFunction():
            telling = self.telling()
            telling.add(tensor, category)
            telling.send()

    def moved(self, modules):
        with torch._C.DisableTorchFunction():
            telling = self.telling()
            telling.add_all(of_modules.parameters_of(modules), Category.PARAMETER)
            of_modules.add_others(telling, modules)
            telling.send()

    # ---- passes and steps

    def backward_begins(self):
        with torch._C.DisableTorchFunction():
            sampled = self.sampled_parameters()
            # Where gradients are there already, the pass adds to them. If there are other modules, samples tell nothing.
            self.expects_gradients = (
                self.sampled is None
                or self.sampled[-1] != len(self.modules.by_id)
                or len(sampled) < max(1, len(self.samples))
                or any(requires_grad(parameter) and gradient_of(parameter) is None for parameter in sampled)
            )
        self.tells_gradients = self.gradient_pace.is_due()

    def backward_ends(self):
        with torch._C.DisableTorchFunction():
            self.passes += 1
            self.look_at_parameters()
            if self.expects_gradients and self.tells_gradients:
                with self.gradient_pace:
                    telling = self.telling()
                    telling.add_all(gradients_of(self.parameters()), Category.GRADIENT)
                    telling.send()
            self.look_at_some_optimizers()

    def optimizer_begins(self, optimizer):
        # Inside of a backward pass, an optimizer often drops the gradients that it has used.
        if self.phases.passes and self.tells_gradients:
            with torch._C.DisableTorchFunction():
                telling = self.telling()
                telling.add_all(gradients_of(of_optimizers.parameters_of(optimizer)), Category.GRADIENT)
                telling.send()

    def optimizer_ends(self, optimizer):
        with torch._C.DisableTorchFunction():
            known = self.optimizers.known(optimizer)
            known.steps += 1
            self.look_at_state(known, optimizer)

    def step_ends(self):
        try:
            with torch._C.DisableTorchFunction():
                self.look_at_parameters()
        finally:
            # Whatever happens here: accesses are recorded until it is called.
            if self.on_step is not None:
                self.on_step()

    def misses_steps(self):
        """Whether an optimizer has state although no step() was seen: compiled code calls no hooks.

        A program that failed may have been in its first step, with state from a checkpoint."""
        if self.passes < 2 or self.phases.has_begun or self.phases.steps > 0:
            return False
        if self.failures is not None and self.failures.count > 0:
            return False
        return any(of_optimizers.has_state(optimizer) for _, optimizer in self.optimizers.all())

    # ---- looks

    def parameters(self):
        """Those of modules, and those that only optimizers know."""
        found = of_modules.parameters_of(self.modules.all())
        if self.has_foreign or not found:
            known = set(map(id, found))
            for _, optimizer in self.optimizers.all():
                found += [parameter for parameter in of_optimizers.parameters_of(optimizer) if id(parameter) not in known]
        return found

    def sampled_parameters(self):
        found = []
        for reference, name in self.samples:
            module = reference()
            parameter = module.__dict__.get("_parameters", {}).get(name) if module is not None else None
            if parameter is not None:
                found.append(parameter)
        return found

    def look_at_parameters(self):
        sampled = [places(parameter, self.device_of) for parameter in self.sampled_parameters()]
        sampled.append(len(self.modules.by_id))
        if sampled == self.sampled and not (is_power_of_two(self.passes) and self.passes > self.told_at):
            return
        if self.sampled is not None and not self.parameter_pace.is_due():
            return
        self.told_at = self.passes
        with self.parameter_pace:
            telling = self.telling()
            modules = self.modules.all()
            self.add_parameters(telling, modules)
            of_modules.add_others(telling, modules)
            telling.send()
            self.choose_samples(modules)
            self.sampled = [places(parameter, self.device_of) for parameter in self.sampled_parameters()]
            self.sampled.append(len(self.modules.by_id))

    def add_parameters(self, telling, modules):
        own = of_modules.parameters_of(modules)
        known = set(map(id, own))
        foreign = []
        for _, optimizer in self.optimizers.all():
            foreign += [parameter for parameter in of_optimizers.parameters_of(optimizer) if id(parameter) not in known]
        self.has_foreign = bool(foreign)
        telling.add_all(own, Category.PARAMETER)
        telling.add_all(foreign, Category.PARAMETER)

    def choose_samples(self, modules):
        by_id = self.modules.by_id
        gap = max(1, len(modules) // SAMPLES)
        chosen = [*modules[::gap][: SAMPLES - 1], *modules[-1:]]
        self.samples = [
            (by_id[id(module)], name)
            for module in chosen
            if id(module) in by_id
            for name, parameter in list(module.__dict__.get("_parameters", {}).items())[:2]
            if parameter is not None
        ]

    def look_at_some_optimizers(self):
        known = self.optimizers.all()
        for place in range(min(OPTIMIZERS_PER_PASS, len(known))):
            self.look_at_state(*known[(self.next_optimizer + place) % len(known)])
        self.next_optimizer += OPTIMIZERS_PER_PASS

    def look_at_state(self, known, optimizer):
        sample = of_optimizers.sample_of(optimizer, lambda tensor: places(tensor, self.device_of))
        if sample == known.sample and not (is_power_of_two(known.steps) and known.steps > known.told_at):
            return
        if known.sample is not None and not self.state_pace.is_due():
            return
        known.sample, known.told_at = sample, known.steps
        with self.state_pace:
            telling = self.telling()
            of_optimizers.add_state(telling, optimizer)
            telling.send()

    def tell_all(self):
        """Everything that is known, however long it takes: at a failure, and at the end. Returns what was told."""
        with torch._C.DisableTorchFunction():
            telling = self.telling()
            modules = self.modules.all()
            self.add_parameters(telling, modules)
            telling.add_all(gradients_of(self.parameters()), Category.GRADIENT)
            for _, optimizer in self.optimizers.all():
                of_optimizers.add_state(telling, optimizer)
            of_modules.add_others(telling, modules)
            return telling


def is_power_of_two(number):
    """Where samples show no change, everything is told again after 1, 2, 4, 8 ... times."""
    return number > 0 and number & (number - 1) == 0
