"""The report that a blocked process sends to the server of a rendezvous, and the reply.

Both are JSON.  Decoders are total: any bytes give a record or ``BadFrame``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from peerlane.diagnostics.waits.store_waits import Standing
from peerlane.rendezvous.frames import MAX_KEY, MAX_SIZE, BadFrame, Operation
from peerlane.support.records import dataclass

MAX_TEXT = 1700  # characters
MAX_WAITS = 64
MAX_PROCESSES = 1024

_WAITING = frozenset((Operation.GET, Operation.BARRIER, Operation.GATHER))
_LARGEST = 1 << 63
_MAX_PID = 1 << 31


@dataclass(frozen=True, slots=True)
class Wait:
    """A request of the process that the server has not answered."""

    operation: Operation
    key: str
    rank: int = -1  #: the only rank that could end it; -1 if the operation says which ranks could


@dataclass(frozen=True, slots=True)
class Report:
    """The report of a process, as one of its ranks."""

    #: ``since_ns``, ``until_ns``: since when and until when it was blocked, by the monotonic clock.  ``since_ns`` 0:
    #: it only asks which processes could end its waits.
    since_ns: int
    until_ns: int
    has_children: bool  #: whether it has child processes
    waits: tuple[Wait, ...]  #: its waits at this rendezvous as this rank
    pids: tuple[int, ...]  #: processes that could end one of its other waits
    text: str  #: its waits, as the other processes show them; the server does not read it


@dataclass(frozen=True, slots=True)
class Party:
    """A process that waits in vain."""

    rank: int
    pid: int
    since_ns: int  #: since when it could not run
    text: str  #: the text of its report


@dataclass(frozen=True, slots=True)
class Reply:
    """The server's reply to a report."""

    standings: tuple[Standing, ...]  #: for each wait of the report, the processes that could end it
    #: The processes that wait in vain, if the reporting one is among them; else none.
    in_vain: tuple[Party, ...] = ()
    all_know: bool = False  #: whether all of these have heard it, or have had the time to ask


def encode_report(report: Report) -> bytes:
    """Return the bytes of a report."""
    waits = [[each.operation, each.key, each.rank] for each in report.waits]
    numbers = report.since_ns, report.until_ns, report.has_children
    return json.dumps([*numbers, waits, report.pids, report.text]).encode()


def decode_report(content: bytes) -> Report:
    """Return the report that these bytes hold."""
    match _loaded(content):
        case [int(since), int(until), bool(has_children), list(waits), list(pids), str(text)] if (
            _are(_LARGEST, since, until)
            and len(waits) <= MAX_WAITS
            and len(pids) <= MAX_PROCESSES
            and len(text) <= MAX_TEXT
        ):
            decoded = tuple(_wait(each) for each in waits)
            return Report(since, until, has_children, decoded, tuple(_pid(each) for each in pids), text)
    raise BadFrame("this is not a report of a process that waits")


def encode_reply(reply: Reply) -> bytes:
    """Return the bytes of a reply."""
    parties = [[each.rank, each.pid, each.since_ns, each.text] for each in reply.in_vain]
    return json.dumps([reply.standings, parties, reply.all_know]).encode()


def decode_reply(content: bytes) -> Reply:
    """Return the reply that these bytes hold."""
    match _loaded(content):
        case [list(standings), list(parties), bool(all_know)] if len(parties) <= MAX_PROCESSES:
            of_waits = tuple(_standing(each) for each in standings)
            return Reply(of_waits, tuple(_party(each) for each in parties), all_know)
    raise BadFrame("this is not a reply to a report of waits")


def _wait(fields: object) -> Wait:
    match fields:
        case [int(operation), str(key), int(rank)] if (
            operation in _WAITING and len(key) <= MAX_KEY and _are(MAX_SIZE + 1, rank + 1)
        ):
            return Wait(Operation(operation), key, rank)
    raise BadFrame("a wait is not an operation that waits, a key and a rank")


def _standing(fields: object) -> Standing:
    if fields is None:
        return None
    if isinstance(fields, list) and len(fields) <= MAX_PROCESSES:
        return tuple(_pair(each) for each in fields)
    raise BadFrame("the processes that could end a wait are not a list, or are too many")


def _pair(fields: object) -> tuple[int, int]:
    match fields:
        case [int(rank), int(pid)] if _are(MAX_SIZE, rank):
            return rank, _pid(pid)
    raise BadFrame("a process is not a pair of a rank and a pid")


def _party(fields: object) -> Party:
    match fields:
        case [int(rank), int(pid), int(since), str(text)] if (
            _are(MAX_SIZE, rank) and _are(_LARGEST, since) and len(text) <= MAX_TEXT
        ):
            return Party(rank, _pid(pid), since, text)
    raise BadFrame("a process that waits in vain is not a rank, a pid, a time and a text")


def _pid(pid: object) -> int:
    if isinstance(pid, int) and 0 < pid < _MAX_PID:
        return pid
    raise BadFrame("a pid is not a number from 1 to 2**31 - 1")


def _are(above: int, *numbers: int) -> bool:
    return all(0 <= each < above for each in numbers)


def _loaded(content: bytes) -> Sequence[object]:
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        raise BadFrame("this is not JSON") from None
    return fields if isinstance(fields, list) else []
