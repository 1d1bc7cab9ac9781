"""Barriers, broadcasts, all-gathers and all-reduces between processes, against memcpy and other libraries.

The buffer of each rank lies in device memory; all-reduce sums float32 in place.  A time is that of the slowest rank.
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
from peerlane.cli.bench.bars import COLLECTIVE_SIZES, PEERLANE
from peerlane.cli.bench.measure import Contender, Figure, Skip
from peerlane.cli.bench.plan import Plan, parse_sizes
from peerlane.cli.bench.rival_libraries import ALL_GATHER, ALL_REDUCE, BARRIER, BROADCAST, COLLECTIVES, Way
from peerlane.cli.bench.rivals import native_copies
from peerlane.cli.bench.timings import MEMCPY, Timing, over_sizes
from peerlane.cli.children import Child, exchange_over, gather_from, interrupts_deferred
from peerlane.errors import InvalidValue

DEFAULT_SIZES = parse_sizes(",".join(COLLECTIVE_SIZES))
PROCESSES = (2, 4)
#: Algorithms of all-reduce, beside the one that peerlane chooses.
ALGORITHMS = ("one-shot", "two-shot", "ring")

_SECONDS = 120.0
_MOST_TIMES = 8_000
_ELEMENT = 4  # bytes of a float32; a size must also come to equal parts of four ranks


def measure(
    plan: Plan, devices: Sequence[pl.Device], node: str
) -> tuple[list[Figure], list[Timing], list[Skip]]:
    """Time collectives between processes; each round has all contenders."""
    if odd := [str(nbytes) for nbytes in plan.sizes if nbytes % _ELEMENT]:
        raise InvalidValue(
            f"--sizes has {', '.join(odd)} bytes; valid for collectives are multiples of {_ELEMENT}, as they sum "
            "float32 and gather equal parts of four ranks"
        )
    jobs = rivals.jobs_of(plan.sizes, _MOST_TIMES)
    names, skips = rivals.present(*COLLECTIVES)
    timings: list[Timing] = []
    for size in PROCESSES:
        with ExitStack() as stack:
            ranks = start_ranks(_serve, node, size, stack)
            copies = [_memcpy(devices, *job, stack) for job in jobs]
            contenders: dict[Way, Callable[[], rivals.Found]] = {
                Way(PEERLANE): partial(_ours, ranks, COLLECTIVES, None, jobs),
                **{
                    Way(PEERLANE, name): partial(_ours, ranks, (ALL_REDUCE,), name, jobs)
                    for name in ALGORITHMS
                },
                Way(MEMCPY): partial(_copied, copies),
                **{
                    way: partial(rivals.run, way, COLLECTIVES, size, jobs)
                    for way in rivals.ways(names, *COLLECTIVES)
                },
            }

            def say(words: str, size: int = size) -> None:
                plan.say(f"collectives over {size} processes: {words}")

            found, failed = rivals.in_turns(contenders, plan.rounds, say)
        skips += [Skip(f"{skip.case} over {size} processes", skip.why) for skip in failed]
        for task in COLLECTIVES:
            timings += over_sizes(found, task, size, (None,) if task == BARRIER else plan.sizes)
    return [], timings, skips


def _copied(copies: Sequence[Contender]) -> rivals.Found:
    seconds = [copy.sample() for copy in copies]
    return dict.fromkeys((BROADCAST, ALL_GATHER, ALL_REDUCE), seconds)


def _memcpy(devices: Sequence[pl.Device], nbytes: int, times: int, stack: ExitStack) -> Contender:
    dst, src = (stack.enter_context(devices[0].allocate(nbytes)) for _ in range(2))
    dst.fill(0)
    src.fill(0)
    return native_copies(dst, src, times)[0]


def start_ranks(serve: Callable[..., None], node: str, size: int, stack: ExitStack) -> list[Child]:
    """Start ranks that run ``serve``, and wait until they have met."""
    with interrupts_deferred():
        ranks = [
            stack.enter_context(Child(serve, node, rank, size, name=f"rank {rank}")) for rank in range(size)
        ]
    gather_from(ranks, timeout=_SECONDS)
    for each in ranks:
        each.answer(timeout=_SECONDS)
    return ranks


def _ours(
    ranks: Sequence[Child], tasks: Sequence[str], algorithm: str | None, jobs: Sequence[rivals.Job]
) -> rivals.Found:
    """Return by task, for each job, the seconds of the slowest rank; a barrier is done for the first job only."""
    found = {}
    for task in tasks:
        for each in ranks:
            each.tell((task, algorithm, jobs[:1] if task == BARRIER else jobs))
        taken = [each.answer(timeout=_SECONDS) for each in ranks]
        found[task] = [max(times) for times in zip(*taken, strict=True)]
    return found


def _serve(node: str, rank: int, size: int, pipe: Connection[Any, Any]) -> None:
    def answer(group: pl.Group, question: Any) -> list[float]:
        task, algorithm, jobs = question
        return [timed(group, task, algorithm, *job) for job in jobs]

    serve_group(answer, node, rank, size, pipe)


def serve_group(
    answer: Callable[[pl.Group, Any], object], node: str, rank: int, size: int, pipe: Connection[Any, Any]
) -> None:
    """Be a rank of a group, and answer questions until the pipe ends."""
    try:
        pl.enter_node(node)
        with pl.Group(rank, size, rendezvous=exchange_over(pipe)) as group:
            pipe.send(None)
            while True:
                pipe.send(answer(group, pipe.recv()))
    except pl.Error as error:
        pipe.send(error)
    except (EOFError, OSError):  # the pipe ended
        return


def timed(group: pl.Group, task: str, algorithm: str | None, nbytes: int, times: int) -> float:
    """Return the seconds of one collective, after some warm-ups that do not count."""
    with group.device.allocate(nbytes) as memory:
        memory.fill(0)
        calls: dict[str, Callable[[], None]] = {
            BARRIER: group.barrier,
            BROADCAST: lambda: group.broadcast(memory),
            ALL_GATHER: lambda: group.all_gather(memory),
            ALL_REDUCE: lambda: group.all_reduce(memory, dtype="float32", algorithm=algorithm),
        }
        call, seconds = calls[task], 0.0
        for count in (max(1, times // 4), times):
            group.barrier()
            began = perf_counter()
            for _ in range(count):
                call()
            seconds = (perf_counter() - began) / count
        return seconds
