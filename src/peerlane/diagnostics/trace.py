"""Timelines: what streams moved and when, as a file that Perfetto and Chrome's tracing page show.

Tracks are streams, grouped by device.  A wait for an event that was recorded by another stream is an arrow, from
the last operation before the record to the first one behind the wait.  Times are those of the monotonic clock,
as :attr:`Event.time_ns` has them.  Without a recording an operation pays one branch.
"""

from __future__ import annotations

import json
import os
import threading
import weakref
from bisect import bisect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol, cast

from peerlane import _core
from peerlane.errors import Busy

#: So many operations are kept for each stream until they are looked at; older ones are lost.
KEPT = 1 << 14


class Stream(Protocol):
    """What is known of a stream here."""

    @property
    def id(self) -> int: ...
    @property
    def device(self) -> Any: ...


_streams: weakref.WeakValueDictionary[int, Stream] = weakref.WeakValueDictionary()
_lock = threading.Lock()
active: Trace | None = None  #: what is being recorded


@dataclass(frozen=True, slots=True)
class TracedOperation:
    """An operation that moved or freed bytes.

    Attributes
    ----------
    device : str
        Of the stream.
    stream, sequence : int
        Which operation it is.
    kind : str
        ``copy``, ``copy_2d``, ``fill``, ``reduce``, ``free``, ``batch`` or ``descriptor``.
    nbytes : int
        Bytes moved, those between the rows of a rectangle included; 0 for ``free``.
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
    """Where a stream is drawn."""

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
    """What streams did while it was recorded; made by :func:`recording`.

    A stream keeps its last 16,384 operations until somebody looks: read :attr:`operations` now and then in
    recordings that are longer.
    """

    def __init__(self) -> None:
        self._sources: dict[int, _core.StreamTrace] = {}  # while it is recorded: they keep streams' memory
        self._tracks: dict[int, _Track] = {}
        self._labels: dict[int, str] = {}
        self._operations: list[TracedOperation] = []
        self._waits: list[_Wait] = []
        self._lost = 0

    @property
    def operations(self) -> tuple[TracedOperation, ...]:
        """What is over by now, stream by stream in the order of its operations."""
        self._collect()
        return tuple(sorted(self._operations, key=attrgetter("stream", "sequence")))

    @property
    def lost(self) -> int:
        """How many operations were overwritten before anybody looked."""
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
            The file, which is replaced.

        Raises
        ------
        OSError
            It cannot be written.
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
            source.take()  # what an earlier recording left
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
    """Record what streams do while the block runs: those that exist, and those that are created meanwhile.

    What is over when the block ends is in the trace; synchronize before, if everything should be.

    Raises
    ------
    Busy
        A trace is being recorded already; nothing changed.

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
            )
        active = made
    try:
        made._begin()
        yield made
    finally:
        active = None
        made._end()


def created(stream: Stream) -> None:
    """Take note of a stream that was made."""
    _streams[stream.id] = stream
    current = active
    if current is not None:
        current._follow(stream)


def waited(stream: int, sequence: int, other: int, record: int) -> None:
    """Take note of a wait for an event, if a trace is recorded."""
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
