"""Tensors that consist of other tensors: sharded ones (DTensor), quantized ones. PyTorch asks them for their parts in order to compile."""

import torch

# A sharded tensor whose local part is quantized has two levels.
MOST_DEPTH = 2


def parts_of(tensor, depth=0):
    """The plain tensors inside, as (names of the attributes that lead to it, tensor). A plain tensor is its only part."""
    if type(tensor) is torch.Tensor:
        yield (), tensor
    elif depth < MOST_DEPTH and hasattr(type(tensor), "__tensor_flatten__"):
        for name in _names_in(tensor):
            inner = getattr(tensor, name, None)
            if isinstance(inner, torch.Tensor):
                for names, part in parts_of(inner, depth + 1):
                    yield (name, *names), part


def _names_in(tensor):
    """The names of its attributes. A class of the program may do anything when it is asked."""
    try:
        names = tensor.__tensor_flatten__()[0]
        return [name for name in names if isinstance(name, str)]
    except Exception:
        return []


class Wrapper(torch.Tensor):
    """The plainest tensor that consists of another one, to count references as they are without anybody else."""

    __slots__ = ("inner",)

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def around(cls, tensor, depth):
        for _ in range(depth):
            tensor = cls(tensor)
        return tensor

    def __tensor_flatten__(self):
        return ["inner"], None

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), named=None):
        raise NotImplementedError(function)
