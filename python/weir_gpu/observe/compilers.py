"""Keeps torch.compile away from functions of ours that run between its graphs.

Where a graph breaks, such as at backward(), the compiler looks at every function that is called then. Ours would be compiled as if nothing
was to be marked, and compiled again when their guards fail."""

import sys
import types

import torch


def leave_alone(names):
    """Marks all code of these modules. The compiler itself is not imported, which takes seconds.

    Functions that compiled code calls directly are looked at nevertheless. These ask torch.compiler.is_compiling()."""
    skip = _skip()
    if skip is None:
        return
    for name in names:
        module = sys.modules.get(name)
        for code in _codes(module, name) if module is not None else ():
            try:
                skip(code)
            except Exception:
                return


def _skip():
    """PyTorch's own function for one code object, without functions that it calls. Its name has changed; None if there is neither."""
    try:
        frames = torch._C._dynamo.eval_frame
        if hasattr(frames, "set_code_exec_strategy"):
            strategy = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
            return lambda code: frames.set_code_exec_strategy(code, strategy)
        return frames.skip_code
    except Exception:
        return None


def _codes(module, name):
    rest = []
    for value in list(vars(module).values()):
        if getattr(value, "__module__", None) == name:
            rest += vars(value).values() if isinstance(value, type) else [value]
    while rest:
        value = rest.pop()
        value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        code = value if isinstance(value, types.CodeType) else getattr(value, "__code__", None)
        if isinstance(code, types.CodeType):
            yield code
            # Functions and loops inside of it.
            rest += [inner for inner in code.co_consts if isinstance(inner, types.CodeType)]
