"""One rank's call of a collective or a message, after its arguments were checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from peerlane.diagnostics.ranks.collective_calls import Kind, in_words
from peerlane.memory.copy import reduce
from peerlane.support.records import dataclass

if TYPE_CHECKING:
    from peerlane.collectives.schedules.operations import Parts
    from peerlane.memory.buffer import Buffer
    from peerlane.streams.stream import Stream

_NO_REDUCTION = -1
_NONE: tuple[Sequence[int], Sequence[int]] = ((), ())

#: Offsets and sizes of parts come last.
Native: TypeAlias = (
    "tuple[Kind, Buffer | None, Buffer | None, int, int, "
    "Sequence[int], Sequence[int], Sequence[int], Sequence[int]]"
)

#: ``"to"`` or ``"from"``, and the peer: messages of one lane run in order.
Lane: TypeAlias = tuple[str, int]


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


class Call(NamedTuple):
    """A call.

    Attributes
    ----------
    name : str
        As errors name it.
    kind : Kind
    dst, src : Buffer or None
        What this rank writes and reads.
    size : int
        Bytes of the whole, or of one rank's part.
    root : int
        Or the peer of a message.
    operation : Operation or None
    parts : Parts
        The ranks' parts if they may differ, of the destination or of the only side that has parts; else nothing.
    source_parts : Parts
        The same of the source of an all-to-all.
    algorithm : str
        What the program has asked for; empty: nothing.
    lane : Lane or None
        Of a message; None: it is a collective.
    """

    name: str
    kind: Kind
    dst: Buffer | None = None
    src: Buffer | None = None
    size: int = 0
    root: int = 0
    operation: Operation | None = None
    parts: Parts = _NONE
    source_parts: Parts = _NONE
    algorithm: str = ""
    lane: Lane | None = None

    @property
    def words(self) -> str:
        """Return what all ranks must agree on, in words."""
        number = self.operation.number if self.operation is not None else 0
        if not self.parts[1]:
            asked = f", {self.algorithm}" if self.algorithm else ""
            return in_words(self.kind, self.size, number, self.root) + asked
        verb = f"{self.kind.name.lower()}_v"
        if self.source_parts[1]:
            return verb  # each pair of ranks agrees on its bytes
        reduction = f", {self.operation}" if self.operation is not None else ""
        return f"{verb} of {list(self.parts[1])} bytes{reduction}"

    @property
    def native(self) -> Native:
        """Return the arguments of :meth:`Rounds.run` and :meth:`Rounds.queue`."""
        number = self.operation.number if self.operation is not None else _NO_REDUCTION
        return (self.kind, self.dst, self.src, self.root, number, *self.parts, *self.source_parts)

    @property
    def sends(self) -> bool:
        """Return whether it is a message from this rank."""
        return self.kind is Kind.SEND

    @property
    def buffer(self) -> Buffer:
        """Return the bytes of a message."""
        buffer = self.src if self.dst is None else self.dst
        assert buffer is not None
        return buffer

    @property
    def nbytes(self) -> int:
        """Return the bytes of this rank's longer side."""
        return longer(self.dst, self.src)


def longer(dst: Buffer | None, src: Buffer | None) -> int:
    """Return the bytes of the longer of two buffers."""
    return max(0 if dst is None else dst.size, 0 if src is None else src.size)
