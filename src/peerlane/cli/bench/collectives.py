"""All-reduce between processes, by each algorithm, against memcpy of the same bytes and against other libraries.

Each rank's elements lie in device memory, float32, and are summed in place.  A figure is the slowest rank's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from time import perf_counter

import peerlane as pl
from peerlane.cli.bench import collective_rivals as rivals
from peerlane.cli.bench.bars import PEERLANE
from peerlane.cli.bench.measure import SPEED, Contender, Figure, Skip, figure
from peerlane.cli.bench.plan import Plan
from peerlane.cli.bench.rivals import MEMCPY, native_copies
from peerlane.cli.children import Child, interrupts_deferred
from peerlane.node.sizes import UNITS, format_size

DEFAULT_SIZES = (64, 64 * UNITS["KiB"], UNITS["MiB"], 64 * UNITS["MiB"])
PROCESSES = (2, 4)
ALGORITHMS = {
    PEERLANE: None,
    "peerlane one-shot": "one-shot",
    "peerlane two-shot": "two-shot",
    "peerlane ring": "ring",
}

_SECONDS = 120.0
_ABOUT = 64 * UNITS["MiB"]  # bytes of a sample
_MOST_TIMES = 500

Times = dict[str, list[float]]


def measure(plan: Plan, devices: Sequence[pl.Device], node: str) -> tuple[list[Figure], list[Skip]]:
    """Let processes all-reduce, in rounds of all contenders."""
    jobs = [(nbytes, max(1, min(_MOST_TIMES, _ABOUT // nbytes))) for nbytes in plan.sizes]
    absent = {name: why for name in rivals.NAMES if (why := rivals.missing(name))}
    skips = [Skip(f"rival {name}", why) for name, why in absent.items()]
    figures: list[Figure] = []
    for size in PROCESSES:
        with ExitStack() as stack:
            ranks = _start(node, size, stack)
            copies = [_memcpy(devices, nbytes, stack) for nbytes in plan.sizes]
            names = [*ALGORITHMS, *(name for name in rivals.NAMES if name not in absent)]
            found: list[Times] = [{each: [] for each in (MEMCPY, *names)} for _ in jobs]
            for number in range(plan.rounds + 1):
                for name in list(names):
                    plan.say(f"all-reduce by {name} over {size} processes, round {number} of {plan.rounds}")
                    try:
                        seconds = (
                            _ours(ranks, ALGORITHMS[name], jobs)
                            if name in ALGORITHMS
                            else rivals.seconds_of(name, size, jobs)
                        )
                    except RuntimeError as error:
                        skips.append(Skip(f"rival {name} over {size} processes", str(error)))
                        names.remove(name)
                        continue
                    for times, taken in zip(found, seconds, strict=True):
                        times[name].append(taken)
                for times, copy in zip(found, copies, strict=True):
                    times[MEMCPY].append(copy.sample())
        for nbytes, times in zip(plan.sizes, found, strict=True):
            case = f"all-reduce {format_size(nbytes)} over {size} processes"
            counted = {name: taken[1:] for name, taken in times.items()}  # the first round does not count
            figures += [figure(counted, case, name, MEMCPY, SPEED, nbytes) for name in names]
    return figures, skips


def _memcpy(devices: Sequence[pl.Device], nbytes: int, stack: ExitStack) -> Contender:
    dst, src = (stack.enter_context(devices[0].allocate(nbytes)) for _ in range(2))
    dst.fill(0)
    src.fill(0)
    return native_copies(dst, src, max(1, _ABOUT // nbytes))[0]


def _start(node: str, size: int, stack: ExitStack) -> list[Child]:
    """Start ranks and let them meet."""
    with interrupts_deferred():
        ranks = [
            stack.enter_context(Child(_serve, node, rank, size, name=f"rank {rank}")) for rank in range(size)
        ]
    said = [each.answer(timeout=_SECONDS) for each in ranks]
    for each in ranks:
        each.tell(said)
    for each in ranks:
        each.answer(timeout=_SECONDS)
    return ranks


def _ours(ranks: Sequence[Child], algorithm: str | None, jobs: Sequence[rivals.Job]) -> list[float]:
    """Return the slowest rank's seconds of each job."""
    for each in ranks:
        each.tell((algorithm, jobs))
    taken = [each.answer(timeout=_SECONDS) for each in ranks]
    return [max(times) for times in zip(*taken, strict=True)]


def _serve(node: str, rank: int, size: int, pipe: Connection) -> None:
    """Be a rank until the pipe ends."""

    def exchange(mine: bytes) -> list[bytes]:
        pipe.send(mine)
        said: list[bytes] = pipe.recv()
        return said

    try:
        pl.enter_node(node)
        with pl.Group(rank, size, rendezvous=exchange) as group:
            pipe.send(None)
            while True:
                algorithm, jobs = pipe.recv()
                pipe.send([_timed(group, algorithm, *job) for job in jobs])
    except pl.Error as error:
        pipe.send(error)
    except (EOFError, OSError):  # nobody asks any more
        return


def _timed(group: pl.Group, algorithm: str | None, nbytes: int, times: int) -> float:
    """Return the seconds of one all-reduce, after some that do not count."""
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
