"""Installs Weir at the end of `import torch`, before CUDA starts. python/weir_gpu/entry.py calls it.

An exception that leaves means that the package is broken: entry.py refuses then. CUDA must not start: programs fork
after this."""

import atexit
import sys


def activate():
    from . import adapter
    from . import settings as environment
    from .refusal import Refusal, refuse

    settings = environment.read()
    # If the package is on the path twice, Python 3.9 has the entry point twice.
    if not settings.allocator or adapter.library() is not None:
        return
    try:
        install(settings)
    except Refusal as refusal:
        refuse(refusal, settings)
    except Exception as error:
        # A defect of ours must not stop a program that does not require Weir.
        refuse(Refusal("error", f"Weir could not be put in place: {type(error).__name__}: {error}"), settings)


def install(settings):
    from . import adapter, job_python, machine, pinned
    from .abi import ALLOCATORS
    from .refusal import Refusal

    if settings.allocator not in ALLOCATORS:
        raise Refusal("allocator", f"there is no allocator named {settings.allocator!r}; there are {', '.join(ALLOCATORS)}")
    torch = sys.modules.get("torch")
    check_torch(torch, settings)
    settings.check()
    machine.check_driver(torch.version.cuda, settings)
    library = _loadable(torch, settings)
    # First what can be undone: if it fails, PyTorch's allocator is still in place.
    manager = _swap(settings) if settings.swap else None
    try:
        _install_adapter(library, torch, settings)
    except BaseException:
        if manager is not None:
            from . import swap

            swap.uninstall()
        raise
    job_python.record(settings)
    if settings.directory and (settings.observe or settings.end_after is not None):
        _observe(torch, settings)
    if settings.directory:
        pinned.install(torch, settings.directory)
    if manager is not None:
        # Before the interpreter ends: a thread that still allocates must not call into Python then.
        atexit.register(adapter.on_shortage(manager.relieve))


def _swap(settings):
    from . import adapter, swap

    return swap.install(
        swap.Options.of(settings, gauges=adapter.swapped, mark=adapter.mark, steps=adapter.steps, attempting=adapter.attempting)
    )


def _observe(torch, settings):
    """Categories and phases are for recordings. Without them, everything else works."""
    # A PyTorch without these has nothing to observe. They are not imported for it.
    if not all(name in sys.modules for name in ("torch.nn", "torch.optim", "torch.autograd.graph")):
        return
    from . import adapter, observe
    from .refusal import say

    mark = adapter.mark
    if settings.end_after is not None:
        from .short_run import ShortRun

        mark = ShortRun(adapter.mark, settings.end_after).mark
    try:
        observe.install(
            adapter.categories,
            mark,
            adapter.operator,
            accesses=settings.accesses,
            when_used=torch.cuda._lazy_call,
            quiet=settings.quiet,
        )
    except Exception as error:
        if not settings.quiet:
            say(f"weir: categories and phases are not recorded: {type(error).__name__}: {error}")


def _install_adapter(library, torch, settings):
    from . import adapter
    from .refusal import Refusal, say

    why = adapter.install(
        library,
        allocator=settings.allocator,
        directory=settings.directory or "",
        torch_version=str(torch.__version__),
        limit=settings.limit,
        ring_rows=settings.ring_rows,
        lend=settings.lend,
        stacks=settings.stacks,
        stacks_from=settings.stacks_from,
        # With a swap limit, tensors are swapped in and out everywhere, and every free piece counts.
        fine=settings.swap_limit is not None,
        # A plan takes whole handles, so blocks that stay must lie in small ones from the first step on.
        planned=settings.plan,
        faults=settings.faults,
        faults_seed=settings.faults_seed,
    )
    if why is not None:
        raise Refusal("backend", why)
    if adapter.left_out() and not settings.quiet:
        say(f"weir: {adapter.left_out()}")


def check_torch(torch, settings):
    """Refuses a PyTorch that Weir cannot work with; `torch` is the module, or None."""
    from .abi import SUPPORTED_PYTORCH
    from .refusal import Refusal

    if torch is None:
        raise Refusal("no-torch", "PyTorch is not there")
    version = str(torch.__version__)
    if getattr(torch.version, "cuda", None) is None:
        raise Refusal("no-cuda", f"PyTorch {version} was built without CUDA")
    minor = ".".join(version.split("+")[0].split(".")[:2])
    if minor not in SUPPORTED_PYTORCH and not settings.allow_untested:
        raise Refusal(
            "untested-torch",
            f"PyTorch {version} has not been tested with this version of Weir (known: {SUPPORTED_PYTORCH[0]} to {SUPPORTED_PYTORCH[-1]}); "
            "--allow-untested tries it",
        )


def _loadable(torch, settings):
    """The path of the compiled adapter. It is compiled again if the cached file cannot be loaded, as after a power failure."""
    from . import adapter, build, prebuilt
    from .abi import UserVariable
    from .refusal import Refusal

    ready = prebuilt.loadable(torch, settings)
    if ready is not None:
        return ready
    library = build.library(torch, settings)
    try:
        adapter.load(library.path)
        return library.path
    except OSError:
        library = build.library(torch, settings, library.identity)
    try:
        adapter.load(library.path)
        return library.path
    except OSError as error:
        raise Refusal(
            "load",
            f"the compiled adapter cannot be loaded: {error}; set {UserVariable.CACHE_DIR} to a folder that programs may be run from",
        ) from None
