"""P8 and P9: a channel between two Python processes, against a cache line, the messages of MPI, and native copies."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

import peerlane as pl
from benchmarks import references
from benchmarks import rival_processes as rivals
from benchmarks.bars import (
    FASTEST_MPI,
    LEAST_RATES,
    LINE,
    MILLION,
    ONE_DIRECTION,
    PEERLANE_IN_TABLE,
    PEERLANE_ON_STREAM,
    RATE,
)
from benchmarks.copies import native_copies
from benchmarks.rival_libraries import ON_ONE_MACHINE
from peerlane.cli import machine
from peerlane.cli.bench import ranks
from peerlane.cli.bench.copies import memmove
from peerlane.cli.bench.measure import (
    PEERLANE,
    SPEED,
    TIME,
    Contender,
    Figure,
    Samples,
    Skip,
    TaskSeconds,
    best,
    figure,
    interleaved,
    interleaved_tasks,
    looped,
)
from peerlane.cli.bench.plan import Plan
from peerlane.cli.bench.ranks import MESSAGE
from peerlane.cli.bench.timings import Entrant, quickest
from peerlane.cli.children import Child
from peerlane.support.sizes import UNITS, format_size

_ROUNDS = 20_000  # exchanges of a sample, and of an MPI's; a quarter as many come before and do not count
_WRITES = 100_000
_SECONDS = 60.0
_LARGE = (64 * UNITS["MiB"], UNITS["GiB"])
_COPIES = 4  # blocks of a large write
_BATCH = 100_000  # blocks of 8 bytes
_LEAST_WINDOW = 8 * _BATCH
_WORD = slice(64, 72)  # of the window, for the cache line; messages lie at its start
_BEST = "the best native copy"


def measure(plan: Plan, node: str) -> tuple[list[Figure], list[Skip]]:
    """Time 8 bytes and a notify one way, writes of 8 bytes, and large writes."""
    shortages = {nbytes: machine.shortage(_COPIES * nbytes) for nbytes in _LARGE}
    large = [nbytes for nbytes, why in shortages.items() if not why]
    skips = [Skip(_large_case(nbytes), why) for nbytes, why in shortages.items() if why]
    with ExitStack() as stack:
        team = ranks.start(_serve, ranks.Setting(node, max(_LEAST_WINDOW, *large, 0)), 2, stack)
        figures, failed = _one_direction(plan, team)
        plan.show(RATE)
        samples = {**ranks.ask(team, ("rates", plan.rounds))[0], MILLION: [1e-6] * plan.rounds}
        figures += [figure(samples, "write 8 bytes", name, "ctypes.memmove", TIME) for name in LEAST_RATES]
        figures += [figure(samples, RATE, name, MILLION, SPEED) for name in LEAST_RATES]
        for nbytes in large:
            case = _large_case(nbytes)
            plan.show(case)
            samples = ranks.ask(team, ("large", plan.rounds, nbytes))[0]
            figures.append(figure(samples, case, PEERLANE, _BEST, SPEED, nbytes))
    return figures, skips + failed


def _large_case(nbytes: int) -> str:
    return f"channel write of {format_size(nbytes)}"


def _one_direction(plan: Plan, team: Sequence[Child]) -> tuple[list[Figure], list[Skip]]:
    mpis = [name for name in rivals.present(ON_ONE_MACHINE, MESSAGE)[0] if rivals.is_mpi(name)]
    begun = [0]

    def line() -> float:
        seconds = max(ranks.ask(team, ("line", begun[0], _ROUNDS)))
        begun[0] += _ROUNDS + _ROUNDS // 4
        return float(seconds)

    contenders: dict[Entrant, Callable[[], float]] = {
        Entrant(LINE): line,
        Entrant(PEERLANE): lambda: float(max(ranks.ask(team, ("exchange", _ROUNDS)))),
        **{entrant: partial(_mpi_message, entrant) for entrant in rivals.entrants(mpis, MESSAGE)},
    }
    timings, skips = interleaved_tasks(
        {entrant: partial(_as_task, sample) for entrant, sample in contenders.items()},
        plan.rounds,
        lambda words: plan.show(f"{ONE_DIRECTION}: {words}"),
    )
    by_entrant = {entrant: tasks[ONE_DIRECTION][0] for entrant, tasks in timings.items()}
    samples = {name: by_entrant[entrant] for name, entrant in quickest(by_entrant).items()}
    figures = [figure(samples, ONE_DIRECTION, PEERLANE, LINE, TIME)]
    mpis = [name for name in mpis if name in samples]
    figures += [figure(samples, ONE_DIRECTION, PEERLANE, name, SPEED) for name in mpis]
    if mpis:
        samples[FASTEST_MPI] = samples[best(samples, mpis)]
        figures.append(figure(samples, ONE_DIRECTION, PEERLANE, FASTEST_MPI, SPEED))
    return figures, skips


def _as_task(sample: Callable[[], float]) -> TaskSeconds:
    return {ONE_DIRECTION: [sample()]}


def _mpi_message(entrant: Entrant) -> float:
    """Return the seconds of one way of an MPI's message of 8 bytes, exchanged as often as peerlane's."""
    return rivals.run(entrant, (MESSAGE,), 2, [(8, _ROUNDS)])[MESSAGE][0]


def _serve(setting: ranks.Setting, rank: int, size: int, pipe: Connection[Any, Any]) -> None:
    """Be a rank that answers questions about its channel to the other."""
    calls: dict[str, Callable[..., Any]] = {"line": _line, "exchange": _exchange}
    alone: dict[str, Callable[..., Any]] = {"rates": _rates, "large": _large}
    ends: list[pl.Channel] = []

    def answer(group: pl.Group, question: Any) -> Any:
        what, *arguments = question
        if not ends:
            ends.append(group.channel(1 - rank, notifies=1))
        if what in calls:
            group.barrier()
            return calls[what](ends[0], *arguments)
        return alone[what](ends[0], *arguments) if rank == 0 else None

    ranks.serve(answer, setting, rank, size, pipe)


def _line(channel: pl.Channel, begun: int, rounds: int) -> float:
    mine, theirs = (each[_WORD].view().ctypes.data for each in (channel.group.window, channel.window))
    first, warm = channel.group.rank == 0, rounds // 4
    references.time_ping_pong(mine, theirs, begun, warm, first, _SECONDS)
    return references.time_ping_pong(mine, theirs, begun + warm, rounds, first, _SECONDS)


def _exchange(channel: pl.Channel, rounds: int) -> float:
    with channel.group.device.allocate(8) as block:
        block.fill(0)
        ranks.exchange(channel, block, channel.group.rank == 0, rounds // 4)
        return ranks.exchange(channel, block, channel.group.rank == 0, rounds)


def _rates(channel: pl.Channel, rounds: int) -> Samples:
    """Time 8-byte writes issued from Python: without a stream, on a stream, and as a table of blocks."""
    device = channel.group.device
    with ExitStack() as stack:
        block, other = (stack.enter_context(device.allocate(8)) for _ in range(2))
        block.fill(1)
        other.fill(0)
        many = stack.enter_context(device.allocate(8 * _BATCH))
        many.fill(2)
        stream = stack.enter_context(device.create_stream())
        offsets = np.arange(_BATCH, dtype=np.uint64) * 8
        table = np.stack([offsets, offsets, np.full_like(offsets, 8)], axis=1)
        writes = looped(PEERLANE, channel.write, block, number=_WRITES, stream=stream)

        def on_stream() -> float:
            seconds = writes.sample()
            stream.sync()
            return seconds

        def in_table() -> float:
            began = time.perf_counter()
            channel.write_blocks(many, table)
            return (time.perf_counter() - began) / _BATCH

        return interleaved(
            [
                memmove(other, block, _WRITES),
                looped(PEERLANE, channel.write, block, number=_WRITES),
                Contender(PEERLANE_ON_STREAM, on_stream),
                Contender(PEERLANE_IN_TABLE, in_table),
            ],
            rounds,
        )


def _large(channel: pl.Channel, rounds: int, nbytes: int) -> Samples:
    device = channel.group.device
    with device.allocate(nbytes) as src, device.allocate(nbytes) as dst:
        for each in (src, dst, channel.window[:nbytes]):
            each.fill(3)
        native = native_copies(dst, src, 1)
        samples = interleaved([*native, looped(PEERLANE, channel.write, src, number=1)], rounds)
        by_round = zip(*(samples[each.name] for each in native), strict=True)
        return {PEERLANE: samples[PEERLANE], _BEST: [min(times) for times in by_round]}
