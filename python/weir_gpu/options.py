"""The options of `weir run` for a process without one: arguments of weir_gpu.enable(), and variables for what those leave open.

Names, values and checks are those of the command (src/cli/run-options.ts)."""

import os
import re
import sys
from dataclasses import dataclass, fields
from typing import Optional, Union

from .abi import ALLOCATORS, LARGE_REQUEST, LEAST_LIMIT, LEAST_RING_ROWS, MOST_RING_ROWS, RING_ROWS, ChildVariable
from .refusal import Refusal

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS.update({unit: 1 << 10 * (power + 1) for power, letter in enumerate("kmgt") for unit in (letter, f"{letter}ib")})
# Larger numbers are not exact in the command.
_MOST_BYTES = (1 << 53) - 1
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True)
class Options:
    allocator: str = "weir"
    limit: Optional[int] = None
    record: Optional[str] = None
    force: bool = False
    oom_dir: Optional[str] = None
    what_if: bool = True
    what_if_events: Optional[int] = None
    metrics: Optional[int] = None
    metrics_host: Optional[str] = None
    serve: bool = False
    serve_port: Optional[int] = None
    plan: bool = False
    swap: Union[str, int, None] = None
    swap_host: Optional[int] = None
    lend: bool = True
    allow_untested: bool = False
    ring_rows: int = RING_ROWS
    stacks: Optional[str] = f"python:{LARGE_REQUEST}"  # as ChildVariable.STACKS
    json_file: Optional[str] = None
    quiet: bool = False
    verbose: bool = False

    def needs_supervisor(self):
        """What was asked for that a supervisor does, by the name of its option; None if the job can do without."""
        asked = ((name, getattr(self, name)) for name in ("swap", "plan", "record", "metrics", "serve", "json_file"))
        return next((name for name, value in asked if value not in (None, False)), None)

    def variables(self):
        """What `weir run` would set for its processes."""
        found = {
            ChildVariable.ALLOCATOR: self.allocator,
            ChildVariable.LEND: "1" if self.lend else "0",
            ChildVariable.ALLOW_UNTESTED: "1" if self.allow_untested else "0",
            ChildVariable.RING_ROWS: str(self.ring_rows),
            ChildVariable.QUIET: "1" if self.quiet else "0",
        }
        if self.stacks is not None:
            found[ChildVariable.STACKS] = self.stacks
        if self.plan:
            found[ChildVariable.PLAN] = "1"
        sizes = ((ChildVariable.LIMIT, self.limit), (ChildVariable.SWAP, self.swap), (ChildVariable.SWAP_HOST, self.swap_host))
        found.update({variable: str(value) for variable, value in sizes if value is not None})
        return found

    def words(self):
        """For the command line of the supervisor."""
        found = ["--allocator", self.allocator]
        for name in ("limit", "record", "oom_dir", "what_if_events", "metrics", "metrics_host", "serve_port", "swap", "json_file"):
            if getattr(self, name) is not None:
                found.append(f"--{name.replace('_', '-')}={getattr(self, name)}")
        found += [f"--{name}" for name in ("force", "serve", "plan", "quiet", "verbose") if getattr(self, name)]
        return found if self.what_if else [*found, "--no-what-if"]


def read(given, variables):
    """`given`: arguments by name, None if left open. `variables`: variable and text by name. Raises a Refusal."""
    values = {}
    for field in fields(Options):
        name, parse = field.name, _PARSERS[field.name]
        if given.get(name) is not None:
            values[name] = _parsed(parse, given[name], f"{name}={given[name]!r}")
        elif name in variables:
            variable, text = variables[name]
            values[name] = _parsed(parse, text, f"{variable}={text}")
    # Of two that contradict each other, the one that was given in the program.
    for name, other in (("quiet", "verbose"), ("verbose", "quiet")):
        if given.get(name) and given.get(other) is None:
            values[other] = False
    # A variable must not forbid what the program turns off or chooses.
    if given.get("swap") is False and given.get("swap_host") is None:
        values.pop("swap_host", None)
    if given.get("allocator") is not None and given.get("plan") is None and given["allocator"] != "weir":
        values.pop("plan", None)
    options = Options(**values)
    _check(options)
    return options


def _parsed(parse, value, what):
    try:
        return parse(value)
    except ValueError as error:
        raise Refusal("options", f"{what}: {error}") from None


