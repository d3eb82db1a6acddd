"""A refusal: the allocator that was asked for cannot be installed. One sentence, in a file for `weir run` or on stderr."""

import json
import os
import sys

from . import abi


class Refusal(Exception):
    """Why Weir is not installed in this process; `reason` is for programs, the sentence for people."""

    def __init__(self, reason, sentence):
        super().__init__(sentence)
        self.reason = reason


def write_file(directory, refusal):
    """Writes DIR/<pid>.refused.json, whole or not at all; False if it could not be written."""
    path = os.path.join(directory, f"{os.getpid()}{abi.Refusal.FILE}")
    try:
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(abi.Refusal(reason=refusal.reason, message=str(refusal), pid=os.getpid()).write(), file)
            file.write("\n")
        os.replace(path + ".new", path)
    except OSError:
        return False
    return True


def refuse(refusal, settings):
    """Ends the process if `weir run` requires Weir; otherwise says why and lets the program go on."""
    written = settings.directory is not None and write_file(settings.directory, refusal)
    if not written and (settings.required or not settings.quiet):
        end = "" if settings.required else " (the program goes on with PyTorch's own allocator)"
        try:
            print(f"weir: {refusal}{end}", file=sys.stderr, flush=True)
        except Exception:
            pass  # stderr is closed or full: nobody can be told.
    if settings.required:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        os._exit(abi.OWN_EXIT_CODE)
