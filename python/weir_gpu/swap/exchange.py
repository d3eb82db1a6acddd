"""Files between a process and `weir run`: the process writes profiles and reads plans."""

import json
import os

from ..abi import SwapPlan, SwapProfile


class Exchange:
    def __init__(self, options):
        self.options = options
        self.seen = None  # identity of the last plan read

    def is_open(self):
        """Whether anybody makes plans."""
        return bool(self.options.directory or self.options.on_profile)

    def send(self, profile):
        if self.options.on_profile:
            self.options.on_profile(profile.write())
        else:
            write_json(os.path.join(self.options.directory, f"{os.getpid()}{SwapProfile.FILE}"), profile.write())

    def take(self):
        """The path of a new plan. None or FileNotFoundError if there is none."""
        if self.options.take_plan is not None:
            return self.options.take_plan()
        path = os.path.join(self.options.directory, f"{os.getpid()}{SwapPlan.FILE}")
        stat = os.stat(path)
        stamp = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
        if stamp == self.seen:
            return None
        self.seen = stamp
        return path


def write_json(path, data):
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8") as target:
        json.dump(data, target, separators=(",", ":"))
    os.replace(temporary, path)
