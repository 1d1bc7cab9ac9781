"""A worker process: it has the owner's weights, without a copy and then its own, and does what the owner asks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any

import numpy as np

import peerlane as pl
from peerlane.cli.children import exchange_over
from peerlane.cli.demo.rank import Rank, Span
from peerlane.cli.demo.residence import Residence, residence
from peerlane.cli.demo.transfer import STAGING, Place, pieces

OPEN, DIGEST, INVERT, MEASURE = "open", "digest", "invert", "measure"
MEET, BROADCAST, ALL_GATHER = "meet", "broadcast", "all-gather"


def serve(node: str, pipe: Connection[Any, Any]) -> None:
    """Answer the owner's questions, a name and arguments each, until it hangs up."""
    with ExitStack() as stack:
        worker = Worker(node, pipe, stack)
        answers: dict[str, Callable[..., object]] = {
            OPEN: worker.open,
            DIGEST: worker.digest,
            INVERT: worker.invert,
            MEASURE: worker.measure,
            MEET: worker.meet,
            BROADCAST: worker.broadcast,
            ALL_GATHER: worker.gather,
        }
        try:
            while True:
                name, *arguments = pipe.recv()
                try:
                    answer: object = answers[name](*arguments)
                except pl.Error as error:
                    answer = error
                pipe.send(answer)
        except (EOFError, OSError):  # nobody asks any more
            return


class Worker:
    """What it has; ``stack`` owns that."""

    def __init__(self, node: str, pipe: Connection[Any, Any], stack: ExitStack) -> None:
        self._node, self._pipe, self._stack = node, pipe, stack

    def open(self, handle: bytes) -> float:
        """Have the owner's memory; return the seconds from the handle to the mapping."""
        pl.enter_node(self._node)
        self._stack.callback(pl.leave_node)
        start = perf_counter()
        physical = self._stack.enter_context(pl.Physical.open(handle))
        self._weights = self._stack.enter_context(pl.AddressRange(physical.device, physical.size))
        self._weights.map(physical)
        return perf_counter() - start

    def digest(self, places: Sequence[Place], arrived: bool) -> list[str]:
        """Return a SHA-256 a tensor, of the bytes where they are: the owner's, or those that arrived here."""
        memory = self._rank.whole if arrived else self._weights
        views = (memory[start : start + size].view() for start, size in places)
        return [hashlib.sha256(view.data).hexdigest() for view in views]

    def invert(self, place: Place) -> None:
        """Write a tensor back with every bit turned over."""
        first, nbytes = place
        tensor = self._weights[first : first + nbytes]
        for start, size in pieces(tensor.size, STAGING):
            part = tensor[start : start + size]
            part.copy_from(np.invert(part.view()))

    def measure(self) -> Residence | None:
        """Return what of the weights is in this process's memory."""
        whole = self._weights[: self._weights.size]
        return residence(whole.view().ctypes.data, whole.size)

    def meet(self, rank: int, ranks: int, nbytes: int) -> None:
        """Be a rank of the owner's group."""
        self._rank = Rank(rank, ranks, exchange_over(self._pipe), nbytes, self._stack)

    def broadcast(self) -> Span:
        """Have the owner's weights in this process's own memory."""
        return self._rank.broadcast()

    def gather(self) -> Span:
        """Keep a part of them and have the others again."""
        return self._rank.gather()
