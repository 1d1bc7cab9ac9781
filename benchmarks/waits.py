"""The processor time that a waiting program takes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

import peerlane as pl
from benchmarks.bars import PEERLANE_WORD
from peerlane.cli.bench.measure import PEERLANE, SHARE, Contender, Figure, Skip, figure, interleaved
from peerlane.cli.bench.plan import Plan

SECONDS = 1.0

_CORE = "a core"


def measure(
    plan: Plan, devices: Sequence[pl.Device], seconds: float = SECONDS
) -> tuple[list[Figure], list[Skip]]:
    """Measure the processor time of a process that waits for a notify, or a word of memory, that never comes."""
    case = f"idle wait of {seconds:g} s"
    plan.show(case)
    with ExitStack() as stack:
        word = stack.enter_context(devices[0].allocate(8))
        word.fill(0)
        never = stack.enter_context(devices[0].create_notify())
        waits: dict[str, Callable[[pl.Stream], None]] = {
            PEERLANE: lambda stream: stream.wait(never),
            PEERLANE_WORD: lambda stream: pl.raw.wait_value(word.address, 1, stream=stream),
        }
        spent: dict[str, list[float]] = {name: [] for name in waits}
        contenders = [
            Contender(name, partial(_waited, devices[0], wait, seconds, spent[name]))
            for name, wait in waits.items()
        ]
        samples = dict(interleaved(contenders, plan.rounds))
    figures = []
    for name in waits:
        shares = {name: spent[name][1:], _CORE: samples[name]}  # the first round warms up
        figures.append(figure(shares, case, name, _CORE, SHARE))
    return figures, []


def _waited(
    device: pl.Device, wait: Callable[[pl.Stream], None], seconds: float, spent: list[float]
) -> float:
    stream = device.create_stream()
    wait(stream)
    wall, cpu = time.perf_counter(), time.process_time()
    with contextlib.suppress(pl.WaitTimeout):
        stream.sync(timeout=seconds)
    spent.append(time.process_time() - cpu)
    wall = time.perf_counter() - wall
    stream.abort()
    with contextlib.suppress(pl.Cancelled):
        stream.close()
    return wall
