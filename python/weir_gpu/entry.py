"""The entry point that PyTorch calls at the end of `import torch`. No error of ours may leave it, except that of an enable().

Where Weir is not asked for, it imports nothing else."""

import os
import sys

_called = False


def activate():
    global _called
    try:
        from .variables import ALLOCATOR, ENABLE
    except Exception:
        return  # Only half of the package is here, so no run of ours can have put it there.
    run = os.environ.get(ALLOCATOR)
    # The module is there if the program has called enable().
    if not run and not os.environ.get(ENABLE) and "weir_gpu.enabling" not in sys.modules:
        return
    # Python 3.9 lists an entry point once for each copy of this package on its path: the one of the run, and an installed one.
    if _called:
        return
    _called = True
    from . import Error

    try:
        if run:
            from .activate import activate as install
        else:
            from .enabling import at_import as install
        install()
    except Error:
        raise  # The program has asked for Weir, and must not go on without.
    except Exception as error:
        _refuse(error)


def _refuse(error):
    from .variables import ENABLE_REQUIRED, OWN_EXIT_CODE, REQUIRED

    try:
        print(f"weir: its Python package cannot be loaded ({type(error).__name__}: {error}); install it anew", file=sys.stderr, flush=True)
    except Exception:
        pass
    if os.environ.get(REQUIRED) == "1" or os.environ.get(ENABLE_REQUIRED) == "1":
        os._exit(OWN_EXIT_CODE)
