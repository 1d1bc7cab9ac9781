"""Boards: what an agent shares with other processes, a word for each registration, and rings for notifications.

A board is a sealed memfd of its agent.  Other processes open it through ``/proc``.  The word of a registration is its
number while it lives, then 0.  A process that sends notifications holds one ring by a lock of the system, which ends
with the process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import select
import struct
import threading
import time
from collections import deque
from typing import TypeAlias

from peerlane import devices
from peerlane.backend.ranks import Ranks
from peerlane.diagnostics.log import event_log
from peerlane.dialects.nixl._status import nixlBackendError
from peerlane.support.processes import start_time

SLOTS = 1 << 15  # registrations at a time
_WORDS_AT = 4096
_RINGS_AT = _WORDS_AT + 8 * SLOTS
_MAGIC = b"plnixl02"
_HEADER = struct.Struct("<8s16s")
_LOCK = struct.Struct("hhxxxxqqixxxx")
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_GONE = "it has ended"
_PAUSE = 0.001  # seconds between two looks for room in a ring
_LOOK = 0.0001  # seconds between two looks whether a process has ended


Past: TypeAlias = "tuple[int, int] | None"  #: a stream and its last operation; None: the thread


class Message(bytes):
    """A notification with the key of its sending in the event log, while there is a log."""

    key: event_log.Key

    def __reduce__(self) -> tuple[type[bytes], tuple[bytes]]:
        return bytes, (bytes(self),)


def key_of(ident: bytes, ring: int, at: int) -> event_log.Key:
    """Return the key of the message whose last piece stands at position ``at`` of a ring of the board ``ident``."""
    return event_log.key_of("nixl", ident, ring, at)


def logged(message: bytes, ident: bytes, ring: int, at: int) -> Message:
    """Return a message with its key."""
    logged_message = Message(message)
    logged_message.key = key_of(ident, ring, at)
    return logged_message


def log_sent(key: event_log.Key, past: Past) -> None:
    """Log that a message was sent after what ``past``, or this thread, has done."""
    if past is None:
        event_log.post(key)
    else:
        event_log.post_of(key, *past)


def log_received(message: bytes) -> None:
    """Log that this thread has seen a notification: what came before its sending comes before what follows."""
    if isinstance(message, Message):
        event_log.take(message.key, 1)


def ranks() -> Ranks:
    """Return the verbs of the back-end."""
    verbs: Ranks = devices()[0].backend.ranks
    return verbs


class _Board:
    """A mapped board."""

    def __init__(self, fd: int, ident: bytes) -> None:
        self.fd, self.ident = fd, ident
        self.memory = mmap.mmap(fd, _RINGS_AT)
        self._whole = memoryview(self.memory)
        self.words = self._whole[_WORDS_AT:].cast("Q")
        self._rings = ranks().message_rings(fd, _RINGS_AT)

    def close(self) -> None:
        """Unmap it; idempotent."""
        self._rings.close()
        for part in (self.words, self._whole):
            part.release()
        self.memory.close()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _size() -> int:
    return _RINGS_AT + ranks().MESSAGE_RINGS_BYTES


class OwnBoard(_Board):
    """The board of an agent of this process."""

    def __init__(self) -> None:
        fd = os.memfd_create("peerlane-nixl", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, _size())
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        super().__init__(fd, os.urandom(16))
        self.memory[: _HEADER.size] = _HEADER.pack(_MAGIC, self.ident)
        self._free: list[int] = []
        self._begun = self._number = 0  # slots that were ever used; registrations so far

    def check_room(self, count: int) -> None:
        """Raise nixlBackendError if fewer slots are free."""
        room = len(self._free) + SLOTS - self._begun
        if count > room:
            raise nixlBackendError(
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

    def collect(self, inbox: dict[str, list[bytes]]) -> None:
        """Move the notifications that other processes have sent into the inbox, by the name of the sender.

        Raises
        ------
        nixlBackendError
            A process wrote nonsense; the rest of its ring is dropped.
        """
        taken = self._rings.take()
        if taken is None:
            return
        messages, nonsense = taken
        for name, message, ring, position in messages:
            entry = logged(message, self.ident, ring, position) if event_log.active else message
            inbox.setdefault(name, []).append(entry)
        if nonsense:
            raise nixlBackendError(
                f"a process that sends notifications wrote {nonsense:,} bytes that are none",
                "look for stray writes in that process",
            )


class OtherBoard(_Board):
    """The board of another process's agent.

    Raises
    ------
    nixlBackendError
        The process, or the board, has ended.
    """

    def __init__(self, pid: int, started: int, fd: int, ident: bytes) -> None:
        self._process = -1
        opened = -1
        try:
            self._process = os.pidfd_open(pid)
            opened = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
            seals = fcntl.fcntl(opened, fcntl.F_GET_SEALS)
            fits = (
                start_time(pid) == started
                and os.fstat(opened).st_size == _size()
                and seals & _SEALS == _SEALS
            )
            if fits:
                fits = os.pread(opened, _HEADER.size, 0) == _HEADER.pack(_MAGIC, ident)
            why = "" if fits else _GONE
        except OSError as error:
            # The number of the descriptor may be free, or another file's, which has no seals.
            is_gone = self._process >= 0 and error.errno in (errno.ENOENT, errno.ENXIO, errno.EINVAL)
            why = _GONE if is_gone else error.strerror or str(error)
        if why:
            for each in (opened, self._process):
                if each >= 0:
                    os.close(each)
            raise nixlBackendError(
                f"the agent of process {pid} cannot be reached: {why}",
                "load the metadata of an agent that lives, of the same user on the same machine",
            )
        super().__init__(opened, ident)
        self.pid = pid
        self._guard = threading.Lock()
        self._ring, self._most = -1, ranks().MOST_OF_MESSAGE
        self._waiting: deque[tuple[bytes, bytes, bool, Past]] = deque()
        self._ended, self._asked = False, 0.0

    def has_ended(self, now: float) -> bool:
        """Return whether the process has ended, asking the system at most every 0.1 ms of ``time.monotonic()``."""
        if now - self._asked > _LOOK:
            self._asked = now
            exit = select.poll()  # one of its own: two threads may not use the same
            exit.register(self._process, select.POLLIN)
            self._ended = self._ended or bool(exit.poll(0))
        return self._ended

    def close(self) -> None:
        with self._guard:
            if self._process >= 0:
                os.close(self._process)
                self._process = -1
                super().close()

    def send(self, name: bytes, message: bytes, past: Past) -> None:
        """Send a notification of the agent of that name; it waits in this process while the ring is full."""
        with self._guard:
            if self._process < 0:  # its agent was removed, and a transfer goes on
                return
            if self._ring < 0:
                self._ring = self._claim()
            was_waiting = bool(self._waiting)
            if not was_waiting and len(message) <= self._most and self._put(name, message, False, past):
                return
            for at in range(0, len(message) or 1, self._most):
                end = at + self._most
                piece = name, message[at:end], end < len(message), past
                if self._waiting or not self._put(*piece):
                    self._waiting.append(piece)
            if self._waiting and not was_waiting:
                threading.Thread(target=self._go_on, name="peerlane nixl", daemon=True).start()

    def _put(self, name: bytes, text: bytes, more: bool, past: Past) -> bool:
        """Put a piece into the ring if there is room; return whether it is there."""
        if event_log.active and not more:  # before another process can have it
            log_sent(key_of(self.ident, self._ring, self._rings.place), past)
        return self._rings.put(name, text, more)

    def _go_on(self) -> None:
        while self._process >= 0 and not self.has_ended(time.monotonic()):
            time.sleep(_PAUSE)
            with self._guard:
                while self._process >= 0 and self._waiting and self._put(*self._waiting[0]):
                    self._waiting.popleft()
                if not self._waiting:
                    return

    def _claim(self) -> int:
        rings = ranks().MESSAGE_RINGS
        for ring in range(rings):
            with contextlib.suppress(BlockingIOError):
                lock = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, ring, 1, 0)
                fcntl.fcntl(self.fd, fcntl.F_OFD_SETLK, lock)  # the descriptor's, not the process's
                self._rings.hold(ring)
                return ring
        raise nixlBackendError(
            f"{rings} processes send notifications to this agent already",
            "let one of them remove the agent first",
        )
