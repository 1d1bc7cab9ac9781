"""``benchmarks against``: whether the calls of this build are slower than those of another build.

Each round starts two fresh processes of each build, in turns.  The two processes of one build differ only by the
machine's noise; a slowdown beyond that comes from the code.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rival_processes import outcome
from peerlane.cli.bench.measure import ContenderFailed, Skip
from peerlane.errors import InvalidValue

SUBJECTS = ("copy", "call", "submit", "batch", "channel", "collective")
LEAST_ROUNDS = 3

_PROGRAM = Path(__file__).with_name("build_timings.py")
_THIS, _OTHER = "this build", "the other build"
# The order changes between rounds, so that a machine that slows down within a round favours neither build.
_ORDERS = ((_THIS, _OTHER, _OTHER, _THIS), (_OTHER, _THIS, _THIS, _OTHER))


@dataclass(frozen=True, slots=True)
class Comparison:
    """One case, timed in both builds.

    Attributes
    ----------
    case : str
    ratio, low, high : float
        Time of this build / time of the other: median, least and greatest of the rounds.
    bound : float
        In a round, the ratio of one build's two processes, the greater time over the lesser: 95 % of these ratios
        of both builds lie within the bound.
    seconds, other_seconds : float
        Medians of one operation.
    """

    case: str
    ratio: float
    low: float
    high: float
    bound: float
    seconds: float
    other_seconds: float

    @property
    def is_slower(self) -> bool:
        """Whether this build is slower than the other by more than a build differs from itself."""
        return self.ratio > self.bound


@dataclass(frozen=True, slots=True)
class Sample:
    """The measurements of one fresh process of a build."""

    build: str
    seconds: dict[str, float]
    lacking: dict[str, str]


def measure(
    python: str, subjects: Sequence[str], rounds: int, show: Callable[[str], None]
) -> tuple[list[Comparison], list[Skip], dict[str, str]]:
    """Time both builds in turns.

    Returns
    -------
    list of Comparison
    list of Skip
        The subjects that one of the builds cannot do.
    dict of str
        The folder of each build's package.

    Raises
    ------
    InvalidValue
        A build cannot be run, or there are too few rounds for a bound.
    """
    if rounds < LEAST_ROUNDS:
        raise InvalidValue(
            f"--rounds is {rounds}; `against` needs {LEAST_ROUNDS} or more, as each build is compared with itself too"
        )
    pythons = {_THIS: sys.executable, _OTHER: python}
    taken: dict[str, list[tuple[Sample, Sample]]] = {name: [] for name in pythons}
    for number in range(rounds):
        samples: dict[str, list[Sample]] = {name: [] for name in pythons}
        for name in _ORDERS[number % 2]:
            show(f"{name}, round {number + 1} of {rounds}")
            samples[name].append(_sample(name, pythons[name], subjects))
        for name, (first, second) in samples.items():
            taken[name].append((first, second))
    builds = {name: pairs[0][0].build for name, pairs in taken.items()}
    return _compared(taken[_THIS], taken[_OTHER]), _skips(taken), builds


def compared(
    case: str, own: Sequence[tuple[float, float]], others: Sequence[tuple[float, float]]
) -> Comparison:
    """Compare the times of both builds, each of which ran twice in each round."""
    ratios = [
        math.sqrt(math.prod(mine) / math.prod(theirs)) for mine, theirs in zip(own, others, strict=True)
    ]
    itself = [max(pair) / min(pair) for pair in [*own, *others]]
    return Comparison(
        case=case,
        ratio=statistics.median(ratios),
        low=min(ratios),
        high=max(ratios),
        bound=statistics.quantiles(itself, n=20, method="inclusive")[-1],
        seconds=statistics.median(seconds for pair in own for seconds in pair),
        other_seconds=statistics.median(seconds for pair in others for seconds in pair),
    )


def _sample(name: str, python: str, subjects: Sequence[str]) -> Sample:
    """Time a build in a fresh process, with its own session and runtime directory."""
    with tempfile.TemporaryDirectory() as runtime:
        try:
            out = outcome([([python, str(_PROGRAM), *subjects], {"PEERLANE_RUNTIME_DIR": runtime}, ())])
            return Sample(**json.loads(out.strip().splitlines()[-1]))
        except (OSError, ContenderFailed, ValueError, IndexError, TypeError) as error:
            raise InvalidValue(
                f"against: {python} ({name}) cannot time peerlane: {error}; give the Python of an environment in "
                "which peerlane is installed"
            ) from error


def _compared(
    own: Sequence[tuple[Sample, Sample]], others: Sequence[tuple[Sample, Sample]]
) -> list[Comparison]:
    every = [sample.seconds for pair in [*own, *others] for sample in pair]
    cases = [case for case in every[0] if all(case in seconds for seconds in every)]

    def taken(rounds: Iterable[tuple[Sample, Sample]], case: str) -> list[tuple[float, float]]:
        return [(first.seconds[case], second.seconds[case]) for first, second in rounds]

    return [compared(case, taken(own, case), taken(others, case)) for case in cases]


def _skips(taken: dict[str, list[tuple[Sample, Sample]]]) -> list[Skip]:
    lacking = {
        (subject, name): why
        for name, pairs in taken.items()
        for pair in pairs
        for sample in pair
        for subject, why in sample.lacking.items()
    }
    return [Skip(subject, f"{name} cannot do all of it: {why}") for (subject, name), why in lacking.items()]
