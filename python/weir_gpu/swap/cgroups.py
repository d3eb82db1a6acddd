"""Host memory that this process can still take: what the machine has available, and every control group above the process.

Batch systems such as Slurm set their limits in nested groups, of version 1 or 2."""

import os

_UNLIMITED = 1 << 60  # version 1 says "no limit" with a number near 2**63


def available(root="/"):
    """Bytes, or None if nothing says. `root` is another folder in tests."""
    found = [size for size in (_machine(root), *_groups(root)) if size is not None]
    return max(0, min(found)) if found else None


def _machine(root):
    for line in _lines(os.path.join(root, "proc/meminfo")):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _groups(root):
    """What is left in each group from the process's own up to the root of its mount."""
    for mount, folder in _own_folders(root):
        while True:
            yield _left(folder)
            if folder == mount or not folder.startswith(mount):
                break
            folder = os.path.dirname(folder)


def _own_folders(root):
    """(mount point, folder of our group below it) for each mounted hierarchy that limits memory."""
    paths = {}
    for line in _lines(os.path.join(root, "proc/self/cgroup")):
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            paths["cgroup2"] = path
        elif "memory" in controllers.split(","):
            paths["cgroup"] = path
    for line in _lines(os.path.join(root, "proc/self/mountinfo")):
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(), after.split(" ", 2)
        if kind not in paths or (kind == "cgroup" and "memory" not in options.split(",")):
            continue
        mount = os.path.join(root, _plain(fields[4]).lstrip("/"))
        shown, path = _plain(fields[3]), paths[kind]
        # A container may see only its own part of the tree. A group outside of that part cannot be found; its mount is the nearest.
        below = os.path.relpath(path, shown)
        folder = mount if below == "." or below.startswith("..") else os.path.join(mount, below)
        yield mount, folder if os.path.isdir(folder) else mount


def _plain(word):
    """Mountinfo writes spaces and the like as octal numbers."""
    return word.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")


def _left(folder):
    """Bytes that a group may still take; None if it has no limit."""
    statistics = {}
    for line in _lines(os.path.join(folder, "memory.stat")):
        name, _, value = line.partition(" ")
        statistics[name] = value
    limits = [_number(folder, name) for name in ("memory.max", "memory.high", "memory.limit_in_bytes")]
    # Version 1: the least limit above, even of a group that a container does not see.
    limits.append(_whole(statistics.get("hierarchical_memory_limit")))
    used = next((size for size in (_number(folder, "memory.current"), _number(folder, "memory.usage_in_bytes")) if size is not None), None)
    limit = min((size for size in limits if size is not None and size < _UNLIMITED), default=None)
    if limit is None or used is None:
        return None
    # The kernel drops cached files before it ends a process for want of memory. Version 1 counts groups below in total_*.
    cached = _whole(statistics.get("total_inactive_file", statistics.get("inactive_file"))) or 0
    return limit - max(0, used - cached)


def _number(folder, name):
    return next((_whole(line) for line in _lines(os.path.join(folder, name))), None)


def _whole(text):
    return int(text) if text is not None and text.strip().isdecimal() else None


def _lines(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []
