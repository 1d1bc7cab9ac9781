"""The method: each round samples all contenders, and a figure is the median of the rounds' ratios.

The machine's speed changes from second to second.  Two samples of one round see nearly the same machine; two medians
may not.
"""

from __future__ import annotations

import statistics
import time
import timeit
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

#: By contender, the seconds of each round.
Samples = Mapping[str, Sequence[float]]
Job = tuple[int, int]  # bytes, and how many times
#: By task, the seconds of one operation of each job.
TaskSeconds = dict[str, list[float]]
_Key = TypeVar("_Key", bound=Hashable)

PEERLANE = "peerlane"
_ABOUT = 128 << 20  # bytes of a sample

#: A ratio that differs from 1 by no more than this is a tie.
TIE = 0.03
SPEED, TIME, SHARE = "speed", "time", "share"


class ContenderFailed(Exception):
    """A contender ended with an error, or did not end."""


@dataclass(frozen=True, slots=True)
class Contender:
    """Something to time: ``sample`` does it several times and returns the seconds of one."""

    name: str
    sample: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Skip:
    """A case that was not measured, and why."""

    case: str
    why: str


@dataclass(frozen=True, slots=True)
class Figure:
    """One contender in one case.

    Attributes
    ----------
    case, contender, reference : str
        What was done, by which contender, and the contender it is compared with.
    kind : str
        ``"speed"``: ``ratio`` is reference time / own time.  ``"time"``: own time / reference time.
        ``"share"``: amount used / amount that exists or is allowed.
    ratio, low, high : float
        Median, least and greatest of the rounds' ratios.
    seconds : float
        Median of one operation; for shares, of the whole sample.
    size : int or None
        Bytes of a copy, where cases differ by size.
    reference_seconds : float or None
        ``seconds`` of the reference.
    """

    case: str
    contender: str
    reference: str
    kind: str
    ratio: float
    low: float
    high: float
    seconds: float
    size: int | None = None
    reference_seconds: float | None = None

    @property
    def standing(self) -> str:
        """``"ahead"`` of the reference, ``"tie"`` or ``"behind"``; empty for shares."""
        if self.kind == SHARE:
            return ""
        if abs(self.ratio - 1) <= TIE:
            return "tie"
        return "ahead" if (self.ratio > 1) == (self.kind == SPEED) else "behind"


def interleaved(contenders: Sequence[Contender], rounds: int) -> Samples:
    """Sample all contenders in each round; the first round does not count, and every second one runs backwards."""
    samples: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for contender in contenders:
        contender.sample()
    for number in range(rounds):
        for contender in contenders if number % 2 == 0 else reversed(contenders):
            samples[contender.name].append(contender.sample())
    return samples


def interleaved_tasks(
    contenders: Mapping[_Key, Callable[[], TaskSeconds]], rounds: int, show: Callable[[str], None]
) -> tuple[dict[_Key, dict[str, list[list[float]]]], list[Skip]]:
    """Run all contenders, which do several tasks each, in each round; the first round does not count.

    Returns
    -------
    dict
        For each contender and task, a list for each job with the seconds of each round, without failed contenders.
    list of Skip
        The failed contenders, and how they failed.
    """
    samples: dict[_Key, dict[str, list[list[float]]]] = {name: {} for name in contenders}
    skips = []
    for number in range(rounds + 1):
        for name in [*samples] if number % 2 == 0 else [*reversed(samples)]:
            show(f"{name}, round {number} of {rounds}")
            try:
                seconds = contenders[name]()
            except ContenderFailed as error:
                skips.append(Skip(str(name), str(error)))
                del samples[name]
                continue
            for task, taken in seconds.items() if number else ():
                for times, each in zip(
                    samples[name].setdefault(task, [[] for _ in taken]), taken, strict=True
                ):
                    times.append(each)
    return samples, skips


def jobs_of(sizes: Sequence[int], most: int) -> list[Job]:
    """Return how often to do an operation of each size, so that a sample is long enough for its start."""
    return [(nbytes, max(1, min(most, _ABOUT // nbytes))) for nbytes in sizes]


def figure(
    samples: Samples, case: str, contender: str, reference: str, kind: str, size: int | None = None
) -> Figure:
    """Compare two contenders round by round."""
    pairs = list(zip(samples[contender], samples[reference], strict=True))
    ratios = [theirs / own if kind == SPEED else own / theirs for own, theirs in pairs]
    return Figure(
        case=case,
        contender=contender,
        reference=reference,
        kind=kind,
        ratio=statistics.median(ratios),
        low=min(ratios),
        high=max(ratios),
        seconds=statistics.median(samples[contender]),
        size=size,
        reference_seconds=statistics.median(samples[reference]),
    )


def best(samples: Samples, names: Sequence[str]) -> str:
    """Return the contender with the least median."""
    return min(names, key=lambda name: statistics.median(samples[name]))


def looped(
    name: str,
    call: Callable[..., object],
    *arguments: object,
    number: int,
    timer: Callable[[], float] = time.perf_counter,
    **options: object,
) -> Contender:
    """Return a contender that loops over a Python call; the loops of all such contenders cost the same."""
    names = [f"a{index}" for index in range(len(arguments))]
    argument_list = ", ".join([*names, *(f"{option}={option}" for option in options)])
    loop = timeit.Timer(
        f"call({argument_list})",
        setup=f"call, {', '.join([*names, *options])} = parts",
        timer=timer,
        globals={"parts": (call, *arguments, *options.values())},
    )
    return Contender(name, lambda: loop.timeit(number) / number)
