"""One connection of a server: a request is read, waits, and is answered, each within bounds."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from peerlane.rendezvous import frames
from peerlane.rendezvous.frames import BadFrame, Operation, Request, Status
from peerlane.rendezvous.meeting import STORE_BYTES

if TYPE_CHECKING:
    from peerlane.rendezvous.loop import Loop

STALL_SECONDS = 10.0
_CHUNK = 1 << 18
NEVER = float("inf")


class Connection:
    """Reads one request, hands it to the loop, and writes one answer.

    A peer that sends half a frame, or does not read its answer, is dropped after ten seconds without progress.

    Attributes
    ----------
    pid : int
        The peer's.
    deadline : float
        When ``on_deadline`` is to be called, on the monotonic clock.
    """

    operation: Operation
    rank: int
    key: str
    value: bytes

    def __init__(self, accepted: socket.socket, pid: int, loop: Loop) -> None:
        self.socket = accepted
        self.pid = pid
        self.deadline = NEVER
        self._loop = loop
        self._wanted = frames.REQUEST_BYTES
        self._received = bytearray()
        self._request: Request | None = None
        self._charged = 0
        self._is_waiting = False
        self._is_closed = False
        self._output: list[memoryview] = []
        loop.listen_to(self, selectors.EVENT_READ)
        self._expect_progress()

    def on_ready(self) -> None:
        """Go on: bytes have come, or may be written, or the peer has gone."""
        try:
            if self._output:
                self._send()
            else:
                self._receive()
        except BlockingIOError:
            pass
        except OSError:
            self.close()

    def on_deadline(self) -> None:
        """Answer a wait that is over with what is missing; drop a peer that makes no progress."""
        if self._is_waiting:
            text = self._loop.why_waiting(self)
            self._loop.withdraw(self)
            self.answer(Status.WAIT_TIMEOUT, [text.encode()])
        else:
            self.close()

    def answer(self, status: Status, values: Sequence[bytes]) -> None:
        """Write an answer, and close once it is written; nothing more is read."""
        self._is_waiting = False
        self._output = [
            memoryview(frames.encode_answer(status, values)),
            *(memoryview(value) for value in values),
        ]
        self._received = bytearray()
        self._give_back()
        self._loop.listen_to(self, selectors.EVENT_WRITE)
        self._expect_progress()
        self.on_ready()

    def close(self) -> None:
        """Drop the peer, and what it waited for."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._is_waiting:
            self._loop.withdraw(self)
        self._give_back()
        self.deadline = NEVER
        self.value = b""
        self._loop.listen_to(self, 0)
        self.socket.close()
        self._loop.on_closed(self)

    def _expect_progress(self) -> None:
        self.deadline = time.monotonic() + STALL_SECONDS

    def _give_back(self) -> None:
        if self._request is not None and self._charged:
            self._loop.give_back(self._request.rank, self._charged)
            self._charged = 0

    def _send(self) -> None:
        while self._output:
            sent = self.socket.send(self._output[0])
            self._output[0] = self._output[0][sent:]
            if not self._output[0]:
                del self._output[0]
            self._expect_progress()
        self.close()

    def _receive(self) -> None:
        chunk = self.socket.recv(min(_CHUNK, self._wanted - len(self._received)) or 1)
        if not chunk:
            self.close()
        elif self._is_waiting:
            self._refuse("more bytes than the request has")
        else:
            self._received += chunk
            self._expect_progress()
            if len(self._received) == self._wanted:
                self._go_on()

    def _go_on(self) -> None:
        if self._request is None:
            self._begin()
        if self._request is not None and len(self._received) == self._wanted:
            self._finish(self._request)

    def _begin(self) -> None:
        try:
            request = frames.decode_request(self._received)
        except BadFrame as error:
            self._refuse(str(error))
            return
        if request.size != self._loop.size:
            self._refuse(f"this rank was told a size of {request.size}; it serves {self._loop.size}")
            return
        charged = self._loop.reserve(request)
        if charged is None:
            text = (
                f"rank {request.rank} has no room for {request.value_bytes:,} bytes more; "
                f"{STORE_BYTES:,} is the most, and an old value counts until the new one of its key has come; "
                "take values away with Rendezvous.delete"
            )
            self.answer(Status.FULL, [text.encode()])
            return
        self._request, self._charged = request, charged
        self._received = bytearray()
        self._wanted = request.key_bytes + request.value_bytes

    def _finish(self, request: Request) -> None:
        received = bytes(self._received)
        try:
            self.key = received[: request.key_bytes].decode()
        except UnicodeDecodeError:
            self._refuse("the key is not UTF-8")
            return
        self.operation, self.rank, self.value = request.operation, request.rank, received[request.key_bytes :]
        self._received = bytearray()
        self._charged = 0  # from here on it is the value's
        self._is_waiting = True
        self.deadline = NEVER if request.timeout is None else time.monotonic() + request.timeout
        self._loop.handle(self)

    def _refuse(self, text: str) -> None:
        if self._is_waiting:
            self._loop.withdraw(self)
        self.answer(Status.INVALID, [text.encode()])
