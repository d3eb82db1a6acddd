"""What a failed compilation of the adapter means, in one sentence: mostly a PyTorch whose allocator is another than Weir knows.

The compiler stops at native/torch/versions then: see there which differences it finds."""

import os
import re

from .abi import SUPPORTED_PYTORCH

# Sentences of native/torch/versions/interface.h, and the words of GCC and Clang for functions that are not what we declare.
_BEFORE = re.compile(r"weir: before (the end|\w+) PyTorch's allocator")
_DEMANDED = re.compile(r"weir: PyTorch's allocator demands a function")
_PURE = re.compile(r"note:\s+'virtual [^'\n]*?\b(\w+)\(|unimplemented pure virtual method '(\w+)'")
_OLD = "weir: this PyTorch is older"
_DECLARED = re.compile(r"versions/functions\.h:(\d+):\d+: error:")
_ENTRY = re.compile(r"WEIR_\w+\([^,]+,\s*(\w+)")


def sentence(log, version, failed, log_path, native):
    """`log` is what the compilers said, `failed` which of them ended how, `native` the folder of Weir's sources."""
    known = f"{SUPPORTED_PYTORCH[0]} to {SUPPORTED_PYTORCH[-1]}"
    if _OLD in log:
        return f"PyTorch {version} is older than any that this version of Weir knows ({known})"
    difference = _difference(log, native)
    if difference is not None:
        return (
            f"PyTorch {version} has an allocator that this version of Weir does not know ({difference}); update Weir, or use "
            f"PyTorch {known} as released; the compiler's words are in {log_path}"
        )
    return plain(log, failed, log_path)


def plain(_log, failed, log_path):
    return f"Weir's adapter could not be compiled ({failed}); the compiler's words are in {log_path}"


def _difference(log, native):
    declared = _DECLARED.search(log)
    if declared:
        name = _named(native, int(declared.group(1)))
        return f"its function {name} has changed" if name else "a function of it has changed"
    if _DEMANDED.search(log):
        found = _PURE.search(log)
        name = next((name for name in found.groups() if name), None) if found else None
        return f"its function {name} is new" if name else "it has a new function"
    before = _BEFORE.search(log)
    if before:
        place = before.group(1)
        return "a function at its end is new" if place == "the end" else f"a function before {place} is new, gone or in another place"
    return None


def _named(native, line):
    """The function that a line of the list declares."""
    try:
        with open(os.path.join(native, "torch", "versions", "functions.h"), encoding="utf-8") as file:
            found = _ENTRY.search(file.read().split("\n")[line - 1])
    except (OSError, IndexError):
        return None
    return found and found.group(1)
