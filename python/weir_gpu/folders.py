"""Private folders of a process that runs without `weir run`: one for rings, and one for the host memory that many processes share.

Names of run folders are as src/run/child/folder-owner.ts makes them, so that leftovers of killed processes are found and removed."""

import hashlib
import os
import secrets
import stat
import string
import tempfile

from . import processes

# Rings that must fit. Containers often have a /dev/shm of 64 MiB, which one ring fills.
_RINGS = 16
_ROW_BYTES = 64
_LETTERS = string.ascii_letters + string.digits


def run_folder(settings):
    """A path for the rings of this process. The folder is not made: most processes never use a GPU."""
    pid = os.getpid()
    end = "".join(secrets.choice(_LETTERS) for _ in range(6))
    name = f"weir-run-{pid}-{processes.started(pid) or 0}-{processes.surroundings()}-{end}"
    return os.path.join(_place(settings, _RINGS * settings.ring_rows * _ROW_BYTES), name)


def host_memory_folder(settings, swap_host):
    """The folder in which all processes of the job on this machine agree on host memory for swapping; None if it cannot be had.

    Processes without `weir run` have no folder in common. So it is named by the user, the job and the budget. It stays: it is small."""
    about = f"{settings.job or ''} {swap_host}"
    name = f"weir-host-memory-{os.getuid()}-{processes.surroundings()}-{hashlib.sha256(about.encode()).hexdigest()[:8]}"
    path = os.path.join(_place(settings, 0), name)
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        found = os.lstat(path)
    except OSError:
        return None
    # The name can be known to others. Nobody else may have made it.
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return path if is_ours else None


def _place(settings, enough):
    """The first place with so many free bytes, or the one with the most."""
    places = [place for place in (settings.runtime_home, "/dev/shm", tempfile.gettempdir()) if place and place.startswith("/")]
    free = {place: _free(place) for place in places}
    usable = [place for place in places if free[place] >= 0]
    roomy = next((place for place in usable if free[place] >= enough), None)
    return roomy or max(usable, key=free.get, default=tempfile.gettempdir())


def _free(place):
    """Free bytes; below 0 if the folder cannot be written."""
    try:
        if not os.access(place, os.W_OK | os.X_OK):
            return -1
        found = os.statvfs(place)
    except OSError:
        return -1
    return found.f_bavail * found.f_frsize
