"""``hip``: filling memory (facts/hip 1.4).

As in the vendor's runtime the host does not wait while memory of a device is filled: the call returns while earlier
work of the stream runs.  Memory of the host, and an address inside an allocation, is filled on return; so is memory
with HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS.  Calls whose names end with Async never wait.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from peerlane.dialects.hip._convention import invalid
from peerlane.dialects.hip._places import Place, known, refuse_beyond, refuse_outside
from peerlane.dialects.hip._state import calls, machine
from peerlane.dialects.hip._stream import AnyStream, stream_of
from peerlane.memory import raw


def _fill(width: int, dst: int, value: int, count: int, stream: AnyStream | None) -> None:
    """Fill ``count`` elements of ``width`` bytes; on the null stream if there is none, and as the memory is then."""
    if not count:
        return
    place = known("dst", dst)
    refuse_beyond(count * width, dst=dst)
    on = stream or stream_of(0)
    raw.fill(dst, value % (1 << 8 * width), count=count, width=width, stream=on.neutral)
    if stream is None:
        _settle(dst, place, on)


def _settle(dst: int, place: Place, stream: AnyStream) -> None:
    if not place.is_device or dst != place.base or place.allocation in machine.synchronous:
        stream.catch_up()


def _fill_rows(
    element: int, dst: int, pitch: int, value: int, width: int, height: int, stream: AnyStream | None
) -> None:
    _fill_box(element, dst, pitch, value, (width, height, 1), height, stream)


def _fill_pitched(memory: Any, value: int, extent: Any, stream: AnyStream | None) -> None:
    if memory is None or extent is None:
        raise invalid("pitchedDevPtr or extent is NULL", "pass what hipMalloc3D gave, and a hipExtent")
    box = extent.width, extent.height, extent.depth
    _fill_box(1, int(memory.ptr), memory.pitch, value, box, memory.ysize or extent.height, stream)


def _fill_box(
    element: int,
    dst: int,
    pitch: int,
    value: int,
    extent: tuple[int, int, int],
    rows: int,
    stream: AnyStream | None,
) -> None:
    """Fill rows of ``extent[0]`` bytes with elements of ``element`` bytes; slices lie ``rows`` apart."""
    nbytes, height, depth = extent
    if not (nbytes and height and depth):
        return
    place = known("dst", dst)
    if pitch < nbytes or nbytes % element:
        raise invalid(
            f"rows of {nbytes:,} bytes, of elements of {element}, lie {pitch:,} bytes apart",
            "pass a pitch of at least the width, and a width of whole elements",
        )
    per_slice = pitch * rows
    if height > rows:
        raise invalid(
            f"the slices lie {rows:,} rows apart and have {height:,}", "pass an extent of at most ysize rows"
        )
    refuse_outside((depth - 1) * per_slice + (height - 1) * pitch + nbytes, dst=dst)
    on = stream or stream_of(0)
    neutral, number = on.neutral, value % (1 << 8 * element)
    if pitch == nbytes and rows == height:
        raw.fill(dst, number, count=nbytes * height * depth // element, width=element, stream=neutral)
    else:
        for at in range(depth):
            for row in range(height):
                start = dst + at * per_slice + row * pitch
                raw.fill(start, number, count=nbytes // element, width=element, stream=neutral)
    if stream is None:
        _settle(dst, place, on)


def _declare(name: str, fill: Callable[..., None], does: str, refuses: str, basis: str = "D") -> None:
    """Declare a call, and the one with Async behind its name."""

    def now(*args: Any) -> None:
        fill(*args, None)

    def queued(*args: Any) -> None:
        fill(*args[:-1], stream_of(args[-1]))

    calls.made(name, now, f"{does}\n\nRefuses: {refuses}\nBasis: {basis}", __name__)
    calls.queued(name, queued)


_declare(
    "hipMemset",
    partial(_fill, 1),
    """Fill bytes with the lowest byte of ``value``, in the order of the null stream.

    Memory of a device from its start on is filled later; other memory on return.""",
    "hipErrorInvalidValue NULL, memory that HIP does not know, more than it has from there on",
    "S, D",
)
_declare("hipMemsetD8", partial(_fill, 1), "Do what hipMemset does.", "as `hipMemset`")
for _bytes in (2, 4):
    _declare(
        f"hipMemsetD{8 * _bytes}",
        partial(_fill, _bytes),
        f"Fill ``count`` elements of {_bytes} bytes; waits as hipMemset does.",
        "as `hipMemset`",
    )
_declare(
    "hipMemset2D",
    partial(_fill_rows, 1),
    "Fill ``height`` rows of ``width`` bytes, which begin a pitch apart; waits as hipMemset does.",
    "hipErrorInvalidValue as `hipMemset`, a pitch below the width",
)
_declare(
    "hipMemset3D",
    _fill_pitched,
    "Fill ``depth`` slices of ``height`` rows of ``width`` bytes; slices begin ``ysize`` rows apart.",
    "hipErrorInvalidValue NULL, as `hipMemset2D`, more rows than ``ysize``",
)
_declare("hipMemsetD2D8", partial(_fill_rows, 1), "Do what hipMemset2D does.", "as `hipMemset2D`")
_declare(
    "hipMemsetD2D16",
    partial(_fill_rows, 2),
    """Fill rows with elements of 2 bytes; waits as hipMemset does.

    ``width`` is bytes, as the vendor's code and tests have it; its documents say elements.""",
    "as `hipMemset2D`; hipErrorInvalidValue half an element",
    "D; C for half an element",
)
_declare(
    "hipMemsetD2D32",
    partial(_fill_rows, 4),
    "Fill rows with elements of 4 bytes, otherwise as hipMemsetD2D16.",
    "as `hipMemsetD2D16`",
)
