"""What a prediction says: the times of streams, the use of links, and a timeline."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peerlane.diagnostics.log import trace
from peerlane.prediction.machines import name_of
from peerlane.support.records import dataclass

if TYPE_CHECKING:
    from peerlane.prediction.fluid import Times
    from peerlane.prediction.machines import Link, Machine
    from peerlane.prediction.operations import Lane, Operation, Run


@dataclass(frozen=True, slots=True)
class StreamTime:
    """The predicted time of a stream, or of a thread that works without one.

    Attributes
    ----------
    name : str
    busy : float
        Seconds in which it moves bytes or computes.
    end : float
        Seconds from the beginning of the prediction until its last operation is over.
    nbytes : int
        Bytes that its operations move.
    """

    name: str
    busy: float
    end: float
    nbytes: int


@dataclass(frozen=True, slots=True)
class LinkUse:
    """The predicted use of a link in one direction.

    Attributes
    ----------
    name : str
    nbytes : int
    busy : float
        Seconds in which it moves bytes.
    share : float
        The part of its bandwidth that is used, from 0 to 1, over all the time of the prediction.
    """

    name: str
    nbytes: int
    busy: float
    share: float


@dataclass(frozen=True, slots=True)
class PredictedOperation:
    """An operation with its predicted times, in seconds from the beginning.

    Attributes
    ----------
    stream : str
        The name of its stream or thread.
    kind : str
        ``copy``, ``copy_2d``, ``fill``, ``reduce``, ``batch``, ``callback``, ... or the name of a collective.
    nbytes : int
    start, end : float
    """

    stream: str
    kind: str
    nbytes: int
    start: float
    end: float


class Prediction:
    """How long the streams of a block would take on a real machine; made by :func:`peerlane.predict`.

    It is empty until the block has ended, and stays so if the block ends with an error.

    Attributes
    ----------
    profile : str
        The machine.
    seconds : float
        The time until the last operation is over.
    streams : tuple of StreamTime
    links : tuple of LinkUse
        The links that were used, with the largest share first.
    operations : tuple of PredictedOperation
    unknown : mapping of str to int
        What takes no time here although it does on the machine, in words, and how often that was.
    """

    def __init__(self, profile: str) -> None:
        self.profile = profile
        self.seconds = 0.0
        self.streams: tuple[StreamTime, ...] = ()
        self.links: tuple[LinkUse, ...] = ()
        self.operations: tuple[PredictedOperation, ...] = ()
        self.unknown: Mapping[str, int] = {}
        self._is_over = False

    @property
    def bottleneck(self) -> LinkUse | None:
        """The link of which the largest part is used; None if no bytes moved."""
        return self.links[0] if self.links else None

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the timeline as JSON in Chrome's trace event format; an existing file is replaced.

        Raises
        ------
        OSError
            The file cannot be written.
        """
        tracks = {stream.name: number for number, stream in enumerate(self.streams, 1)}
        timeline = {
            "traceEvents": [
                trace.track_name("process_name", 1, 0, f"predicted for {self.profile}"),
                *(trace.track_name("thread_name", 1, number, name) for name, number in tracks.items()),
                *(_slice(tracks[each.stream], each) for each in self.operations),
            ],
            "displayTimeUnit": "ns",
            "otherData": {"unknown": dict(self.unknown)},
        }
        with Path(path).open("w", encoding="utf-8") as file:
            json.dump(timeline, file)

    def _repr_svg_(self) -> str:
        """Return the timeline as a picture, for notebooks."""
        from peerlane.diagnostics.pictures import drawn_timeline  # which few programs need

        names = dict(enumerate((stream.name for stream in self.streams), 1))
        tracks = {name: number for number, name in names.items()}
        operations = [
            trace.TracedOperation(
                *(self.profile, tracks[each.stream], 0, each.kind, each.nbytes),
                *(round(each.start * 1e9), round(each.end * 1e9)),
            )
            for each in self.operations
        ]
        return drawn_timeline(operations, names)

    def __repr__(self) -> str:
        if not self._is_over:
            return f"<Prediction for {self.profile}: empty until its block ends without an error>"
        most, count, unknown = self.bottleneck, len(self.operations), sum(self.unknown.values())
        through = f", bottleneck: {most.name} ({most.share:.0%})" if most else ""
        without = f", {unknown:,} of unknown time (see .unknown)" if unknown else ""
        return (
            f"<Prediction for {self.profile}: {self.seconds * 1e6:,.1f} us, "
            f"{count:,} operation{'s' * (count != 1)}{through}{without}>"
        )


def fill(
    prediction: Prediction, machine: Machine, run: Run, times: Times[Link], names: Mapping[Lane, str]
) -> None:
    """Enter what a simulation found into a prediction."""
    prediction.seconds = max(times.end, default=0.0)
    operations = sorted(run.operations, key=lambda each: (each.lane, times.start[each.task]))
    prediction.operations = tuple(
        PredictedOperation(
            names[each.lane], each.kind, each.nbytes, times.start[each.task], times.end[each.task]
        )
        for each in operations
    )
    prediction.streams = tuple(_streams(operations, times, names))
    uses = (
        LinkUse(
            name_of(link), round(nbytes), times.busy[link], nbytes / machine.rate(link) / prediction.seconds
        )
        for link, nbytes in times.moved.items()
    )
    prediction.links = tuple(sorted(uses, key=lambda use: -use.share))
    prediction.unknown = dict(+run.unknown)
    prediction._is_over = True


def _streams(
    operations: list[Operation], times: Times[Link], names: Mapping[Lane, str]
) -> Iterator[StreamTime]:
    for lane in dict.fromkeys(each.lane for each in operations):
        own = [each for each in operations if each.lane == lane]
        yield StreamTime(
            names[lane],
            sum(times.end[each.task] - times.start[each.task] for each in own),
            max(times.end[each.task] for each in own),
            sum(each.nbytes for each in own),
        )


def _slice(track: int, operation: PredictedOperation) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": operation.kind,
        "cat": "predicted",
        "pid": 1,
        "tid": track,
        "ts": operation.start * 1e6,
        "dur": (operation.end - operation.start) * 1e6,
        "args": {"bytes": operation.nbytes},
    }
