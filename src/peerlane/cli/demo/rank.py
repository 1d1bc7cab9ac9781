"""One rank's part in delivering the weights by collectives; the owner and the workers run the same code."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from time import perf_counter

import peerlane as pl
from peerlane.cli.demo.transfer import BLOCK

#: Besides the weights, a rank allocates its window and the workspace of its collectives on its device.
WINDOW, WORKSPACE = 2 << 20, 8 << 20
#: The bytes that its collectives allocate besides the workspace.
_SMALL = 2 * BLOCK

#: The rank of the owner.
ROOT = 0

START_SECONDS = 60.0
_LEAST_SECONDS, _LEAST_RATE = 30.0, 10e6
_PART = 256

#: Begin and end of a collective in one rank, by the clock that all processes share.
Span = tuple[float, float]


def whole_bytes(nbytes: int, ranks: int) -> int:
    """Return the bytes that ``nbytes`` take when they are padded to one equal part for each rank."""
    return -(-nbytes // (ranks * _PART)) * ranks * _PART


def charges(nbytes: int, ranks: int, devices: int) -> list[int]:
    """Return the bytes that ranks take on each device, in whole blocks; rank after rank takes the next device."""
    each = WINDOW + WORKSPACE + _SMALL + -(-whole_bytes(nbytes, ranks) // BLOCK) * BLOCK if ranks else 0
    return [each * len(range(ordinal, ranks, devices)) for ordinal in range(devices)]


class Rank:
    """A rank of the group, with room for all the weights on its device.

    Parameters
    ----------
    rank, ranks : int
    exchange : callable
        The rendezvous of the group.
    nbytes : int
        The size of the weights.
    device : Device, optional
        By default rank after rank takes the next device.
    stack : ExitStack
        Owns the group, its stream and the memory.

    Attributes
    ----------
    whole : Buffer
        The memory in which the weights arrive; it has one part for each rank.
    seconds : float
        The time limit of a collective.

    Raises
    ------
    Error
        The ranks did not meet, or the device is full.
    """

    def __init__(
        self,
        rank: int,
        ranks: int,
        exchange: Callable[[bytes], list[bytes]],
        nbytes: int,
        stack: ExitStack,
        device: pl.Device | None = None,
    ) -> None:
        if device is None:
            present = pl.devices()
            device = present[rank % len(present)]
        group = pl.Group(
            rank,
            ranks,
            rendezvous=exchange,
            device=device,
            window=WINDOW,
            workspace=WORKSPACE,
            timeout=START_SECONDS,
        )
        self._group = stack.enter_context(group)
        self._nbytes = nbytes
        self.whole = stack.enter_context(device.allocate(whole_bytes(nbytes, ranks), peer=True))
        part = self.whole.size // ranks
        self._own = (rank * part, (rank + 1) * part)
        self._stream = stack.enter_context(device.create_stream())
        self.seconds = _LEAST_SECONDS + ranks * nbytes / _LEAST_RATE

    def broadcast(self, weights: pl.Buffer | None = None) -> Span:
        """Take part in the broadcast; the owner gives ``weights``, and all others zero their memory before."""
        if weights is None:
            self.whole.fill(0)
            weights = self.whole[: self._nbytes]
        self._together()
        began = perf_counter()
        self._group.broadcast(weights, ROOT, stream=self._stream)
        return self._done(began)

    def gather(self) -> Span:
        """Keep this rank's part, zero all others, and get them again by an all-gather."""
        first, last = self._own
        for start, end in ((0, first), (last, self.whole.size)):
            if start < end:
                self.whole[start:end].fill(0)
        self._together()
        began = perf_counter()
        self._group.all_gather(self.whole, stream=self._stream)
        return self._done(began)

    def _together(self) -> None:
        self._group.barrier(stream=self._stream)
        self._stream.sync(timeout=self.seconds)

    def _done(self, began: float) -> Span:
        self._stream.sync(timeout=self.seconds)
        return began, perf_counter()
