"""Python loads this at its start, if its folder is on PYTHONPATH: Weir then uses the stand-in for the adapter, on any PyTorch.

WEIR_STANDIN_LIBRARY names the compiled stand-in. Without it nothing happens."""

import os

if os.environ.get("WEIR_STANDIN_LIBRARY"):
    import collections

    from weir_gpu import activate, build, machine

    _Library = collections.namedtuple("_Library", "path identity")
    build.library = lambda *_: _Library(os.environ["WEIR_STANDIN_LIBRARY"], None)
    machine.check_driver = lambda *_: None
    if os.environ.get("WEIR_STANDIN_TORCH") == "any":
        activate.check_torch = lambda *_: None
