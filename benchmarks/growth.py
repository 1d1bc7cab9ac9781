"""How costs grow with the work: for each work its processor time for more and more objects, and the exponent.

Processor time, because other programs of the machine do not change it; of a job of ranks that of all processes.  Each
work and round has a fresh process.  A row is a ``Work``; more of them are more rows.
"""

from __future__ import annotations

import ctypes
import math
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import peerlane as pl
from peerlane.cli import machine, plots
from peerlane.cli.bench.plan import Plan
from peerlane.cli.children import Child, interrupts_deferred
from peerlane.rendezvous import Rendezvous, RendezvousServer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COUNTS = (10, 100, 1_000, 10_000)
RANKS = (2, 4, 8, 16, 32, 64)
#: What an exponent may exceed that of n log n by: the least counts are mostly fixed costs, and times vary.
MARGIN = 0.1
_PIECE = 4096
_SECONDS = 300.0


class Work(NamedTuple):
    """A kind of work.

    Attributes
    ----------
    name : str
    counts : sequence of int
        Of the objects that it has.
    prepare : callable
        Takes a count, and yields what is timed: no argument, no result.  What follows the yield cleans up.
    """

    name: str
    counts: Sequence[int]
    prepare: Callable[[int], Iterator[Callable[[], object]]]


@dataclass(frozen=True, slots=True)
class Growth:
    """The cost of a work.

    Attributes
    ----------
    work : str
    seconds : dict of int to tuple of float
        By count, the median, least and greatest of the rounds.
    exponent : float
        Of the two largest counts: 1 means that twice the objects cost twice as much.
    most : float
        The exponent of n log n there, and the margin.
    """

    work: str
    seconds: dict[int, tuple[float, float, float]]
    exponent: float
    most: float

    @property
    def is_within(self) -> bool:
        """Whether it grows no faster than n log n."""
        return self.exponent <= self.most


def measure(plan: Plan, works: Sequence[str] = ()) -> list[Growth]:
    """Measure the works of these names, by default all."""
    return [_measured(plan, name, WORKS[name].counts) for name in works or WORKS]


def _measured(plan: Plan, name: str, counts: Sequence[int]) -> Growth:
    samples: dict[int, list[float]] = {count: [] for count in counts}
    for number in range(plan.rounds):
        plan.show(f"{name}, round {number + 1} of {plan.rounds}")
        with interrupts_deferred():
            child = Child(_serve)
        with child:
            for count in counts:
                samples[count].append(child.ask((name, count), timeout=_SECONDS))
    return grown(name, samples)


def grown(name: str, samples: dict[int, list[float]]) -> Growth:
    """Return the growth in the rounds' seconds by count, of which there are two or more."""
    seconds = {count: (statistics.median(each), min(each), max(each)) for count, each in samples.items()}
    below, above = sorted(samples)[-2:]
    # The least of the rounds has the least of what else the processor did.
    exponent = math.log(min(samples[above]) / min(samples[below])) / math.log(above / below)
    most = 1 + math.log(math.log(above) / math.log(below)) / math.log(above / below) + MARGIN
    return Growth(name, seconds, exponent, most)


def _serve(pipe: Connection[Any, Any]) -> None:
    try:
        while True:
            name, count = pipe.recv()
            try:
                pipe.send(_timed(WORKS[name], count))
            except pl.Error as error:
                pipe.send(error)
    except (EOFError, OSError):  # the pipe ended
        return


def _timed(work: Work, count: int) -> float:
    with contextmanager(work.prepare)(count) as run:
        begin = _processor_time()
        run()
        return _processor_time() - begin


def _processor_time() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


# The works.


@contextmanager
def _node() -> Iterator[None]:
    pl.enter_node("devices=2,memory=1GiB")
    try:
        yield
    finally:
        pl.leave_node()


def _streams(count: int) -> Iterator[Callable[[], object]]:
    with _node():
        device = pl.devices()[0]
        dst, src = device.allocate(64), device.allocate(64)

        def run() -> None:
            streams = [device.create_stream() for _ in range(count)]
            for each in streams:
                pl.copy(dst, src, stream=each)
            for each in streams:
                each.close()

        yield run


def _nixl_agents(count: int, kind: str) -> tuple[Any, Any, list[int], list[int], object]:
    from peerlane.dialects.nixl._api import nixl_agent

    if kind == "VRAM":
        held: Any = [each.allocate(2 * _PIECE * count) for each in pl.devices()[:2]]
        starts = [each.address for each in held]
    else:
        held = [ctypes.create_string_buffer(2 * _PIECE * count) for _ in range(2)]
        starts = [ctypes.addressof(each) for each in held]
    ends = [[start + 2 * _PIECE * at for at in range(count)] for start in starts]
    return nixl_agent("a"), nixl_agent("b"), *ends, held


def _nixl_registrations(count: int, kind: str, *, apart: bool = False) -> Iterator[Callable[[], object]]:
    with _node():
        one, other, mine, _, held = _nixl_agents(count, kind)
        if apart:
            held = [pl.devices()[0].allocate(_PIECE) for _ in range(count)]
            mine = [each.address for each in held]

        def run() -> None:
            registered = one.register_memory([(at, _PIECE, 0, "") for at in mine], kind)
            other.add_remote_agent(one.get_agent_metadata())
            one.deregister_memory(registered)

        yield run
        del held


