"""A file with the rendezvous's address, by which the other ranks of a machine find it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

from peerlane.errors import Refused, WaitTimeout
from peerlane.rendezvous.late_ranks import LateRanks
from peerlane.rendezvous.whereabouts import LONGEST
from peerlane.support.processes import parent_of, start_time
from peerlane.support.runtime_directory import runtime_directory

_LONGEST = LONGEST + 64
_STEP = 0.01


class MeetingFile:
    """The file in which rank 0 of a job, or a machine's first rank, leaves a message for the other ranks.

    ``job``: identifies the job; if empty, the process that started this one and the other ranks does.
    ``name``: identifies the file among those of the job.
    ``variable``: an environment variable that the starter sets in the processes that it starts, and their children
        inherit; empty if the starter is this process's parent.
    """

    def __init__(self, job: Sequence[str], name: str, variable: str = "") -> None:
        words = list(job)
        if not words:
            starter = _starter(variable)
            words = [str(starter), str(start_time(starter))]
        digest = hashlib.sha256("\0".join([*words, name]).encode()).hexdigest()[:32]
        self._path: Path = runtime_directory() / f"meet-{digest}"
        self._mine: bytes | None = None

    def write(self, message: bytes) -> None:
        """Publish a message, until this is closed or this process ends."""
        _remove_stale(self._path.parent)
        head = f"{os.getpid()} {start_time(os.getpid())}\n".encode()
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(head + message)
        temporary.replace(self._path)
        self._mine = message

    def read(
        self, call: str, timeout: float, *, whose: str = "rank 0", late: LateRanks | None = None
    ) -> bytes:
        """Wait for the message; ignore one of a process that has ended.  ``whose`` names its writer in texts.

        Raises
        ------
        WaitTimeout
        """
        deadline = time.monotonic() + timeout
        while True:
            message = self.look()
            if message is not None:
                return message
            if late is not None:
                late.look((0,))
            if time.monotonic() >= deadline:
                raise WaitTimeout(
                    f"{call}: {whose} did not come within {timeout:g} s; are all ranks of this machine started by "
                    "one launcher, by one user? Else pass rendezvous='tcp://host:port' to all",
                    call=call,
                    detail=Refused(
                        reason="wait_timeout", ranks=(0,) if whose == "rank 0" else (), seconds=timeout
                    ),
                )
            time.sleep(_STEP)

    def look(self) -> bytes | None:
        """Return the message, None if there is none or its process has ended."""
        with contextlib.suppress(OSError), self._path.open("rb") as file:
            head, _, message = file.read(_LONGEST).partition(b"\n")
            if _lives(head):
                return message
        return None

    def close(self) -> None:
        """Remove the message; a message that has replaced it stays."""
        mine, self._mine = self._mine, None
        if mine is not None and self.look() == mine:
            self._path.unlink(missing_ok=True)


def _remove_stale(directory: Path) -> None:
    for path in directory.glob("meet-*"):
        with contextlib.suppress(OSError), path.open("rb") as file:
            if not _lives(file.read(_LONGEST).partition(b"\n")[0]):
                path.unlink()


def _starter(variable: str) -> int:
    """Return the pid of the nearest ancestor whose environment lacks a variable; a shell may lie between."""
    pid = os.getppid()
    with contextlib.suppress(OSError):
        while variable and f"\0{variable}=".encode() in b"\0" + Path(f"/proc/{pid}/environ").read_bytes():
            pid = parent_of(pid)
    return pid


def _lives(head: bytes) -> bool:
    pid, _, start = head.partition(b" ")
    if not (pid.isdigit() and start.isdigit() and len(pid) < 10 and len(start) < 20):
        return False
    return start_time(int(pid)) == int(start)
