"""Streams, events, host functions, and words that streams write and wait for."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from peerlane.dialects.cuda.state import call, enums, gpu, invalid, machine, refuse_flags
from peerlane.dialects.gpu.callbacks import HostCall
from peerlane.dialects.gpu.events import DISABLE_TIMING, INTERPROCESS, GpuEvent
from peerlane.dialects.gpu.streams import AnyStream
from peerlane.dialects.gpu.values import HALF_WORD, WORD, WordOperation

streams, events, values = gpu.streams, gpu.events, gpu.values
_STREAM_FLAGS, _EVENT_FLAGS = 1, 7
_COMPARISON = 3  # the bits of a wait's flags that say what is compared
_FLUSH = enums["CUstreamWaitValue_flags"]["CU_STREAM_WAIT_VALUE_FLUSH"]
_NO_BARRIER = enums["CUstreamWriteValue_flags"]["CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER"]


@call
def cuStreamCreate(Flags: int) -> int:
    refuse_flags(Flags, _STREAM_FLAGS)
    return streams.create(Flags)


@call
def cuStreamCreateWithPriority(flags: int, priority: int) -> int:
    refuse_flags(flags, _STREAM_FLAGS)
    return streams.create(flags, min(priority, 0))


@call
def cuStreamDestroy_v2(hStream: AnyStream) -> None:
    streams.destroy(hStream.handle, "cuStreamDestroy")


@call
def cuStreamGetPriority(hStream: AnyStream) -> int:
    return hStream.priority


@call
def cuStreamGetFlags(hStream: AnyStream) -> int:
    return hStream.flags


@call
def cuStreamGetId(hStream: AnyStream) -> int:
    return hStream.handle


@call
def cuStreamGetDevice(hStream: AnyStream) -> int:
    return machine.id_of(hStream.context.device.ordinal)


@call
def cuStreamGetCtx(hStream: AnyStream) -> int:
    return hStream.context.handle


@call
def cuStreamGetCtx_v2(hStream: AnyStream) -> tuple[int, int]:
    return hStream.context.handle, 0


@call
def cuStreamQuery(hStream: AnyStream) -> None:
    streams.query(hStream)


@call
def cuStreamSynchronize(hStream: AnyStream) -> None:
    streams.synchronize(hStream)


def _refuse_external(stream: AnyStream, flags: int) -> None:
    """Refuse flags of a record or a wait: 1, external, is for streams that are captured."""
    refuse_flags(flags, 1)
    if flags and stream.capture is None:
        raise invalid("flags are 1, external, and the stream is not captured", "pass 0 outside of a capture")


@call
def cuStreamWaitEvent(hStream: AnyStream, hEvent: GpuEvent, Flags: int) -> None:
    _refuse_external(hStream, Flags)
    events.wait(hStream, hEvent, is_external=bool(Flags))


@call
def cuEventCreate(Flags: int) -> int:
    refuse_flags(Flags, _EVENT_FLAGS)
    if Flags & INTERPROCESS and not Flags & DISABLE_TIMING:
        raise invalid("an event between processes has no times", "pass {disable_timing}, 2, too")
    return events.create(Flags)


@call
def cuEventDestroy_v2(hEvent: GpuEvent) -> None:
    machine.drop(hEvent, "cuEventDestroy")
    hEvent.end()


@call
def cuEventRecord(hEvent: GpuEvent, hStream: AnyStream) -> None:
    events.record(hEvent, hStream)


@call
def cuEventRecordWithFlags(hEvent: GpuEvent, hStream: AnyStream, flags: int) -> None:
    _refuse_external(hStream, flags)
    events.record(hEvent, hStream, is_external=bool(flags))


@call
def cuEventQuery(hEvent: GpuEvent) -> None:
    events.query(hEvent)


@call
def cuEventSynchronize(hEvent: GpuEvent) -> None:
    events.synchronize(hEvent)


@call
def cuEventElapsedTime(hStart: GpuEvent, hEnd: GpuEvent) -> float:
    return events.elapsed_ms(hStart, hEnd)


@call
def cuEventElapsedTime_v2(hStart: GpuEvent, hEnd: GpuEvent) -> float:
    return events.elapsed_ms(hStart, hEnd)


def _launch(stream: AnyStream, name: str, function: Callable[..., Any] | None, *words: int) -> None:
    if function is None:
        raise invalid(f"{name} is NULL", "pass a function")
    gpu.callbacks.submit(stream, HostCall(function, words))


@call
def cuLaunchHostFunc(hStream: AnyStream, fn: Callable[..., Any] | None, userData: int) -> None:
    _launch(hStream, "fn", fn, userData)


@call
def cuLaunchHostFunc_v2(
    hStream: AnyStream, fn: Callable[..., Any] | None, userData: int, syncMode: int
) -> None:
    _launch(hStream, "fn", fn, userData)


@call
def cuStreamAddCallback(hStream: int, callback: Callable[..., Any] | None, userData: int, flags: int) -> None:
    """Call a function with the handle, success and a word: failures are reported where the program waits.

    No capture can record it.
    """
    refuse_flags(flags)
    stream = streams.of(hStream)
    if stream.capture is not None:
        raise stream.capture.refused(stream)
    _launch(stream, "callback", callback, streams.meaning(hStream), 0, userData)


def _refuse_managed(address: int) -> None:
    region = gpu.regions.at(address) if address else None
    if region is not None and region.is_managed:
        raise invalid(
            f"the word is in managed memory: {machine.describe(address)}", "pass memory of cuMemAlloc"
        )


def wait_operation(address: int, value: int, flags: int, width: int) -> WordOperation:
    """Return the wait of a stream for a word of so many bytes."""
    refuse_flags(flags, _COMPARISON | _FLUSH)
    _refuse_managed(address)
    return WordOperation(True, address, value, flags & _COMPARISON, (1 << 8 * width) - 1, width)


def write_operation(address: int, value: int, flags: int, width: int) -> WordOperation:
    """Return the write of a word of so many bytes."""
    _refuse_managed(address)
    return WordOperation(False, address, value, flags & ~_NO_BARRIER, 0, width)


@call
def cuStreamWaitValue32_v2(stream: AnyStream, addr: int, value: int, flags: int) -> None:
    values.submit(stream, wait_operation(addr, value, flags, HALF_WORD))


@call
def cuStreamWaitValue64_v2(stream: AnyStream, addr: int, value: int, flags: int) -> None:
    values.submit(stream, wait_operation(addr, value, flags, WORD))


@call
def cuStreamWriteValue32_v2(stream: AnyStream, addr: int, value: int, flags: int) -> None:
    values.submit(stream, write_operation(addr, value, flags, HALF_WORD))


@call
def cuStreamWriteValue64_v2(stream: AnyStream, addr: int, value: int, flags: int) -> None:
    values.submit(stream, write_operation(addr, value, flags, WORD))


class _Attributes(dict[tuple[int, int], bytes]):
    """What the program set of its streams, by handle and attribute; nothing depends on it."""


_ATTRIBUTES = {
    enums["CUlaunchAttributeID"][f"CU_LAUNCH_ATTRIBUTE_{name}"]
    for name in ("ACCESS_POLICY_WINDOW", "SYNCHRONIZATION_POLICY", "MEM_SYNC_DOMAIN_MAP", "MEM_SYNC_DOMAIN")
}
_PRIORITY = enums["CUlaunchAttributeID"]["CU_LAUNCH_ATTRIBUTE_PRIORITY"]
_VALUE = 64  # bytes of CUlaunchAttributeValue


def _refuse_attribute(attribute: int, *others: int) -> None:
    if attribute not in (*_ATTRIBUTES, *others):
        raise invalid(
            f"attribute {attribute} is not one of streams", "pass one that cuStreamSetAttribute takes"
        )


@call
def cuStreamSetAttribute(hStream: AnyStream, attr: int, value: int) -> None:
    _refuse_attribute(attr)
    machine.table(_Attributes)[hStream.handle, attr] = ctypes.string_at(value, _VALUE)


@call
def cuStreamGetAttribute(hStream: AnyStream, attr: int, value_out: int) -> None:
    _refuse_attribute(attr, _PRIORITY)
    if attr == _PRIORITY:
        ctypes.c_int.from_address(value_out).value = hStream.priority
        return
    value = machine.table(_Attributes).get((hStream.handle, attr), bytes(_VALUE))
    ctypes.memmove(value_out, value, _VALUE)


@call
def cuStreamCopyAttributes(dst: AnyStream, src: AnyStream) -> None:
    table = machine.table(_Attributes)
    for attribute in _ATTRIBUTES:
        if (src.handle, attribute) in table:
            table[dst.handle, attribute] = table[src.handle, attribute]
