"""Synchronous copies of whole buffers, on a device and between peers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import peerlane as pl
from peerlane.cli import machine
from peerlane.cli.bench.measure import (
    PEERLANE,
    SPEED,
    Contender,
    Figure,
    Skip,
    best,
    figure,
    interleaved,
    looped,
)
from peerlane.cli.bench.plan import Plan
from peerlane.support.sizes import UNITS, format_size

DEFAULT_SIZES = (64 * UNITS["KiB"], UNITS["MiB"], 64 * UNITS["MiB"], UNITS["GiB"])
ON_A_DEVICE, BETWEEN_PEERS = "on a device", "between peers"

_SAMPLE_SECONDS = 0.02

#: What makes contenders that copy between the host addresses of two buffers, so many times in a sample.
Makers = Callable[[pl.Buffer, pl.Buffer, int], list[Contender]]


def filled_pair(
    target: pl.Device, origin: pl.Device, size: int, stack: ExitStack
) -> tuple[pl.Buffer, pl.Buffer]:
    """Return the destination and the source of a copy, all of whose pages were written."""
    src = stack.enter_context(origin.allocate(size))
    dst = stack.enter_context(target.allocate(size))
    src.fill(0x5A)
    dst.fill(0)
    return dst, src


def memmove(dst: pl.Buffer, src: pl.Buffer, number: int) -> Contender:
    """Return ``ctypes.memmove`` of the same bytes, on addresses as ints."""
    to, origin = dst.view().ctypes.data, src.view().ctypes.data
    return looped("ctypes.memmove", ctypes.memmove, to, origin, src.size, number=number)


def _memmove_alone(dst: pl.Buffer, src: pl.Buffer, number: int) -> list[Contender]:
    return [memmove(dst, src, number)]


def _none(dst: pl.Buffer, src: pl.Buffer, number: int) -> list[Contender]:
    return []


def measure(
    plan: Plan, devices: Sequence[pl.Device], references: Makers = _memmove_alone, rivals: Makers = _none
) -> tuple[list[Figure], list[Skip]]:
    """Time each size of the plan on one device and between two.

    Parameters
    ----------
    plan : Plan
    devices : sequence of Device
    references : callable
        What makes the references; the quickest one of a size counts.
    rivals : callable
        What makes other contenders.  They have no devices, and stand beside copies on one device.
    """
    figures: list[Figure] = []
    skips: list[Skip] = []
    first, second = devices[:2]
    first.peers.add(second)
    for size in plan.sizes:
        for words, target in ((ON_A_DEVICE, first), (BETWEEN_PEERS, second)):
            case = f"copy {format_size(size)} {words}"
            if why := machine.shortage(2 * size):
                skips.append(Skip(case, why))
                continue
            plan.show(case)
            with ExitStack() as stack:
                dst, src = filled_pair(target, first, size, stack)
                seconds = min(references(dst, src, 1)[0].sample() for _ in range(3))
                number = max(1, round(_SAMPLE_SECONDS / max(seconds, 1e-9)))
                native = references(dst, src, number)
                others = rivals(dst, src, number) if target is first else []
                ours = looped(PEERLANE, pl.copy, dst, src, number=number)
                samples = interleaved([*native, ours, *others], plan.rounds)
            reference = best(samples, [each.name for each in native])
            figures += [
                figure(samples, case, name, reference, SPEED, size) for name in samples if name != reference
            ]
    return figures, skips
