"""Other ways to copy, measured by the same harness; one that is not installed is skipped by name."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Sequence

import numpy as np

import peerlane as pl
from peerlane import _bench
from peerlane.cli import machine
from peerlane.cli.bench.measure import Contender, Skip, looped
from peerlane.errors import InvalidValue

MEMCPY = "memcpy, 1 thread"

Maker = Callable[[pl.Buffer, pl.Buffer, int], Contender]


def host_pointers(dst: pl.Buffer, src: pl.Buffer) -> tuple[int, int]:
    """Return the host addresses of two buffers: rivals copy the same bytes as peerlane does."""
    return dst.view().ctypes.data, src.view().ctypes.data


def native_copies(dst: pl.Buffer, src: pl.Buffer, number: int) -> list[Contender]:
    """Return native loops of memcpy and of the streaming copy, on one core and on all; the first is plain memcpy."""
    to, origin = host_pointers(dst, src)

    def contender(name: str, streaming: bool, threads: int) -> Contender:
        return Contender(name, lambda: _bench.time_copy(to, origin, src.size, streaming, threads, number))

    made = [contender(MEMCPY, False, 1)]
    if machine.has_stream_copy():
        made.append(contender("streaming, 1 thread", True, 1))
    cores = machine.cores()
    if cores > 1:
        made.append(contender(f"memcpy, {cores} threads", False, cores))
        if machine.has_stream_copy():
            made.append(contender(f"streaming, {cores} threads", True, cores))
    return made


def memmove(dst: pl.Buffer, src: pl.Buffer, number: int) -> Contender:
    """Return ``ctypes.memmove`` on addresses as ints."""
    return looped("ctypes.memmove", ctypes.memmove, *host_pointers(dst, src), src.size, number=number)


def _copyto(dst: pl.Buffer, src: pl.Buffer, number: int) -> Contender:
    return looped("numpy.copyto", np.copyto, dst.view(), src.view(), number=number)


def _torch_copy(dst: pl.Buffer, src: pl.Buffer, number: int) -> Contender:
    torch = importlib.import_module("torch")
    to, origin = torch.from_numpy(dst.view()), torch.from_numpy(src.view())
    return looped("torch copy_", to.copy_, origin, number=number)


#: Rivals by their names for ``--with``; ``memcpy`` means :func:`native_copies`.
MAKERS: dict[str, Maker] = {"numpy": _copyto, "ctypes": memmove, "torch": _torch_copy}
NAMES = (*MAKERS, "memcpy")


def parse(text: str) -> tuple[str, ...]:
    """Return the rivals that ``--with`` names.

    Raises
    ------
    InvalidValue
        A name is unknown.
    """
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in NAMES:
            raise InvalidValue(f"--with: no rival {name!r}; valid are {', '.join(NAMES)}, joined by commas")
    return names


def installed(names: Sequence[str]) -> tuple[list[str], list[Skip]]:
    """Split rivals into those that can be imported and those that cannot."""
    present, skips = [], []
    for name in names:
        try:
            importlib.import_module(name if name != "memcpy" else "ctypes")
        except ImportError as error:
            skips.append(Skip(f"rival {name}", f"cannot be imported: {error}"))
        else:
            present.append(name)
    return present, skips


def contenders(names: Sequence[str], dst: pl.Buffer, src: pl.Buffer, number: int) -> list[Contender]:
    """Return the Python rivals among ``names``."""
    return [MAKERS[name](dst, src, number) for name in names if name in MAKERS]