def parse_size(value):
    """Bytes of `24GiB`, `512 MiB`, `80GB`, `1.5g`, or of a whole number."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", value, re.ASCII | re.IGNORECASE) if isinstance(value, str) else None
    unit = _UNITS.get(match.group(2).lower()) if match else None
    if unit is None:
        raise ValueError(f"'{value}' is not a size; write it like 24GiB, 512MiB or 80GB")
    size = int(float(match.group(1)) * unit + 0.5)
    if size > _MOST_BYTES:
        raise ValueError(f"'{value}' is too large for a size; write it like 24GiB, 512MiB or 80GB")
    if size <= 0:
        raise ValueError("the size must be more than 0")
    return size


def _swap(value):
    if value == "auto":
        return value
    try:
        return parse_size(value)
    except ValueError:
        raise ValueError(f"'{value}' is neither a size like 24GiB nor auto") from None


def parse_switch(value):
    word = value.lower() if isinstance(value, str) else value
    if word is True or word == 1 or word in _YES:
        return True
    if word is False or word == 0 or word in _NO:
        return False
    raise ValueError("it is 1 or 0")


def _whole(value):
    text = str(value).replace("_", "")
    return int(text) if re.fullmatch(r"\d+", text, re.ASCII) and not isinstance(value, bool) else -1


def _count(value):
    if not 0 < _whole(value) <= _MOST_BYTES:
        raise ValueError(f"'{value}' is not a number of events")
    return _whole(value)


def _stacks(value):
    """The value of ChildVariable.STACKS; None for no stacks."""
    word = value.lower() if isinstance(value, str) else value
    if word is False or word in _NO:
        return None
    if word is True or word in ("python", *_YES):
        return "python"
    if word == "all":
        return word
    name, colon, size = word.partition(":") if isinstance(word, str) else ("", "", "")
    if name != "large":
        raise ValueError("it is off, large, large:SIZE, python or all")
    return f"python:{parse_size(size) if colon else LARGE_REQUEST}"


def _rows(value):
    rows = _count(value)
    if not LEAST_RING_ROWS <= rows <= MOST_RING_ROWS or rows & (rows - 1):
        raise ValueError(f"'{value}' is not a power of two from {LEAST_RING_ROWS} to {MOST_RING_ROWS}")
    return rows


def _port(value):
    if not 0 <= _whole(value) <= 65535:
        raise ValueError("a port is a number from 0 to 65535")
    return _whole(value)


def _allocator(value):
    if value not in ALLOCATORS:
        raise ValueError(f"there is no allocator named {value!r}; there are {', '.join(ALLOCATORS)}")
    return value


def _text(value):
    if not isinstance(value, str) or value == "":
        raise ValueError("it is a text")
    return value


def _file(value):
    """An absolute path: the supervisor starts later, when the program may have gone to another folder."""
    path = os.path.abspath(os.fspath(value)) if isinstance(value, (str, os.PathLike)) and os.fspath(value) else None
    if path is None:
        raise ValueError("it is the name of a file")
    _writable(path if os.path.exists(path) else os.path.dirname(path))
    return path


def _folder(value):
    """An absolute path, or `none`."""
    if value is False or value == "none":
        return "none"
    path = os.path.abspath(os.fspath(value)) if isinstance(value, (str, os.PathLike)) and os.fspath(value) else None
    if path is None:
        raise ValueError("it is the name of a folder, or none")
    _writable(path)
    return path


def _record(value):
    """The pattern of recordings. In a folder, they are named as the program is."""
    text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else ""
    if text == "":
        raise ValueError("it is the name of a file, or a folder")
    if re.search(r"%q(?!\{[^}]*\})", text):
        raise ValueError("%q needs the name of a variable, like %q{SLURM_JOB_ID}")
    unknown = re.search(r"%(?![phrq])(.?)", text.replace("%%", ""))
    if unknown:
        raise ValueError(f"%{unknown.group(1)} is not a placeholder; use %p, %h, %r or %q{{VARIABLE}}")
    if text.endswith("/") or os.path.isdir(text):
        program = os.path.basename(sys.argv[0] if sys.argv else "")
        text = os.path.join(text, f"{os.path.splitext(program)[0] or 'run'}.weir")
    path = os.path.abspath(text)
    if not re.search("%[phrq]", os.path.dirname(path)):
        _writable(os.path.dirname(path))
    return path


def _writable(path):
    if not os.path.exists(path):
        raise ValueError(f"{path}: no such folder; create it first")
    if not os.access(path, os.W_OK):
        raise ValueError(f"{path}: you may not write there; choose another place")


def _off(parse):
    """False turns off what a variable asks for."""
    return lambda value: None if value is False else parse(value)


_PARSERS = {
    "allocator": _allocator,
    "limit": _off(parse_size),
    "record": _off(_record),
    "force": parse_switch,
    "oom_dir": _folder,
    "what_if": parse_switch,
    "what_if_events": _count,
    "metrics": _off(_port),
    "metrics_host": _text,
    "serve": parse_switch,
    "serve_port": _port,
    "plan": parse_switch,
    "swap": _off(_swap),
    "swap_host": _off(parse_size),
    "lend": parse_switch,
    "allow_untested": parse_switch,
    "ring_rows": _rows,
    "stacks": _stacks,
    "json_file": _off(_file),
    "quiet": parse_switch,
    "verbose": parse_switch,
}


def _check(options):
    def refuse(sentence):
        raise Refusal("options", sentence)

    if options.quiet and options.verbose:
        refuse("quiet and verbose contradict each other; choose one")
    if options.plan and options.allocator != "weir":
        refuse(f"plan works only with the allocator weir, not with {options.allocator}")
    if isinstance(options.swap, int) and options.swap < LEAST_LIMIT:
        refuse("the size to swap down to is too small for any job; write a size like 24GiB, or auto")
    if options.swap_host is not None and options.swap is None:
        refuse("swap_host limits the host memory of swap; add swap")
    if options.limit is not None and options.limit < LEAST_LIMIT:
        refuse(f"a limit of {options.limit} bytes is too small for any process; write it like 40GiB")
