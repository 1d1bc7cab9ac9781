"""``hip``: copies of rows (facts/hip 1.4)."""

from __future__ import annotations

from typing import Any

from peerlane.dialects.hip._boxes import Side, must_be_known, prepared, side_of_memory
from peerlane.dialects.hip._convention import refusal
from peerlane.dialects.hip._copy import Ends, Move, move_now, move_on
from peerlane.dialects.hip._places import refuse_null
from peerlane.dialects.hip._state import calls
from peerlane.dialects.hip._stream import stream_of

_Prepared = tuple[Move, Ends]


@calls.call("hipMemcpy2D")
def hipMemcpy2D(dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: Any) -> None:
    """Copy ``height`` rows of ``width`` bytes, which begin a pitch apart; waits as hipMemcpy does.

    Refuses: hipErrorInvalidPitchValue a pitch below the width; hipErrorInvalidValue as `hipMemcpy`, an end that
        ``kind`` puts on a device in ordinary host memory
    Basis: S, D
    """
    found = _rows(dst, dpitch, src, spitch, width, height, kind)
    if found is not None:
        move_now(*found)


@calls.call("hipMemcpy2DAsync")
def hipMemcpy2DAsync(
    dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: Any, stream: int
) -> None:
    """Queue what hipMemcpy2D does; with ordinary host memory it is complete on return.

    Refuses: as `hipMemcpy2D`; the stream
    Basis: S, D
    """
    found, on = _rows(dst, dpitch, src, spitch, width, height, kind), stream_of(stream)
    if found is not None:
        move_on(*found, on)


def _rows(
    dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: Any
) -> _Prepared | None:
    if not (width and height):
        return None
    for name, pitch in (("dpitch", dpitch), ("spitch", spitch)):
        if pitch < width:
            raise refusal(
                "hipErrorInvalidPitchValue",
                f"{name} is {pitch:,} bytes, less than the width of {width:,}",
                "pass the pitch that hipMallocPitch gave, or the width",
            )
    to_known, from_known = must_be_known(kind)
    to, source = Side(dst, dpitch, must_be_known=to_known), Side(src, spitch, must_be_known=from_known)
    return prepared(to, source, width, height, 1, kind)


@calls.call("hipMemcpyParam2D")
def hipMemcpyParam2D(pCopy: Any) -> None:
    """Copy the rows that a hip_Memcpy2D describes; waits as hipMemcpy does.

    Refuses: hipErrorInvalidValue NULL, as `hipMemcpy`, a pitch below the width, device memory that HIP does not know;
        hipErrorNotSupported arrays
    Basis: D
    """
    _described_now(pCopy)


@calls.call("hipDrvMemcpy2DUnaligned")
def hipDrvMemcpy2DUnaligned(pCopy: Any) -> None:
    """Do what hipMemcpyParam2D does.

    Refuses: as `hipMemcpyParam2D`
    Basis: D
    """
    _described_now(pCopy)


@calls.call("hipMemcpyParam2DAsync")
def hipMemcpyParam2DAsync(pCopy: Any, stream: int) -> None:
    """Queue what hipMemcpyParam2D does; with ordinary host memory it is complete on return.

    Refuses: as `hipMemcpyParam2D`; the stream
    Basis: D
    """
    found, on = _described(pCopy), stream_of(stream)
    if found is not None:
        move_on(*found, on)


def _described_now(copy: Any) -> None:
    found = _described(copy)
    if found is not None:
        move_now(*found)


def _described(copy: Any) -> _Prepared | None:
    refuse_null(pCopy=copy is not None)
    width, height = copy.WidthInBytes, copy.Height
    if not (width and height):
        return None
    return prepared(side_of_memory(copy, "dst"), side_of_memory(copy, "src"), width, height, 1)
