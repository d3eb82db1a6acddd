"""Pins host memory in pieces, on a thread of its own, so that training does not wait for it.

Only the thread touches a piece while it is being pinned. Finished pieces go through a queue to the slab (host.py), which owns them then.
"""

import atexit
import threading
import weakref
from collections import deque

ALIGNMENT = 4096
# Pinning holds locks of the driver that kernel launches need, about 10 ms for a piece. Each piece is pinned by a call of its own,
# so no copy may cross the border of two pieces.
PIECE = 32 << 20
# Bytes per claim: asking the other processes takes about a millisecond.
CLAIM = 8 * PIECE
# Most seconds to wait for the piece that is being pinned.
_JOIN_SECONDS = 2.0


class Pinning:
    """`memory` makes chunks: objects with `bytes`, and with pin(at, length), which pins a piece of them."""

    def __init__(self, memory, budget, say):
        self.memory, self.budget, self.say = memory, budget, say
        self.orders = deque()  # bytes
        self.arrived = deque()  # (chunk, at, length) of each piece, then (None, 0, bytes of the order that cannot be had)
        self.claims = deque()  # bytes of each piece that is pinned
        self.is_halted = False  # no further piece is pinned in the background
        self.is_gone = False  # the slab is gone, and its memory with it
        self.is_running = False
        self.thread = None
        self._starting = threading.Lock()
        _open.add(self)

    # ---- for the owner of the slab

    def order(self, size):
        """Begins to pin `size` bytes in the background."""
        self.orders.append(size)
        with self._starting:
            start, self.is_running = not self.is_running, True
        if start:
            try:
                self.thread = self.memory.in_background(self._run)
            except BaseException as error:
                self.is_running = False
                self.orders.clear()
                self.arrived.append((None, 0, size))
                # There may be no more threads.
                if not isinstance(error, RuntimeError):
                    raise

    def pin(self, wanted, least):
        """Pins between `least` and `wanted` bytes now, as one chunk, if they can be had. Returns the pieces."""
        pieces = []
        self._fill(wanted, least, lambda *piece: pieces.append(piece), lambda: False)
        return pieces

    def halt(self):
        """Ends pinning in the background, and waits for the piece that is being pinned."""
        self.is_halted = True
        thread = self.thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_SECONDS)

    def close(self):
        """The slab is gone. A destructor may call this at any point, so it does not wait."""
        self.is_halted = self.is_gone = True
        self._release_claims()

    # ---- in the background

    def _run(self):
        while True:
            while self.orders:
                self._serve(self.orders.popleft())
            with self._starting:
                # Whoever orders later finds that nobody is at work.
                if not self.orders:
                    self.is_running = False
                    return

    def _serve(self, size):
        missing = size

        def post(*piece):
            nonlocal missing
            missing -= piece[2]
            self.arrived.append(piece)

        try:
            self._fill(size, 1, post, lambda: self.is_halted)
        except Exception as error:
            self.say("host", f"host memory cannot be pinned in the background ({error}); swapping with less")
        finally:
            self.arrived.append((None, 0, missing))

    # ---- in any thread

    def _fill(self, wanted, least, post, is_over):
        chunk, size = self._chunk_of(wanted, least)
        at = left = 0
        try:
            while at < size and not is_over():
                if left == 0:
                    asked = max(least - at, min(CLAIM, size - at))
                    left = self._claim(asked)
                    # Others may have kept the claim waiting for seconds.
                    if left < max(ALIGNMENT, least - at) or is_over():
                        return
                    if left < asked:
                        # The last of this chunk: every piece but the last is a whole one, so that all borders are known.
                        size = at + left
                length = min(PIECE, size - at, left)
                chunk.pin(at, length)
                left -= length
                self.claims.append(length)
                if self.is_gone:
                    self._release_claims()
                post(chunk, at, length)
                at += length
        except (MemoryError, RuntimeError, OSError) as error:
            self.say("host", f"{size} bytes of host memory cannot be pinned ({error}); swapping with less")
        finally:
            if left > 0:
                self.budget.release(left)

    def _chunk_of(self, wanted, least):
        """A chunk of at most `wanted` bytes, and its size. Its memory is taken when it is pinned."""
        size = _up(wanted)
        while True:
            try:
                return self.memory.host_memory(size), size
            except (MemoryError, RuntimeError, OSError) as error:
                self.say("host", f"{size} bytes of host memory cannot be had ({error}); swapping with less")
                size = size // 2 // ALIGNMENT * ALIGNMENT
                if size < max(least, PIECE):
                    return None, 0

    def _claim(self, size):
        granted = self.budget.claim(_up(size))
        usable = granted // ALIGNMENT * ALIGNMENT
        if granted > usable:
            self.budget.release(granted - usable)
        return usable

    def _release_claims(self):
        """Both the thread and the destructor of the slab may do this: each claim is taken out once."""
        total = 0
        while True:
            try:
                total += self.claims.pop()
            except IndexError:
                break
        if total > 0:
            self.budget.release(total)


def _up(size):
    return -(-size // ALIGNMENT) * ALIGNMENT


_open = weakref.WeakSet()


@atexit.register
def _halt_all():
    """The driver must not be inside a call when the process takes it down."""
    for pinning in list(_open):
        pinning.halt()
