"""``hip``: filling memory (facts/hip 1.4).

As in the vendor's runtime the host does not wait while memory of a device is filled: the call returns while earlier
work of the stream runs.  Memory of the host, and an address inside an allocation, is filled on return; so is memory
with HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS.  Calls whose names end with Async never wait.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from peerlane.dialects.gpu.streams import AnyStream
from peerlane.dialects.hip.binding.convention import invalid
from peerlane.dialects.hip.state import calls, gpu
from peerlane.dialects.hip.streams.stream import stream_of


def _fill(width: int, dst: int, value: int, count: int, stream: AnyStream | None) -> None:
    gpu.memory.fill(stream, dst, value, count, width)


def _fill_rows(
    element: int, dst: int, pitch: int, value: int, width: int, height: int, stream: AnyStream | None
) -> None:
    gpu.memory.fill_box(stream, dst, value, (width, height, 1), (element, pitch, height))


def _fill_pitched(memory: Any, value: int, extent: Any, stream: AnyStream | None) -> None:
    if memory is None or extent is None:
        raise invalid("pitchedDevPtr or extent is NULL", "pass what hipMalloc3D gave, and a hipExtent")
    box = extent.width, extent.height, extent.depth
    layout = 1, memory.pitch, memory.ysize or extent.height
    gpu.memory.fill_box(stream, int(memory.ptr), value, box, layout)


def _declare(name: str, fill: Callable[..., None], does: str, refuses: str, basis: str = "D") -> None:
    """Declare a call, and the one with Async behind its name."""

    def now(*args: Any) -> None:
        fill(*args, None)

    def queued(*args: Any) -> None:
        fill(*args[:-1], stream_of(args[-1]))

    calls.declare(name, now, f"{does}\n\nRefuses: {refuses}\nBasis: {basis}", __name__)
    calls.declare_async(name, queued)


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
