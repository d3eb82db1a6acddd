"""The environment of the process, read and checked once. No other module reads it, except entry.py, which runs before.

`weir run` sets each ChildVariable for its processes. Users set each UserVariable. abi.py names them."""

import os
from dataclasses import dataclass
from typing import Optional, Tuple, Union

from .abi import RING_ROWS, STACKS, ChildVariable, OptionVariable, UserVariable
from .refusal import Refusal

_DEFAULT_TOLERANCE = 0.01
# Where launchers say which process of the job on this machine this is: torchrun, Open MPI, MVAPICH, MPICH, Slurm.
_LOCAL_RANK = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
# And how many there are.
_LOCAL_RANKS = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")

# What clusters call a job.
_JOB = ("SLURM_JOB_ID", "RAY_JOB_ID", "PBS_JOBID", "LSB_JOBID")


@dataclass(frozen=True)
class Settings:
    """What the environment asks for. The defaults are those of an empty environment."""

    allocator: str = ""  # empty: Weir does nothing
    directory: Optional[str] = None  # shared with `weir run`
    required: bool = False  # the job's processes must not run on PyTorch's own allocator instead
    python: Optional[str] = None  # prefix of the job's Python, if known
    quiet: bool = False  # print nothing but refusals that end the process
    native: Optional[str] = None  # folder of the C sources, if not beside the package
    limit: int = 0  # bytes per GPU; 0 for no limit
    ring_rows: int = RING_ROWS
    stacks: int = STACKS["none"]  # call stacks to record
    stacks_from: int = 0  # bytes of the least request whose stack is recorded
    host_memory: Optional[str] = None  # folder in which processes agree on host memory; None for `directory`
    lend: bool = True
    allow_untested: bool = False
    observe: bool = True  # finds what memory holds, for recordings
    accesses: int = 0  # steps whose operators are recorded
    plan: bool = False  # plans will come
    swap: bool = False
    swap_limit: Optional[int] = None  # bytes to swap down to; None for as low as swapping is nearly free
    swap_host: Optional[int] = None  # bytes of host memory for swapping
    swap_tolerance: Optional[float] = _DEFAULT_TOLERANCE  # share of a step's time that swapping may cost; None for any
    swap_debug: bool = False
    end_after: Optional[int] = None  # steps after which the process ends; 0 or None: it goes to its end
    faults: int = 0  # rate of driver calls that fail, for tests
    faults_seed: int = 0
    cache: Optional[str] = None  # folder of the compiled adapter
    # Not ours: where compilers, headers, libraries and caches are by convention.
    cache_home: Optional[str] = None
    cxx: Optional[str] = None
    cc: Optional[str] = None
    cuda_homes: Tuple[str, ...] = ()
    library_path: Tuple[str, ...] = ()
    runtime_home: Optional[str] = None
    job: Optional[str] = None  # what a cluster calls the job that this process belongs to
    local_rank: Optional[int] = None  # of this process on this machine, if a launcher says
    local_ranks: Optional[int] = None  # processes of the job on this machine, likewise
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
    stacks, stacks_from = reader.stacks()
    return Settings(
        allocator=reader.text(ChildVariable.ALLOCATOR) or "",
        directory=reader.text(ChildVariable.RUN_DIR),
        required=reader.text(ChildVariable.REQUIRED) == "1",
        python=reader.text(ChildVariable.PYTHON),
        quiet=reader.text(ChildVariable.QUIET) == "1",
        native=reader.text(ChildVariable.NATIVE) or reader.text(UserVariable.NATIVE_DIR),
        observe=reader.text(UserVariable.OBSERVE) != "0",
        accesses=reader.number(ChildVariable.ACCESSES, 0),
        plan=reader.text(ChildVariable.PLAN) == "1",
        swap=swap,
        swap_limit=swap_limit,
        swap_host=reader.number(ChildVariable.SWAP_HOST, None),
        swap_tolerance=reader.tolerance() if swap else _DEFAULT_TOLERANCE,
        swap_debug=reader.text(UserVariable.SWAP_DEBUG) not in (None, "0"),
        end_after=reader.number(ChildVariable.END_AFTER, None),
        faults=faults,
        faults_seed=faults_seed,
        limit=reader.number(ChildVariable.LIMIT, 0),
        ring_rows=reader.number(ChildVariable.RING_ROWS, RING_ROWS),
        stacks=stacks,
        stacks_from=stacks_from,
        lend=reader.text(ChildVariable.LEND) != "0",
        allow_untested=reader.text(ChildVariable.ALLOW_UNTESTED) == "1",
        cache=reader.text(UserVariable.CACHE_DIR),
        cache_home=reader.text("XDG_CACHE_HOME"),
        cxx=reader.text("CXX"),
        cc=reader.text("CC"),
        cuda_homes=tuple(home for home in (reader.text("CUDA_HOME"), reader.text("CUDA_PATH")) if home),
        library_path=tuple(folder for folder in (reader.text("LD_LIBRARY_PATH") or "").split(":") if folder),
        runtime_home=reader.text("XDG_RUNTIME_DIR"),
        job=next(filter(None, map(reader.text, _JOB)), None),
        local_rank=reader.foreign(_LOCAL_RANK),
        local_ranks=reader.local_ranks(),
        problem=reader.problem,
    )


