"""What the sockets of a rendezvous carry: one request and its answer a connection, little-endian::

    request  magic, version, operation, length of the key, 0, rank, size, timeout (ns, 0 for ever),
             length of the value; the key; the value
    answer   magic, version, status, 0, count of values; count lengths; the values

Lengths are checked before a byte behind them is kept.  Decoders are total: any bytes give a frame or `BadFrame`.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from peerlane.errors import (
    AccessDenied,
    Busy,
    Error,
    Fault,
    InvalidValue,
    OutOfMemory,
    PeerLost,
    WaitTimeout,
)

MAX_KEY = 255
MAX_VALUE = 16 << 20
MAX_KEYS = 1 << 16  # bytes of the keys of one request: nobody is charged for them
MAX_SIZE = 1 << 16
MAX_REPORT = 1 << 16  # bytes of what a process says while it is stuck

_MAGIC = b"PLRV"
_VERSION = 1
_REQUEST = struct.Struct("<4sBBBBIIQI")
_ANSWER = struct.Struct("<4sBBHI")
_RANK = struct.Struct("<I")

REQUEST_BYTES = _REQUEST.size
ANSWER_BYTES = _ANSWER.size


class BadFrame(ValueError):
    """These bytes are no frame of this version; the text says why."""


class Operation(enum.IntEnum):
    """What is asked."""

    OPEN = 1
    CLOSE = 2
    PUT = 3
    GET = 4
    BARRIER = 5
    GATHER = 6
    DELETE = 7  # its value is keys
    CLEAR = 8  # its key is a folder
    STUCK = 9  # its value is a report of `stuck`


class Status(enum.IntEnum):
    """How it ended; all but OK carry a text, and LOST the number of the rank behind it."""

    OK = 0
    INVALID = 1
    WAIT_TIMEOUT = 2
    LOST = 3
    BUSY = 4
    DENIED = 5
    FULL = 6


_ERRORS: dict[Status, tuple[type[Error], Fault]] = {
    Status.INVALID: (InvalidValue, Fault.INVALID_VALUE),
    Status.WAIT_TIMEOUT: (WaitTimeout, Fault.WAIT_TIMEOUT),
    Status.LOST: (PeerLost, Fault.PEER_LOST),
    Status.BUSY: (Busy, Fault.BUSY),
    Status.DENIED: (AccessDenied, Fault.PEER_UNREACHABLE),
    Status.FULL: (OutOfMemory, Fault.OUT_OF_RESOURCES),
}


@dataclass(frozen=True)
class Request:
    """The fixed part of a request.

    Attributes
    ----------
    timeout : float or None
        Seconds, None for ever.
    key_bytes, value_bytes : int
        What follows.
    """

    operation: Operation
    rank: int
    size: int
    timeout: float | None
    key_bytes: int
    value_bytes: int


def encode_request(
    operation: Operation, rank: int, size: int, key: bytes, value: bytes, timeout_ns: int
) -> bytes:
    """Return the fixed part and the key; the value is sent behind it."""
    return _REQUEST.pack(_MAGIC, _VERSION, operation, len(key), 0, rank, size, timeout_ns, len(value)) + key


def decode_request(header: bytes | bytearray) -> Request:
    """Return the request that ``REQUEST_BYTES`` bytes begin."""
    magic, version, operation, key_bytes, zero, rank, size, timeout_ns, value_bytes = _REQUEST.unpack(header)
    _check_version(magic, version)
    if operation not in _OPERATIONS or zero:
        raise BadFrame(f"there is no operation {operation}, or its reserved byte is set")
    if not 1 <= size <= MAX_SIZE or rank >= size:
        raise BadFrame(f"rank {rank} of {size} cannot be; valid sizes are 1 to {MAX_SIZE}")
    most = _LONGEST.get(operation, 0)
    if value_bytes > most:
        raise BadFrame(f"a value of {value_bytes:,} bytes is too long; {most:,} is the most")
    timeout = timeout_ns / 1e9 if timeout_ns else None
    return Request(Operation(operation), rank, size, timeout, key_bytes, value_bytes)


def encode_keys(keys: Sequence[bytes]) -> list[bytes]:
    """Return the values of as many requests as these keys need; each is preceded by its length in a byte."""
    values = [b""]
    for key in keys:
        if len(values[-1]) + 1 + len(key) > MAX_KEYS:
            values.append(b"")
        values[-1] += bytes([len(key)]) + key
    return values


def decode_keys(value: bytes) -> list[str]:
    """Return the keys of a request."""
    found, at = [], 0
    while at < len(value):
        end = at + 1 + value[at]
        if end > len(value):
            raise BadFrame("the last of the keys is cut short")
        try:
            found.append(value[at + 1 : end].decode())
        except UnicodeDecodeError:
            raise BadFrame("a key is not UTF-8") from None
        at = end
    return found


def encode_answer(status: Status, values: Sequence[bytes]) -> bytes:
    """Return what goes before the values."""
    lengths = [len(value) for value in values]
    return _ANSWER.pack(_MAGIC, _VERSION, status, 0, len(values)) + struct.pack(f"<{len(values)}I", *lengths)


def decode_answer(header: bytes | bytearray) -> tuple[Status, int]:
    """Return the status and the count of values that ``ANSWER_BYTES`` bytes tell."""
    magic, version, status, zero, count = _ANSWER.unpack(header)
    _check_version(magic, version)
    if status not in _STATUSES or zero:
        raise BadFrame(f"there is no status {status}, or its reserved bytes are set")
    if count > MAX_SIZE:
        raise BadFrame(f"{count} values are too many; {MAX_SIZE} is the most")
    return Status(status), count


def decode_lengths(table: bytes | bytearray) -> tuple[int, ...]:
    """Return the lengths of an answer's values."""
    lengths = struct.unpack(f"<{len(table) // 4}I", table)
    if any(length > MAX_VALUE for length in lengths):
        raise BadFrame(f"a value of {max(lengths):,} bytes is too long; {MAX_VALUE:,} is the most")
    return lengths


def encode_rank(rank: int) -> bytes:
    """Return what tells which rank was lost."""
    return _RANK.pack(rank)


def as_error(status: Status, call: str, values: Sequence[bytes]) -> Error:
    """Return the exception for an answer that is not OK."""
    kind, fault = _ERRORS[status]
    text = values[0] if values else b"without a word"
    made = kind(f"{call}: {text.decode(errors='replace')}", fault=fault, call=call)
    if status is Status.LOST and len(values) > 1 and len(values[1]) == _RANK.size:
        (made.rank,) = _RANK.unpack(values[1])
    return made


def _check_version(magic: bytes, version: int) -> None:
    if magic != _MAGIC:
        raise BadFrame("this is no frame of a rendezvous")
    if version != _VERSION:
        raise BadFrame(f"version {version} of the frames is spoken there, and version {_VERSION} here")


_OPERATIONS = frozenset(Operation)
_LONGEST = {
    Operation.PUT: MAX_VALUE,
    Operation.GATHER: MAX_VALUE,
    Operation.DELETE: MAX_KEYS,
    Operation.STUCK: MAX_REPORT,
}
_STATUSES = frozenset(Status)
