"""``hip``: filling memory (facts/hip 1.4).

As in the vendor's runtime the host does not wait while memory of a device is filled: the call returns while earlier
work of the stream runs.  Memory of the host, and an address inside an allocation, is filled on return; so is memory
with HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS.  Calls whose names end with Async never wait.
"""

from __future__ import annotations

from typing import Any

from peerlane.dialects.hip._convention import refusal
from peerlane.dialects.hip._places import Place, known, refuse_beyond, refuse_outside
from peerlane.dialects.hip._policy import policy
from peerlane.dialects.hip._state import calls, machine
from peerlane.dialects.hip._stream import AnyStream, stream_of, submits
from peerlane.memory import raw


def _fill(dst: int, value: int, count: int, width: int, stream: AnyStream | None) -> None:
    """Fill ``count`` elements of ``width`` bytes; on the null stream if there is none, and as the memory is then."""
    if not count:
        return
    place = known("dst", dst)
    refuse_beyond(count * width, dst=dst)
    on = stream or stream_of(0)
    raw.fill(dst, value % (1 << 8 * width), count=count, width=width, stream=submits(on))
    if stream is None:
        _settle(dst, place, on)


def _settle(dst: int, place: Place, stream: AnyStream) -> None:
    if not place.is_device or dst != place.base or place.allocation in machine.synchronous:
        stream.catch_up()


