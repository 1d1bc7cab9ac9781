"""A worker process: it opens the owner's weights without a copy, later gets its own copy, and answers the owner."""

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
    """Answer the owner's questions, each a name and arguments, until the owner closes the pipe."""
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
        except (EOFError, OSError):  # the owner closed the pipe
            return


class Worker:
    """The state of the worker; ``stack`` owns it."""

    def __init__(self, node: str, pipe: Connection[Any, Any], stack: ExitStack) -> None:
        self._node, self._pipe, self._stack = node, pipe, stack

    def open(self, handle: bytes) -> float:
        """Open and map the owner's memory; return the seconds from the handle to the mapping."""
        pl.enter_node(self._node)
        self._stack.callback(pl.leave_node)
        start = perf_counter()
        physical = self._stack.enter_context(pl.Physical.open(handle))
        self._weights = self._stack.enter_context(pl.AddressRange(physical.device, physical.size))
        self._weights.map(physical)
        return perf_counter() - start

    def digest(self, places: Sequence[Place], arrived: bool) -> list[str]:
        """Return the SHA-256 of each tensor, in the shared memory or in this worker's own copy."""
        memory = self._rank.whole if arrived else self._weights
        views = (memory[start : start + size].view() for start, size in places)
        return [hashlib.sha256(view.data).hexdigest() for view in views]

    def invert(self, place: Place) -> None:
        """Write a tensor back with every bit inverted."""
        first, nbytes = place
        tensor = self._weights[first : first + nbytes]
        for start, size in pieces(tensor.size, STAGING):
            part = tensor[start : start + size]
            part.copy_from(np.invert(part.view()))

    def measure(self) -> Residence | None:
        """Return the residence of the shared weights in this process."""
        whole = self._weights[: self._weights.size]
        return residence(whole.view().ctypes.data, whole.size)

    def meet(self, rank: int, ranks: int, nbytes: int) -> None:
        """Become a rank of the owner's group."""
        self._rank = Rank(rank, ranks, exchange_over(self._pipe), nbytes, self._stack)

    def broadcast(self) -> Span:
        """Get the owner's weights into this process's own memory, by a broadcast."""
        return self._rank.broadcast()

    def gather(self) -> Span:
        """Keep one part of the weights, and get the others by an all-gather."""
        return self._rank.gather()
