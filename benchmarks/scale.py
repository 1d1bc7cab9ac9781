"""P11: a thousand devices, ten thousand streams and a hundred thousand events in one process."""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import Any

import peerlane as pl
from benchmarks.bars import RESIDENT, THREADS
from peerlane.cli.bench.measure import SHARE, Figure, Skip
from peerlane.cli.bench.plan import Plan
from peerlane.cli.children import Child, interrupts_deferred
from peerlane.errors import DeviceFault
from peerlane.support.sizes import UNITS

DEVICES, STREAMS, EVENTS = 1_024, 10_000, 100_000

MOST_BYTES, MOST_THREADS = UNITS["GiB"], 200

_BYTES = 8


@dataclass(frozen=True, slots=True)
class Population:
    """The memory and threads of the process that held all objects."""

    resident: int
    threads: int
    seconds: float


def measure(
    plan: Plan, devices: int = DEVICES, streams: int = STREAMS, events: int = EVENTS
) -> tuple[list[Figure], list[Skip]]:
    """Populate a fresh process; the figures are its peak memory and its threads, as shares of the limits."""
    case = f"{devices:,} devices, {streams:,} streams, {events:,} events"
    plan.show(case)
    with interrupts_deferred():
        child = Child(_serve, devices, streams, events)
    with child:
        population: Population = child.ask("measure")

    def share(contender: str, limit: str, ratio: float) -> Figure:
        return Figure(case, contender, limit, SHARE, ratio, ratio, ratio, population.seconds)

    return [
        share(RESIDENT, "1 GiB", population.resident / MOST_BYTES),
        share(THREADS, f"{MOST_THREADS} threads", population.threads / MOST_THREADS),
    ], []


def _serve(devices: int, streams: int, events: int, pipe: Connection[Any, Any]) -> None:
    try:
        pipe.recv()
        try:
            pipe.send(populate(devices, streams, events))
        except pl.Error as error:
            pipe.send(error)
    except (EOFError, OSError):  # the pipe ended
        return


def populate(devices: int, streams: int, events: int) -> Population:
    """Make all objects, use each, and hold them at once: each stream waits and copies, each event is recorded.

    Raises
    ------
    DeviceFault
        A copy did not arrive.
    """
    start = perf_counter()
    node = pl.enter_node(f"devices={devices},memory=64MiB")
    ends = [(device.allocate(_BYTES), device.allocate(_BYTES)) for device in node]
    for dst, src in ends:
        dst.fill(0)
        src.fill(0x5A)
    queues = [node[number % devices].create_stream() for number in range(streams)]
    gate = node[0].create_notify()
    queues[0].wait(gate)
    opened = queues[0].record()
    marks = []
    for number in range(events):
        queue = queues[number % streams]
        if number < streams:
            queue.wait(opened)
            pl.copy(*ends[number % devices], stream=queue)
        marks.append(queue.record())
    parked = _status("Threads")
    gate.record()
    for mark in marks:
        mark.sync()
    for queue in queues:
        queue.sync()
    if any(bytes(dst.view()) != b"\x5a" * _BYTES for dst, _ in ends):
        raise DeviceFault("a copy among many streams did not arrive")
    return Population(_status("VmHWM") * 1024, max(parked, _status("Threads")), perf_counter() - start)


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        name, value = line.split(":", 1)
        if name == field:
            return int(value.split()[0])
    raise DeviceFault(f"/proc/self/status has no {field}")
