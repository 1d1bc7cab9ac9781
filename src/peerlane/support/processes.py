"""What tells one process from another that gets its pid later."""

from __future__ import annotations

import contextlib
from pathlib import Path


def start_time(pid: int) -> int:
    """Return when a process started, in clock ticks since the machine did; 0 if it has ended, or never was.

    Raises
    ------
    OSError
        No file descriptor is left to look.
    """
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        state, *fields = _fields(pid)
        if state not in (b"Z", b"X"):
            return int(fields[18])
    return 0


def parent_of(pid: int) -> int:
    """Return the pid of the process that started one; OSError if that has ended."""
    return int(_fields(pid)[1])


def _fields(pid: int) -> list[bytes]:
    """Return what the kernel says of a process, from its state on; the name before that may hold anything."""
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
