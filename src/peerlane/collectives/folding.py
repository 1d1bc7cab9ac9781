"""The order of reductions: always by rank, so that floating point gives the same bits with every algorithm.

The result of n ranks is ``(((a0 OP a1) OP a2) OP ...) OP an``, as :func:`peerlane.reduce` computes each OP.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from peerlane.memory.copy import copy, reduce
from peerlane.support.records import dataclass

if TYPE_CHECKING:
    from peerlane.memory.buffer import Buffer
    from peerlane.streams.stream import Stream


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation on elements: their type, ``sum``, ``prod``, ``max`` or ``min``, and its number in native code."""

    dtype: str
    op: str
    number: int

    def __str__(self) -> str:
        return f"{self.op} of {self.dtype}"

    def combine(self, dst: Buffer, src: Buffer, stream: Stream | None) -> None:
        """Combine ``src`` into ``dst``."""
        reduce(dst, src, dtype=self.dtype, op=self.op, stream=stream)

    def fold(
        self, rank: int, size: int, own: Buffer, slot: Callable[[int], Buffer], stream: Stream | None
    ) -> Buffer:
        """Combine the bytes in this rank's slots with its own, and return the slot that has the result.

        Rank 0 begins with its own bytes; the others begin with those in the slot of rank 0.
        """
        result = slot(0)
        if rank == 0:
            copy(result, own, stream=stream)
        for each in range(1, size):
            self.combine(result, own if each == rank else slot(each), stream)
        return result
