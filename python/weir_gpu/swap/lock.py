"""The lock of swapping, and work that destructors leave: whoever can take the lock first does it.

A destructor may run at any point of the program, also while this thread holds the lock. So it only notes what is left to do.
"""

import sys
import threading
from collections import deque


class Lock:
    """Reentrant. Leftover work is done when its outermost holder releases it."""

    def __init__(self):
        self._lock = threading.RLock()
        self._depth = 0
        self.turn = 0  # how often it was taken by somebody who did not have it
        self._lists = []
        self._work = None

    def leftovers(self):
        """A list for destructors. If nobody holds the lock, `work` runs as soon as something is appended."""
        made = Leftovers(self)
        self._lists.append(made)
        return made

    def do(self, work):
        """Sets the function that empties all lists of leftovers. It is called with the lock held."""
        self._work = work

    def acquire(self, blocking=True, timeout=-1):
        if not self._lock.acquire(blocking, timeout):
            return False
        if self._depth == 0:
            self.turn += 1
        self._depth += 1
        return True

    def release(self):
        self._depth -= 1
        outermost = self._depth == 0
        self._lock.release()
        # Looks after the release: whoever appends later finds the lock free.
        if outermost and any(self._lists):
            self.work_off()

    def __enter__(self):
        self.acquire()
        return self

    def __exit__(self, *_error):
        self.release()

    def _is_owned(self):
        return self._lock._is_owned()

    def work_off(self):
        if self._work is None or sys.is_finalizing() or self._lock._is_owned() or not self._lock.acquire(blocking=False):
            return
        try:
            self._work()
        finally:
            self._lock.release()


class Leftovers(deque):
    def __init__(self, lock):
        super().__init__()
        self.lock = lock

    def append(self, left):
        super().append(left)
        self.lock.work_off()
