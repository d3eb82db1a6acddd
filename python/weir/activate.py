"""What comes in at the end of `import torch`, before CUDA starts, by python/_weir_activation.py.

An exception here would make `import torch` fail, so none leaves. CUDA is not touched: programs fork after this."""

import atexit
import os

ALLOCATORS = ("weir", "gmlake", "pytorch", "expandable")

# The adapter overrides PyTorch's virtual functions, whose list changes with every minor release: it is right for these, on
# which test/gpu/torch was run, and compiles for others at best.
SUPPORTED = ("2.11",)

_DEFAULT_RING_ROWS = 1 << 18


def activate():
    if not os.environ.get("WEIR_ALLOCATOR"):
        return
    try:
        from .refusal import Refusal, refuse
    except Exception:
        return
    try:
        put_in_place(os.environ)
    except Refusal as refusal:
        refuse(refusal, os.environ)
    except Exception as error:
        # A defect of ours, and no reason to stop a program that does not insist.
        refuse(Refusal("error", f"Weir could not be put in place: {type(error).__name__}: {error}"), os.environ)


def put_in_place(environment):
    import sys

    from . import adapter, build, machine
    from .refusal import Refusal

    allocator = environment["WEIR_ALLOCATOR"]
    if allocator not in ALLOCATORS:
        raise Refusal("allocator", f"there is no allocator named {allocator!r}; there are {', '.join(ALLOCATORS)}")
    torch = sys.modules.get("torch")
    if torch is None:
        raise Refusal("no-torch", "PyTorch is not there")
    if getattr(torch.version, "cuda", None) is None:
        raise Refusal("no-cuda", f"PyTorch {torch.__version__} was built without CUDA")
    version = str(torch.__version__)
    minor = ".".join(version.split("+")[0].split(".")[:2])
    if minor not in SUPPORTED and environment.get("WEIR_ALLOW_UNTESTED") != "1":
        tested = ", ".join(SUPPORTED)
        raise Refusal("untested-torch", f"PyTorch {version} has not been tested with this version of Weir (tested: {tested}); --allow-untested tries it")
    swapping = _swapping(environment)
    machine.check_driver(torch.version.cuda, environment)
    library = _loadable(torch, environment)
    faults, seed = _faults(environment.get("WEIR_FAULTS", ""))
    why = adapter.install(
        library,
        allocator=allocator,
        directory=environment.get("WEIR_RUN_DIR", ""),
        torch_version=version,
        limit=_number(environment, "WEIR_LIMIT", 0),
        ring_rows=_number(environment, "WEIR_RING_ROWS", _DEFAULT_RING_ROWS),
        lend=environment.get("WEIR_LEND", "1") != "0",
        # Down to a size tensors come and go everywhere, and every free piece counts.
        fine=environment.get("WEIR_SWAP", "").isdecimal(),
        faults=faults,
        faults_seed=seed,
    )
    if why is not None:
        raise Refusal("backend", why)
    if swapping is not None:
        from . import swap

        manager = swap.install(swapping)
        if manager is not None:
            # Before the interpreter goes: a thread that still asks for memory must not come back here.
            atexit.register(adapter.on_shortage(manager.relieve))


def _loadable(torch, environment):
    """The compiled adapter, made anew if what lies in the cache cannot be loaded: a machine may have gone down while it was written."""
    from . import adapter, build
    from .refusal import Refusal

    path = build.library(torch, environment)
    spoiled = build.identity(path)
    try:
        adapter.load(path)
        return path
    except OSError:
        path = build.library(torch, environment, spoiled)
    try:
        adapter.load(path)
        return path
    except OSError as error:
        raise Refusal("load", f"the compiled adapter cannot be loaded: {error}; set WEIR_CACHE_DIR to a folder that programs may be run from") from None


def _swapping(environment):
    from . import adapter, swap
    from .refusal import Refusal

    if not environment.get("WEIR_SWAP"):
        return None
    try:
        return swap.Options(gauges=adapter.swapped, mark=adapter.mark, steps=adapter.steps)
    except ValueError:
        given = environment.get("WEIR_SWAP_TOLERANCE")
        raise Refusal("settings", f"WEIR_SWAP_TOLERANCE must be a percentage, or any, not {given!r}") from None


def _number(environment, name, default):
    from .refusal import Refusal

    text = environment.get(name, "")
    if not text:
        return default
    if not text.isdecimal():
        raise Refusal("settings", f"{name} must be a whole number, not {text!r}")
    return int(text)


def _faults(text):
    from .refusal import Refusal

    if not text:
        return 0, 0
    rate, _, seed = text.partition(":")
    if not rate.isdecimal() or not (seed or "0").isdecimal():
        raise Refusal("settings", f"WEIR_FAULTS must be RATE:SEED, not {text!r}")
    return int(rate), int(seed or 0)
