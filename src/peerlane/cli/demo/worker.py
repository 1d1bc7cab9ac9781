"""A worker process: it has the owner's weights, without a copy, and does with them what the owner asks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any

import numpy as np

import peerlane as pl
from peerlane import _core
from peerlane.cli.demo.residence import Residence, residence
from peerlane.cli.demo.transfer import STAGING, Place, pieces

OPEN, DIGEST, INVERT, MEASURE = "open", "digest", "invert", "measure"


def serve(node: str, pipe: Connection[Any, Any]) -> None:
    """Answer the owner's questions, a name and arguments each, until it hangs up."""
    with ExitStack() as stack:
        worker = Worker(node, stack)
        answers: dict[str, Callable[..., object]] = {
            OPEN: worker.open,
            DIGEST: worker.digest,
            INVERT: worker.invert,
            MEASURE: worker.measure,
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

    def __init__(self, node: str, stack: ExitStack) -> None:
        self._node, self._stack = node, stack

    def open(self, handle: bytes) -> float:
        """Have the owner's memory; return the seconds from the handle to the mapping."""
        pl.enter_node(self._node)
        self._stack.callback(pl.leave_node)
        start = perf_counter()
        physical = self._stack.enter_context(pl.Physical.open(handle))
        self._weights = self._stack.enter_context(pl.AddressRange(physical.device, physical.size))
        self._weights.map(physical)
        return perf_counter() - start

    def digest(self, places: Sequence[Place]) -> list[str]:
        """Return a SHA-256 a tensor, of the bytes where they are."""
        return [hashlib.sha256(self._at(place).view().data).hexdigest() for place in places]

    def invert(self, place: Place) -> None:
        """Write a tensor back with every bit turned over."""
        tensor = self._at(place)
        for start, size in pieces(tensor.size, STAGING):
            part = tensor[start : start + size]
            part.copy_from(np.invert(part.view()))

    def measure(self) -> Residence | None:
        """Return what of the weights is in this process's memory."""
        return residence(_core.host_pointer(self._weights.address, self._weights.size), self._weights.size)

    def _at(self, place: Place) -> pl.Buffer:
        start, size = place
        return self._weights[start : start + size]
