"""Timelines of the operations of streams, as files for Perfetto and Chrome's tracing page.

Each stream is a track; tracks are grouped by device.  A wait for another stream's event is an arrow from the last
operation before the record to the first one behind the wait.  Times are of the monotonic clock, as those of
:attr:`Event.time_ns`.  While it is recorded, native code writes an event log for it; without a recording, each
operation costs one branch.
"""

from __future__ import annotations

import json
import os
import threading
from bisect import bisect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol

from peerlane import _core
from peerlane.errors import Busy, Refused
from peerlane.support.records import dataclass

#: The bytes of operations that a recording keeps until they are read: 56 for each.  Those for which there is no room
#: are lost.
KEPT = 64 << 20


class Stream(Protocol):
    """The facts of a stream that a trace needs."""

    @property
    def id(self) -> int: ...
    @property
    def device(self) -> Any: ...


#: Returns the name of a device by its native number; the back-end sets it.
label_of: Callable[[int], str] = str

_lock = threading.Lock()
active: Trace | None = None  #: the trace that is being recorded


@dataclass(frozen=True, slots=True)
class TracedOperation:
    """An operation that moved or freed bytes.

    Attributes
    ----------
    device : str
        The stream's device; ``host`` for streams of devices of other back-ends, whose operations the host runs.
    stream, sequence : int
        The operation's stream, and its number there.
    kind : str
        ``copy``, ``copy_2d``, ``fill``, ``reduce``, ``free``, ``batch``, ``descriptor`` or ``file``.
    nbytes : int
        Bytes moved, including those between the rows of a rectangle; 0 for ``free``.
    start_ns, end_ns : int
        Nanoseconds of the monotonic clock.
    """

    device: str
    stream: int
    sequence: int
    kind: str
    nbytes: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class _Wait:
    """Operation ``sequence`` of a stream waited for a record of another stream."""

    stream: int
    sequence: int
    other: int
    record: int


class Trace:
    """The operations of streams during a recording; made by :func:`recording`.

    It keeps 64 MiB of operations, about 700,000, until :attr:`operations` is read; what comes after them is lost.
    Read it now and then in longer recordings.
    """

    def __init__(self) -> None:
        self._devices: dict[int, str] = {}  # by stream
        self._labels: dict[int, str] = {}
        self._operations: list[TracedOperation] = []
        self._waits: list[_Wait] = []
        self._lost = 0

    @property
    def operations(self) -> tuple[TracedOperation, ...]:
        """The operations that are over so far, stream by stream, each in its order."""
        self._collect()
        return tuple(sorted(self._operations, key=attrgetter("stream", "sequence")))

    @property
    def lost(self) -> int:
        """For how many operations, and waits for events, there was no room any more."""
        self._collect()
        return self._lost

    def label(self, stream: Stream, name: str) -> None:
        """Give a stream's track a name; without one it is ``stream N``."""
        self._labels[stream.id] = str(name)
        self._devices[stream.id] = stream.device.name

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the timeline as JSON in Chrome's trace event format.

        Parameters
        ----------
        path : str or path
            The file; an existing one is replaced.

        Raises
        ------
        OSError
            The file cannot be written.
        """
        timeline = {
            "traceEvents": self._events(),
            "displayTimeUnit": "ns",
            "otherData": {"lost operations": self._lost},
        }
        with Path(path).open("w", encoding="utf-8") as file:
            json.dump(timeline, file)

    def _events(self) -> list[dict[str, Any]]:
        by_stream = {
            stream: list(group) for stream, group in groupby(self.operations, key=attrgetter("stream"))
        }
        processes = {name: number for number, name in enumerate(sorted({*self._devices.values()}), 1)}
        process_of = {stream: processes[device] for stream, device in sorted(self._devices.items())}
        events = [_metadata("process_name", process, 0, name) for name, process in processes.items()]
        for stream, process in process_of.items():
            name = self._labels.get(stream, f"stream {stream}")
            events.append(_metadata("thread_name", process, stream, name))
        for stream, operations in by_stream.items():
            events += [_slice(process_of[stream], each) for each in operations]
        return events + self._arrows(by_stream, process_of)

    def _arrows(
        self, by_stream: dict[int, list[TracedOperation]], process_of: dict[int, int]
    ) -> list[dict[str, Any]]:
        ends: dict[tuple[TracedOperation, TracedOperation], None] = {}
        for wait in self._waits:
            before = by_stream.get(wait.other, [])
            behind = by_stream.get(wait.stream, [])
            start = bisect(before, wait.record, key=attrgetter("sequence")) - 1
            end = bisect(behind, wait.sequence, key=attrgetter("sequence"))
            if start >= 0 and end < len(behind):
                ends[before[start], behind[end]] = None
        arrows = []
        for number, (tail, head) in enumerate(ends):
            for phase, at in (("s", tail), ("f", head)):
                arrows.append(
                    {
                        "ph": phase,
                        "bp": "e",
                        "id": number,
                        "cat": "wait",
                        "name": "event",
                        "pid": process_of[at.stream],
                        "tid": at.stream,
                        "ts": at.start_ns / 1000,
                    }
                )
        return arrows

    def _collect(self) -> None:
        if active is not self:
            return
        ended, waits, self._lost = _core.trace_take()
        self._waits += [_Wait(*each) for each in waits]
        for device, stream, sequence, kind, nbytes, start, end in ended:
            name = self._devices.setdefault(stream, label_of(device))
            self._operations.append(TracedOperation(name, stream, sequence, kind, nbytes, start, end))

    def _repr_svg_(self) -> str:
        """Return the timeline as a picture, for notebooks."""
        from peerlane.diagnostics.pictures import drawn_timeline  # which a recording does not need

        return drawn_timeline(self.operations, self._labels)

    def __repr__(self) -> str:
        state = "being recorded" if active is self else "recorded"
        return f"<Trace of {len(self._devices):,} streams, {state}>"


@contextmanager
def recording() -> Iterator[Trace]:
    """Record the operations of all streams, present and new ones, while the block runs.

    The trace has the operations that are over when the block ends; synchronize before the end to have all of them.

    Raises
    ------
    Busy
        A trace is already being recorded; it goes on.
    OSError
        There is no room for its log.

    Examples
    --------
    >>> device = pl.device(0)
    >>> src, dst = device.allocate(64), device.allocate(64)
    >>> with pl.trace.recording() as timeline:
    ...     with device.create_stream() as stream:
    ...         pl.copy(dst, src, stream=stream)
    >>> timeline.write("timeline.json")
    """
    global active
    _core.check_usable()
    trace = Trace()
    with _lock:
        if active is not None:
            raise Busy(
                "trace.recording: a trace is being recorded already; end its block first",
                call="trace.recording",
                detail=Refused(reason="recording"),
            )
        _core.trace_begin(KEPT)
        active = trace
    try:
        yield trace
    finally:
        try:
            trace._collect()
        finally:
            active = None
            _core.trace_end()


def _metadata(kind: str, process: int, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": track, "args": {"name": name}}


def _slice(process: int, operation: TracedOperation) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": operation.kind,
        "cat": "operation",
        "pid": process,
        "tid": operation.stream,
        "ts": operation.start_ns / 1000,
        "dur": (operation.end_ns - operation.start_ns) / 1000,
        "args": {"bytes": operation.nbytes, "sequence": operation.sequence},
    }
