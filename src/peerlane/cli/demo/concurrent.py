"""The same moves on concurrent streams: one loads device 0, one for each destination delivers, events order them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from time import perf_counter

import peerlane as pl
from peerlane.cli.demo import transfer
from peerlane.cli.demo.transfer import Advance, Replica

ROUNDS = 3

Begin = Callable[[str], Advance]
Seconds = dict[str, list[float]]
Mismatched = dict[str, dict[str, tuple[str, ...]]]

ONE_BY_ONE, SINGLE_COPIES, ONE_LAUNCH = "one by one", "single copies", "one launch"


@dataclass(frozen=True, slots=True)
class Way:
    """One way to bring the weights from pinned memory to all devices, and its figures.

    Attributes
    ----------
    name : str
    streams : int
        The number of streams used.
    nbytes : int
        Bytes moved in all.
    seconds : float
        From the first call to the last arrival, median over the rounds.
    ratio : float
        Speed relative to one by one, median of the rounds' ratios.
    mismatched : dict of str to tuple of str, or None
        By device, the tensors whose digest differs from the file's; None for a way that is only timed.
    """

    name: str
    streams: int
    nbytes: int
    seconds: float
    ratio: float
    mismatched: dict[str, tuple[str, ...]] | None

    @property
    def rate(self) -> float:
        """Bytes per nanosecond, which is GB/s."""
        return self.nbytes / self.seconds / 1e9


class Pipeline:
    """The streams, and the tensors that they move.

    Parameters
    ----------
    host : sequence of Buffer
        The tensors in pinned memory.
    replicas : sequence of Replica
        The device to load first, then the destinations.
    stack : ExitStack
        Owns the streams and the copy lists.
    """

    def __init__(self, host: Sequence[pl.Buffer], replicas: Sequence[Replica], stack: ExitStack) -> None:
        self.first, *self.others = replicas
        self.host = host
        self.loading = stack.enter_context(self.first.device.create_stream())
        self.delivering = [stack.enter_context(other.device.create_stream()) for other in self.others]
        self.lists = []
        for other in self.others:
            size = pl.CopyDescriptor.size_for(len(other.buffers))
            table = stack.enter_context(other.device.allocate(size))
            pairs = zip(other.buffers, self.first.buffers, strict=True)
            self.lists.append(pl.CopyDescriptor.build(table, pairs))

    def label(self, timeline: pl.trace.Trace) -> None:
        """Name the streams' tracks."""
        timeline.label(self.loading, "load")
        for stream in self.delivering:
            timeline.label(stream, f"deliver from {self.first.device.name}")

    def one_by_one(self) -> None:
        """Make every copy in turn, without a stream."""
        for number, (origin, held) in enumerate(zip(self.host, self.first.buffers, strict=True)):
            pl.copy(held, origin)
            for other in self.others:
                pl.copy(other.buffers[number], held)

    def single_copies(self) -> None:
        """Deliver each tensor by its own copy, as soon as it has arrived on the first device."""
        for number, (origin, held) in enumerate(zip(self.host, self.first.buffers, strict=True)):
            pl.copy(held, origin, stream=self.loading)
            arrived = self.loading.record()
            for stream, other in zip(self.delivering, self.others, strict=True):
                stream.wait(arrived)
                pl.copy(other.buffers[number], held, stream=stream)
        self._sync()

    def one_launch(self) -> None:
        """Deliver all tensors to a destination by one launch, when the last has arrived on the first device."""
        for origin, held in zip(self.host, self.first.buffers, strict=True):
            pl.copy(held, origin, stream=self.loading)
        arrived = self.loading.record()
        for stream, copies in zip(self.delivering, self.lists, strict=True):
            stream.wait(arrived)
            copies.launch(stream)
        self._sync()

    def _sync(self) -> None:
        self.loading.sync()
        for stream in self.delivering:
            stream.sync()

    def runs(self) -> dict[str, Callable[[], None]]:
        """Return the ways by name."""
        return {
            ONE_BY_ONE: self.one_by_one,
            SINGLE_COPIES: self.single_copies,
            ONE_LAUNCH: self.one_launch,
        }

    @property
    def nbytes(self) -> int:
        """Bytes that each way moves."""
        return sum(buffer.size for buffer in self.host) * (1 + len(self.others))


def measure(pipeline: Pipeline, begin: Begin) -> Seconds:
    """Time the ways in turns, and return the seconds of each."""
    seconds: Seconds = {name: [] for name in pipeline.runs()}
    for _ in range(ROUNDS):
        for name, run in pipeline.runs().items():
            advance = begin(name)
            start = perf_counter()
            run()
            seconds[name].append(perf_counter() - start)
            advance(pipeline.nbytes)
    return seconds


def check(pipeline: Pipeline, verify: Callable[[Replica], tuple[str, ...]], begin: Begin) -> Mismatched:
    """Move once more in both ways on streams, and return the tensors that did not arrive whole.

    All devices are zeroed before, so that bytes of an earlier run cannot pass for this one's.

    Parameters
    ----------
    verify : callable
        Returns the tensors of a device that differ from the file.
    """
    found = {}
    for name in (SINGLE_COPIES, ONE_LAUNCH):
        advance = begin(name)
        for replica in (pipeline.first, *pipeline.others):
            transfer.clear(replica)
        pipeline.runs()[name]()
        advance(pipeline.nbytes)
        found[name] = {replica.device.name: verify(replica) for replica in (pipeline.first, *pipeline.others)}
    return found


def ways(pipeline: Pipeline, seconds: Seconds, mismatched: Mismatched) -> list[Way]:
    """Return the measured and checked ways."""
    return [
        Way(
            name,
            0 if name == ONE_BY_ONE else 1 + len(pipeline.others),
            pipeline.nbytes,
            statistics.median(mine),
            statistics.median(theirs / own for theirs, own in zip(seconds[ONE_BY_ONE], mine, strict=True)),
            mismatched.get(name),
        )
        for name, mine in seconds.items()
    ]
