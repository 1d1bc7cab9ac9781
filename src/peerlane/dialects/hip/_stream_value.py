"""``hip``: words of memory that streams write and wait for (facts/hip 3.7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peerlane import Kind, Stream
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.gpu.machine import HostMemory
from peerlane.dialects.gpu.streams import AnyStream
from peerlane.dialects.hip._convention import invalid
from peerlane.dialects.hip._enums import enumeration
from peerlane.dialects.hip._state import calls, machine
from peerlane.dialects.hip._stream import stream_of
from peerlane.memory import raw

_COMPARES = ("geq", "eq", "and", "nor")  # by hipStreamWaitValueGte, ...
_HALF, _WORD = 4, 8
_MOST_OPERATIONS = 256
# Of an element of the array: its size, and where the C header has address, value and flags of a wait or a write.
_ELEMENT, _ADDRESS, _VALUE, _FLAGS = 48, 8, 16, 24
_ATTACH_SINGLE = 4
_ATTACHMENTS = (1, 2, _ATTACH_SINGLE)

_Operation = Callable[[AnyStream], None]
_Type = enumeration("hipStreamBatchMemOpType")
_WAITS = {_Type["hipStreamMemOpWaitValue32"]: _HALF, _Type["hipStreamMemOpWaitValue64"]: _WORD}
_WRITES = {_Type["hipStreamMemOpWriteValue32"]: _HALF, _Type["hipStreamMemOpWriteValue64"]: _WORD}


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
    _wait(stream, ptr, value, flags, mask, _HALF)


@calls.call("hipStreamWaitValue64")
def hipStreamWaitValue64(stream: int, ptr: int, value: int, flags: int, mask: int) -> None:
    """Let later operations wait for 64 bits of memory; as hipStreamWaitValue32.

    Refuses: as `hipStreamWaitValue32`
    Basis: S; C as for `hipStreamWaitValue32`
    """
    _wait(stream, ptr, value, flags, mask, _WORD)


@calls.call("hipStreamWriteValue32")
def hipStreamWriteValue32(stream: int, ptr: int, value: int, flags: int) -> None:
    """Store 32 bits when all earlier operations are over; a reader that sees them sees the earlier results too.

    Refuses: hipErrorInvalidValue NULL, memory that HIP does not know, alignment, flags; hipErrorContextIsDestroyed
        not a stream
    Basis: S; C for alignment and flags
    """
    _write(stream, ptr, value, flags, _HALF)


@calls.call("hipStreamWriteValue64")
def hipStreamWriteValue64(stream: int, ptr: int, value: int, flags: int) -> None:
    """Store 64 bits; as hipStreamWriteValue32.

    Refuses: as `hipStreamWriteValue32`
    Basis: S; C as for `hipStreamWriteValue32`
    """
    _write(stream, ptr, value, flags, _WORD)


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
    if paramArray is None or not 0 < count <= _MOST_OPERATIONS or flags:
        raise invalid(
            "paramArray is NULL" if paramArray is None else f"count is {count}, flags are {flags:#x}",
            f"pass an array, how many elements of it to use, 1 to {_MOST_OPERATIONS}, and flags 0",
        )
    found = stream_of(stream)
    operations = [_operation(paramArray, at) for at in range(count)]
    for each in operations:
        each(found)


@calls.call("hipStreamAttachMemAsync")
def hipStreamAttachMemAsync(stream: int, dev_ptr: int, length: int, flags: int) -> None:
    """Do nothing: all memory that HIP allocated can be had from everywhere.

    ``length`` is 0 or that of the whole allocation.

    Refuses: hipErrorInvalidValue NULL, flags, hipMemAttachSingle to the null stream, memory that was not allocated,
        another length; hipErrorContextIsDestroyed not a stream
    Basis: D; C for any allocated memory
    """
    if not dev_ptr or flags not in _ATTACHMENTS or (flags == _ATTACH_SINGLE and not stream):
        raise invalid(
            f"dev_ptr is {machine.describe(dev_ptr)}, flags are {flags}, the stream is {stream:#x}",
            "pass managed memory and hipMemAttachGlobal (1), Host (2) or, with a stream, Single (4)",
        )
    stream_of(stream)
    place = raw.locate(dev_ptr)
    if place.kind is Kind.PAGEABLE or length not in (0, place.size):
        raise invalid(
            f"{length:,} bytes at {machine.describe(dev_ptr)} are not an allocation",
            "pass what hipMallocManaged returned, and length 0",
        )


def _wait(stream: int, ptr: int, value: int, flags: int, mask: int, width: int) -> None:
    _refuse_null(ptr)
    found = stream_of(stream)
    _waiting(ptr, value, flags, mask, width)(found)


def _write(stream: int, ptr: int, value: int, flags: int, width: int) -> None:
    _refuse_null(ptr)
    found = stream_of(stream)
    _writing(ptr, value, flags, width)(found)


def _waiting(ptr: int, value: int, flags: int, mask: int, width: int) -> _Operation:
    registered = _check_word(ptr, width)
    if flags >= len(_COMPARES):
        raise invalid(f"flags are {flags:#x}", "pass hipStreamWaitValueGte (0), Eq (1), And (2) or Nor (3)")
    compare = _COMPARES[flags]

    def wait(stream: AnyStream) -> None:
        neutral = _submits(stream, registered)
        pageable = registered is not None
        raw.wait_value(ptr, value, stream=neutral, compare=compare, mask=mask, width=width, pageable=pageable)

    return wait


def _writing(ptr: int, value: int, flags: int, width: int) -> _Operation:
    registered = _check_word(ptr, width)
    if flags:
        raise invalid(f"flags are {flags:#x}; they are reserved", "pass 0")
    return lambda stream: raw.write_value(ptr, value, stream=_submits(stream, registered), width=width)


def _submits(stream: AnyStream, registered: HostMemory | None) -> Stream:
    """Return the neutral stream, which hipHostUnregister waits for then if it is given registered memory."""
    if registered is not None:
        registered.users.add(stream.context.device.ordinal)
    return stream.neutral


def _operation(array: Any, at: int) -> _Operation:
    try:
        element = array._read(at, 0, _ELEMENT)
    except IndexError as error:
        raise invalid(str(error), "pass as many elements as count says") from None
    number, address, flags = (
        int.from_bytes(element[start : start + nbytes], "little")
        for start, nbytes in ((0, _HALF), (_ADDRESS, _WORD), (_FLAGS, _HALF))
    )
    kind = next((each for each in (*_WAITS, *_WRITES) if each == number), None)
    if kind is None:
        raise invalid(
            f"the operation of element {at} is {number}, which is neither a wait nor a write",
            f"choose among {', '.join(each.name for each in (*_WAITS, *_WRITES))}",
        )
    width = _WAITS.get(kind) or _WRITES[kind]
    value = int.from_bytes(element[_VALUE : _VALUE + width], "little")
    _refuse_null(address)
    if kind in _WAITS:
        return _waiting(address, value, flags, (1 << 8 * width) - 1, width)
    return _writing(address, value, flags, width)


def _refuse_null(ptr: int) -> None:
    if not ptr:
        raise _no_word("the address is NULL")


def _check_word(ptr: int, width: int) -> HostMemory | None:
    """Refuse a word that HIP does not know; return the registration that it lies in, None for allocated memory."""
    if ptr % width:
        raise _no_word(f"{ptr:#x} is not a multiple of {width}")
    if raw.locate(ptr).kind is not Kind.PAGEABLE:
        return None
    found = machine.registrations.around(ptr, width)
    if found is None:
        raise _no_word(f"the address is {machine.describe(ptr)}, which HIP does not know")
    return found


def _no_word(cause: str) -> Refusal:
    return invalid(cause, "pass an aligned word of hipMalloc, hipHostMalloc or hipHostRegister")
