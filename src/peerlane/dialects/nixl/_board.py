"""Boards: what an agent shares with other processes, a word for each registration, and rings for notifications.

A board is a sealed memfd of its agent.  Other processes open it through ``/proc``.  The word of a registration is its
number while it lives, then 0.  A process that sends notifications holds one ring by a lock of the system, which ends
with the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
import time
from collections import deque
from typing import TypeAlias

from peerlane.diagnostics.log import event_log
from peerlane.dialects._shared import boards
from peerlane.dialects._shared.moves import ranks
from peerlane.dialects.nixl._status import nixlBackendError

_LOCK = struct.Struct("hhxxxxqqixxxx")
_PAUSE = 0.001  # seconds between two looks for room in a ring


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


class _Kind(boards.Board):
    """What the boards of agents have in common: the rings lie behind the words."""

    MAGIC, OWNER = b"plnixl02", "agent"
    refusal = nixlBackendError

    @classmethod
    def size(cls) -> int:
        return boards.BYTES + ranks().MESSAGE_RINGS_BYTES


class OwnBoard(_Kind, boards.OwnBoard):
    """The board of an agent of this process."""

    def __init__(self) -> None:
        super().__init__()
        self._rings = ranks().message_rings(self.fd, boards.BYTES)

    def close(self) -> None:
        self._rings.close()
        super().close()

    def collect(self, inbox: dict[str, list[bytes]]) -> None:
        """Move the notifications that other processes have sent into the inbox, by the name of the sender.

        Raises nixlBackendError: a process wrote nonsense; the rest of its ring is dropped.
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


class OtherBoard(_Kind, boards.OtherBoard):
    """The board of another process's agent.

    Raises nixlBackendError: the process, or the board, has ended.
    """

    def __init__(self, origin: boards.Origin) -> None:
        super().__init__(origin)
        self._rings = ranks().message_rings(self.fd, boards.BYTES)
        self._guard = threading.Lock()
        self._ring, self._most = -1, ranks().MOST_OF_MESSAGE
        self._waiting: deque[tuple[bytes, bytes, bool, Past]] = deque()

    def close(self) -> None:
        with self._guard:
            if not self.is_closed:
                self._rings.close()
            super().close()

    def send(self, name: bytes, message: bytes, past: Past) -> None:
        """Send a notification of the agent of that name; it waits in this process while the ring is full."""
        with self._guard:
            if self.is_closed:  # its agent was removed, and a transfer goes on
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
        while not self.is_closed and not self.has_ended():
            time.sleep(_PAUSE)
            with self._guard:
                while not self.is_closed and self._waiting and self._put(*self._waiting[0]):
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
