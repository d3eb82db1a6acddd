"""Processes of this machine, told apart for good: a process id alone may belong to another process later."""

import hashlib
import os


def started(pid):
    """When the process started, in ticks since the machine did. Empty if there is no such process, or only its parent has not noticed
    its end."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # After the name, which may contain anything.
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    # A zombie holds no memory.
    return "" if fields[0] in "ZX" else fields[19]


def identity(pid):
    """`<pid> <start>`, which no other process has."""
    return f"{pid} {started(pid)}"


def is_alive(identity):
    pid, _, start = identity.partition(" ")
    return pid.isdecimal() and started(int(pid)) == start


def surroundings():
    """Names this start of this machine and our namespace of process ids. src/run/child/folder-owner.ts makes the same name."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            facts = f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except (OSError, ValueError):
        return "00000000"
    return hashlib.sha256(facts.encode()).hexdigest()[:8]
