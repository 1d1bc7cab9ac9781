"""P6: many small blocks, scattered over two buffers, in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np
import numpy.typing as npt

import peerlane as pl
from benchmarks import references
from peerlane.cli import machine
from peerlane.cli.bench.measure import PEERLANE, TIME, Contender, Figure, Skip, figure, interleaved, looped
from peerlane.cli.bench.plan import Plan
from peerlane.support.sizes import UNITS

BLOCKS = 10_000

_BLOCK = 4 * UNITS["KiB"]
_LOOP = "loop of memcpy"


def measure(
    plan: Plan, devices: Sequence[pl.Device], blocks: int = BLOCKS
) -> tuple[list[Figure], list[Skip]]:
    """Time a batch, with and without a stream, and a launch of the same copy list, against a loop of memcpy."""
    case = f"batch of {blocks:,} blocks of 4 KiB"
    span = 2 * blocks * _BLOCK  # every second block is copied
    if why := machine.shortage(2 * span):
        return [], [Skip(case, why)]
    plan.show(case)
    with ExitStack() as stack:
        device = devices[0]
        whole = [stack.enter_context(device.allocate(span)) for _ in range(2)]
        for buffer in whole:
            buffer.fill(0x5A)
        chance = np.random.default_rng(1)
        dsts, srcs = (
            [
                buffer[block * _BLOCK : (block + 1) * _BLOCK]
                for block in chance.permutation(2 * blocks)[:blocks].tolist()
            ]
            for buffer in whole
        )
        to, origin = _pointers(dsts), _pointers(srcs)
        table = stack.enter_context(device.allocate(pl.CopyDescriptor.size_for(blocks)))
        copies = pl.CopyDescriptor.build(table, zip(dsts, srcs, strict=True))
        stream = stack.enter_context(device.create_stream())

        def synced(call: Callable[[], None]) -> None:
            call()
            stream.sync()

        reference = Contender(_LOOP, lambda: references.time_scattered_copies(to, origin, _BLOCK, 1))
        contenders = [
            reference,
            looped(PEERLANE, pl.copy_batch, dsts, srcs, number=1),
            looped(
                f"{PEERLANE}, on a stream", synced, lambda: pl.copy_batch(dsts, srcs, stream=stream), number=1
            ),
            looped(f"{PEERLANE}, launch of a copy list", synced, lambda: copies.launch(stream), number=1),
        ]
        samples = interleaved(contenders, plan.rounds)
    names = [contender.name for contender in contenders[1:]]
    return [figure(samples, case, name, _LOOP, TIME) for name in names], []


def _pointers(blocks: Sequence[pl.Buffer]) -> npt.NDArray[np.uint64]:
    return np.array([block.view().ctypes.data for block in blocks], dtype=np.uint64)
