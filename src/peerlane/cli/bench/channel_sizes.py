"""Writes and messages of all sizes over a channel, against other libraries in the same rounds.

The time of a write ends when the bytes are in the other process's memory.  The time of a message ends when the other
process knows of it, and is half of there and back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter

import peerlane as pl
from peerlane.cli import machine
from peerlane.cli.bench import rival_processes as rivals
from peerlane.cli.bench.bars import PEERLANE
from peerlane.cli.bench.measure import Skip
from peerlane.cli.bench.plan import Plan
from peerlane.cli.bench.rival_libraries import MESSAGE, WRITE, Way
from peerlane.cli.bench.timings import Timing, over_sizes
from peerlane.cli.children import Child
from peerlane.support.sizes import format_size

MESSAGES = "messages"

_TASKS = (WRITE, MESSAGE)
_MOST_TIMES = 4_000
_SECONDS = 120.0
_COPIES = 9  # blocks of the largest size: peerlane's four, and a rival's five


def fitting(sizes: Sequence[int]) -> tuple[tuple[int, ...], list[Skip]]:
    """Split sizes into those that fit into memory, and skips for the others."""
    room = machine.room()
    why = "needs {:,} bytes of memory, {:,} are available"
    return tuple(size for size in sizes if _COPIES * size <= room), [
        Skip(f"channel, {format_size(size)}", why.format(_COPIES * size, room))
        for size in sizes
        if _COPIES * size > room
    ]


def measure(plan: Plan, child: Child, channel: pl.Channel) -> tuple[list[Timing], list[Skip]]:
    """Time peerlane and each installed rival, in turns."""
    names, skips = rivals.present(*_TASKS)
    jobs = rivals.jobs_of(plan.sizes, _MOST_TIMES)
    if not jobs:
        return [], skips
    contenders: dict[Way, Callable[[], rivals.Found]] = {
        Way(PEERLANE): partial(_ours, child, channel, jobs),
        **{way: partial(rivals.run, way, _TASKS, 2, jobs) for way in rivals.ways(names, *_TASKS)},
    }
    found, failed = rivals.in_turns(contenders, plan.rounds, lambda words: plan.say(f"all sizes: {words}"))
    timings = [timing for task in _TASKS for timing in over_sizes(found, task, 2, plan.sizes)]
    return timings, skips + failed


def exchange(channel: pl.Channel, jobs: Sequence[rivals.Job], *, first: bool) -> list[float]:
    """Send and receive; return for each job the seconds of one way."""
    with _memory(channel, jobs) as memory:
        return [_exchanged(channel, memory[:nbytes], times, first) for nbytes, times in jobs]


def _exchanged(channel: pl.Channel, block: pl.Buffer, times: int, first: bool) -> float:
    seconds, write, wait = 0.0, channel.write, channel.wait
    channel.notify(1)
    channel.wait(1)
    for count in (max(1, times // 4), times):  # the first does not count
        began = perf_counter()
        if first:
            for _ in range(count):
                write(block, notify=0)
                wait(0)
        else:
            for _ in range(count):
                wait(0)
                write(block, notify=0)
        seconds = (perf_counter() - began) / (2 * count)
    return seconds


def _ours(child: Child, channel: pl.Channel, jobs: Sequence[rivals.Job]) -> rivals.Found:
    with _memory(channel, jobs) as memory:
        written = [_written(channel, memory[:nbytes], times) for nbytes, times in jobs]
    child.tell((MESSAGES, jobs))
    sent = exchange(channel, jobs, first=True)
    child.answer(timeout=_SECONDS)
    return {WRITE: written, MESSAGE: sent}


def _written(channel: pl.Channel, block: pl.Buffer, times: int) -> float:
    """Return the seconds of one write without a notify."""
    seconds, write = 0.0, channel.write
    for count in (max(1, times // 4), times):  # the first does not count
        began = perf_counter()
        for _ in range(count):
            write(block)
        seconds = (perf_counter() - began) / count
    return seconds


def _memory(channel: pl.Channel, jobs: Sequence[rivals.Job]) -> pl.Buffer:
    """Return memory for the largest job, with all pages touched."""
    memory = channel.group.device.allocate(max(nbytes for nbytes, _ in jobs))
    memory.fill(0)
    return memory
