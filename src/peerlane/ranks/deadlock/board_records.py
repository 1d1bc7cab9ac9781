"""The text of a rank's report on its group's board: one record a line.  A hostile process may write any bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from peerlane.errors import FailedBefore, RankWait, ThreadWait

BoardRecord: TypeAlias = "RankWait | FailedBefore | str"

_MOST = 12  # records of a rank
_LONGEST = 500  # characters of a word
_MOST_AWAITED = 64  # ranks
_MOST_CALLERS = 3
_KINDS = frozenset(("notify", "collective", "channel", "group", "barrier", "gather", "key", "word"))
_LARGEST = 1 << 62


def encode(records: Iterable[RankWait | FailedBefore], room: int) -> bytes:
    """Return the bytes of as many records as there is room for."""
    lines: list[bytes] = []
    for record in records:
        line = json.dumps(_fields(record), separators=(",", ":")).encode()
        room -= len(line) + 1
        if room < 0 or len(lines) == _MOST:
            break
        lines.append(line)
    return b"\n".join(lines)


def _fields(record: RankWait | FailedBefore) -> list[Any]:
    if isinstance(record, FailedBefore):
        why = record.why[:_LONGEST]
        at = record.submitted_at
        return ["failed", record.stream, record.operation, record.kind, why, at, record.was_reported]
    threads = [[each.thread, each.place, each.stream, each.call, each.callers] for each in record.threads[:4]]
    numbers = record.peer, record.stream, record.operation
    words = record.kind, record.what, record.group, record.call, record.submitted_at
    return ["waits", *words, *numbers, threads, record.awaited[:_MOST_AWAITED]]


def decode(content: bytes, rank: int, pid: int) -> list[BoardRecord]:
    """Return the records of a rank; a line that is not a record stays a text, in printable characters."""
    records: list[BoardRecord] = []
    for line in content.decode(errors="replace").split("\n")[:_MOST]:
        if line:
            records.append(_record(line, rank, pid) or _word(line))
    return records


def _record(line: str, rank: int, pid: int) -> RankWait | FailedBefore | None:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    match fields:
        case ["failed", int(stream), int(operation), str(kind), str(why), str(place), bool(was_reported)] if (
            _are(stream, operation)
        ):
            return FailedBefore(stream, operation, _word(kind), _word(why), _word(place), was_reported)
        case [
            "waits",
            str(kind),
            str(what),
            str(group),
            str(call),
            str(place),
            int(peer),
            int(stream),
            int(operation),
            list(threads),
            list(awaited),
        ] if kind in _KINDS and _are(peer + 1, stream, operation):
            return RankWait(
                rank,
                pid,
                _word(what),
                peer,
                _word(group),
                _threads(threads),
                stream,
                operation,
                _word(place),
                _word(call),
                kind,
                tuple(each for each in awaited[:_MOST_AWAITED] if isinstance(each, int) and _are(each)),
            )
    return None


def _threads(threads: Sequence[object]) -> tuple[ThreadWait, ...]:
    waits = []
    for each in threads[:4]:
        match each:
            case [str(name), str(place), int(stream), str(call), list(callers)] if _are(stream):
                lines = tuple(_word(each) for each in callers[:_MOST_CALLERS] if isinstance(each, str))
                waits.append(ThreadWait(_word(name), _word(place), stream, _word(call), lines))
    return tuple(waits)


def _are(*numbers: int) -> bool:
    return all(0 <= each < _LARGEST for each in numbers)


def _word(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text[:_LONGEST])
