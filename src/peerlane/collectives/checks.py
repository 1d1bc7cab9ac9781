"""What a collective checks before anything is sent, by what one rank can see alone."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from peerlane.collectives.folding import Operation
from peerlane.errors import InvalidValue
from peerlane.memory.buffer import as_buffer
from peerlane.streams.stream import checked_stream
from peerlane.support import reductions

if TYPE_CHECKING:
    import numpy.typing as npt

    from peerlane.collectives.turns import Turns
    from peerlane.memory.buffer import Buffer


class Checks:
    """What all collectives of a group need, and what they check by it."""

    rank: int
    size: int
    _turns: Turns
    _check_open: Callable[[str], None]
    _checked_peer: Callable[[str, object], int]

    def _begin(self, call: str, stream: object) -> None:
        self._check_open(call)
        checked_stream(call, stream)

    def _part(self, call: str, name: str, whole: Buffer) -> Buffer:
        """Return this rank's part of a buffer."""
        each, left = divmod(whole.size, self.size)
        if left:
            raise InvalidValue(
                f"{call}: the {whole.size:,} bytes of {name} are no {self.size} equal parts; {left} are left over",
                call=call,
            )
        return whole[self.rank * each : (self.rank + 1) * each]

    def _equal_parts(self, whole: Buffer) -> tuple[list[int], list[int]]:
        """Return where equal parts begin, and their sizes."""
        each = whole.size // self.size
        return [rank * each for rank in range(self.size)], [each] * self.size

    def _parts(
        self, call: str, name: str, sizes: Sequence[int], starts: Sequence[int] | None
    ) -> tuple[list[int], list[int]]:
        """Return where parts begin, and their sizes; by default they lie side by side."""
        counts = self._counts_of(call, name, sizes)
        if starts is None:
            return [sum(counts[:rank]) for rank in range(self.size)], counts
        return self._counts_of(call, f"{name}_at", starts), counts

    def _checked_other(self, call: str, peer: object) -> int:
        number = self._checked_peer(call, peer)
        if number == self.rank:
            raise InvalidValue(f"{call}: rank {number} is this one; copy instead", call=call)
        return number

    def _counts_of(self, call: str, name: str, given: Sequence[int]) -> list[int]:
        found = [operator.index(each) for each in given]
        if len(found) != self.size or min(found) < 0:
            raise InvalidValue(
                f"{call}: {name} is {found}; valid are {self.size} numbers of bytes, 0 and more", call=call
            )
        return found


def check_equal(call: str, one: str, a: Buffer, other: str, b: Buffer) -> None:
    """Refuse ends of different sizes."""
    if a.size != b.size:
        raise InvalidValue(f"{call}: {one} has {a.size:,} bytes, {other} has {b.size:,}", call=call)


def check_apart(call: str, dst: Buffer, src: Buffer, where: Buffer | None) -> None:
    """Refuse ends that overlap, unless ``src`` is just ``where`` it may be."""
    if src.address < dst.address + dst.size and dst.address < src.address + src.size and src.size:
        if where is not None and src.address == where.address and src.size == where.size:
            return
        raise InvalidValue(
            f"{call}: dst is {dst.size:,} bytes at {dst.address:#x} and src {src.size:,} at {src.address:#x}; they "
            "overlap, and not where a collective in place has them",
            call=call,
        )


def as_target(dst: Any) -> Buffer:
    """Return a destination: AccessDenied if it may not be written."""
    buffer = as_buffer(dst)
    buffer.writable_address  # noqa: B018 - raises the text that says why it may not be written
    return buffer


def operation_on(call: str, dtype: npt.DTypeLike, op: str, *ends: Buffer) -> Operation:
    """Return what combines elements, having checked that these are of whole ones."""
    number = reductions.number_of(call, dtype, op)
    width = reductions.width_of(number)
    for end in ends:
        if end.size % width or end.address % width:
            raise InvalidValue(
                f"{call}: {end.size:,} bytes at {end.address:#x} are no whole number of elements of {width} bytes, "
                f"at a multiple of {width}",
                call=call,
            )
    return Operation(*reductions.names_of(number))
