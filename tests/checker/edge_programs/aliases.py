"""Rank 1 polls a word of its window through an alias, which leaves no event: ``aliases.py MEANS MODE``.

In ``early`` the word comes before the bytes that it should tell of, and in ``right`` behind them.  In ``ended`` the
alias is gone before the word comes, so nothing can have told of it.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable

import numpy as np

import peerlane as pl
from checker.edge_programs.two_ranks import until

SIZE, HEADER = 4096, 128
DATA = bytes(range(256)) * (SIZE // 256)


def by_ctypes(window: pl.Buffer) -> Callable[[int], int]:
    view = window.view()
    pointer = ctypes.cast(view.ctypes.data, ctypes.POINTER(ctypes.c_uint8))
    return lambda at: int(pointer[at])


def by_plain_array(window: pl.Buffer) -> Callable[[int], int]:
    return np.asarray(window.view()).__getitem__


def by_plain_slice(window: pl.Buffer) -> Callable[[int], int]:
    words = window.view()
    plain = np.ascontiguousarray(words[SIZE:])
    return lambda at: int(plain[at - SIZE])


MEANS: dict[str, Callable[[pl.Buffer], Callable[[int], int]]] = {
    "array": lambda window: np.asarray(window).__getitem__,
    "dlpack": lambda window: np.from_dlpack(window).__getitem__,
    "memoryview": lambda window: memoryview(window).__getitem__,
    "memoryview of a view": lambda window: memoryview(window.view()).__getitem__,
    "frombuffer": lambda window: np.frombuffer(window.view(), "uint8").__getitem__,
    "struct": lambda window: lambda at: int(struct.unpack_from("<Q", window.view(), at)[0]),
    "ctypes": by_ctypes,
    "plain array": by_plain_array,
    "plain slice": by_plain_slice,
    "anew": lambda window: lambda at: int(np.asarray(window)[at]),
    "header": lambda window: np.asarray(window).__getitem__,
}


def main(means: str, mode: str) -> None:
    with pl.Group(window=SIZE + HEADER) as group:
        channel = group.channel(1 - group.rank)
        look = MEANS[means](group.window)
        if mode == "early":
            group.barrier()  # what was written before rank 1 has its alias could be seen whole
        if mode == "ended":
            look = group.window.view().__getitem__
            group.barrier()
        if group.rank == 0:
            with group.device.allocate(SIZE) as block:
                block.copy_from(DATA)
                word = b"\1" * (HEADER if means == "header" else 8)
                if mode == "early":
                    channel.write(word, at=SIZE)
                channel.write(block, at=0)
                if mode != "early":
                    channel.write(word, at=SIZE)
        else:
            if mode != "ended":
                until(lambda: look(SIZE) != 0)
            with group.device.allocate(SIZE) as own:
                pl.copy(own, group.window[:SIZE])
                assert mode != "right" or bytes(own) == DATA
        group.barrier()


if __name__ == "__main__":
    main(*sys.argv[1:])
