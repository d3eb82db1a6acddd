"""For some steps, records every operator with the memory that it reads and writes: what `weir plan --swap` needs.

Each operator is waited for, so that its time is its own. These steps are therefore slower than others."""

import time

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..refusal import say
from .tensors import is_tensor, places

# Views that do not say so.
UNSAID_VIEWS = ("aten::_unsafe_view",)
# What constants were before PyTorch made numbers of them.
NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
# Of the name of an operator. Without this function, all are called as they are.
_takes_numbers = getattr(torch._C, "_should_allow_numbers_as_tensors", lambda name: True)
# Steps before: they make optimizer state and fill caches.
WARM_UP = 2


class Recorder(TorchDispatchMode):
    """`put(name, device, microseconds, {address: whether it is written})` writes an operator."""

    def __init__(self, put, device_of, wait):
        super().__init__()
        self.put = put
        self.device_of = device_of
        self.wait = wait
        self.count = 0
        self.looked_at = {}  # operator -> what _look_at returns

    # Operators that run others, such as torch.cond, are recorded as one: inside of them, this mode is off.
    supports_higher_order_operators = True

    @classmethod
    def is_infra_mode(cls):
        """Compilers go on as without it."""
        return True

    def __torch_dispatch__(self, func, types, arguments=(), named=None):
        named = named or {}
        is_view, mutated, mutated_names, tensors = self.looked_at.get(func) or self._look_at(func)
        if not all(is_tensor(arguments[place]) or arguments[place] is None for place in tensors if place < len(arguments)):
            arguments = _without_numbers(arguments, tensors)
        if is_view:
            return func(*arguments, **named)
        began = time.perf_counter()
        result = func(*arguments, **named)
        try:
            self._record(func, arguments, named, result, mutated, mutated_names, began)
        except Exception:
            pass  # A defect of ours must not stop the program.
        return result

    def _look_at(self, func):
        """Whether it is a view, places and names of arguments that it writes, and places of arguments that must be tensors."""
        is_view, mutated, names, tensors = False, set(), set(), []
        try:
            schema = func._schema
            takes_numbers = _takes_numbers(schema.name.partition("::")[2])
            for place, argument in enumerate(schema.arguments):
                if not takes_numbers and str(argument.type) == "Tensor":
                    tensors.append(place)
                if argument.alias_info is not None and argument.alias_info.is_write:
                    mutated.add(place)
                    names.add(argument.name)
            returned = [value.alias_info for value in schema.returns]
            only_views = all(info is not None and not info.is_write for info in returned)
            is_view = schema.name in UNSAID_VIEWS or (bool(returned) and not mutated and only_views)
        except Exception:
            pass
        found = self.looked_at[func] = is_view, mutated, names, tensors
        return found

    def _record(self, func, arguments, named, result, mutated, mutated_names, began):
        by_device = {}
        for place, argument in enumerate(arguments):
            self._add(by_device, argument, place in mutated)
        for name, argument in named.items():
            self._add(by_device, argument, name in mutated_names)
        read = {device: set(known) for device, known in by_device.items()}
        made = {}
        self._add(made, result, True)
        for device, known in made.items():
            for address in known:
                if address not in read.get(device, ()):
                    by_device.setdefault(device, {})[address] = True
        if not by_device:
            return
        for device in by_device:
            if not self.wait(device):
                return
        duration = (time.perf_counter() - began) * 1e6
        name = str(func)
        for device, known in by_device.items():
            self.put(name, device, duration, known)
        self.count += 1

    def _add(self, by_device, value, writes):
        if is_tensor(value):
            with torch._C.DisableTorchFunction():
                for device, address in places(value, self.device_of):
                    known = by_device.setdefault(device, {})
                    known[address] = writes or known.get(address, False)
        elif type(value) in (list, tuple):
            for entry in value:
                self._add(by_device, entry, writes)


def _without_numbers(arguments, tensors):
    """For a mode, PyTorch makes a number of a constant such as the 2 in `x * 2`. Scripts pass constants to operators that take none."""
    made = list(arguments)
    for place in tensors:
        value = made[place] if place < len(made) else None
        if type(value) in NUMBERS:
            made[place] = torch.tensor(value, dtype=NUMBERS[type(value)])
    return made


def wait_for_gpu(device):
    """Returns whether it could: nothing can be waited for during a capture."""
    if torch.cuda.is_current_stream_capturing():
        return False
    torch.cuda.current_stream(device).synchronize()
    return True


class Accesses:
    """Begins after the first steps, and ends after `steps` more."""

    def __init__(self, steps, put, device_of, wait=wait_for_gpu, say=None):
        self.left = steps
        self.before = WARM_UP
        self.recorder = Recorder(put, device_of, wait)
        self.is_on = False
        self.say = say or _say

    def step_ended(self):
        if self.is_on:
            self.left -= 1
            if self.left <= 0 and self.end():
                self.say(f"recorded {self.recorder.count} operators; the steps are no longer slowed down")
        elif self.left > 0:
            self.before -= 1
            # Inside of a mode of the program, whose end would leave ours instead of it, it waits for a later step.
            if self.before <= 0 and not _modes():
                self.is_on = True
                self.recorder.__enter__()
                self.say(f"recording the operators of {self.left} steps, one by one, which slows them down")

    def end(self):
        """Only the innermost mode of this thread can be left. If the program has entered one since, ours stays until a later step."""
        modes = _modes()
        if not modes or modes[-1] is not self.recorder:
            return False
        self.recorder.__exit__(None, None, None)
        self.is_on = False
        return True


def _modes():
    return torch.utils._python_dispatch._get_current_dispatch_mode_stack()


def _say(text):
    say(f"weir: accesses: {text}")