def _nixl_transfers(count: int, kind: str, *, shuffled: bool) -> Iterator[Callable[[], object]]:
    with _node():
        one, other, mine, theirs, held = _nixl_agents(count, kind)
        for agent, device, ends in ((one, 0, mine), (other, 1, theirs)):
            number = device if kind == "VRAM" else 0
            agent.register_memory([(at, _PIECE, number, "") for at in ends], kind)
        one.add_remote_agent(other.get_agent_metadata())
        if shuffled:
            Random(count).shuffle(mine)
            Random(count + 1).shuffle(theirs)

        def run() -> None:
            far = 1 if kind == "VRAM" else 0
            lists = [[(at, _PIECE, device) for at in ends] for ends, device in ((mine, 0), (theirs, far))]
            descs = (one.get_xfer_descs(each, kind) for each in lists)
            handle = one.initialize_xfer("WRITE", *descs, "b")
            state = one.transfer(handle)
            while state == "PROC":
                state = one.check_xfer_state(handle)
            one.release_xfer_handle(handle)

        yield run
        del held


def _mooncake_batch(count: int) -> Iterator[Callable[[], object]]:
    from peerlane.dialects.mooncake.engine import TransferEngine

    with _node():
        engines = [TransferEngine(), TransferEngine()]
        held = [ctypes.create_string_buffer(2 * _PIECE * count) for _ in engines]
        ends = [[ctypes.addressof(each) + 2 * _PIECE * at for at in range(count)] for each in held]
        for engine, starts in zip(engines, ends, strict=True):
            engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "")
            engine.batch_register_memory(starts, [_PIECE] * count)
        there = f"127.0.0.1:{engines[1].get_rpc_port()}"
        near, far = ends
        yield lambda: engines[0].batch_transfer_sync_write(there, near, far, [_PIECE] * count)


def _channels(count: int) -> Iterator[Callable[[], object]]:
    """Channels between two ranks, which are threads, each with a record."""
    with _node(), RendezvousServer(2) as server, ThreadPoolExecutor(2) as pool:
        clients = [Rendezvous(server.address, rank, 2) for rank in range(2)]
        groups = list(pool.map(lambda client: pl.Group(rendezvous=client, window=4096), clients))

        def connect(group: pl.Group) -> None:
            channels = group.channels([1 - group.rank] * count, notifies=1, timeout=_SECONDS)
            for each in channels:
                each.notify(0)
            for each in channels:
                each.wait(0)
                each.close()

        yield lambda: list(pool.map(connect, groups))
        for group, client in zip(groups, clients, strict=True):
            group.close()
            client.close()


def _ranks(count: int) -> Iterator[Callable[[], object]]:
    program = "import peerlane as pl\nwith pl.Group() as group: group.barrier()"
    words = [sys.executable, "-m", "peerlane", "launch", "-n", str(count), "-c", program]
    yield lambda: subprocess.run(words, check=True, capture_output=True, timeout=_SECONDS)


WORKS = {
    work.name: work
    for work in (
        Work(
            "nixl: register, metadata, add, deregister: device memory",
            COUNTS,
            lambda n: _nixl_registrations(n, "VRAM"),
        ),
        Work(
            "nixl: the same, of allocations of device memory",
            COUNTS,
            lambda n: _nixl_registrations(n, "VRAM", apart=True),
        ),
        Work(
            "nixl: register, metadata, add, deregister: host memory",
            COUNTS,
            lambda n: _nixl_registrations(n, "DRAM"),
        ),
        Work("nixl: a transfer of descriptors", COUNTS, lambda n: _nixl_transfers(n, "VRAM", shuffled=False)),
        Work(
            "nixl: a transfer of shuffled descriptors",
            COUNTS,
            lambda n: _nixl_transfers(n, "VRAM", shuffled=True),
        ),
        Work("mooncake: a batch of pieces of host memory", COUNTS, _mooncake_batch),
        Work("streams, each with a copy", COUNTS, _streams),
        Work("channels, each with a notify", COUNTS, _channels),
        Work("ranks of a job, each with a barrier", RANKS, _ranks),
    )
}


# The results.


def draw(growths: Sequence[Growth], console: Any) -> None:
    """Print a row for each work: its processor time by count, and the exponent."""
    from peerlane.cli.bench.report import duration_text
    from peerlane.cli.outputs import table

    counts = sorted({count for each in growths for count in each.seconds})
    shown = table("work", *(f"{count:,}" for count in counts), "exponent", "n log n", "")
    shown.title = "processor time by the number of objects"
    for each in growths:
        times = (duration_text(each.seconds[count][0]) if count in each.seconds else "" for count in counts)
        verdict = "" if each.is_within else "faster"
        shown.add_row(each.work, *times, f"{each.exponent:.2f}", f"<= {each.most:.2f}", verdict)
    console.print(shown)


def as_json(growths: Sequence[Growth]) -> dict[str, object]:
    """Return the growths and the machine as plain JSON values."""
    rows = [
        {
            "work": each.work,
            "seconds": {str(count): spread for count, spread in each.seconds.items()},
            "exponent": each.exponent,
            "most": each.most,
            "within": each.is_within,
        }
        for each in growths
    ]
    return {"growth": rows, "environment": machine.environment()}


def plot(growths: Sequence[Growth], path: str) -> None:
    """Write a picture of the processor time over the number of objects."""
    plots.save(picture(growths), path)


def picture(growths: Sequence[Growth]) -> Figure:
    """Draw the processor time of each work over the number of its objects."""
    panels = {}
    for each in growths:
        series = {n: (1e3 * mid, 1e3 * low, 1e3 * high) for n, (mid, low, high) in each.seconds.items()}
        panels[f"{each.work}: n^{each.exponent:.2f}"] = plots.Panel({"peerlane": series}, plots.OBJECTS)
    return plots.sweeps(panels, plots.PROCESSOR_TIME)
