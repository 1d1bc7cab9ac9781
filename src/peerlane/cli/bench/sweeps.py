"""Channels and collectives over sizes: the times of peerlane, and of other contenders in the same rounds.

A write is over when the bytes are in the other process's memory.  A message is over when the other process knows of
it; its time is half of there and back.  All-reduce sums float32 in place, and the time of a collective is that of the
slowest rank.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

import numpy as np

from peerlane.cli import machine
from peerlane.cli.bench import ranks
from peerlane.cli.bench.measure import PEERLANE, Job, Skip, TaskSeconds, interleaved_tasks, jobs_of, looped
from peerlane.cli.bench.plan import Plan
from peerlane.cli.bench.ranks import ALL_REDUCE, BARRIER, COLLECTIVES, MESSAGE, WRITE, Setting
from peerlane.cli.bench.timings import Entrant, Timing, over_sizes
from peerlane.cli.children import Child
from peerlane.errors import InvalidValue
from peerlane.support.sizes import UNITS, format_size

#: Makes other contenders, for tasks, a number of processes and jobs.
Rivals = Callable[[Sequence[str], int, Sequence[Job]], Mapping[Entrant, Callable[[], TaskSeconds]]]
Sweep = tuple[list[Timing], list[Skip]]

CHANNEL_SIZES = (
    *(8, 64, 512, 4 * UNITS["KiB"], 64 * UNITS["KiB"]),
    *(UNITS["MiB"] * each for each in (1, 16, 64, 256, 1024)),
)
COLLECTIVE_SIZES = (
    *(8, 64, 512, 4 * UNITS["KiB"], 64 * UNITS["KiB"]),
    *(UNITS["MiB"] * each for each in (1, 8, 64)),
)
MACHINE_SIZES = (8, 4 * UNITS["KiB"], 64 * UNITS["KiB"], *(UNITS["MiB"] * each for each in (1, 16, 64)))
#: Algorithms of all-reduce, beside the one that peerlane chooses.
ALGORITHMS = ("one-shot", "two-shot", "ring")
#: A contender: one thread copies as many bytes within its own memory.
MEMMOVE = "memmove"
BETWEEN_MACHINES = "between machines"

_PROCESSES = (2, 4)
#: The most operations of a sample; it must be long, so that ranks which share few cores are all scheduled often.
_MOST = {"channel": 4_000, "collective": 8_000, "far channel": 1_000, "far collective": 100}
_COPIES = 9  # blocks of the largest size: peerlane's four, and five of another contender
_ELEMENT = 4  # bytes of a float32; a size must also come to equal parts of four ranks


def no_rivals(
    tasks: Sequence[str], size: int, jobs: Sequence[Job]
) -> Mapping[Entrant, Callable[[], TaskSeconds]]:
    """Return no contenders."""
    return {}


def channel(plan: Plan, node: str, rivals: Rivals = no_rivals) -> Sweep:
    """Time writes and messages between two processes."""
    sizes, skips = _fitting(plan.sizes)
    timings, failed = _swept(plan, Setting(node, max(sizes, default=1)), (WRITE, MESSAGE), 2, sizes, rivals)
    return timings, skips + failed


def collective(plan: Plan, node: str, rivals: Rivals = no_rivals) -> Sweep:
    """Time collectives between processes, each algorithm of all-reduce, and a copy of as many bytes."""
    _check_elements(plan.sizes)
    timings: list[Timing] = []
    skips: list[Skip] = []
    for size in _PROCESSES:
        more, failed = _swept(plan, Setting(node), COLLECTIVES, size, plan.sizes, rivals)
        timings += more
        skips += failed
    return timings, skips


def machines(plan: Plan, node: str, rivals: Rivals = no_rivals) -> Sweep:
    """Time messages, writes and all-reduces by the transport between machines, over the loopback."""
    _check_elements(plan.sizes)
    sizes, skips = _fitting(plan.sizes)
    timings: list[Timing] = []
    for tasks, size in (((WRITE, MESSAGE), 2), ((ALL_REDUCE,), 4)):
        setting = ranks.on_two_machines(Setting(node, max(sizes, default=1)))
        more, failed = _swept(plan, setting, tasks, size, sizes, rivals)
        timings += more
        skips += failed
    return timings, skips


def _swept(
    plan: Plan, setting: Setting, tasks: Sequence[str], size: int, sizes: Sequence[int], rivals: Rivals
) -> Sweep:
    """Time tasks between ``size`` processes; each round has all contenders."""
    is_far = bool(setting.address)
    kind = f"{'far ' if is_far else ''}{'collective' if ALL_REDUCE in tasks else 'channel'}"
    jobs = jobs_of(sizes, _MOST[kind])
    if not jobs:
        return [], []
    with ExitStack() as stack:
        team = ranks.start(ranks.serve_tasks, setting, size, stack)
        contenders = {**_ours(team, tasks, jobs, is_far), **rivals(tasks, size, jobs)}
        samples, failed = interleaved_tasks(
            contenders, plan.rounds, lambda words: plan.show(f"{kind} of {size}: {words}")
        )
    timings: list[Timing] = []
    for task in tasks:
        operation = f"{task} {BETWEEN_MACHINES}" if is_far else task
        timings += over_sizes(samples, task, operation, size, (None,) if task == BARRIER else sizes)
    return timings, [Skip(f"{skip.case} over {size} processes", skip.why) for skip in failed]


def _ours(
    team: Sequence[Child], tasks: Sequence[str], jobs: Sequence[Job], is_far: bool
) -> dict[Entrant, Callable[[], TaskSeconds]]:
    contenders: dict[Entrant, Callable[[], TaskSeconds]] = {
        Entrant(PEERLANE): partial(ranks.time_tasks, team, tasks, jobs)
    }
    if BARRIER in tasks:
        for name in ALGORITHMS:
            contenders[Entrant(PEERLANE, name)] = partial(ranks.time_tasks, team, (ALL_REDUCE,), jobs, name)
        contenders[Entrant(MEMMOVE)] = partial(_copied, jobs)
    return contenders


def _copied(jobs: Sequence[Job]) -> TaskSeconds:
    seconds = [_memmove(*job) for job in jobs]
    return {task: seconds for task in COLLECTIVES if task != BARRIER}


def _memmove(nbytes: int, times: int) -> float:
    dst, src = (np.zeros(nbytes, np.uint8) for _ in range(2))
    dst.fill(1)
    src.fill(1)
    return looped(MEMMOVE, ctypes.memmove, dst.ctypes.data, src.ctypes.data, nbytes, number=times).sample()


def _fitting(sizes: Sequence[int]) -> tuple[tuple[int, ...], list[Skip]]:
    """Split sizes into those that fit into memory, and skips for the others."""
    shortages = {size: machine.shortage(_COPIES * size) for size in sizes}
    return tuple(size for size, why in shortages.items() if not why), [
        Skip(f"channel, {format_size(size)}", why) for size, why in shortages.items() if why
    ]


def _check_elements(sizes: Sequence[int]) -> None:
    if odd := [str(nbytes) for nbytes in sizes if nbytes % _ELEMENT]:
        raise InvalidValue(
            f"--sizes has {', '.join(odd)} bytes; valid for collectives are multiples of {_ELEMENT}, as they sum "
            "float32 and gather equal parts of four ranks"
        )
