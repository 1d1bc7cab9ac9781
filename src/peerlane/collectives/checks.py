"""Checks of a collective's arguments that one rank can make alone, before it sends a byte."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from peerlane.collectives.call import Operation
from peerlane.errors import InvalidValue, Refused
from peerlane.memory.buffer import as_buffer
from peerlane.support import reductions

if TYPE_CHECKING:
    import numpy.typing as npt

    from peerlane.memory.buffer import Buffer


def check_equal(call: str, one: str, a: Buffer, other: str, b: Buffer) -> None:
    """Refuse buffers of different sizes."""
    if a.size != b.size:
        raise InvalidValue(
            f"{call}: {one} has {a.size:,} bytes, {other} has {b.size:,}",
            call=call,
            detail=Refused(reason="sizes_differ", names=(one, other), sizes=(a.size, b.size)),
        )


def check_apart(call: str, dst: Buffer, src: Buffer, where: Buffer | None) -> None:
    """Refuse buffers that overlap, unless ``src`` is exactly ``where``."""
    if src.address < dst.address + dst.size and dst.address < src.address + src.size and src.size:
        if where is not None and src.address == where.address and src.size == where.size:
            return
        raise InvalidValue(
            f"{call}: dst is {dst.size:,} bytes at {dst.address:#x} and src {src.size:,} at {src.address:#x}; they "
            "overlap in another way than a collective in place allows",
            call=call,
            detail=Refused(
                reason="overlap", dst=dst.address, dst_size=dst.size, src=src.address, src_size=src.size
            ),
        )


def check_parts_apart(call: str, name: str, at: Sequence[int], sizes: Sequence[int], of: str = "dst") -> None:
    """Refuse parts that overlap where one is written: which bytes are there would be chance."""
    taken = sorted(
        (first, first + nbytes, rank)
        for rank, (first, nbytes) in enumerate(zip(at, sizes, strict=True))
        if nbytes
    )
    for (first, end, rank), (other, other_end, other_rank) in itertools.pairwise(taken):
        if other < end:
            raise InvalidValue(
                f"{call}: {name} puts the bytes of rank {rank} at {first:,} to {end:,} of {of}, and those of rank "
                f"{other_rank} at {other:,} to {other_end:,}; such parts must not overlap",
                call=call,
                detail=Refused(
                    reason="parts_overlap",
                    name=name,
                    ranks=(rank, other_rank),
                    starts=(first, other),
                    ends=(end, other_end),
                ),
            )


def as_target(dst: Any) -> Buffer:
    """Return the buffer of a destination; AccessDenied if it is read-only."""
    buffer = as_buffer(dst)
    buffer.writable_address  # noqa: B018 - raises if it is read-only
    return buffer


def operation_on(call: str, dtype: npt.DTypeLike, op: str, *ends: Buffer) -> Operation:
    """Return the operation on elements, after a check that the buffers have whole, aligned elements."""
    number = reductions.number_of(call, dtype, op)
    width = reductions.width_of(number)
    for end in ends:
        if end.size % width or end.address % width:
            raise InvalidValue(
                f"{call}: {end.size:,} bytes at {end.address:#x} are not a whole number of elements of {width} "
                f"bytes at a multiple of {width}",
                call=call,
                detail=Refused(reason="no_whole_elements", address=end.address, size=end.size, width=width),
            )
    return Operation(*reductions.names_of(number), number)
