"""P5: the cost of queuing a copy of 8 bytes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from time import perf_counter

import peerlane as pl
from peerlane.cli import machine
from peerlane.cli.bench.copies import filled_pair, memmove
from peerlane.cli.bench.measure import PEERLANE, TIME, Contender, Figure, Skip, figure, interleaved, looped
from peerlane.cli.bench.plan import Plan

NUMBER = 1_000_000

_CASES = ("submit 8 bytes, stream idle", "submit 8 bytes, behind a wait")
_BYTES = 8
_QUEUED_BYTES = 200  # more than the memory of one queued operation


def measure(
    plan: Plan, devices: Sequence[pl.Device], number: int = NUMBER
) -> tuple[list[Figure], list[Skip]]:
    """Time a million submissions in a row, on an idle stream and on one that waits for a notify.

    The figure counts the submissions only; behind a wait, the synchronization has its own figure.
    """
    figures: list[Figure] = []
    if why := machine.shortage(number * _QUEUED_BYTES):
        return [], [Skip(case, why) for case in _CASES]
    with ExitStack() as stack:
        dst, src = filled_pair(devices[0], devices[0], _BYTES, stack)
        stream = stack.enter_context(devices[0].create_stream())
        gate = stack.enter_context(devices[0].create_notify())
        reference = memmove(dst, src, number)
        submit = looped(PEERLANE, pl.copy, dst, src, number=number, stream=stream)
        for case, behind in zip(_CASES, (None, gate), strict=True):
            plan.show(case)
            synced: list[float] = []
            ours = Contender(PEERLANE, partial(_sample, submit, stream, behind, synced))
            samples = dict(interleaved([reference, ours], plan.rounds))
            names = [PEERLANE]
            if behind is not None:  # else there is nothing to synchronize
                names.append(f"{PEERLANE}, sync behind them")
                samples[names[-1]] = [seconds / number for seconds in synced[1:]]  # the first round warms up
            figures += [figure(samples, case, name, reference.name, TIME) for name in names]
    return figures, []


def _sample(submit: Contender, stream: pl.Stream, behind: pl.Notify | None, synced: list[float]) -> float:
    if behind is not None:
        stream.wait(behind)
    seconds = submit.sample()
    start = perf_counter()
    if behind is not None:
        behind.record()
    stream.sync()
    synced.append(perf_counter() - start)
    return seconds
