"""What the system has of a process: whether it lives, when it started, and its parent.

The start time tells a process from a later one that gets the same pid.
"""

from __future__ import annotations

import contextlib
from pathlib import Path


def start_time(pid: int) -> int:
    """Return when a process started, in clock ticks since the machine's start; 0 if no such process runs.

    Raises OSError: no file descriptor is left to read it.
    """
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        state, *fields = _fields(pid)
        if state not in (b"Z", b"X"):
            return int(fields[18])
    return 0


def lives(pid: int) -> bool:
    """Tell whether a process runs; True if no file descriptor is left to see that."""
    try:
        return start_time(pid) != 0
    except OSError:
        return True


def parent_of(pid: int) -> int:
    """Return the pid of a process's parent; OSError if the process has ended."""
    return int(_fields(pid)[1])


def _fields(pid: int) -> list[bytes]:
    """Return the fields of a process's ``stat`` from its state on; the name before them may hold any byte."""
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
