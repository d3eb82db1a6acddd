"""The entry point that PyTorch calls at the end of `import torch`. No error of ours may leave it.

Where Weir is not asked for, it imports nothing else."""

import os
import sys


def activate():
    try:
        from .variables import ALLOCATOR
    except Exception:
        return  # Only half of the package is here, so no run of ours can have put it there.
    if not os.environ.get(ALLOCATOR):
        return
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
