"""Functions in C++ that take tensors without asking their class: before such a call, tensors among its arguments are swapped in.

Functions that are missing here, such as those of other libraries, find a tensor without content, and PyTorch raises an error.
"""

import functools
import re
import sys

import torch

from .swapped_tensors import swap_in_all_of

# All functions of these that take tensors: collectives of process groups, and exported models.
MODULES = ("_distributed_c10d", "_aoti")
# Copies between GPUs (torch.nn.parallel), NCCL without process groups, DLPack, scripts, addresses.
NAMES = (
    "_broadcast", "_broadcast_out", "_broadcast_coalesced", "_scatter", "_scatter_out", "_gather", "_gather_out",
    "_nccl_all_reduce", "_nccl_reduce", "_nccl_broadcast", "_nccl_all_gather", "_nccl_reduce_scatter",
    "_to_dlpack", "_to_dlpack_versioned", "_data_address", "_storage_address", "_storage_id",
    "_save_parameters", "_swap_tensor_impl", "_tensors_data_ptrs_at_indices_equal", "_tensor_impl_raw_handle",
)  # fmt: skip
METHODS = (("ScriptFunction", "__call__"), ("ScriptMethod", "__call__"))


class NativeCalls:
    def __init__(self):
        self.restored = []  # functions that undo what was done
        functions = {}
        for name in NAMES:
            self._wrap_function(torch._C, name, functions)
        for name, method in METHODS:
            self._wrap_method(getattr(torch._C, name, None), method)
        for name in MODULES:
            module = getattr(torch._C, name, None)
            for member, value in list(vars(module).items()) if module is not None else ():
                if isinstance(value, type):
                    for method, function in list(vars(value).items()):
                        if takes_tensors(function):
                            self._wrap_method(value, method)
                elif takes_tensors(value):
                    self._wrap_function(module, member, functions)
        self._wrap_method(torch.autograd.Function, "apply")
        # It knows parameters by their exact class.
        self._wrap_method(torch.nn.Parameter, "__new__")
        self._rebind(functions)

    def _wrap_function(self, owner, name, functions):
        original = getattr(owner, name, None)
        if callable(original):
            functions[id(original)] = original, swapping_in(original)

    def _wrap_method(self, owner, name):
        original = vars(owner).get(name) if owner is not None else None
        if original is None:
            return
        if isinstance(original, (classmethod, staticmethod)):
            setattr(owner, name, type(original)(swapping_in(original.__func__)))
        else:
            setattr(owner, name, swapping_in(original))
        self.restored.append(functools.partial(setattr, owner, name, original))

    def _rebind(self, functions):
        """Replaces functions under every name that PyTorch's modules have for them."""
        for module_name, module in list(sys.modules.items()):
            if module is None or not (module_name == "torch" or module_name.startswith("torch.")):
                continue
            names = getattr(module, "__dict__", {})
            for name, value in list(names.items()):
                original, wrapper = functions.get(id(value), (None, None))
                if original is not None and original is value:
                    names[name] = wrapper
                    self.restored.append(functools.partial(names.__setitem__, name, original))

    def close(self):
        while self.restored:
            self.restored.pop()()


def takes_tensors(function):
    """As its documentation says, which pybind11 makes from its arguments."""
    if isinstance(function, staticmethod):
        function = function.__func__
    if type(function).__name__ not in ("builtin_function_or_method", "instancemethod"):
        return False
    for arguments in re.findall(r"\w+\(((?:self: [^,)]+, )?[^\n]*)\) ->", function.__doc__ or ""):
        if "torch.Tensor" in arguments:
            return True
    return False


def swapping_in(original):
    @functools.wraps(original)
    def call(*arguments, **named):
        swap_in_all_of(arguments, named)
        return original(*arguments, **named)

    return call
