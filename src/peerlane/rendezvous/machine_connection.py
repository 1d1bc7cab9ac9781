"""One end of a connection between two machines, on a socket that a loop serves."""

from __future__ import annotations

import socket
import time
from abc import ABC, abstractmethod
from collections import deque
from selectors import EVENT_READ, EVENT_WRITE

from peerlane.rendezvous.link import BadLink, Frame, Kind, Link
from peerlane.rendezvous.loop import NEVER, STALL_SECONDS, Loop

_CHUNK = 1 << 18
_MOST_UNSENT = 256 << 20  # bytes


class MachineConnection(ABC):
    """A connection that is opened, or opens, while the loop serves.

    ``unreachable``: seconds of silence after which the other machine counts as lost.

    ``deadline``: as the loop has it.
    """

    def __init__(self, connected: socket.socket, link: Link, loop: Loop, unreachable: float) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket, self._link, self._loop, self._unreachable = connected, link, loop, unreachable
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._is_closed = False
        self._heard_at = self._sent_at = time.monotonic()
        self._opened_by = NEVER if link.is_open else self._heard_at + STALL_SECONDS
        self._set_deadline()
        loop.listen_to(connected, EVENT_READ, self._on_ready)

    @property
    def is_open(self) -> bool:
        """Whether both ends have proved that they know the secret."""
        return self._link.is_open

    @abstractmethod
    def hear(self, frame: Frame) -> None:
        """Take a frame; raise BadLink if the other end may not send it."""

    @abstractmethod
    def lost(self, why: str) -> None:
        """The connection is closed, and not by this end."""

    def send(self, kind: Kind, number: int = 0, body: bytes = b"") -> None:
        """Send a frame; it waits while the other end does not read."""
        if not self._is_closed:
            self._write(*self._link.frame(kind, number, body))

    def _write(self, *parts: bytes) -> None:
        self._sent_at = time.monotonic()
        self._unsent.extend(memoryview(part) for part in parts if part)
        self._unsent_bytes += sum(map(len, parts))
        if self._unsent_bytes > _MOST_UNSENT:
            self._lose(f"it does not read: {self._unsent_bytes:,} bytes wait to be sent")
        else:
            self._flush()

    def _flush(self) -> None:
        try:
            while self._unsent:
                sent = self._socket.send(self._unsent[0])
                self._unsent_bytes -= sent
                self._unsent[0] = self._unsent[0][sent:]
                if not self._unsent[0]:
                    self._unsent.popleft()
        except BlockingIOError:
            pass
        except OSError as error:
            self._lose(f"the connection ended ({error.strerror})")
            return
        self._loop.listen_to(self._socket, EVENT_READ | (EVENT_WRITE if self._unsent else 0), self._on_ready)
        self._set_deadline()

    def _on_ready(self) -> None:
        if self._unsent:
            self._flush()
        if self._is_closed:
            return
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(f"the connection ended ({error.strerror})")
            return
        if not data:
            self._lose(
                "it closed the connection"
                if self.is_open
                else "it closed the connection before it proved anything"
            )
            return
        self._heard_at = time.monotonic()
        try:
            self._take(data)
        except BadLink as error:
            self._lose(str(error))
        if not self._is_closed:
            self._set_deadline()

    def _take(self, data: bytes) -> None:
        if not self._link.is_open:
            if reply := self._link.meet(data):
                self._write(reply)
            if not self._link.is_open:
                return
            self._opened_by, data = NEVER, b""
        for frame in self._link.hear(data):
            self.hear(frame)
            if self._is_closed:
                return

    def _set_deadline(self) -> None:
        silent, quiet = self._heard_at + self._unreachable, self._sent_at + self._unreachable / 4
        self.deadline = min(silent, quiet) if self.is_open else self._opened_by

    def on_deadline(self) -> None:
        """Send a sign of life if nothing was sent for long; give up a machine that is silent."""
        now = time.monotonic()
        if not self.is_open:
            self._lose(f"it proved nothing within {STALL_SECONDS:g} s")
        elif now >= self._heard_at + self._unreachable:
            self._lose(f"its machine has been silent for {self._unreachable:g} s")
        else:
            self.send(Kind.ALIVE)

    def _lose(self, why: str) -> None:
        if not self._is_closed:
            self.close()
            self.lost(why)

    def leave(self) -> None:
        """Say that this end closes the connection, and close it."""
        if self.is_open:
            self.send(Kind.BYE)
        self.close()

    def close(self) -> None:
        """Close the socket; idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self.deadline = NEVER
            self._loop.listen_to(self._socket, 0, self._on_ready)
            self._socket.close()
            self._unsent.clear()
