"""What a collective checks before anything is sent, by what one rank can see alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peerlane.collectives.folding import Operation
from peerlane.errors import InvalidValue
from peerlane.memory.buffer import as_buffer
from peerlane.support import reductions

if TYPE_CHECKING:
    import numpy.typing as npt

    from peerlane.memory.buffer import Buffer


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
