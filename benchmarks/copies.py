"""P1 and P2: copies against native loops of memcpy and of the streaming copy, NumPy and torch."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence

import numpy as np

import peerlane as pl
from benchmarks import references
from peerlane.cli import machine
from peerlane.cli.bench import copies
from peerlane.cli.bench.measure import Contender, Figure, Skip, looped
from peerlane.cli.bench.plan import Plan
from peerlane.support.sizes import UNITS

MEMCPY = "memcpy, 1 thread"
#: From this size on the reference is the machine's best copy; below, one thread's memcpy.
LARGE = 16 * UNITS["MiB"]


def measure(plan: Plan, devices: Sequence[pl.Device]) -> tuple[list[Figure], list[Skip]]:
    """Time each size of the plan on one device and between two."""
    return copies.measure(plan, devices, _native, _others)


def native_copies(dst: pl.Buffer, src: pl.Buffer, number: int) -> list[Contender]:
    """Return native loops of memcpy and of the streaming copy, on one core and on all; the first is plain memcpy."""
    to, origin = dst.view().ctypes.data, src.view().ctypes.data

    def contender(name: str, streaming: bool, threads: int) -> Contender:
        return Contender(name, lambda: references.time_copy(to, origin, src.size, streaming, threads, number))

    contenders = [contender(MEMCPY, False, 1)]
    if machine.has_stream_copy():
        contenders.append(contender("streaming, 1 thread", True, 1))
    cores = machine.cores()
    if cores > 1:
        contenders.append(contender(f"memcpy, {cores} threads", False, cores))
        if machine.has_stream_copy():
            contenders.append(contender(f"streaming, {cores} threads", True, cores))
    return contenders


def _native(dst: pl.Buffer, src: pl.Buffer, number: int) -> list[Contender]:
    return native_copies(dst, src, number)[: None if src.size >= LARGE else 1]


def _others(dst: pl.Buffer, src: pl.Buffer, number: int) -> list[Contender]:
    contenders = [
        copies.memmove(dst, src, number),
        looped("numpy.copyto", np.copyto, dst.view(), src.view(), number=number),
    ]
    if importlib.util.find_spec("torch") is not None:
        torch = importlib.import_module("torch")
        to, origin = torch.from_numpy(dst.view()), torch.from_numpy(src.view())
        contenders.append(looped("torch copy_", to.copy_, origin, number=number))
    return contenders
