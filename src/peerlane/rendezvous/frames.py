"""The wire format of a rendezvous: each connection carries one request and its answer, little-endian::

    request  magic, version, operation, length of the key, whether the server announces that the request waits,
             rank, size, timeout (ns, 0 for ever), length of the value; the key; the value
    answer   magic, version, status, 0, count of values, lost rank (-1: none); count lengths; the values

The value of DELETE and of GET_PRESENT holds keys, that of PUT_ALL keys with their values; the key of CLEAR is a
folder.  The answer to GET_PRESENT has a byte for each key, 1 if its value follows.  An answer that is not OK has one
value, its text; one of status WAIT_TIMEOUT has a second: the ranks that could have ended the wait, 4 bytes each.  An
answer of status WAITS has no values, and another answer follows it: the server sends it at once when such a request
has to wait.

Lengths are checked before the bytes behind them are stored.  A decoder accepts any bytes: it returns a frame or
raises `BadFrame`.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from peerlane.errors import (
    AccessDenied,
    Busy,
    Error,
    Fault,
    InvalidValue,
    MeetingWait,
    OutOfMemory,
    PeerLost,
    Refused,
    WaitTimeout,
)

MAX_KEY = 255
MAX_VALUE = 16 << 20
MAX_KEYS = 1 << 16  # bytes of the keys of one request, which are charged to no rank
MAX_SIZE = 1 << 16
MAX_REPORT = 1 << 16  # bytes of the report of a blocked process

_MAGIC = b"PLRV"
_VERSION = 5
_REQUEST = struct.Struct("<4sBBBBIIQI")
_ANSWER = struct.Struct("<4sBBHIi")
_NONE_LOST = -1

_START = struct.Struct("<4sB")
_LENGTH = struct.Struct("<I")

START_BYTES = _START.size  # the same in every version
REQUEST_BYTES = _REQUEST.size
ANSWER_BYTES = _ANSWER.size


class BadFrame(ValueError):
    """The bytes are not a frame of this version; the text has the reason."""


class Operation(enum.IntEnum):
    """The operation of a request."""

    OPEN = 1
    CLOSE = 2
    PUT = 3
    GET = 4
    BARRIER = 5
    GATHER = 6
    DELETE = 7  # its value holds keys
    CLEAR = 8  # its key is a folder
    REPORT = 9  # its value is a `wait_reports.Report`
    PUT_ALL = 10  # its value holds keys with their values
    GET_PRESENT = 11  # its value holds keys; it does not wait


class Status(enum.IntEnum):
    """The result of a request; all but OK and WAITS come with a text.

    LOST also comes with the number of the rank, WAIT_TIMEOUT with those of the ranks that could have ended the wait.
    WAITS comes without a text, and before the result.
    """

    OK = 0
    INVALID = 1
    WAIT_TIMEOUT = 2
    LOST = 3
    BUSY = 4
    DENIED = 5
    FULL = 6
    WAITS = 7


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
    """The fixed part of a request."""

    operation: Operation
    rank: int
    size: int
    timeout: float | None  #: seconds, None for ever
    key_bytes: int  #: ``key_bytes``, ``value_bytes``: the lengths of the key and the value that follow
    value_bytes: int
    announces_wait: bool  #: whether the server answers at once that the request waits, if it does


def encode_request(
    operation: Operation,
    rank: int,
    size: int,
    key: bytes,
    value: bytes,
    timeout_ns: int,
    *,
    announces_wait: bool = False,
) -> bytes:
    """Return the fixed part and the key; the value is sent after them."""
    numbers = len(key), announces_wait, rank, size, timeout_ns, len(value)
    return _REQUEST.pack(_MAGIC, _VERSION, operation, *numbers) + key


def decode_request(header: bytes | bytearray) -> Request:
    """Return the request whose fixed part is these ``REQUEST_BYTES`` bytes."""
    magic, version, operation, key_bytes, announces, rank, size, timeout_ns, value_bytes = _REQUEST.unpack(
        header
    )
    _check_version(magic, version)
    if operation not in _OPERATIONS or announces > 1:
        raise BadFrame(
            f"there is no operation {operation}, or its byte for waits is {announces}; valid are 0 and 1"
        )
    if not 1 <= size <= MAX_SIZE or rank >= size:
        raise BadFrame(f"rank {rank} of {size} is impossible; valid sizes are 1 to {MAX_SIZE}")
    most = _LONGEST.get(operation, 0)
    if value_bytes > most:
        raise BadFrame(f"a value of {value_bytes:,} bytes is too long; {most:,} is the most")
    timeout = timeout_ns / 1e9 if timeout_ns else None
    return Request(Operation(operation), rank, size, timeout, key_bytes, value_bytes, bool(announces))


def encode_keys(keys: Sequence[bytes]) -> list[bytes]:
    """Return the values of the requests that carry these keys; a byte with its length precedes each key."""
    values = [b""]
    for key in keys:
        if len(values[-1]) + 1 + len(key) > MAX_KEYS:
            values.append(b"")
        values[-1] += bytes([len(key)]) + key
    return values


def decode_keys(value: bytes) -> list[str]:
    """Return the keys of a request."""
    keys, at = [], 0
    while at < len(value):
        key, at = _key_at(value, at)
        keys.append(key)
    return keys


def encode_entries(entries: Mapping[bytes, bytes]) -> list[bytes]:
    """Return the values of the requests that carry these keys with their values, each of at most ``MAX_VALUE`` bytes.

    One entry that is longer than that is a request of its own, which the server would refuse.
    """
    requests: list[list[bytes]] = [[]]
    nbytes = 0
    for key, value in entries.items():
        entry = bytes([len(key)]) + key + _LENGTH.pack(len(value)) + value
        if requests[-1] and nbytes + len(entry) > MAX_VALUE:
            requests.append([])
            nbytes = 0
        requests[-1].append(entry)
        nbytes += len(entry)
    return [b"".join(each) for each in requests]


def decode_entries(value: bytes) -> dict[str, bytes]:
    """Return the keys of a request with their values."""
    entries, at = dict[str, bytes](), 0
    while at < len(value):
        key, at = _key_at(value, at)
        begin = at + _LENGTH.size
        if begin > len(value):
            raise BadFrame("the length of the last of the values is cut short")
        at = begin + _LENGTH.unpack_from(value, at)[0]
        if at > len(value):
            raise BadFrame("the last of the values is cut short")
        entries[key] = value[begin:at]
    return entries


def decode_present(keys: Sequence[str], values: Sequence[bytes]) -> dict[str, bytes]:
    """Return the values in an answer to GET_PRESENT, by the keys of the request."""
    flags = values[0] if values else b""
    present = [key for key, is_present in zip(keys, flags, strict=False) if is_present]
    if len(flags) != len(keys) or len(values) != 1 + len(present):
        raise BadFrame(f"an answer about {len(keys)} keys has {len(flags)} flags and {len(values)} values")
    return dict(zip(present, values[1:], strict=True))


def _key_at(value: bytes, at: int) -> tuple[str, int]:
    """Return a key, and where it ends."""
    end = at + 1 + value[at]
    if end > len(value):
        raise BadFrame("the last of the keys is cut short")
    try:
        return value[at + 1 : end].decode(), end
    except UnicodeDecodeError:
        raise BadFrame("a key is not UTF-8") from None


@dataclass(frozen=True)
class Answer:
    """The fixed part of an answer."""

    status: Status
    count: int  #: how many values follow
    lost: int | None  #: the lost rank, of an answer with status LOST, if the server knows it


def check_start(start: bytes | bytearray) -> None:
    """Refuse ``START_BYTES`` bytes that cannot begin a frame of this version."""
    _check_version(*_START.unpack(start))


def encode_answer(status: Status, values: Sequence[bytes], lost: int | None = None) -> bytes:
    """Return the fixed part and the lengths; the values are sent after them."""
    lengths = [len(value) for value in values]
    rank = _NONE_LOST if lost is None else lost
    head = _ANSWER.pack(_MAGIC, _VERSION, status, 0, len(values), rank)
    return head + struct.pack(f"<{len(values)}I", *lengths)


def decode_answer(header: bytes | bytearray) -> Answer:
    """Return the answer whose fixed part is these ``ANSWER_BYTES`` bytes."""
    magic, version, status, zero, count, lost = _ANSWER.unpack(header)
    _check_version(magic, version)
    if status not in _STATUSES or zero:
        raise BadFrame(f"there is no status {status}, or its reserved bytes are set")
    if count > MAX_SIZE:
        raise BadFrame(f"{count} values are too many; {MAX_SIZE} is the most")
    due = _VALUES.get(status, 1)
    if status != Status.OK and count != due:
        raise BadFrame(f"an answer of status {status} has {count} values; valid are {due}")
    if lost != _NONE_LOST and not (status == Status.LOST and 0 <= lost < MAX_SIZE):
        raise BadFrame(f"rank {lost} cannot be lost by status {status}")
    return Answer(Status(status), count, None if lost == _NONE_LOST else lost)


def decode_lengths(table: bytes | bytearray) -> tuple[int, ...]:
    """Return the lengths of an answer's values."""
    lengths = struct.unpack(f"<{len(table) // 4}I", table)
    if any(length > MAX_VALUE for length in lengths):
        raise BadFrame(f"a value of {max(lengths):,} bytes is too long; {MAX_VALUE:,} is the most")
    return lengths


