"""The environment of the process, read and checked once. No other module reads it, except _weir_activation.py, which runs before.

`weir run` sets the first block of variables for its processes. Users set the second block."""

import os
from dataclasses import dataclass
from typing import Optional, Tuple, Union

from .refusal import Refusal

ALLOCATOR = "WEIR_ALLOCATOR"
RUN_DIR = "WEIR_RUN_DIR"
REQUIRED = "WEIR_REQUIRED"
NATIVE = "WEIR_NATIVE"
LEND = "WEIR_LEND"
ALLOW_UNTESTED = "WEIR_ALLOW_UNTESTED"
RING_ROWS = "WEIR_RING_ROWS"
QUIET = "WEIR_QUIET"
SWAP = "WEIR_SWAP"
SWAP_HOST = "WEIR_SWAP_HOST"
LIMIT = "WEIR_LIMIT"

CACHE_DIR = "WEIR_CACHE_DIR"
SWAP_TOLERANCE = "WEIR_SWAP_TOLERANCE"
SWAP_DEBUG = "WEIR_SWAP_DEBUG"
FAULTS = "WEIR_FAULTS"

_DEFAULT_RING_ROWS = 1 << 18
_DEFAULT_TOLERANCE = 0.01


@dataclass(frozen=True)
class Settings:
    """What the environment asks for. The defaults are those of an empty environment."""

    allocator: str = ""  # empty: Weir does nothing
    directory: Optional[str] = None  # shared with `weir run`
    required: bool = False  # the process must not run on PyTorch's own allocator instead
    quiet: bool = False  # print nothing but refusals that end the process
    native: Optional[str] = None  # folder of the C sources, if not beside the package
    limit: int = 0  # bytes per GPU; 0 for no limit
    ring_rows: int = _DEFAULT_RING_ROWS
    lend: bool = True
    allow_untested: bool = False
    swap: bool = False
    swap_limit: Optional[int] = None  # bytes to swap down to; None for as low as swapping is nearly free
    swap_host: Optional[int] = None  # bytes of host memory for swapping
    swap_tolerance: Optional[float] = _DEFAULT_TOLERANCE  # share of a step's time that swapping may cost; None for any
    swap_debug: bool = False
    faults: int = 0  # rate of driver calls that fail, for tests
    faults_seed: int = 0
    cache: Optional[str] = None  # folder of the compiled adapter
    # Not ours: where compilers, headers, libraries and caches are by convention.
    cache_home: Optional[str] = None
    cxx: Optional[str] = None
    cc: Optional[str] = None
    cuda_homes: Tuple[str, ...] = ()
    library_path: Tuple[str, ...] = ()
    # The first variable that makes no sense; None if all do. Kept for later, because telling it takes some of these settings.
    problem: Optional[Refusal] = None

    def check(self):
        if self.problem is not None:
            raise self.problem


def read(environment=os.environ):
    """Never raises: what is wrong is told by `Settings.check`."""
    reader = _Reader(environment)
    swap, swap_limit = reader.swap()
    faults, faults_seed = reader.faults()
    return Settings(
        allocator=reader.text(ALLOCATOR) or "",
        directory=reader.text(RUN_DIR),
        required=reader.text(REQUIRED) == "1",
        quiet=reader.text(QUIET) == "1",
        native=reader.text(NATIVE),
        swap=swap,
        swap_limit=swap_limit,
        swap_host=reader.number(SWAP_HOST, None),
        swap_tolerance=reader.tolerance() if swap else _DEFAULT_TOLERANCE,
        swap_debug=reader.text(SWAP_DEBUG) not in (None, "0"),
        faults=faults,
        faults_seed=faults_seed,
        limit=reader.number(LIMIT, 0),
        ring_rows=reader.number(RING_ROWS, _DEFAULT_RING_ROWS),
        lend=reader.text(LEND) != "0",
        allow_untested=reader.text(ALLOW_UNTESTED) == "1",
        cache=reader.text(CACHE_DIR),
        cache_home=reader.text("XDG_CACHE_HOME"),
        cxx=reader.text("CXX"),
        cc=reader.text("CC"),
        cuda_homes=tuple(home for home in (reader.text("CUDA_HOME"), reader.text("CUDA_PATH")) if home),
        library_path=tuple(folder for folder in (reader.text("LD_LIBRARY_PATH") or "").split(":") if folder),
        problem=reader.problem,
    )


class _Reader:
    def __init__(self, environment):
        self.environment = environment
        self.problem = None

    def text(self, name):
        """None if the variable is not set or empty."""
        return self.environment.get(name) or None

    def number(self, name, default: Union[int, None]):
        text = self.text(name)
        if text is None:
            return default
        if not text.isdecimal():
            return self._refuse(f"{name} must be a whole number, not {text!r}", default)
        return int(text)

    def swap(self):
        """Whether to swap, and the limit in bytes: the variable says `auto` or the limit."""
        text = (self.text(SWAP) or "").strip().lower()
        if text in ("", "0", "off", "no", "false"):
            return False, None
        return True, int(text) if text.isdecimal() and int(text) > 1 else None

    def tolerance(self):
        given = self.text(SWAP_TOLERANCE)
        text = (given or "").strip().lower()
        if text in ("", "any"):
            return None if text else _DEFAULT_TOLERANCE
        try:
            share = float(text) / 100
        except ValueError:
            share = -1
        if not share >= 0:
            return self._refuse(f"{SWAP_TOLERANCE} must be a percentage, or any, not {given!r}", _DEFAULT_TOLERANCE)
        return share

    def faults(self):
        text = self.text(FAULTS) or ""
        rate, _, seed = text.partition(":")
        if text and (not rate.isdecimal() or not (seed or "0").isdecimal()):
            return self._refuse(f"{FAULTS} must be RATE:SEED, not {text!r}", (0, 0))
        return int(rate or 0), int(seed or 0)

    def _refuse(self, sentence, default):
        self.problem = self.problem or Refusal("settings", sentence)
        return default
