"""The time of one operation by size, for each contender: what the tables and pictures of a sweep are made of."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from peerlane.cli.bench.measure import PEERLANE
from peerlane.support.sizes import format_size


class Entrant(NamedTuple):
    """A contender, with the name of one of its variants if it has several."""

    contender: str
    variant: str = ""

    def __str__(self) -> str:
        return f"{self.contender}, {self.variant}" if self.variant else self.contender


#: By contender, the seconds of each round.
Samples = Mapping[Entrant, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Timing:
    """One operation of one size by one contender.

    Attributes
    ----------
    operation : str
        Such as ``"broadcast"``.
    processes : int
        How many take part.
    size : int or None
        Bytes of the whole buffer: of an all-gather, those of all parts.  None for a barrier.
    contender, variant : str
        Who does it, and in which variant if it has several.
    is_shown : bool
        Whether tables and pictures have it: of a contender's variants they have one.
    seconds, low, high : float
        Median, least and greatest of the rounds.
    ratio, ratio_low, ratio_high : float
        Median, least and greatest of the rounds' ratios: this time / peerlane's.
    """

    operation: str
    processes: int
    size: int | None
    contender: str
    variant: str
    is_shown: bool
    seconds: float
    low: float
    high: float
    ratio: float
    ratio_low: float
    ratio_high: float

    @property
    def gb_per_s(self) -> float | None:
        """Bytes of the buffer per time, in units of 10^9; None for a barrier."""
        return None if self.size is None else self.size / self.seconds / 1e9

    @property
    def case(self) -> str:
        """The operation, its size and the processes, as the bars name it."""
        size = "" if self.size is None else f" {format_size(self.size)}"
        return f"{self.operation}{size} over {self.processes} processes"


def timed(samples: Samples, operation: str, processes: int, size: int | None) -> list[Timing]:
    """Return the timings of all contenders, of which one must be peerlane."""
    ours = samples[Entrant(PEERLANE)]
    shown = quickest(samples)
    timings = []
    for entrant, seconds in samples.items():
        ratios = [theirs / own for theirs, own in zip(seconds, ours, strict=True)]
        timings.append(
            Timing(
                operation,
                processes,
                size,
                *entrant,
                shown[entrant.contender] == entrant,
                *_spread(seconds),
                *_spread(ratios),
            )
        )
    return timings


def over_sizes(
    samples: Mapping[Entrant, Mapping[str, Sequence[Sequence[float]]]],
    task: str,
    operation: str,
    processes: int,
    sizes: Sequence[int | None],
) -> list[Timing]:
    """Return the timings of one task, of those contenders that do it.

    Parameters
    ----------
    found : dict
        For each contender and task, a list for each size with the seconds of each round.
    task : str
    operation : str
        What tables call the task.
    processes : int
    sizes : sequence of int or None
    """
    return [
        timing
        for index, size in enumerate(sizes)
        for timing in timed(
            {entrant: done[task][index] for entrant, done in samples.items() if task in done},
            operation,
            processes,
            size,
        )
    ]


def quickest(samples: Samples) -> dict[str, Entrant]:
    """Return the variant that counts for each contender: its own choice, or else the one with the least median."""
    chosen: dict[str, Entrant] = {}
    for entrant in sorted(samples, key=lambda each: (each.variant != "", statistics.median(samples[each]))):
        chosen.setdefault(entrant.contender, entrant)
    return chosen


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    return statistics.median(values), min(values), max(values)
