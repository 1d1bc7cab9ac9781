"""Ranks of a group as threads of this process: they start fast, and each rank's failure is raised."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import peerlane as pl

T = TypeVar("T")

SECONDS = 100.0  # eight ranks that take turns under seeded need 9 s on two free cores
_names = itertools.count()


class Exchange:
    """An all-gather of bytes among threads."""

    def __init__(self, size: int) -> None:
        self._barrier, self._values = threading.Barrier(size), [b""] * size

    def of(self, rank: int) -> Callable[[bytes], list[bytes]]:
        def exchange(mine: bytes) -> list[bytes]:
            self._values[rank] = mine
            self._barrier.wait(SECONDS)
            values = list(self._values)
            self._barrier.wait(SECONDS)
            return values

        return exchange


def run_ranks(
    size: int,
    work: Callable[[pl.Group], T],
    *,
    ends_together: bool = True,
    closes: bool = True,
    each: Sequence[Mapping[str, Any]] = (),
    seconds: float = SECONDS,
    **options: Any,
) -> list[T]:
    """Let ``size`` threads be the ranks of a group; return what ``work`` returned in each, in order.

    ``each`` has the further options of each rank's group.  Without ``closes`` the caller closes the groups.
    """
    met, name = Exchange(size), f"ranks{next(_names)}"

    def rank(number: int) -> T:
        chosen = {**options, **(each[number] if each else {})}
        joined_group = pl.Group(number, size, rendezvous=met.of(number), name=name, **chosen)
        if not closes:
            return work(joined_group)
        with joined_group as group:
            result = work(group)
            if ends_together:
                group.barrier()  # no rank leaves while others still use its memory
            return result

    with ThreadPoolExecutor(size) as pool:
        return [one.result(seconds) for one in [pool.submit(rank, number) for number in range(size)]]
