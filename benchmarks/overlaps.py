"""P4: an asynchronous copy beside a program that computes."""

from __future__ import annotations

import select
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from time import perf_counter

import peerlane as pl
from peerlane.cli import machine
from peerlane.cli.bench.copies import filled_pair
from peerlane.cli.bench.measure import PEERLANE, TIME, Contender, Figure, Skip, figure, interleaved
from peerlane.cli.bench.plan import Plan
from peerlane.support.sizes import UNITS, format_size

BYTES = 256 * UNITS["MiB"]

_LONGER = "the longer of the two alone"
_COPY, _PYTHON, _PYTHON_BESIDE = "copy alone", "Python alone", "Python, beside the copy"
_TRIAL, _TRIALS = 200_000, 5


def measure(plan: Plan, devices: Sequence[pl.Device], size: int = BYTES) -> tuple[list[Figure], list[Skip]]:
    """Time a copy and pure Python of equal length, each alone and both at once.

    A wait on the event's descriptor does not help the copy, so alone it runs as it does while the program computes.
    """
    case = f"async copy of {format_size(size)} beside Python"
    if why := machine.shortage(2 * size):
        return [], [Skip(case, why)]
    plan.show(case)
    with ExitStack() as stack:
        dst, src = filled_pair(devices[0], devices[0], size, stack)
        stream = stack.enter_context(devices[0].create_stream())
        _copied(dst, src, stream)
        seconds = statistics.median(_copied(dst, src, stream) for _ in range(_TRIALS))
        laps = max(1, round(_TRIAL * seconds / statistics.median(_computed(_TRIAL) for _ in range(_TRIALS))))
        beside: list[float] = []

        def both() -> float:
            start = perf_counter()
            pl.copy(dst, src, stream=stream)
            compute(laps)
            beside.append(perf_counter() - start)
            stream.sync()
            return perf_counter() - start

        alone = [
            Contender(_COPY, lambda: _copied(dst, src, stream)),
            Contender(_PYTHON, lambda: _computed(laps)),
        ]
        samples = dict(interleaved([*alone, Contender(PEERLANE, both)], plan.rounds))
    samples[_LONGER] = [max(pair) for pair in zip(samples[_COPY], samples[_PYTHON], strict=True)]
    samples[_PYTHON_BESIDE] = beside[1:]  # the first round warms up
    return [
        figure(samples, case, PEERLANE, _LONGER, TIME),
        figure(samples, case, _PYTHON_BESIDE, _PYTHON, TIME),
    ], []


def _copied(dst: pl.Buffer, src: pl.Buffer, stream: pl.Stream) -> float:
    start = perf_counter()
    pl.copy(dst, src, stream=stream)
    done = stream.record()
    poll = select.poll()
    poll.register(done.fileno(), select.POLLIN)
    poll.poll()
    return perf_counter() - start


def _computed(laps: int) -> float:
    start = perf_counter()
    compute(laps)
    return perf_counter() - start


def compute(laps: int) -> int:
    """Keep the interpreter busy and hold the GIL."""
    total = 0
    for number in range(laps):
        total += number & 3
    return total
