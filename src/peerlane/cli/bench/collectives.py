"""All-reduce between processes, by each algorithm, against memcpy of the same bytes and against other libraries.

Each rank's elements lie in device memory, float32, and are summed in place.  A figure is the slowest rank's time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any

import peerlane as pl
from peerlane.cli.bench import rival_processes as rivals
from peerlane.cli.bench.bars import PEERLANE
from peerlane.cli.bench.measure import SPEED, Contender, Figure, Skip, figure
from peerlane.cli.bench.plan import Plan
from peerlane.cli.bench.rivals import MEMCPY, native_copies
from peerlane.cli.children import Child, exchange_over, gather_from, interrupts_deferred
from peerlane.support.sizes import UNITS, format_size

DEFAULT_SIZES = (64, 64 * UNITS["KiB"], UNITS["MiB"], 64 * UNITS["MiB"])
PROCESSES = (2, 4)
ALGORITHMS = {
    PEERLANE: None,
    "peerlane one-shot": "one-shot",
    "peerlane two-shot": "two-shot",
    "peerlane ring": "ring",
}

_SECONDS = 120.0
_MOST_TIMES = 500


def measure(plan: Plan, devices: Sequence[pl.Device], node: str) -> tuple[list[Figure], list[Skip]]:
    """Time all-reduces between processes; each round has all contenders."""
    jobs = rivals.jobs_of(plan.sizes, _MOST_TIMES)
    names, skips = rivals.present(rivals.ALL_REDUCE)
    figures: list[Figure] = []
    for size in PROCESSES:
        with ExitStack() as stack:
            ranks = _start(node, size, stack)
            copies = [_memcpy(devices, *job, stack) for job in jobs]
            contenders: dict[str, Callable[[], rivals.Found]] = {
                MEMCPY: partial(_copied, copies),
                **{name: partial(_ours, ranks, algorithm, jobs) for name, algorithm in ALGORITHMS.items()},
                **{name: partial(rivals.run, name, [rivals.ALL_REDUCE], size, jobs) for name in names},
            }

            def say(words: str, size: int = size) -> None:
                plan.say(f"all-reduce over {size} processes: {words}")

            found, failed = rivals.in_turns(contenders, plan.rounds, say)
        skips += [Skip(f"{skip.case} over {size} processes", skip.why) for skip in failed]
        for index, nbytes in enumerate(plan.sizes):
            case = f"all-reduce {format_size(nbytes)} over {size} processes"
            samples = {name: tasks[rivals.ALL_REDUCE][index] for name, tasks in found.items()}
            pairs = [(name, MEMCPY) for name in ALGORITHMS]
            pairs += [(PEERLANE, name) for name in names if name in found]
            figures += [figure(samples, case, *pair, SPEED, nbytes) for pair in pairs]
    return figures, skips


def _copied(copies: Sequence[Contender]) -> rivals.Found:
    return {rivals.ALL_REDUCE: [copy.sample() for copy in copies]}


def _memcpy(devices: Sequence[pl.Device], nbytes: int, times: int, stack: ExitStack) -> Contender:
    dst, src = (stack.enter_context(devices[0].allocate(nbytes)) for _ in range(2))
    dst.fill(0)
    src.fill(0)
    return native_copies(dst, src, times)[0]


def _start(node: str, size: int, stack: ExitStack) -> list[Child]:
    """Start the ranks and wait until they have met."""
    with interrupts_deferred():
        ranks = [
            stack.enter_context(Child(_serve, node, rank, size, name=f"rank {rank}")) for rank in range(size)
        ]
    gather_from(ranks, timeout=_SECONDS)
    for each in ranks:
        each.answer(timeout=_SECONDS)
    return ranks


def _ours(ranks: Sequence[Child], algorithm: str | None, jobs: Sequence[rivals.Job]) -> rivals.Found:
    """Return for each job the seconds of the slowest rank."""
    for each in ranks:
        each.tell((algorithm, jobs))
    taken = [each.answer(timeout=_SECONDS) for each in ranks]
    return {rivals.ALL_REDUCE: [max(times) for times in zip(*taken, strict=True)]}


def _serve(node: str, rank: int, size: int, pipe: Connection[Any, Any]) -> None:
    """Run a rank until the pipe ends."""
    try:
        pl.enter_node(node)
        with pl.Group(rank, size, rendezvous=exchange_over(pipe)) as group:
            pipe.send(None)
            while True:
                algorithm, jobs = pipe.recv()
                pipe.send([_timed(group, algorithm, *job) for job in jobs])
    except pl.Error as error:
        pipe.send(error)
    except (EOFError, OSError):  # the pipe ended
        return


def _timed(group: pl.Group, algorithm: str | None, nbytes: int, times: int) -> float:
    """Return the seconds of one all-reduce, after some warm-ups that do not count."""
    with group.device.allocate(nbytes) as elements:
        elements.fill(0)
        seconds = 0.0
        for count in (max(1, times // 4), times):
            group.barrier()
            began = perf_counter()
            for _ in range(count):
                group.all_reduce(elements, dtype="float32", algorithm=algorithm)
            seconds = (perf_counter() - began) / count
        return seconds
