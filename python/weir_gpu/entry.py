"""The entry point that PyTorch calls at the end of `import torch`. No error of ours may leave it.

Where Weir is not asked for, it imports nothing else."""

import os
import sys

_called = False


def activate():
    global _called
    try:
        from .variables import ALLOCATOR
    except Exception:
        return  # Only half of the package is here, so no run of ours can have put it there.
    # Python 3.9 lists an entry point once for each copy of this package on its path: the one of the run, and an installed one.
    if _called or not os.environ.get(ALLOCATOR):
        return
    _called = True
    try:
        from .activate import activate as install

        install()
    except Exception as error:
        _refuse(error)


def _refuse(error):
    from .variables import OWN_EXIT_CODE, REQUIRED

    try:
        print(f"weir: its Python package cannot be loaded ({type(error).__name__}: {error}); install it anew", file=sys.stderr, flush=True)
    except Exception:
        pass
    if os.environ.get(REQUIRED) == "1":
        os._exit(OWN_EXIT_CODE)
