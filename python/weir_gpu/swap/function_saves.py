"""Tensors that are saved without being read: by functions of the program (autograd.Function) and by checkpointing.

PyTorch's operations read what they save. What these save, another stream may still be writing to."""

import types

import torch
from torch.utils.checkpoint import CheckpointFunction


def call_of_class_method(original):
    """A Python function that calls a class method written in C."""

    def apply(cls, *arguments, **named):
        return original.__get__(None, cls)(*arguments, **named)

    return apply


class FunctionSaves:
    """Knows such a save by the file of the Python code that was running. From PyTorch 2.14 on, `apply` is no Python code, so some of
    ours is put around it."""

    def __init__(self):
        self.original = None
        apply = vars(torch.autograd.Function)["apply"]
        if isinstance(apply, types.ClassMethodDescriptorType):
            self.original = apply
            torch.autograd.Function.apply = classmethod(call_of_class_method(apply))
        functions = (torch.autograd.Function.apply.__func__, CheckpointFunction.forward)
        self.files = {function.__code__.co_filename for function in functions}

    def is_running(self, frame):
        """Whether the code that saves a tensor need not have read it."""
        return frame is not None and frame.f_code.co_filename in self.files

    def close(self):
        if self.original is not None:
            torch.autograd.Function.apply = self.original
