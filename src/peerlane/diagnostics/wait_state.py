"""The wait states of this process's streams, as records; :mod:`.wait_texts` makes texts of them."""

from __future__ import annotations

from peerlane import _core
from peerlane.diagnostics import call_site
from peerlane.errors import StreamWait, WaitState

#: The names of the notifies of channels, by id.
notify_names: dict[int, str] = {}


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
            notify_name=notify_names.get(which, "") if what == "notify" else "",
            submitted_at=str(call_site.at(place) or ""),
        )
        for stream, operation, submitted, what, which, record, _device, place in _core.waiting()
    )
