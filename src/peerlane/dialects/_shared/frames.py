"""Frames between dialects of two processes over TCP: a magic, a verb of 4 letters, and a body."""

from __future__ import annotations

import socket
import struct
from typing import Any, TypeAlias

#: Bytes to send: what ``bytes.join`` takes.
Content: TypeAlias = Any

_FRAME = struct.Struct("<8s4sI")  # magic, verb, bytes of the body
MOST = 64 << 20  #: bytes of a body


def send(connection: socket.socket, magic: bytes, verb: str, *body: bytes | memoryview) -> None:
    """Send a frame; OSError if the connection fails."""
    connection.sendall(b"".join((_FRAME.pack(magic, verb.encode(), sum(map(len, body))), *body)))


def receive(connection: socket.socket, magic: bytes) -> tuple[bytes, bytes]:
    """Return the verb and the body of a frame; OSError if the connection fails, ValueError if it is no frame."""
    beginning, verb, size = _FRAME.unpack(_exactly(connection, _FRAME.size))
    if beginning != magic or size > MOST:
        raise ValueError("the other end does not speak for this dialect of peerlane")
    return verb, _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    content = bytearray(size)
    rest = memoryview(content)
    while rest:
        count = connection.recv_into(rest)
        if not count:
            raise ValueError("the other end closed the connection")
        rest = rest[count:]
    return bytes(content)
