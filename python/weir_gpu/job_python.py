"""Whether this process runs the Python of the job. Programs that a job starts may have a Python, and a PyTorch, of their own.

Only processes of the job's Python must run on Weir. Others inherit the variables of the run, but nobody asked for Weir there."""

import glob
import json
import os
import sys

_FILE = "python.json"


def record(settings):
    """Weir is in place here: the first process for which that is so tells the others what the job's Python is."""
    if settings.directory is None:
        return
    path = os.path.join(settings.directory, _FILE)
    new = f"{path}.{os.getpid()}"
    try:
        with open(new, "w", encoding="utf-8") as file:
            json.dump(_own(), file)
        try:
            os.link(new, path)  # fails if there is one
        finally:
            os.unlink(new)
    except OSError:
        pass


def is_own(settings):
    """True if in doubt."""
    own, first = _own(), _first(settings)
    # The command's Python may only start another that has PyTorch. Then it says nothing.
    if settings.python and _has_torch(settings.python):
        if os.path.realpath(settings.python) != own["prefix"]:
            return False
        if first is not None and first.get("prefix") != own["prefix"]:
            return True
    return first is None or first == own


def _own():
    return {"prefix": os.path.realpath(sys.prefix), "torch": str(getattr(sys.modules.get("torch"), "__version__", ""))}


def _first(settings):
    try:
        with open(os.path.join(settings.directory or "", _FILE), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _has_torch(prefix):
    return bool(glob.glob(os.path.join(glob.escape(prefix), "lib*", "python3*", "*-packages", "torch")))
