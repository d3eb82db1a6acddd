"""The supervisor of a process without `weir run`: a Node process that reads its ring, plans, records and makes the summary.

It starts at the first use of a GPU, since most processes that import PyTorch never use one. It watches this process and ends after
it. It is no child of this process, so programs that wait for their children do not see it, and it hears no Ctrl-C."""

import atexit
import contextlib
import os
import shutil
import subprocess
import sys

from . import folders, inquiry, node, processes
from .abi import SUPERVISOR_FILE
from .refusal import Refusal, say

# At the end of a process, its summary is waited for so long.
_FAREWELL_SECONDS = 5.0
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
            os.mkdir(self.folder, 0o700)
        except FileExistsError:
            # Another process of this fork family was first, and its supervisor reads the rings of all.
            self.began = True
            return
        except OSError as error:
            self._go_on_without(f"{self.folder} cannot be made: {error.strerror}")
            return
        self.owner, self.began = os.getpid(), True
        try:
            self.command = self.command or node.command()
            self._start()
        except Refusal as refusal:
            self._go_on_without(str(refusal))
        except Exception as error:
            self._go_on_without(f"its process could not be started: {error}")

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
        if not self.options.quiet:
            say(f"weir: there will be no summary and no recording, and the program goes on: {why}")

    def is_alive(self):
        """Whether somebody answers."""
        if self.owner == os.getpid():
            return self.started != "" and processes.is_alive(self.started)
        try:
            with open(os.path.join(self.folder, SUPERVISOR_FILE), encoding="ascii") as file:
                return processes.is_alive(file.read())
        except OSError:
            return False

    def _farewell(self):
        """At the end of the process. A fork of it says and removes nothing."""
        if self.owner != os.getpid():
            return
        if not self.is_alive():
            shutil.rmtree(self.folder, ignore_errors=True)
        elif not self.options.quiet or self.options.json_file or self.options.record:
            # In a container, the end of this process may be that of all others.
            with contextlib.suppress(KeyboardInterrupt):
                inquiry.ask(self.folder, self.is_alive, what_if=False, say=True, timeout=_FAREWELL_SECONDS)


def _has_stderr():
    """Whether file 2 is standard error. If the program has closed that, file 2 may be anything by now."""
    try:
        return sys.__stderr__ is not None and not sys.__stderr__.closed and sys.__stderr__.fileno() == 2
    except (OSError, ValueError):
        return False
