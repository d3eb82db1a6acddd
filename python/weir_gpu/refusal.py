"""A refusal: the allocator that was asked for cannot be installed. One sentence, in a file for `weir run` or on stderr."""

import json
import os
import sys

from . import abi

# Without a GPU, nothing is lost without Weir.
_NO_GPU = ("no-torch", "no-cuda", "no-driver", "no-gpu")


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
    from . import job_python

    if settings.required and not job_python.is_own(settings):
        if refusal.reason not in _NO_GPU and not settings.quiet:
            say(f"weir: {refusal} (this process runs another Python than the job, {sys.prefix}, and goes on with PyTorch's own allocator)")
        return
    written = settings.directory is not None and write_file(settings.directory, refusal)
    if not written and (settings.required or not settings.quiet):
        end = "" if settings.required else " (the program goes on with PyTorch's own allocator)"
        say(f"weir: {refusal}{end}")
    if settings.required:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        os._exit(abi.OWN_EXIT_CODE)


def say(text):
    try:
        print(text, file=sys.stderr, flush=True)
    except Exception:
        pass  # stderr is closed or full: nobody can be told.
