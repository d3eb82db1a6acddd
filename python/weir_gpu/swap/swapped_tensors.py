"""Classes of parameters and gradients while they are swapped out: any use of the content swaps them in first."""

import contextlib
import threading

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


# Functions that need no content.
METADATA = _metadata()

_marks = threading.RLock()  # a tensor's class and its places in these tables change together
_swapped_out = {}  # id of a tensor -> what swaps it in
_contents = {}  # id of a tensor whose memory was given up -> a tensor on its storage


def mark_swapped_out(tensor, swap_in):
    """From now on every use of the tensor from Python calls `swap_in` first."""
    with _marks:
        _swapped_out[id(tensor)] = swap_in
        tensor.__class__ = SwappedParameter if type(tensor) is torch.nn.Parameter else SwappedGradient


def mark_without_memory(tensor, hide):
    """From now on, uses in C++ raise an error. Until then they find the content: another thread may be inside an operation on it."""
    with torch._C.DisableTorchFunctionSubclass():
        _contents[id(tensor)] = tensor.data
        hide(tensor)


def mark_resident(tensor):
    with _marks:
        content = _contents.pop(id(tensor), None)
        if content is not None:
            # Version counter and autograd node stay. Other threads ask the class until the content is there.
            with torch._C.DisableTorchFunctionSubclass():
                tensor.data = content
        tensor.__class__ = _PLAIN.get(type(tensor), type(tensor))
        _swapped_out.pop(id(tensor), None)


def swap_in_all_of(*values):
    """Swaps in all tensors that are or lie in these values: code in C++ is about to use them."""
    if _swapped_out:
        for tensor in _swapped_in(values):
            _swap_in(tensor)


def _swap_in(tensor):
    swap_in = _swapped_out.get(id(tensor))
    if swap_in is not None:
        swap_in()
    with _marks:
        # Also a tensor that was only made by such a class, for example as a copy. But another thread may have begun its next swap-out.
        if _swapped_out.get(id(tensor)) is swap_in:
            mark_resident(tensor)


def is_plain(tensor):
    return type(tensor) in (torch.nn.Parameter, torch.Tensor)


def _before_use(func, args, kwargs):
    kwargs = kwargs or {}
    if func in METADATA:
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    for tensor in _swapped_in((args, kwargs)):
        _swap_in(tensor)
    # If another thread has begun to swap one out again, its class is asked again. Other subclasses may still act.
    return func(*args, **kwargs)


class SwappedParameter(torch.nn.Parameter):
    def __new__(cls, data=None, requires_grad=True):
        # A copy is made by the class of its original, but it is not swapped out.
        return torch.nn.Parameter(data, requires_grad)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return _before_use(func, args, kwargs)


class SwappedGradient(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return _before_use(func, args, kwargs)


_PLAIN = {SwappedParameter: torch.nn.Parameter, SwappedGradient: torch.Tensor}


def _be_taken_for_plain():
    """Gradient clipping and optimizers choose slower kernels, with other rounding, for classes that they do not know."""
    from torch.optim import optimizer
    from torch.utils import _foreach_utils

    for place in (optimizer, _foreach_utils):
        known = getattr(place, "_foreach_supported_types", None)
        if isinstance(known, list):
            known.extend(swapped for swapped, plain in _PLAIN.items() if plain in known and swapped not in known)


_be_taken_for_plain()


def _swapped_in(value):
    if type(value) in _PLAIN:
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _swapped_in(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _swapped_in(part)


def unobserved():
    """A context that hides our operations from all that sees every operation of the program."""
    return _unobserved() if is_observed() else _PLAIN_CONTEXT


_PLAIN_CONTEXT = contextlib.nullcontext()


@contextlib.contextmanager
def _unobserved():
    state = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)
    try:
        with contextlib.ExitStack() as contexts:
            if torch._C._len_torch_dispatch_stack() > 0:
                from torch.utils._python_dispatch import _disable_current_modes

                contexts.enter_context(_disable_current_modes())
            if torch._C._functorch.peek_interpreter_stack() is not None:
                from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

                contexts.enter_context(temporarily_clear_interpreter_stack())
            if torch.is_inference_mode_enabled():
                # Its tensors have no versions and cannot be saved again.
                contexts.enter_context(torch.inference_mode(False))
            yield
    finally:
        torch._C._set_tracing_state(state)


def is_observed():
    """Whether a mode, a transform or a trace sees every operation, or gets tensors of its own kind."""
    return (
        torch._C._len_torch_dispatch_stack() > 0
        or torch.is_inference_mode_enabled()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._get_tracing_state() is not None
    )