def encode_ranks(ranks: Sequence[int]) -> bytes:
    """Return the second value of a time-out."""
    return struct.pack(f"<{len(ranks)}I", *ranks)


def as_error(
    answer: Answer, call: str, values: Sequence[bytes], asked: MeetingWait | Refused | None
) -> Error:
    """Return the exception for an answer that is not OK; ``asked`` describes the request."""
    kind, fault = _ERRORS[answer.status]
    text = values[0].decode(errors="replace")
    detail: MeetingWait | Refused
    if isinstance(asked, MeetingWait) and answer.status is Status.WAIT_TIMEOUT:
        detail = replace(asked, awaited=_ranks(values[1]))
        text += "" if asked.seconds is None else f" within {asked.seconds:g} s"
    elif isinstance(asked, MeetingWait) and answer.status is Status.LOST:
        detail = replace(asked, lost=answer.lost)
    else:
        detail = Refused(reason=answer.status.name.lower(), **({} if asked is None else _named(asked)))
    error = kind(f"{call}: {text}", fault=fault, call=call, detail=detail)
    error.rank = answer.lost
    return error


def _named(asked: MeetingWait | Refused) -> dict[str, object]:
    if isinstance(asked, Refused):
        return vars(asked)
    return {"key": asked.key, "rank": asked.rank, "size": asked.size}


def _ranks(value: bytes) -> tuple[int, ...]:
    ranks = struct.unpack(f"<{len(value) // 4}I", value) if len(value) % 4 == 0 else (MAX_SIZE,)
    if any(rank >= MAX_SIZE for rank in ranks):
        raise BadFrame("a time-out has numbers that no ranks have")
    return ranks


def _check_version(magic: bytes, version: int) -> None:
    if magic != _MAGIC:
        raise BadFrame("this is not a frame of a rendezvous")
    if version != _VERSION:
        raise BadFrame(f"the other side uses version {version} of the frames, this one version {_VERSION}")


_OPERATIONS = frozenset(Operation)
_LONGEST = {
    Operation.PUT: MAX_VALUE,
    Operation.GATHER: MAX_VALUE,
    Operation.DELETE: MAX_KEYS,
    Operation.REPORT: MAX_REPORT,
    Operation.PUT_ALL: MAX_VALUE,
    Operation.GET_PRESENT: MAX_KEYS,
}
_STATUSES = frozenset(Status)
_VALUES = {Status.WAIT_TIMEOUT: 2, Status.WAITS: 0}
