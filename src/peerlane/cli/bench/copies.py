"""P1 and P2: synchronous copies of whole buffers, on a device and between peers.

Rivals have no devices; their figures stand beside those of copies on one device.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import peerlane as pl
from peerlane.cli import machine
from peerlane.cli.bench import rivals
from peerlane.cli.bench.bars import PEERLANE
from peerlane.cli.bench.measure import SPEED, Figure, Skip, best, figure, interleaved, looped
from peerlane.cli.bench.plan import Plan
from peerlane.support.sizes import UNITS, format_size

DEFAULT_SIZES = (64 * UNITS["KiB"], UNITS["MiB"], 64 * UNITS["MiB"], UNITS["GiB"])

#: From this size on the reference is the machine's best copy; below, one thread's memcpy.
LARGE = 16 * UNITS["MiB"]

ON_A_DEVICE, BETWEEN_PEERS = "on a device", "between peers"

_SAMPLE_SECONDS = 0.02


def measure(plan: Plan, devices: Sequence[pl.Device]) -> tuple[list[Figure], list[Skip]]:
    """Time each size of the plan on one device and between two."""
    figures: list[Figure] = []
    skips: list[Skip] = []
    first, second = devices[:2]
    first.peers.add(second)
    for size in plan.sizes:
        for words, target in ((ON_A_DEVICE, first), (BETWEEN_PEERS, second)):
            case = f"copy {format_size(size)} {words}"
            if 2 * size > machine.room():
                skips.append(
                    Skip(case, f"needs {2 * size:,} bytes of memory, {machine.room():,} are available")
                )
                continue
            plan.say(case)
            figures += _case(plan, case, first, target, size)
    return figures, skips


def _case(plan: Plan, case: str, first: pl.Device, target: pl.Device, size: int) -> list[Figure]:
    with ExitStack() as stack:
        src = stack.enter_context(first.allocate(size))
        dst = stack.enter_context(target.allocate(size))
        src.fill(0x5A)
        dst.fill(0)
        native = rivals.native_copies(dst, src, 1)
        estimate = min(native[0].sample() for _ in range(3))
        number = max(1, round(_SAMPLE_SECONDS / max(estimate, 1e-9)))
        native = rivals.native_copies(dst, src, number)
        if size < LARGE and not ("memcpy" in plan.rivals and target is first):
            native = native[:1]
        others = rivals.contenders(plan.rivals, dst, src, number) if target is first else []
        ours = looped(PEERLANE, pl.copy, dst, src, number=number)
        samples = interleaved([*native, ours, *others], plan.rounds)
        reference = best(samples, [one.name for one in native]) if size >= LARGE else rivals.MEMCPY
        return [figure(samples, case, name, reference, SPEED, size) for name in samples if name != reference]