def options(environment=os.environ):
    """The options that users have set by variables: variable and text, by the name of the option."""
    found = {}
    for constant, variable in vars(OptionVariable).items():
        if not constant.startswith("_") and environment.get(variable):
            found[constant.lower()] = (variable, environment[variable])
    return found


def enabled(environment=os.environ):
    """What the variable says that asks for Weir; None if it is not set."""
    return environment.get(UserVariable.ENABLE) or None


def is_required(environment=os.environ):
    return environment.get(UserVariable.REQUIRED) == "1"


def loads_extensions(environment=os.environ):
    """Whether PyTorch will load extensions such as Weir."""
    return environment.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1"


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
        text = (self.text(ChildVariable.SWAP) or "").strip().lower()
        if text in ("", "0", "off", "no", "false"):
            return False, None
        return True, int(text) if text.isdecimal() and int(text) > 1 else None

    def tolerance(self):
        given = self.text(UserVariable.SWAP_TOLERANCE)
        text = (given or "").strip().lower()
        if text in ("", "any"):
            return None if text else _DEFAULT_TOLERANCE
        try:
            share = float(text) / 100
        except ValueError:
            share = -1
        if not share >= 0:
            return self._refuse(f"{UserVariable.SWAP_TOLERANCE} must be a percentage, or any, not {given!r}", _DEFAULT_TOLERANCE)
        return share

    def stacks(self):
        """Which call stacks to record, and from which size of a request on."""
        text = self.text(ChildVariable.STACKS) or "none"
        name, _, size = text.partition(":")
        if name not in STACKS or not (size or "0").isdecimal():
            return self._refuse(f"{ChildVariable.STACKS} must be one of {', '.join(STACKS)}, not {text!r}", (STACKS["none"], 0))
        return STACKS[name], int(size or 0)

    def faults(self):
        text = self.text(UserVariable.FAULTS) or ""
        rate, _, seed = text.partition(":")
        if text and (not rate.isdecimal() or not (seed or "0").isdecimal()):
            return self._refuse(f"{UserVariable.FAULTS} must be RATE:SEED, not {text!r}", (0, 0))
        return int(rate or 0), int(seed or 0)

    def foreign(self, names):
        """The first number in variables of other programs; None if there is none."""
        return next((int(text) for text in map(self.text, names) if text and text.isdecimal()), None)

    def local_ranks(self):
        found = self.foreign(_LOCAL_RANKS)
        if found:
            return found
        # Slurm lists its nodes, as in "8(x2),4". The most is safe everywhere.
        groups = (self.text("SLURM_STEP_TASKS_PER_NODE") or "").split(",")
        counts = [count for count in (group.partition("(")[0] for group in groups) if count.isdecimal() and int(count) > 0]
        return max(map(int, counts), default=None)

    def _refuse(self, sentence, default):
        self.problem = self.problem or Refusal("settings", sentence)
        return default
