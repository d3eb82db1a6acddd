"""What parameters and gradients are while they are away: classes of their own, which bring them back before anybody gets the content."""

import contextlib

import torch


def _metadata():
    tensor = torch.Tensor
    read = (
        "grad", "requires_grad", "shape", "dtype", "device", "layout", "is_leaf", "grad_fn", "_version", "ndim", "is_cuda", "is_sparse",
        "is_quantized", "output_nr", "name",
    )  # fmt: skip
    known = {getattr(tensor, name).__get__ for name in read if hasattr(tensor, name)}
    known.add(tensor.grad.__set__)
    asked = (
        "size", "dim", "numel", "nelement", "element_size", "stride", "storage_offset", "is_floating_point", "is_complex", "get_device",
        "is_contiguous", "register_hook", "register_post_accumulate_grad_hook", "__hash__",
    )  # fmt: skip
    return known | {getattr(tensor, name) for name in asked if hasattr(tensor, name)}


# What can be asked of a tensor without its content.
METADATA = _metadata()

_bring_back = {}  # by the id of what is away, which is held as long


def set_away(tensor, bring_back):
    """From here on every use of the tensor from Python calls `bring_back` first."""
    _bring_back[id(tensor)] = bring_back
    tensor.__class__ = AwayParameter if type(tensor) is torch.nn.Parameter else AwayGradient


def set_back(tensor):
    _bring_back.pop(id(tensor), None)
    tensor.__class__ = _PLAIN.get(type(tensor), type(tensor))


def is_plain(tensor):
    return type(tensor) in (torch.nn.Parameter, torch.Tensor)


def _before_use(func, args, kwargs):
    kwargs = kwargs or {}
    if func in METADATA:
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    for tensor in _away_in((args, kwargs)):
        bring_back = _bring_back.get(id(tensor))
        if bring_back is not None:
            bring_back()
        # What is made by the class of what it is like was never away.
        set_back(tensor)
    # None of them is of these classes any more; other classes still have their say.
    return func(*args, **kwargs)


class AwayParameter(torch.nn.Parameter):
    def __new__(cls, data=None, requires_grad=True):
        # Copies are made by the class of what is copied, and they are not away.
        return torch.nn.Parameter(data, requires_grad)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return _before_use(func, args, kwargs)


class AwayGradient(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return _before_use(func, args, kwargs)


_PLAIN = {AwayParameter: torch.nn.Parameter, AwayGradient: torch.Tensor}


def _be_taken_for_plain():
    """Clipping and optimizers take other kernels, which round differently, for classes that they do not know."""
    from torch.optim import optimizer
    from torch.utils import _foreach_utils

    for place in (optimizer, _foreach_utils):
        known = getattr(place, "_foreach_supported_types", None)
        if isinstance(known, list):
            known.extend(away for away, plain in _PLAIN.items() if plain in known and away not in known)


_be_taken_for_plain()


def _away_in(value):
    if type(value) in _PLAIN:
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _away_in(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _away_in(part)


@contextlib.contextmanager
def undisturbed():
    """What we do is none of the business of whoever looks at every operation of the program."""
    state = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)
    try:
        if torch._C._len_torch_dispatch_stack() == 0:
            yield
        else:
            from torch.utils._python_dispatch import _disable_current_modes

            with _disable_current_modes():
                yield
    finally:
        torch._C._set_tracing_state(state)


def is_observed():
    """Whether somebody looks at every operation: a mode, a transform, a trace."""
    return (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._get_tracing_state() is not None
    )
