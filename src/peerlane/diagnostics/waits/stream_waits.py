"""What the streams of this process wait for, as records; :mod:`.wait_texts` makes texts of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from peerlane import _core
from peerlane.diagnostics import call_site
from peerlane.errors import PastOperation, StreamWait, WaitState

_PAST = 3  # operations that a record keeps of the event log


class ChannelNotifies(NamedTuple):
    """The notifies of one direction of a channel, whose names are made when a text needs one."""

    first: int  #: the id of the first; the others have the ids behind it
    sender: int
    receiver: int


#: The names of notifies, by id; those of a channel by the id of the first.
notify_names: dict[int, str | ChannelNotifies] = {}


def first_id(notify: int) -> int:
    """Return the id of the first of a channel's notifies, for the id of any; the id itself for another notify."""
    return _core.first_id_of(notify)


def notify_name(notify: int, otherwise: str = "") -> str:
    """Return the name of a notify, or ``otherwise``."""
    named = notify_names.get(first_id(notify), otherwise)
    if isinstance(named, str):
        return named
    return f"notify {notify - named.first} from rank {named.sender} to rank {named.receiver}"


def of_stream(why: str, stream: int, operation: int = 0, seconds: float | None = None) -> WaitState:
    """Return the wait state of a stream: itself, the streams that it waits for in turn, then the other streams."""
    waiting = {each.stream: each for each in streams()}
    ordered: list[StreamWait] = []
    at: StreamWait | None = waiting.pop(stream, None)
    while at is not None or waiting:
        at = at or waiting.pop(next(iter(waiting)))
        ordered.append(at)
        at = waiting.pop(at.awaited_stream, None)
    return WaitState(why, stream, operation, seconds, tuple(ordered))


def streams() -> tuple[StreamWait, ...]:
    """Return the wait of each stream that is not done."""
    return tuple(
        StreamWait(
            stream,
            operation,
            submitted - operation + 1,
            what,
            awaited_stream=which if what == "record" else 0,
            awaited_operation=record,
            notify=which if what == "notify" else 0,
            notify_name=notify_name(which) if what == "notify" else "",
            submitted_at=str(call_site.at(position) or ""),
            before=_last(each for each in _past(stream) if each.operation < operation),
            of_awaited=_last(_past_of_awaited(what, which, record, (stream, operation))),
        )
        for stream, operation, submitted, what, which, record, _device, position in _core.waiting()
    )


def _past(number: int, *, is_notify: bool = False) -> Iterator[PastOperation]:
    for stream, operation, kind, position in _core.log_past(is_notify, number):
        yield PastOperation(stream, operation, kind, str(call_site.at(position) or ""))


def _past_of_awaited(what: str, which: int, record: int, wait: tuple[int, int]) -> Iterator[PastOperation]:
    if what == "record":
        yield from (each for each in _past(which) if each.operation == record)
    elif what == "notify":
        yield from (each for each in _past(which, is_notify=True) if (each.stream, each.operation) != wait)


def _last(past: Iterable[PastOperation]) -> tuple[PastOperation, ...]:
    return tuple(past)[-_PAST:]
