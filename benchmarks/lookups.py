"""P10: the cost of finding the allocation of an address, among few and among many.

Each number of allocations has its own process, and the two processes take turns.
"""

from __future__ import annotations

import timeit
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

import peerlane as pl
from benchmarks import references
from benchmarks.bars import PEERLANE_INSIDE
from peerlane.backend import registry
from peerlane.cli import machine
from peerlane.cli.bench.measure import PEERLANE, TIME, Contender, Figure, Skip, figure, interleaved
from peerlane.cli.bench.plan import Plan
from peerlane.cli.children import Child, interrupts_deferred

FEW, MANY = 1_000, 1_000_000

_SMALLEST, _LARGEST = 256, 512
_BYTES_EACH = 1024
_NATIVE, _PYTHON = "native", "python"
_LOOKUPS = {_NATIVE: 1_000_000, _PYTHON: 30_000}


def measure(plan: Plan, node: str, many: int = MANY) -> tuple[list[Figure], list[Skip]]:
    """Time look-ups in random order among ``many`` live allocations and among a thousand."""
    case = f"look-up among {many:,}"
    if why := machine.shortage(many * _BYTES_EACH):
        return [], [Skip(case, why)]
    plan.show(case)
    figures = []
    with ExitStack() as stack:
        with interrupts_deferred():
            holders = {count: stack.enter_context(Child(_serve, count, node)) for count in (FEW, many)}
        for how, contender in ((_PYTHON, PEERLANE), (_NATIVE, PEERLANE_INSIDE)):
            few = f"{contender} among {FEW:,}"
            samples = interleaved(
                [_contender(few, holders[FEW], how), _contender(contender, holders[many], how)], plan.rounds
            )
            figures.append(figure(samples, case, contender, few, TIME))
    return figures, []


def _contender(name: str, holder: Child, how: str) -> Contender:
    return Contender(name, lambda: float(holder.ask(how)))


def _serve(count: int, node: str, pipe: Connection[Any, Any]) -> None:
    try:
        try:
            held = _allocate(count, node)
        except pl.Error as error:
            pipe.recv()
            pipe.send(error)
            return
        addresses = np.array([block.address for block in held], dtype=np.uint64)
        np.random.default_rng(count).shuffle(addresses)
        while True:
            pipe.send(_seconds(addresses, pipe.recv()))
            addresses = np.roll(addresses, -_LOOKUPS[_PYTHON])  # else the same few stay in the caches
    except (EOFError, OSError):  # the pipe ended
        return


def _allocate(count: int, node: str) -> Sequence[Any]:
    pl.enter_node(node)
    backend = registry.current()
    sizes = np.random.default_rng(1).integers(_SMALLEST, _LARGEST, count, endpoint=True).tolist()
    return [backend.allocate(0, size) for size in sizes]


def _seconds(addresses: np.typing.NDArray[np.uint64], how: str) -> float:
    number = _LOOKUPS[how]
    rounds = max(1, number // len(addresses))
    if how == _NATIVE:
        return references.time_lookups(addresses, rounds)
    some = addresses[:number].tolist()
    timer = timeit.Timer("for a in some: locate(a)", globals={"some": some, "locate": pl.raw.locate})
    return timer.timeit(rounds) / (rounds * len(some))
