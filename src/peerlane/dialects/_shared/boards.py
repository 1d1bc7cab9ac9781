"""Boards: which registrations of a process live, for other processes of the machine.

A board is a sealed memfd of its owner.  Other processes open it through ``/proc``.  The word of a registration is its
number while it lives, then 0.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import select
import struct
import time
from collections.abc import Callable
from typing import ClassVar, NamedTuple

from peerlane.support.processes import start_time

SLOTS = 1 << 15  #: registrations at a time
_WORDS_AT = 4096
BYTES = _WORDS_AT + 8 * SLOTS  #: of a board; a dialect may put more behind them
_HEADER = struct.Struct("<8s16s")
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_GONE = "it has ended"
_LOOK = 0.0001  # seconds between two looks whether a process has ended


class Origin(NamedTuple):
    """Where a board lies: its identity, the process with its start time, and the descriptor there."""

    ident: bytes
    pid: int
    started: int
    fd: int


class Board:
    """A mapped board."""

    MAGIC: ClassVar[bytes]  #: the beginning of a dialect's boards; 8 bytes
    OWNER: ClassVar[str]  #: whose board it is, for texts: "agent"
    refusal: ClassVar[Callable[[str, str], Exception]]  #: makes the exception of a cause and a remedy

    @classmethod
    def size(cls) -> int:
        """Return the bytes of such a board."""
        return BYTES

    def __init__(self, fd: int, ident: bytes) -> None:
        self.fd, self.ident = fd, ident
        self.memory = mmap.mmap(fd, BYTES)
        self._whole = memoryview(self.memory)
        self.words = self._whole[_WORDS_AT:].cast("Q")

    def close(self) -> None:
        """Unmap it; idempotent."""
        for part in (self.words, self._whole):
            part.release()
        self.memory.close()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class OwnBoard(Board):
    """A board of this process."""

    def __init__(self) -> None:
        fd = os.memfd_create(f"peerlane-{self.OWNER}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, self.size())
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        super().__init__(fd, os.urandom(16))
        self.memory[: _HEADER.size] = _HEADER.pack(self.MAGIC, self.ident)
        self._free: list[int] = []
        self._begun = self._number = 0  # slots that were ever used; registrations so far

    @property
    def origin(self) -> Origin:
        """Where other processes find it."""
        pid = os.getpid()
        return Origin(self.ident, pid, start_time(pid), self.fd)

    def check_room(self, count: int) -> None:
        """Raise if fewer slots are free."""
        room = len(self._free) + SLOTS - self._begun
        if count > room:
            raise type(self).refusal(
                f"{count:,} pieces were to be registered, and there is room for {room:,} of {SLOTS:,}",
                "register larger pieces",
            )

    def begin(self) -> tuple[int, int]:
        """Return the slot and the number of a new registration; :meth:`check_room` comes before."""
        self._number += 1
        if self._free:
            slot = self._free.pop()
        else:
            slot, self._begun = self._begun, self._begun + 1
        self.words[slot] = self._number
        return slot, self._number

    def end(self, slot: int) -> None:
        """End a registration."""
        self.words[slot] = 0
        self._free.append(slot)


class OtherBoard(Board):
    """A board of another process.

    Raises Exception: of ``refusal``: the process, or the board, has ended.
    """

    def __init__(self, origin: Origin) -> None:
        self._process = -1
        opened = -1
        pid = origin.pid
        try:
            self._process = os.pidfd_open(pid)
            opened = os.open(f"/proc/{pid}/fd/{origin.fd}", os.O_RDWR | os.O_CLOEXEC)
            seals = fcntl.fcntl(opened, fcntl.F_GET_SEALS)
            fits = (
                start_time(pid) == origin.started
                and os.fstat(opened).st_size == self.size()
                and seals & _SEALS == _SEALS
            )
            if fits:
                fits = os.pread(opened, _HEADER.size, 0) == _HEADER.pack(self.MAGIC, origin.ident)
            why = "" if fits else _GONE
        except OSError as error:
            # The number of the descriptor may be free, or another file's, which has no seals.
            is_gone = self._process >= 0 and error.errno in (errno.ENOENT, errno.ENXIO, errno.EINVAL)
            why = _GONE if is_gone else error.strerror or str(error)
        if why:
            for each in (opened, self._process):
                if each >= 0:
                    os.close(each)
            raise type(self).refusal(
                f"the {self.OWNER} of process {pid} cannot be reached: {why}",
                f"use an {self.OWNER} that lives, of the same user on the same machine",
            )
        super().__init__(opened, origin.ident)
        self.pid = pid
        self._ended, self._asked = False, 0.0

    def has_ended(self, now: float | None = None) -> bool:
        """Return whether the process has ended, asking the system at most every 0.1 ms of ``time.monotonic()``."""
        now = time.monotonic() if now is None else now
        if now - self._asked > _LOOK:
            self._asked = now
            exit = select.poll()  # one of its own: two threads may not use the same
            exit.register(self._process, select.POLLIN)
            self._ended = self._ended or bool(exit.poll(0))
        return self._ended

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._process < 0

    def close(self) -> None:
        if self._process >= 0:
            os.close(self._process)
            self._process = -1
            super().close()
