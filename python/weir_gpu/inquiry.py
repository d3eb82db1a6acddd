"""Asks the supervisor for the summary up to now, by files in the folder that both share. Works under `weir run`, too."""

import json
import math
import os
import secrets
import threading
import time

from .abi import EXCHANGE_VERSION, SummaryAnswer, SummaryRequest

_LEAST_PAUSE, _MOST_PAUSE = 0.005, 0.1
_lock = threading.Lock()


def _in_fork():
    """A thread that held the lock does not exist here."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_fork)


class Summary:
    """What `weir run` prints at its end, up to now. `text` is for people, `json` for programs; None if nobody could be asked."""

    def __init__(self, text, json=None):
        self.text, self.json = text, json

    def __str__(self):
        return self.text

    __repr__ = __str__


def ask(folder, is_alive, *, what_if, say, timeout):
    """`is_alive` tells whether anybody will answer. Never raises, except for Ctrl-C."""
    if not is_alive():
        return Summary("there is no summary: the supervisor of this process has ended")
    # Two threads would take each other's answers.
    with _lock:
        try:
            return _ask(folder, is_alive, what_if, say, timeout)
        except OSError as error:
            return Summary(f"there is no summary: {error}")


def _ask(folder, is_alive, what_if, say, timeout):
    own = os.path.join(folder, str(os.getpid()))
    name = secrets.token_hex(8)
    request = SummaryRequest(version=EXCHANGE_VERSION, id=name, what_if=what_if, say=say)
    with open(f"{own}.request.new", "w", encoding="utf-8") as file:
        json.dump(request.write(), file)
    os.replace(f"{own}.request.new", own + SummaryRequest.FILE)
    deadline = time.monotonic() + (math.inf if timeout is None else timeout)
    pause = _LEAST_PAUSE
    while True:
        found = _answer(own + SummaryAnswer.FILE, name)
        if found is not None:
            return found
        if not is_alive():
            # It may have answered as its last deed.
            return _answer(own + SummaryAnswer.FILE, name) or Summary("there is no summary: the supervisor of this process has ended")
        if time.monotonic() > deadline:
            return Summary(f"there is no summary: the supervisor has not answered for {timeout:g} s")
        time.sleep(pause)
        pause = min(2 * pause, _MOST_PAUSE)


def _answer(path, name):
    try:
        with open(path, encoding="utf-8") as file:
            answer = SummaryAnswer.read(json.load(file))
    except (OSError, ValueError):
        return None
    return Summary(answer.text, json.loads(answer.json)) if answer.id == name else None
