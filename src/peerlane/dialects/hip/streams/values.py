"""``hip``: words of memory that streams write and wait for (facts/hip 3.7)."""

from __future__ import annotations

from typing import Any

from peerlane.dialects.gpu.values import HALF_WORD, MOST_OPERATIONS, WORD, WordOperation
from peerlane.dialects.hip.binding.convention import invalid
from peerlane.dialects.hip.binding.enums import enumeration
from peerlane.dialects.hip.state import calls, gpu
from peerlane.dialects.hip.streams.stream import stream_of

values = gpu.values
# Of an element of the array: its size, and where the C header has address, value and flags of a wait or a write.
_ELEMENT, _ADDRESS, _VALUE, _FLAGS = 48, 8, 16, 24

_Type = enumeration("hipStreamBatchMemOpType")
_WAITS = {_Type["hipStreamMemOpWaitValue32"]: HALF_WORD, _Type["hipStreamMemOpWaitValue64"]: WORD}
_WRITES = {_Type["hipStreamMemOpWriteValue32"]: HALF_WORD, _Type["hipStreamMemOpWriteValue64"]: WORD}


@calls.call("hipStreamWaitValue32")
def hipStreamWaitValue32(stream: int, ptr: int, value: int, flags: int, mask: int) -> None:
    """Let later operations wait for 32 bits of memory; w is the word & ``mask`` (facts/hip 3.7).

    Flags: hipStreamWaitValueGte w >= value; Eq w == value; And w & value != 0; Nor a bit of the mask is neither in w
    nor in value.  A stream, another process or the host may write the word.  It may lie in memory of
    hipHostRegister.

    Refuses: hipErrorInvalidValue NULL, memory that HIP does not know, alignment, flags; hipErrorContextIsDestroyed
        not a stream
    Basis: S; C for alignment, and for bits outside the mask, which Nor does not count
    """
    values.wait(stream, ptr, value, flags, mask, HALF_WORD)


@calls.call("hipStreamWaitValue64")
def hipStreamWaitValue64(stream: int, ptr: int, value: int, flags: int, mask: int) -> None:
    """Let later operations wait for 64 bits of memory; as hipStreamWaitValue32.

    Refuses: as `hipStreamWaitValue32`
    Basis: S; C as for `hipStreamWaitValue32`
    """
    values.wait(stream, ptr, value, flags, mask, WORD)


@calls.call("hipStreamWriteValue32")
def hipStreamWriteValue32(stream: int, ptr: int, value: int, flags: int) -> None:
    """Store 32 bits when all earlier operations are over; a reader that sees them sees the earlier results too.

    Refuses: hipErrorInvalidValue NULL, memory that HIP does not know, alignment, flags; hipErrorContextIsDestroyed
        not a stream
    Basis: S; C for alignment and flags
    """
    values.write(stream, ptr, value, flags, HALF_WORD)


@calls.call("hipStreamWriteValue64")
def hipStreamWriteValue64(stream: int, ptr: int, value: int, flags: int) -> None:
    """Store 64 bits; as hipStreamWriteValue32.

    Refuses: as `hipStreamWriteValue32`
    Basis: S; C as for `hipStreamWriteValue32`
    """
    values.write(stream, ptr, value, flags, WORD)


@calls.call("hipStreamBatchMemOp")
def hipStreamBatchMemOp(stream: int, count: int, paramArray: Any, flags: int) -> None:
    """Queue up to 256 waits and writes, in their order; if one cannot be, none is.

    ``paramArray`` has ``count`` elements of 48 bytes, as the C header lays them out: operation at 0, address at 8,
    value at 16, flags at 24.  hip-python's classes leave the value out, and have flags and alias 8 bytes too early
    (measured): write the bytes, with ctypes for instance.

    Refuses: hipErrorInvalidValue NULL, no element, over 256, flags, an operation that is not a wait or write, a word
        as in `hipStreamWaitValue32`; hipErrorContextIsDestroyed not a stream
    Basis: D; C for checking words before any is queued
    """
    if paramArray is None or not 0 < count <= MOST_OPERATIONS or flags:
        raise invalid(
            "paramArray is NULL" if paramArray is None else f"count is {count}, flags are {flags:#x}",
            f"pass an array, how many elements of it to use, 1 to {MOST_OPERATIONS}, and flags 0",
        )
    on = stream_of(stream)
    values.submit(on, *(operation_of(paramArray, at) for at in range(count)))


def operation_of(array: Any, at: int) -> WordOperation:
    """Return a wait or a write of an array of hipStreamBatchMemOpParams."""
    try:
        element = array._read(at, 0, _ELEMENT)
    except IndexError as error:
        raise invalid(str(error), "pass as many elements as count says") from None
    number, address, flags = (
        int.from_bytes(element[start : start + nbytes], "little")
        for start, nbytes in ((0, HALF_WORD), (_ADDRESS, WORD), (_FLAGS, HALF_WORD))
    )
    kind = next((each for each in (*_WAITS, *_WRITES) if each == number), None)
    if kind is None:
        raise invalid(
            f"the operation of element {at} is {number}, which is neither a wait nor a write",
            f"choose among {', '.join(each.name for each in (*_WAITS, *_WRITES))}",
        )
    width = _WAITS.get(kind) or _WRITES[kind]
    value = int.from_bytes(element[_VALUE : _VALUE + width], "little")
    return WordOperation(kind in _WAITS, address, value, flags, (1 << 8 * width) - 1, width)
