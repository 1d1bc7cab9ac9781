"""Frames between dialects of two processes over TCP: a magic, a verb of 4 letters, and a body."""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, TypeAlias

#: Bytes to send: what ``bytes.join`` takes.
Content: TypeAlias = Any

_FRAME = struct.Struct("<8s4sI")  # magic, verb, bytes of the body
MOST = 64 << 20  #: bytes of a body
_PAUSE = 0.05  # seconds: nothing tells that the system has a descriptor again


def accept(listener: socket.socket, make_room: Callable[[], object] = lambda: None) -> socket.socket | None:
    """Wait for a connection, and return it; None when the listener is closed.

    ``make_room``: called each time that the system refuses one, as without a descriptor for it.
    """
    while True:
        try:
            return listener.accept()[0]
        except OSError as error:
            if error.errno in (errno.EBADF, errno.EINVAL):
                return None
        make_room()
        time.sleep(_PAUSE)


def send(connection: socket.socket, magic: bytes, verb: str, *body: bytes | memoryview) -> None:
    """Send a frame; OSError if the connection fails."""
    connection.sendall(b"".join((_FRAME.pack(magic, verb.encode(), sum(map(len, body))), *body)))


def receive(
    connection: socket.socket, magic: bytes, seconds: float, *, may_idle: bool = False
) -> tuple[bytes, bytes]:
    """Return the verb and the body of a frame.

    ``seconds``: the most that the whole frame may take, and later the socket's time-out.
    ``may_idle``: whether the time begins with the frame's first byte, for which it waits without a limit.
    Raises OSError: the connection fails, or the frame has not come in time.
    Raises ValueError: it is no frame.
    """
    if may_idle:
        connection.settimeout(None)
        connection.recv(1, socket.MSG_PEEK)
    deadline = time.monotonic() + seconds
    beginning, verb, size = _FRAME.unpack(_exactly(connection, _FRAME.size, deadline))
    if beginning != magic or size > MOST:
        raise ValueError("the other end does not speak for this dialect of peerlane")
    body = _exactly(connection, size, deadline)
    connection.settimeout(seconds)
    return verb, body


def _exactly(connection: socket.socket, size: int, deadline: float) -> bytes:
    content = bytearray(size)
    rest = memoryview(content)
    while rest:
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("timed out")
        connection.settimeout(seconds)
        count = connection.recv_into(rest)
        if not count:
            raise ValueError("the other end closed the connection")
        rest = rest[count:]
    return bytes(content)
