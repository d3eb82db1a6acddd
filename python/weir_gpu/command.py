"""The command `weir` of a wheel. Node takes the place of this process, so signals and the exit code are its own."""

import os
import sys


def main():
    from . import node
    from .abi import OWN_EXIT_CODE
    from .refusal import Refusal, say

    try:
        words = node.command()
        os.execv(words[0], [*words, *sys.argv[1:]])
    except (OSError, Refusal) as error:
        say(f"weir: {error}")
        return OWN_EXIT_CODE
