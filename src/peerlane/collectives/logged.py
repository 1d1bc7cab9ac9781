"""What the event log says of collectives: one event each, with the bytes that the program gave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from peerlane.diagnostics.ranks.collective_calls import Kind

if TYPE_CHECKING:
    from peerlane.collectives.call import Call
    from peerlane.collectives.schedules.operations import Parts
    from peerlane.memory.buffer import Buffer


def touched(call: Call) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the buffers that this rank's part of a call writes and reads."""
    written, read = ([] if each is None else [each] for each in (call.dst, call.src))
    if call.parts[1]:
        if call.kind is Kind.REDUCE_SCATTER:
            read = _parts(read, call.parts)
        else:
            written = _parts(written, call.parts)
    if call.source_parts[1]:
        read = _parts(read, call.source_parts)
    return written, read


def _parts(whole: Sequence[Buffer], parts: Parts) -> list[Buffer]:
    return [each[first : first + nbytes] for each in whole for first, nbytes in zip(*parts, strict=True)]
