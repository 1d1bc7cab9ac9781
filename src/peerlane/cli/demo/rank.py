"""One rank's part in bringing the weights to all; the owner and the workers do the same."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from time import perf_counter

import peerlane as pl
from peerlane.cli.demo.transfer import BLOCK

#: What a rank takes on its device beside the weights: its window, and the workspace of its collectives.
WINDOW, WORKSPACE = 2 << 20, 8 << 20
#: And what its collectives say of themselves.
_SMALL = 2 * BLOCK

#: The owner.
ROOT = 0

START_SECONDS = 60.0
_LEAST_SECONDS, _LEAST_RATE = 30.0, 10e6
_PART = 256

#: When it began and when it was done, by the clock that all processes have.
Span = tuple[float, float]


def whole_bytes(nbytes: int, ranks: int) -> int:
    """Return what ``nbytes`` take in as many parts of one size as there are ranks."""
    return -(-nbytes // (ranks * _PART)) * ranks * _PART


def charges(nbytes: int, ranks: int, devices: int) -> list[int]:
    """Return what the ranks take of each device, which they have in turns, in whole blocks."""
    each = WINDOW + WORKSPACE + _SMALL + -(-whole_bytes(nbytes, ranks) // BLOCK) * BLOCK if ranks else 0
    return [each * len(range(ordinal, ranks, devices)) for ordinal in range(devices)]


class Rank:
    """A rank of the group, with room for all the weights on its device.

    Parameters
    ----------
    rank, ranks : int
    exchange : callable
        How the ranks find one another.
    nbytes : int
        Of the weights.
    device : Device, optional
        By default the devices take turns.
    stack : ExitStack
        Owns the group, its stream and the memory.

    Attributes
    ----------
    whole : Buffer
        Where the weights arrive; a part a rank.
    seconds : float
        What a collective may take.

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
        """Have the owner's weights, which it gives; the others' memory is zeroed before."""
        if weights is None:
            self.whole.fill(0)
            weights = self.whole[: self._nbytes]
        self._together()
        began = perf_counter()
        self._group.broadcast(weights, ROOT, stream=self._stream)
        return self._done(began)

    def gather(self) -> Span:
        """Keep this rank's part, zero the others, and have those of their ranks."""
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
