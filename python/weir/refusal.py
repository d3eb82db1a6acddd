"""When the allocator asked for cannot be put in place: one sentence, in a file for `weir run` or on stderr."""

import json
import os
import sys

# As `env` and `timeout` do: an error of the wrapper, not of the program.
EXIT_CODE = 125


class Refusal(Exception):
    """Why Weir does not come into place; `reason` is for programs, the sentence for people."""

    def __init__(self, reason, sentence):
        super().__init__(sentence)
        self.reason = reason


def write_file(directory, refusal):
    """DIR/<pid>.refused.json, whole or not at all; False if it could not be written."""
    path = os.path.join(directory, f"{os.getpid()}.refused.json")
    try:
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump({"reason": refusal.reason, "message": str(refusal), "pid": os.getpid()}, file)
            file.write("\n")
        os.replace(path + ".new", path)
    except OSError:
        return False
    return True


def refuse(refusal, environment):
    """Ends the process if `weir run` has said that it must not go on without; else says it and goes on."""
    directory = environment.get("WEIR_RUN_DIR")
    written = bool(directory) and write_file(directory, refusal)
    required = environment.get("WEIR_REQUIRED") == "1"
    if not written and (required or environment.get("WEIR_QUIET") != "1"):
        end = "" if required else " (the program goes on with PyTorch's own allocator)"
        try:
            print(f"weir: {refusal}{end}", file=sys.stderr, flush=True)
        except Exception:
            pass  # Closed or full: there is nobody to tell.
    if required:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        os._exit(EXIT_CODE)
