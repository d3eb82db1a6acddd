"""Host memory for swapping: one budget for all processes of a run on this machine. Each claims what it pins.

Claims lie in a file of the run's folder. A claim names its process and ends with it, however that ends."""

import contextlib
import json
import os
import threading
import time
from collections import deque

from .. import processes
from . import cgroups

_FILE = "host-memory.json"
_LOCK = "host-memory.lock"
_LOCK_SECONDS = 2.0
_UNKNOWN_MEMORY = 16 << 30
# A process that is alone leaves an eighth for those that come later.
_KEPT = 8


class FixedBudget:
    """A number of bytes that nobody else uses."""

    def __init__(self, limit):
        self.total, self.held = limit, 0
        self.released = deque()  # bytes; a destructor may release some at any point
        self.lock = threading.Lock()

    def join(self):
        pass

    def limit(self):
        return self.total

    def claim(self, size):
        with self.lock:
            self.held -= take_all(self.released)
            granted = max(0, min(size, self.total - self.held))
            self.held += granted
            return granted

    def release(self, size):
        self.released.append(size)


def take_all(sizes):
    """Empties the queue and returns its sum. Other threads may append meanwhile."""
    total = 0
    while sizes:
        total += sizes.popleft()
    return total


def of(directory, given, ranks):
    """The budget of a process. `given`: bytes for all processes together; None for half of what is available. `ranks`: processes of
    the job on this machine, if known."""
    if directory:
        return SharedBudget(directory, given, ranks)
    # Nobody to agree with: an equal share.
    return FixedBudget(_total(given) // (ranks or 1))


def _total(given):
    return given if given is not None else _available() // 2


def _available():
    found = cgroups.available()
    return _UNKNOWN_MEMORY if found is None else found


class SharedBudget:
    def __init__(self, directory, given, ranks, available=_available):
        self.directory, self.given, self.ranks, self.available = directory, given, ranks, available
        self.known = 0  # the limit that was read last
        self.busy = threading.Lock()  # memory is pinned by training and in the background
        self.owed = deque()  # bytes to release, not yet in the file
        self.claimant = None  # the process that pinned memory: a fork of it has the same objects, but no pinned memory

    def join(self):
        """Makes this process count, before it pins anything. If it counts already, nobody is asked: a destructor may call this."""
        if self.claimant != os.getpid():
            self._change_alone(0)

    def limit(self):
        """Bytes that this process may hold now, with those it holds."""
        self._change_alone(0)
        return self.known

    def claim(self, size):
        """Returns the bytes granted: at most `size`, perhaps 0. Pin no more than that."""
        return self._change_alone(size)

    def release(self, size):
        # First: in a fork, another thread may have held the lock for ever.
        if self.claimant != os.getpid():
            return
        self.owed.append(size)
        # A destructor may call this at any point, even while this thread makes a claim. Then the claim has the lock, and looks afterwards.
        self._pay()

    def _pay(self):
        tries = 2
        while self.owed and tries > 0 and self.busy.acquire(blocking=False):
            tries -= 1
            try:
                self._change(0)
            finally:
                self.busy.release()

    def _change_alone(self, size):
        if self.claimant not in (None, os.getpid()):
            self.busy = threading.Lock()
        with self.busy:
            granted = self._change(size)
        self._pay()
        return granted

    def _change(self, size):
        """Claims `size` bytes and releases what is owed. Returns the bytes granted."""
        with self._locked() as can:
            return self._settle(size) if can else 0

    def _settle(self, size):
        own = processes.identity(os.getpid())
        total, claims = self._read()
        if total is None:
            total = self.given if self.given is not None else self.available() // 2
        if self.claimant != os.getpid():
            self.claimant = os.getpid()
            self.owed.clear()
        owed = take_all(self.owed)
        held = claims[own] = max(0, claims.get(own, 0) - owed)
        count = max(self.ranks or 1, len(claims))
        share = total // count if count > 1 else total - total // _KEPT
        others = sum(claims.values()) - held
        self.known = max(0, min(share, total - others))
        granted = max(0, min(size, self.known - held))
        if granted > 0 and self.given is None:
            # Memory that was available at the start may be in use now.
            granted = min(granted, self.available() // 2)
        claims[own] += granted
        if not self._write(total, claims):
            self.owed.append(owed)
            return 0
        return granted

    @contextlib.contextmanager
    def _locked(self):
        """Whether the lock was taken. A process that was stopped may hold it: training must not wait for it for ever."""
        import fcntl

        try:
            file = os.open(os.path.join(self.directory, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            yield False  # the run has ended, and its folder is gone
            return
        try:
            deadline = time.monotonic() + _LOCK_SECONDS
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        yield False
                        return
                    time.sleep(0.005)
            yield True
        finally:
            # A process that was forked meanwhile has this file open, too, and would keep the lock.
            fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)

    def _read(self):
        """The budget and the claims of living processes. If there are none, the budget is measured anew."""
        try:
            with open(os.path.join(self.directory, _FILE), encoding="utf-8") as file:
                found = json.load(file)
            total, claims = int(found["total"]), {str(name): int(size) for name, size in found["claims"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None, {}
        claims = {name: size for name, size in claims.items() if processes.is_alive(name)}
        return (total, claims) if claims else (None, {})

    def _write(self, total, claims):
        path = os.path.join(self.directory, _FILE)
        try:
            with open(path + ".new", "w", encoding="utf-8") as file:
                json.dump({"total": total, "claims": claims}, file)
            # Whole or not at all, even if this process is killed here.
            os.replace(path + ".new", path)
        except OSError:
            return False
        return True
