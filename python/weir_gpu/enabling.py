"""Weir in a process that was not started by `weir run`: weir_gpu.enable(), or WEIR=1 in the environment.

Before `import torch`, enable() only notes what is asked for: python/weir_gpu/entry.py puts it in place at the end of the import."""

import dataclasses
import os
import sys
import threading

from . import Error
from . import options as weir_options
from . import settings as environment
from .refusal import Refusal, refuse, say

_lock = threading.RLock()
_asked = None  # (options, whether it is required), until PyTorch is there
_in_place = None  # the options that this process runs with
_supervisor = None
_has_noted = False
_is_importing = False  # enable() imports PyTorch itself


def _in_fork():
    """A thread that held the lock does not exist here."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_fork)


def enable(given, required):
    """Raises Error, or, if it is not required, says why and returns."""
    global _asked
    with _lock:
        outer = environment.read()
        if outer.allocator:
            _note_outer(outer)
            return
        try:
            options = weir_options.read(given, environment.options())
            if _in_place is not None:
                _check_same(options)
                return
            torch = sys.modules.get("torch")
            if torch is None or _is_being_imported(torch):
                _check_findable()
                if _is_called_by_torch():
                    _asked = (options, required)
                    return
                torch = _imported()
            _put(options, torch)
        except Refusal as refusal:
            _tell(refusal, given, required)


def _imported():
    """PyTorch, without what its import would do about us."""
    global _is_importing
    _is_importing = True
    try:
        import torch
    finally:
        _is_importing = False
    return torch


def at_import():
    """PyTorch calls this at the end of its import, through entry.py."""
    global _asked
    with _lock:
        if _in_place is not None or _is_importing:
            return
        asked, _asked = _asked, None
        if asked is not None:
            options, required = asked
            try:
                _put(options, sys.modules["torch"])
            except Refusal as refusal:
                _tell(refusal, {}, required, options.quiet)
        elif environment.enabled() is not None:
            _from_environment(environment.enabled())


def summary(what_if, timeout):
    from . import inquiry, processes

    outer = environment.read()
    if outer.allocator and outer.directory:
        _write_swap_report(outer.directory)
        # The name of the folder says whose it is.
        words = os.path.basename(outer.directory).split("-")
        parent = " ".join(words[2:4])
        return inquiry.ask(outer.directory, lambda: processes.is_alive(parent), what_if=what_if, say=False, timeout=timeout)
    if _in_place is None:
        return inquiry.Summary("Weir is not in place in this process, so there is nothing to report")
    if _supervisor.why_not is not None:
        return inquiry.Summary(f"there is no summary: {_supervisor.why_not}")
    if not _supervisor.began:
        return inquiry.Summary("this process has not used a GPU yet, so there is nothing to report")
    _write_swap_report(_supervisor.folder)
    return inquiry.ask(_supervisor.folder, _supervisor.is_alive, what_if=what_if, say=False, timeout=timeout)


def _put(options, torch):
    """Puts the allocator in place. CUDA does not start. Raises a Refusal."""
    try:
        _install(options, torch)
    except Refusal:
        raise
    except Exception as error:
        raise Refusal("error", f"Weir could not be put in place: {type(error).__name__}: {error}") from error


def _install(options, torch):
    global _in_place, _supervisor
    from . import adapter, folders
    from .activate import check_torch, install
    from .supervisor import Supervisor

    if not sys.platform.startswith("linux"):
        raise Refusal("not-linux", "Weir's allocator works on Linux only")
    if adapter.library() is not None:
        raise Refusal("in-place", "another allocator of Weir is already in place in this process; restart the program")
    settings = environment.read({**os.environ, **options.variables()})
    check_torch(torch, settings)
    _check_unused(torch)
    supervisor = Supervisor(options, settings)
    shared = folders.host_memory_folder(settings, options.swap_host) if options.swap is not None else None
    install(dataclasses.replace(settings, directory=supervisor.folder, host_memory=shared))
    _in_place, _supervisor = options, supervisor
    supervisor.begin_with(torch)


def _from_environment(word):
    refusal = None
    try:
        wanted = weir_options.parse_switch(word)
        options = weir_options.read({}, environment.options()) if wanted else None
    except ValueError as error:
        refusal = Refusal("options", f"{environment.UserVariable.ENABLE}={word}: {error}")
    except Refusal as found:
        refusal = found
    if refusal is None and options is None:
        return
    required = environment.is_required()
    quiet = refusal is None and options.quiet
    if refusal is None:
        try:
            _put(options, sys.modules.get("torch"))
            return
        except Refusal as found:
            refusal = found
    variable = environment.OptionVariable
    words = (("--allow-untested", f"{variable.ALLOW_UNTESTED}=1"), ("--allocator ", f"{variable.ALLOCATOR}="))
    refuse(_reworded(refusal, words), dataclasses.replace(environment.Settings(), required=required, quiet=quiet))


def _tell(refusal, given, required, quiet=False):
    """In the words of enable()."""
    told = _reworded(refusal, (("--allow-untested", "allow_untested=True"), ("--allocator expandable", 'allocator="expandable"')))
    if required:
        raise Error(str(told)) from None
    if not (quiet or given.get("quiet")):
        say(f"weir: {told} (the program goes on with PyTorch's own allocator)")


def _reworded(refusal, words):
    """Sentences name options as the command does."""
    text = str(refusal)
    for before, after in words:
        text = text.replace(before, after)
    return Refusal(refusal.reason, text)


def _note_outer(outer):
    global _has_noted
    if not _has_noted and not outer.quiet:
        say("weir: weir run is around this process, and its options count; weir_gpu.enable() changes nothing")
    _has_noted = True


def _check_same(options):
    if options == _in_place:
        return
    differing = [field.name for field in dataclasses.fields(options) if getattr(options, field.name) != getattr(_in_place, field.name)]
    raise Refusal(
        "in-place",
        f"Weir is already in place in this process, with another value of {', '.join(differing)}; to change it, start the program anew "
        "(in a notebook: restart the kernel)",
    )


def _check_unused(torch):
    cuda = torch.cuda
    if getattr(cuda, "_is_in_bad_fork", lambda: False)():
        raise Refusal("cuda-in-use", "this process was forked from one that uses CUDA, so it cannot use CUDA; start it with spawn")
    if cuda.is_initialized():
        raise Refusal(
            "cuda-in-use",
            "CUDA is already in use in this process, and memory cannot change its allocator; call weir_gpu.enable() before the first use "
            "of CUDA (in a notebook: restart the kernel, and call it in the first cell)",
        )


def _check_findable():
    from importlib.util import find_spec

    if "torch" not in sys.modules and find_spec("torch") is None:
        raise Refusal("no-torch", f"PyTorch is not installed in {sys.prefix}; install it, or activate the environment that has it")


def _is_being_imported(torch):
    return getattr(getattr(torch, "__spec__", None), "_initializing", False)


def _is_called_by_torch():
    """Whether PyTorch will call our entry point at the end of its import. Then enable() need not import it."""
    from importlib.metadata import PackageNotFoundError, entry_points, version

    if not environment.loads_extensions():
        return False
    try:
        # Before 2.5 it calls none.
        if [int(part) for part in version("torch").split(".")[:2]] < [2, 5]:
            return False
    except (PackageNotFoundError, ValueError):
        pass
    found = entry_points()
    group = found.select(group="torch.backends") if hasattr(found, "select") else found.get("torch.backends", ())
    return any(entry.value == "weir_gpu.entry:activate" for entry in group)


def _write_swap_report(directory):
    swap = sys.modules.get("weir_gpu.swap")
    try:
        if swap is not None:
            swap.write_report(directory)
    except OSError:
        pass
