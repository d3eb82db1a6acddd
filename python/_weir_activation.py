"""The entry point that PyTorch calls at the end of `import torch`. No error of ours may leave it.

Its name is unlikely to be that of a user's module: a `weir.py` beside a script would be imported in place of our package."""

import os
import sys


def activate():
    try:
        from _weir_variables import ALLOCATOR
    except Exception:
        return  # Only half of the package is here, so no run of ours can have put it there.
    if not os.environ.get(ALLOCATOR):
        return
    try:
        _package().activate()
    except Exception as error:
        _refuse(error)


def _package():
    """`weir.activate`, from the folder beside this file."""
    import importlib
    import importlib.util

    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "weir")
    start = os.path.join(folder, "__init__.py")
    try:
        found = importlib.util.find_spec("weir")
        is_ours = found is not None and os.path.samefile(found.origin, start)
    except Exception:
        is_ours = False
    if is_ours:
        return importlib.import_module("weir.activate")
    # The program has a module named `weir`: our package gets another name, and `import weir` still gives the program's.
    spec = importlib.util.spec_from_file_location("_weir_package", start, submodule_search_locations=[folder])
    package = sys.modules["_weir_package"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    return importlib.import_module("_weir_package.activate")


def _refuse(error):
    from _weir_variables import OWN_EXIT_CODE, REQUIRED

    try:
        print(f"weir: its Python package cannot be loaded ({type(error).__name__}: {error}); install it anew", file=sys.stderr, flush=True)
    except Exception:
        pass
    if os.environ.get(REQUIRED) == "1":
        os._exit(OWN_EXIT_CODE)