def _fill_box(
    dst: int,
    pitch: int,
    value: int,
    extent: tuple[int, int, int],
    stream: AnyStream | None,
    *,
    rows: int = 0,
    width: int = 1,
) -> None:
    """Fill rows of ``extent[0]`` bytes with elements of ``width`` bytes; slices lie ``rows`` apart."""
    nbytes, height, depth = extent
    if not (nbytes and height and depth):
        return
    place = known("dst", dst)
    if pitch < nbytes or nbytes % width:
        raise refusal(
            "hipErrorInvalidValue",
            f"rows of {nbytes:,} bytes, of elements of {width}, lie {pitch:,} bytes apart",
            "pass a pitch of at least the width, and a width of whole elements",
        )
    per_slice = pitch * (rows or height)
    if height * pitch > per_slice:
        raise refusal(
            "hipErrorInvalidValue",
            f"the slices lie {rows:,} rows apart and have {height:,}",
            "pass an extent of at most ysize rows",
        )
    refuse_outside((depth - 1) * per_slice + (height - 1) * pitch + nbytes, dst=dst)
    on = stream or stream_of(0)
    element = value % (1 << 8 * width)
    neutral = submits(on)
    if pitch == nbytes and per_slice == pitch * height:
        raw.fill(dst, element, count=nbytes * height * depth // width, width=width, stream=neutral)
    else:
        for at in range(depth):
            for row in range(height):
                start = dst + at * per_slice + row * pitch
                raw.fill(start, element, count=nbytes // width, width=width, stream=neutral)
    if stream is None:
        _settle(dst, place, on)


def _wide(width: int, element: int) -> int:
    return width if policy.fill_width == "code" else width * element


@calls.call("hipMemset")
def hipMemset(dst: int, value: int, sizeBytes: int) -> None:
    """Fill bytes with the lowest byte of ``value``, in the order of the null stream.

    Memory of a device from its start on is filled later; other memory on return.

    Refuses: hipErrorInvalidValue NULL, memory that HIP does not know, more than it has from there on
    Basis: S, D
    """
    _fill(dst, value, sizeBytes, 1, None)


@calls.call("hipMemsetAsync")
def hipMemsetAsync(dst: int, value: int, sizeBytes: int, stream: int) -> None:
    """Queue what hipMemset does.

    Refuses: as `hipMemset`; the stream
    Basis: S, D
    """
    _fill(dst, value, sizeBytes, 1, stream_of(stream))


@calls.call("hipMemsetD8")
def hipMemsetD8(dest: int, value: int, count: int) -> None:
    """Do what hipMemset does.

    Refuses: as `hipMemset`
    Basis: D
    """
    _fill(dest, value, count, 1, None)


@calls.call("hipMemsetD8Async")
def hipMemsetD8Async(dest: int, value: int, count: int, stream: int) -> None:
    """Queue what hipMemsetD8 does.

    Refuses: as `hipMemset`; the stream
    Basis: D
    """
    _fill(dest, value, count, 1, stream_of(stream))


@calls.call("hipMemsetD16")
def hipMemsetD16(dest: int, value: int, count: int) -> None:
    """Fill ``count`` elements of 2 bytes; waits as hipMemset does.

    Refuses: as `hipMemset`
    Basis: D
    """
    _fill(dest, value, count, 2, None)


@calls.call("hipMemsetD16Async")
def hipMemsetD16Async(dest: int, value: int, count: int, stream: int) -> None:
    """Queue what hipMemsetD16 does.

    Refuses: as `hipMemset`; the stream
    Basis: D
    """
    _fill(dest, value, count, 2, stream_of(stream))


@calls.call("hipMemsetD32")
def hipMemsetD32(dest: int, value: int, count: int) -> None:
    """Fill ``count`` elements of 4 bytes; waits as hipMemset does.

    Refuses: as `hipMemset`
    Basis: D
    """
    _fill(dest, value, count, 4, None)


@calls.call("hipMemsetD32Async")
def hipMemsetD32Async(dst: int, value: int, count: int, stream: int) -> None:
    """Queue what hipMemsetD32 does.

    Refuses: as `hipMemset`; the stream
    Basis: D
    """
    _fill(dst, value, count, 4, stream_of(stream))


@calls.call("hipMemset2D")
def hipMemset2D(dst: int, pitch: int, value: int, width: int, height: int) -> None:
    """Fill ``height`` rows of ``width`` bytes, which begin a pitch apart; waits as hipMemset does.

    Refuses: hipErrorInvalidValue as `hipMemset`, a pitch below the width
    Basis: D
    """
    _fill_box(dst, pitch, value, (width, height, 1), None)


@calls.call("hipMemset2DAsync")
def hipMemset2DAsync(dst: int, pitch: int, value: int, width: int, height: int, stream: int) -> None:
    """Queue what hipMemset2D does.

    Refuses: as `hipMemset2D`; the stream
    Basis: D
    """
    _fill_box(dst, pitch, value, (width, height, 1), stream_of(stream))


@calls.call("hipMemset3D")
def hipMemset3D(pitchedDevPtr: Any, value: int, extent: Any) -> None:
    """Fill ``depth`` slices of ``height`` rows of ``width`` bytes; slices begin ``ysize`` rows apart.

    Refuses: hipErrorInvalidValue NULL, as `hipMemset2D`, more rows than ``ysize``
    Basis: D
    """
    _fill_pitched(pitchedDevPtr, value, extent, None)


@calls.call("hipMemset3DAsync")
def hipMemset3DAsync(pitchedDevPtr: Any, value: int, extent: Any, stream: int) -> None:
    """Queue what hipMemset3D does.

    Refuses: as `hipMemset3D`; the stream
    Basis: D
    """
    _fill_pitched(pitchedDevPtr, value, extent, stream_of(stream))


def _fill_pitched(memory: Any, value: int, extent: Any, stream: AnyStream | None) -> None:
    if memory is None or extent is None:
        raise refusal(
            "hipErrorInvalidValue",
            "pitchedDevPtr or extent is NULL",
            "pass what hipMalloc3D gave, and a hipExtent",
        )
    box = extent.width, extent.height, extent.depth
    _fill_box(int(memory.ptr), memory.pitch, value, box, stream, rows=memory.ysize)


@calls.call("hipMemsetD2D8")
def hipMemsetD2D8(dst: int, dstPitch: int, value: int, width: int, height: int) -> None:
    """Do what hipMemset2D does.

    Refuses: as `hipMemset2D`
    Basis: D
    """
    _fill_box(dst, dstPitch, value, (width, height, 1), None)


@calls.call("hipMemsetD2D8Async")
def hipMemsetD2D8Async(dst: int, dstPitch: int, value: int, width: int, height: int, stream: int) -> None:
    """Queue what hipMemsetD2D8 does.

    Refuses: as `hipMemset2D`; the stream
    Basis: D
    """
    _fill_box(dst, dstPitch, value, (width, height, 1), stream_of(stream))


@calls.call("hipMemsetD2D16")
def hipMemsetD2D16(dst: int, dstPitch: int, value: int, width: int, height: int) -> None:
    """Fill rows with elements of 2 bytes; waits as hipMemset does.

    ``width`` is bytes, as the vendor's code and tests have it; with ``fill_width=document`` elements.

    Refuses: as `hipMemset2D`; hipErrorInvalidValue half an element
    Basis: D; C for half an element
    """
    _fill_box(dst, dstPitch, value, (_wide(width, 2), height, 1), None, width=2)


@calls.call("hipMemsetD2D16Async")
def hipMemsetD2D16Async(dst: int, dstPitch: int, value: int, width: int, height: int, stream: int) -> None:
    """Queue what hipMemsetD2D16 does.

    Refuses: as `hipMemsetD2D16`; the stream
    Basis: D
    """
    _fill_box(dst, dstPitch, value, (_wide(width, 2), height, 1), stream_of(stream), width=2)


@calls.call("hipMemsetD2D32")
def hipMemsetD2D32(dst: int, dstPitch: int, value: int, width: int, height: int) -> None:
    """Fill rows with elements of 4 bytes, otherwise as hipMemsetD2D16.

    Refuses: as `hipMemsetD2D16`
    Basis: D
    """
    _fill_box(dst, dstPitch, value, (_wide(width, 4), height, 1), None, width=4)


@calls.call("hipMemsetD2D32Async")
def hipMemsetD2D32Async(dst: int, dstPitch: int, value: int, width: int, height: int, stream: int) -> None:
    """Queue what hipMemsetD2D32 does.

    Refuses: as `hipMemsetD2D16`; the stream
    Basis: D
    """
    _fill_box(dst, dstPitch, value, (_wide(width, 4), height, 1), stream_of(stream), width=4)
