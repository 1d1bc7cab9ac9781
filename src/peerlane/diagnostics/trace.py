"""Timelines of the operations of streams, as files for Perfetto and Chrome's tracing page.

Each stream is a track; tracks are grouped by device.  A wait for another stream's event is an arrow from the last
operation before the record to the first one behind the wait.  Times are of the monotonic clock, as those of
:attr:`Event.time_ns`.  Without a recording, each operation costs one branch more.
"""

from __future__ import annotations

import json
import os
import threading
import weakref
from bisect import bisect
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol, cast

from peerlane import _core
from peerlane.errors import Busy, Refused
from peerlane.support.records import dataclass

#: The most operations that a stream keeps until they are read; older ones are lost.
KEPT = 1 << 14


class Stream(Protocol):
    """The facts of a stream that a trace needs."""

    @property
    def id(self) -> int: ...
    @property
    def device(self) -> Any: ...


_streams: weakref.WeakValueDictionary[int, Stream] = weakref.WeakValueDictionary()
_lock = threading.Lock()
active: Trace | None = None  #: the trace that is being recorded


@dataclass(frozen=True, slots=True)
class TracedOperation:
    """An operation that moved or freed bytes.

    Attributes
    ----------
    device : str
        The stream's device.
    stream, sequence : int
        The operation's stream, and its number there.
    kind : str
        ``copy``, ``copy_2d``, ``fill``, ``reduce``, ``free``, ``batch`` or ``descriptor``.
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
class _Track:
    """The track of a stream."""

    device: str
    process: int


@dataclass(frozen=True, slots=True)
class _Wait:
    """Operation ``sequence`` of a stream waited for a record of another stream."""

    stream: int
    sequence: int
    other: int
    record: int


class Trace:
    """The operations of streams during a recording; made by :func:`recording`.

    A stream keeps only its last 16,384 operations: in longer recordings, read :attr:`operations` now and then.
    """

    def __init__(self) -> None:
        self._sources: dict[
            int, _core.StreamTrace
        ] = {}  # only during the recording: they keep memory of the streams
        self._tracks: dict[int, _Track] = {}
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
        """How many operations were overwritten before they were read."""
        self._collect()
        return self._lost

    def label(self, stream: Stream, name: str) -> None:
        """Give a stream's track a name; without one it is ``stream N``."""
        self._labels[stream.id] = str(name)

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
        shown = {
            stream: self._tracks[stream] for stream in sorted({*by_stream, *self._labels} & {*self._tracks})
        }
        events = [
            _metadata("process_name", process, 0, name)
            for process, name in sorted({(track.process, track.device) for track in shown.values()})
        ]
        for stream, track in shown.items():
            name = self._labels.get(stream, f"stream {stream}")
            events.append(_metadata("thread_name", track.process, stream, name))
        for stream, operations in by_stream.items():
            events += [_slice(self._tracks[stream].process, each) for each in operations]
        return events + self._arrows(by_stream)

    def _arrows(self, by_stream: dict[int, list[TracedOperation]]) -> list[dict[str, Any]]:
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
                        "pid": self._tracks[at.stream].process,
                        "tid": at.stream,
                        "ts": at.start_ns / 1000,
                    }
                )
        return arrows

    def _follow(self, stream: Stream) -> None:
        self._tracks[stream.id] = _Track(stream.device.name, stream.device.ordinal + 1)
        self._sources[stream.id] = _core.StreamTrace(cast(_core.Stream, stream))

    def _collect(self) -> None:
        for stream, source in list(self._sources.items()):
            entries, lost = source.take()
            self._lost += lost
            device = self._tracks[stream].device
            self._operations += [TracedOperation(device, stream, *entry) for entry in entries]

    def _begin(self) -> None:
        for reference in _streams.valuerefs():
            stream = reference()
            if stream is not None:
                self._follow(stream)
        for source in list(self._sources.values()):
            source.take()  # drop the operations of an earlier recording
        _core.set_tracing(True)

    def _end(self) -> None:
        _core.set_tracing(False)
        self._collect()
        self._sources.clear()

    def __repr__(self) -> str:
        state = "being recorded" if active is self else "recorded"
        return f"<Trace of {len(self._tracks):,} streams, {state}>"


@contextmanager
def recording() -> Iterator[Trace]:
    """Record the operations of all streams, present and new ones, while the block runs.

    The trace has the operations that are over when the block ends; synchronize before the end to have all of them.

    Raises
    ------
    Busy
        A trace is already being recorded; it goes on.

    Examples
    --------
    >>> with pl.trace.recording() as timeline:
    ...     with device.create_stream() as stream:
    ...         pl.copy(dst, src, stream=stream)
    >>> timeline.write("timeline.json")
    """
    global active
    _core.check_usable()
    made = Trace()
    with _lock:
        if active is not None:
            raise Busy(
                "trace.recording: a trace is being recorded already; end its block first",
                call="trace.recording",
                detail=Refused(reason="recording"),
            )
        active = made
    try:
        made._begin()
        yield made
    finally:
        active = None
        made._end()


def created(stream: Stream) -> None:
    """Add a new stream to the recording, if there is one."""
    _streams[stream.id] = stream
    current = active
    if current is not None:
        current._follow(stream)


def waited(stream: int, sequence: int, other: int, record: int) -> None:
    """Add a wait for an event to the recording, if there is one."""
    current = active
    if current is not None and stream != other:
        current._waits.append(_Wait(stream, sequence, other, record))


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
