"""P8 and P9: the times of a channel between two Python processes, against memory, pipes and other libraries."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

import peerlane as pl
from peerlane import _bench
from peerlane.cli.bench import channel_sizes
from peerlane.cli.bench import rival_processes as rivals
from peerlane.cli.bench.bars import (
    FASTEST_MPI,
    LEAST_RATES,
    LINE,
    MILLION,
    ONE_WAY,
    PEERLANE,
    PEERLANE_IN_TABLE,
    PEERLANE_ON_STREAM,
    RATE,
)
from peerlane.cli.bench.measure import SPEED, TIME, Contender, Figure, Skip, best, figure, interleaved, looped
from peerlane.cli.bench.plan import Plan
from peerlane.cli.bench.rival_libraries import MESSAGE, Way
from peerlane.cli.bench.rivals import memmove, native_copies
from peerlane.cli.bench.timings import Timing, quickest
from peerlane.cli.children import Child, exchange_over, gather_from, interrupts_deferred
from peerlane.support.sizes import UNITS, format_size

DEFAULT_SIZES = (
    *(8, 64, 512, 4 * UNITS["KiB"], 64 * UNITS["KiB"]),
    *(UNITS["MiB"] * each for each in (1, 16, 64, 256, 1024)),
)
PIPE = "multiprocessing pipe"

_ROUNDS = 20_000  # exchanges of a sample, and of an MPI's; a quarter as many come before and do not count
_WRITES = 100_000
_SECONDS = 60.0
_LARGE = (64 * UNITS["MiB"], UNITS["GiB"])
_BATCH = 100_000  # blocks of 8 bytes
_LEAST_WINDOW = 8 * _BATCH


def measure(
    plan: Plan, devices: Sequence[pl.Device], node: str
) -> tuple[list[Figure], list[Timing], list[Skip]]:
    """Time exchanges with another process, and writes into its memory."""
    sizes, skips = channel_sizes.fitting(plan.sizes)
    window = max(_LEAST_WINDOW, *sizes)
    with ExitStack() as stack:
        with interrupts_deferred():
            child = stack.enter_context(Child(_serve, node, window, name="rank 1"))

        def met(mine: bytes) -> list[bytes]:
            return gather_from([child], [mine], timeout=_SECONDS)

        group = stack.enter_context(
            pl.Group(0, 2, rendezvous=met, window=window, device=devices[0], timeout=_SECONDS)
        )
        group.window[:128].fill(0)
        channel = stack.enter_context(group.channel(1, notifies=2))
        figures, failed = _one_way(plan, child, channel)
        skips += failed
        figures += _rates(plan, channel, stack)
        figures += [_bandwidth(plan, channel, nbytes) for nbytes in _LARGE if nbytes in sizes]
        timings, left = channel_sizes.measure(dataclasses.replace(plan, sizes=sizes), child, channel)
    return figures, timings, skips + left


def _one_way(plan: Plan, child: Child, channel: pl.Channel) -> tuple[list[Figure], list[Skip]]:
    block = channel.group.device.allocate(8)
    begun = [0]

    def together(what: str, mine: Callable[[], float]) -> float:
        child.tell((what, (begun[0], _ROUNDS)))
        seconds = mine()
        child.answer(timeout=_SECONDS)
        return seconds

    def line() -> float:
        seconds = _line(channel, begun[0], _ROUNDS, first=True)
        begun[0] += _ROUNDS + _ROUNDS // 4
        return seconds

    def ours() -> float:
        return _exchange(channel, block, _ROUNDS, first=True)

    def pipe() -> float:
        began = time.perf_counter()
        for _ in range(_ROUNDS // 10):
            child.tell(b"12345678")
            child.answer(timeout=_SECONDS)
        return (time.perf_counter() - began) / (_ROUNDS // 5)

    mpis = [name for name in rivals.present(MESSAGE)[0] if rivals.is_mpi(name)]
    contenders: dict[Way, Callable[[], float]] = {
        Way(LINE): partial(together, "line", line),
        Way(PEERLANE): partial(together, "ours", ours),
        Way(PIPE): partial(together, "pipe", pipe),
        **{way: partial(_mpi_message, way) for way in rivals.ways(mpis, MESSAGE)},
    }
    found, skips = rivals.in_turns(
        {way: partial(_as_found, sample) for way, sample in contenders.items()},
        plan.rounds,
        lambda words: plan.say(f"{ONE_WAY}: {words}"),
    )
    by_way = {way: tasks[ONE_WAY][0] for way, tasks in found.items()}
    samples = {name: by_way[way] for name, way in quickest(by_way).items()}
    figures = [figure(samples, ONE_WAY, name, LINE, TIME) for name in (PEERLANE, PIPE)]
    mpis = [name for name in mpis if name in samples]
    figures += [figure(samples, ONE_WAY, PEERLANE, name, SPEED) for name in mpis]
    if mpis:
        samples[FASTEST_MPI] = samples[best(samples, mpis)]
        figures.append(figure(samples, ONE_WAY, PEERLANE, FASTEST_MPI, SPEED))
    return figures, skips


def _as_found(sample: Callable[[], float]) -> rivals.Found:
    return {ONE_WAY: [sample()]}


def _mpi_message(way: Way) -> float:
    """Return the seconds of one way of an MPI's message of 8 bytes, exchanged as often as peerlane's."""
    return rivals.run(way, (MESSAGE,), 2, [(8, _ROUNDS)])[MESSAGE][0]


def _rates(plan: Plan, channel: pl.Channel, stack: ExitStack) -> list[Figure]:
    """Time 8-byte writes issued from Python: without a stream, on a stream, and as a table of blocks."""
    plan.say(RATE)
    device = channel.group.device
    block, other = (stack.enter_context(device.allocate(8)) for _ in range(2))
    block.fill(1)
    other.fill(0)
    many = stack.enter_context(device.allocate(8 * _BATCH))
    many.fill(2)
    stream = stack.enter_context(device.create_stream())
    places = np.arange(_BATCH, dtype=np.uint64) * 8
    table = np.stack([places, places, np.full_like(places, 8)], axis=1)
    reference = memmove(other, block, _WRITES)

    def on_stream() -> float:
        began = time.perf_counter()
        for _ in range(_WRITES):
            channel.write(block, stream=stream)
        seconds = (time.perf_counter() - began) / _WRITES
        stream.sync()
        return seconds

    def batch() -> float:
        began = time.perf_counter()
        channel.write_blocks(many, table)
        return (time.perf_counter() - began) / _BATCH

    contenders = [
        reference,
        looped(PEERLANE, channel.write, block, number=_WRITES),
        Contender(PEERLANE_ON_STREAM, on_stream),
        Contender(PEERLANE_IN_TABLE, batch),
    ]
    samples = {**interleaved(contenders, plan.rounds), MILLION: [1e-6] * plan.rounds}
    return [
        *(figure(samples, "write 8 bytes", name, reference.name, TIME) for name in LEAST_RATES),
        *(figure(samples, RATE, name, MILLION, SPEED) for name in LEAST_RATES),
    ]


def _bandwidth(plan: Plan, channel: pl.Channel, nbytes: int) -> Figure:
    case = f"channel write of {format_size(nbytes)}"
    plan.say(case)
    device = channel.group.device
    with device.allocate(nbytes) as src, device.allocate(nbytes) as dst:
        for each in (src, dst, channel.window[:nbytes]):
            each.fill(3)
        best = native_copies(dst, src, 1)
        samples = interleaved([*best, looped(PEERLANE, channel.write, src, number=1)], plan.rounds)
        quickest = "the best native copy"
        by_round = zip(*(samples[each.name] for each in best), strict=True)
        found = {PEERLANE: samples[PEERLANE], quickest: [min(times) for times in by_round]}
        return figure(found, case, PEERLANE, quickest, SPEED, nbytes)


def _line(channel: pl.Channel, begun: int, rounds: int, *, first: bool) -> float:
    mine, theirs = (each[:8].view().ctypes.data for each in (channel.group.window, channel.window))
    _bench.time_ping_pong(mine, theirs, begun, rounds // 4, first, _SECONDS)
    return _bench.time_ping_pong(mine, theirs, begun + rounds // 4, rounds, first, _SECONDS)


def _exchange(channel: pl.Channel, block: pl.Buffer, rounds: int, *, first: bool) -> float:
    """Return the seconds of a write with a notify until the other side has seen both: half of there and back."""
    seconds, write, wait = 0.0, channel.write, channel.wait
    for count in (rounds // 4, rounds):
        began = time.perf_counter()
        if first:
            for _ in range(count):
                write(block, at=64, notify=0)
                wait(0)
        else:
            for _ in range(count):
                wait(0)
                write(block, at=64, notify=0)
        seconds = (time.perf_counter() - began) / (2 * count)
    return seconds


def _serve(node: str, window: int, pipe: Connection[Any, Any]) -> None:
    """Run rank 1 until the pipe ends."""
    try:
        devices = pl.enter_node(node)
        with pl.Group(1, 2, rendezvous=exchange_over(pipe), window=window, device=devices[1]) as group:
            group.window[:128].fill(0)
            channel = group.channel(0, notifies=2)
            block = group.device.allocate(8)
            while True:
                what, told = pipe.recv()
                if what == "line":
                    _line(channel, *told, first=False)
                elif what == "ours":
                    _exchange(channel, block, told[1], first=False)
                elif what == channel_sizes.MESSAGES:
                    channel_sizes.exchange(channel, told, first=False)
                else:
                    for _ in range(told[1] // 10):
                        pipe.send(pipe.recv())
                pipe.send(None)
    except pl.Error as error:
        pipe.send(error)
    except (EOFError, OSError):  # the pipe ended
        return
