"""The operation of a reduction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerlane.memory.copy import reduce
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
