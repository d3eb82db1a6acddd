"""Swapping: memory of tensors that nobody needs for a while goes to the host and is back in time. docs/swapping.md says how."""

import atexit
import os
import sys

_manager = None


class Options:
    """From the environment, unless given: WEIR_SWAP (auto, or a limit in bytes), WEIR_SWAP_HOST (bytes), WEIR_SWAP_TOLERANCE (percent
    of a step's time, or any), WEIR_RUN_DIR, WEIR_SWAP_DEBUG."""

    def __init__(self, **given):
        environment = os.environ
        wanted = environment.get("WEIR_SWAP", "").strip().lower()
        self.enabled = wanted not in ("", "0", "off", "no", "false")
        self.limit = int(wanted) if wanted.isdigit() and int(wanted) > 1 else None
        self.directory = environment.get("WEIR_RUN_DIR") or None
        self.debug = environment.get("WEIR_SWAP_DEBUG", "") not in ("", "0")
        self.quiet = environment.get("WEIR_SWAP_QUIET", "") not in ("", "0")
        host = environment.get("WEIR_SWAP_HOST", "").strip()
        self.host_limit = int(host) if host.isdigit() else None
        self.least = 1 << 20
        # Without a limit: the share of a step's time that swapping may cost. None for whatever it takes.
        self.tolerance = _tolerance(environment.get("WEIR_SWAP_TOLERANCE", ""))
        self.on_profile = None
        self.take_plan = None
        # gauges(device, bytes out, bytes in, stalls, nanoseconds of them), all counted from the start
        self.gauges = None
        # mark(text): puts it into the recording
        self.mark = lambda text: None
        # steps(count of those that have ended, whether swapping does the same in each from now on): for the supervisor
        self.steps = lambda ended, swap_settled: None
        self.is_device = lambda tensor: tensor.is_cuda
        self.make_backend = None
        for name, value in given.items():
            setattr(self, name, value)


def install(options=None, **given):
    """Called once, in the main thread, after `import torch` and before training. Gives the manager, or None if nothing is to be swapped."""
    global _manager
    options = options or Options(**given)
    if _manager is not None or not options.enabled:
        return _manager
    if options.limit is None and not options.directory and options.on_profile is None:
        # Nobody would make a plan.
        return None
    from .host import default_limit
    from .hooks import Hooks
    from .manager import Manager

    if options.host_limit is None:
        options.host_limit = default_limit()

    def make_backend(tensor):
        if options.make_backend is not None:
            return options.make_backend(tensor)
        from .backend import CudaBackend

        return CudaBackend(tensor.get_device())

    manager = Manager(options, make_backend, _once(options.quiet))
    manager.hooks = Hooks(manager)
    _manager = manager
    if options.directory:
        atexit.register(_write_report, manager, options.directory)
    return manager


def uninstall():
    """For tests: everything back, no hooks left."""
    global _manager
    if _manager is not None:
        _manager.stop("uninstalled", report=False)
        _manager.hooks.close()
        _manager = None


def step():
    """Marks the end of a training step, for programs without a torch.optim optimizer."""
    if _manager is not None:
        _manager.hooks.mark()


def report():
    """What has been swapped so far; None when nothing is installed."""
    return _manager.report() if _manager is not None else None


def _tolerance(percent):
    """ValueError for what is neither a percentage nor `any`."""
    text = percent.strip().lower()
    if text in ("", "any"):
        return None if text else 0.01
    share = float(text) / 100
    if not share >= 0:
        raise ValueError(text)
    return share


def _once(quiet):
    said = set()

    def say(topic, text):
        if topic in said:
            return
        said.add(topic)
        if not quiet:
            print(f"weir: swap: {text}", file=sys.stderr, flush=True)

    return say


def _write_report(manager, directory):
    if manager.pid != os.getpid():
        return
    from .exchange import write_json

    report = manager.report()
    told = ("stepsPlanned", "stepsOff", "bytesOut", "bytesIn", "stalls", "misses", "peakAllocated")
    manager.options.mark("weir swap ended: " + ", ".join(f"{name} {report[name]}" for name in told))
    try:
        write_json(os.path.join(directory, f"{manager.pid}.swap-report.json"), report)
    except OSError:
        pass
