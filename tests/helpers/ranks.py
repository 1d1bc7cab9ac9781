"""Ranks of one process: a thread each, with a deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import peerlane as pl

T = TypeVar("T")

SECONDS = 60.0


class Exchange:
    """An all-gather of bytes between threads: what a program of MPI would pass as ``comm.allgather``."""

    def __init__(self, size: int) -> None:
        self._values: list[bytes] = [b""] * size
        self._barrier = threading.Barrier(size)

    def of(self, rank: int) -> Callable[[bytes], list[bytes]]:
        def exchange(value: bytes) -> list[bytes]:
            self._values[rank] = value
            self._barrier.wait(SECONDS)
            return list(self._values)

        return exchange


def run_ranks(size: int, function: Callable[[pl.Group], T], **options: Any) -> list[T]:
    """Call ``function(group)`` in a thread for each rank; return what they return, or raise what the first raised."""
    found: list[Any] = [None] * size
    raised: list[BaseException | None] = [None] * size
    exchange = Exchange(size)

    def body(rank: int) -> None:
        try:
            with pl.Group(rank, size, rendezvous=exchange.of(rank), timeout=SECONDS, **options) as group:
                found[rank] = function(group)
        except BaseException as error:  # noqa: BLE001 - raised below
            raised[rank] = error

    threads = [threading.Thread(target=body, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert not any(thread.is_alive() for thread in threads), "a rank did not end"
    for error in raised:
        if error is not None:
            raise error
    return found
