"""P7b: a copy across blocks that are mapped side by side, against a copy inside one allocation."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from time import perf_counter

import peerlane as pl
from benchmarks.bars import SEAMS
from peerlane.cli import machine
from peerlane.cli.bench.measure import PEERLANE, SPEED, Contender, Figure, Skip, figure, interleaved
from peerlane.cli.bench.plan import Plan

BLOCKS = 1000

_FLAT = "the same in one allocation"


def measure(
    plan: Plan, devices: Sequence[pl.Device], blocks: int = BLOCKS
) -> tuple[list[Figure], list[Skip]]:
    """Time a copy of the lower half to the upper, in a range of blocks and in one allocation of the same size."""
    device = devices[0]
    size = blocks * device.granularity
    if why := machine.shortage(2 * size):
        return [], [Skip(SEAMS, why)]
    plan.show(SEAMS)
    with ExitStack() as stack:
        whole = stack.enter_context(pl.AddressRange(device, size))
        for start in range(0, size, device.granularity):
            with pl.Physical(device, device.granularity) as block:
                whole.map(block, at=start)
        flat = stack.enter_context(device.allocate(size))
        contenders = []
        for name, memory in ((_FLAT, flat[:]), (PEERLANE, whole[:])):
            memory.fill(0x5A)
            half = size // 2
            contenders.append(Contender(name, partial(_copied, memory[half : 2 * half], memory[:half])))
        samples = interleaved(contenders, plan.rounds)
    return [figure(samples, SEAMS, PEERLANE, _FLAT, SPEED)], []


def _copied(dst: pl.Buffer, src: pl.Buffer) -> float:
    start = perf_counter()
    pl.copy(dst, src)
    return perf_counter() - start
