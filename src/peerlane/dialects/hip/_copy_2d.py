"""``hip``: copies of rows (facts/hip 1.4)."""

from __future__ import annotations

from typing import Any

from peerlane.dialects.gpu.copies import Side
from peerlane.dialects.hip._boxes import Prepared, declare, declare_queued, described, must_be_known
from peerlane.dialects.hip._convention import refusal
from peerlane.dialects.hip._copy import with_device
from peerlane.dialects.hip._state import calls, gpu


def _rows(dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: Any) -> Prepared:
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
    return gpu.copies.box(to, source, (width, height, 1), with_device(kind))


declare(
    "hipMemcpy2D",
    _rows,
    """Copy ``height`` rows of ``width`` bytes, which begin a pitch apart; waits as hipMemcpy does.

    Refuses: hipErrorInvalidPitchValue a pitch below the width; hipErrorInvalidValue as `hipMemcpy`, an end that
        ``kind`` puts on a device in ordinary host memory
    Basis: S, D
    """,
    __name__,
)
declare_queued("hipMemcpy2D", _rows)
declare(
    "hipMemcpyParam2D",
    described,
    """Copy the rows that a hip_Memcpy2D describes; waits as hipMemcpy does.

    Refuses: hipErrorInvalidValue NULL, as `hipMemcpy`, a pitch below the width, device memory that HIP does not know;
        hipErrorNotSupported arrays
    Basis: D
    """,
    __name__,
)
calls.same("hipDrvMemcpy2DUnaligned", "hipMemcpyParam2D")
declare_queued("hipMemcpyParam2D", described)
