"""The supervisor of a process without `weir run`: a Node process that reads its ring, plans, records and makes the summary.

It starts at the first use of a GPU, since most processes that import PyTorch never use one. It watches this process and ends after
it. It is no child of this process, so programs that wait for their children do not see it, and it hears no Ctrl-C."""

import atexit
import contextlib
import os
import shutil
import subprocess
import sys
import time

from . import folders, inquiry, node, processes
from .abi import FORK_FILE, SUPERVISOR_FILE
from .refusal import Refusal, say

# At the end of a process, its summary is waited for so long.
_FAREWELL_SECONDS = 5.0
# So long a fork waits for the supervisor of an earlier one to end. It takes a part of a second.
_HANDOVER_SECONDS = 3.0
# The shell starts it in the background and ends: that makes it nobody's child.
_DETACHED = '"$@" </dev/null >/dev/null & echo $!'


class Supervisor:
    def __init__(self, options, settings):
        """Raises a Refusal if something was asked for that only a supervisor does, and there is no Node."""
        self.options = options
        self.folder = folders.run_folder(settings)
        self.command = None
        self.why_not = None  # why there is none; None if there is, or will be
        self.owner = 0  # the process that has made the folder
        self.began = False
        self.started = ""  # identity of the supervisor; empty if it has ended at once
        asked = options.needs_supervisor()
        if asked is not None:
            try:
                self.command = node.command()
            except Refusal as refusal:
                raise Refusal(refusal.reason, f"{asked} needs the command weir, and {refusal}") from None
        # Before anything that registers later: reports of swapping must be written first.
        atexit.register(self._farewell)

    def begin_with(self, torch):
        """Starts it when CUDA starts, or now if nobody can tell when that is."""
        later = getattr(torch.cuda, "_lazy_call", None)
        if later is None:
            self.begin()
        else:
            later(self.begin)

    def begin(self):
        """Never raises. May be called again: in a fork of this process, and after a failed start of CUDA."""
        if self.owner == os.getpid():
            return
        try:
            is_first = self._make_folder()
        except OSError as error:
            self._go_on_without(f"{self.folder} cannot be made: {error.strerror}")
            return
        self.began = True
        if not is_first:
            return
        self.owner = os.getpid()
        try:
            self.command = self.command or node.command()
            self._start()
        except Refusal as refusal:
            self._go_on_without(str(refusal))
        except Exception as error:
            self._go_on_without(f"its process could not be started: {error}")
        except BaseException:
            # Ctrl-C ends the start of CUDA, and the next one begins anew.
            self.owner = 0
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def _make_folder(self):
        """False if another process of this fork family was first, and its supervisor reads the rings of all."""
        own, own_file = processes.identity(os.getpid()), os.path.join(self.folder, f"{os.getpid()}{FORK_FILE}")
        deadline = time.monotonic() + _HANDOVER_SECONDS
        while True:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.folder, 0o700)
                # Until the supervisor writes it. If this process is a daemon, the one that names the folder has ended.
                with contextlib.suppress(OSError):
                    _write(self._supervisor_file, own)
                return True
            # The supervisor removes its file, then looks for ours. So it waits for us, or we see that it is about to end.
            if os.path.exists(self._supervisor_file):
                with contextlib.suppress(OSError):
                    _write(own_file, own)
                if os.path.exists(self._supervisor_file):
                    return False
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)

    @property
    def _supervisor_file(self):
        return os.path.join(self.folder, SUPERVISOR_FILE)

    def _start(self):
        pid = os.getpid()
        words = ["supervise", "--folder", self.folder, "--pid", str(pid), "--started", processes.started(pid)]
        shell = subprocess.run(
            ["/bin/sh", "-c", _DETACHED, "sh", *self.command, *words, *self.options.words()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if _has_stderr() else subprocess.DEVNULL,
            start_new_session=True,
            check=True,
        )
        number = int(shell.stdout)
        start = processes.started(number)
        self.started = f"{number} {start}" if start else ""

    def _go_on_without(self, why):
        self.why_not = why
        with contextlib.suppress(OSError):
            _write(self._supervisor_file, "")  # Forks need not wait for it.
        if not self.options.quiet:
            say(f"weir: there will be no summary and no recording, and the program goes on: {why}")

    def is_alive(self):
        """Whether somebody answers."""
        if self.owner == os.getpid():
            return self.started != "" and processes.is_alive(self.started)
        try:
            with open(self._supervisor_file, encoding="ascii") as file:
                return processes.is_alive(file.read())
        except OSError:
            return False

    def _farewell(self):
        """At the end of the process. A fork of it says and removes nothing."""
        if self.owner != os.getpid():
            return
        if not self.is_alive():
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        is_read = self.options.quiet and not self.options.json_file and not self.options.record  # by nobody
        if not is_read:
            # In a container, the end of this process may be that of all others.
            with contextlib.suppress(KeyboardInterrupt):
                summary = inquiry.ask(self.folder, self.is_alive, what_if=False, say=True, timeout=_FAREWELL_SECONDS)
                is_read = summary.json is not None
        # The supervisor has it open. If the container ends with us, shared memory outlives it, and nobody else removes the ring.
        if is_read:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self.folder, f"{os.getpid()}.ring"))


def _write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _has_stderr():
    """Whether file 2 is standard error. If the program has closed that, file 2 may be anything by now."""
    try:
        return sys.__stderr__ is not None and not sys.__stderr__.closed and sys.__stderr__.fileno() == 2
    except (OSError, ValueError):
        return False
