"""``hip``: copies between any two places (spec hip 3.3, 3.8; seed document 1).

``kind`` is a hint: the addresses decide.
"""

from __future__ import annotations

from typing import Any

from peerlane import Device, Kind, raw
from peerlane.dialects._call import Refusal
from peerlane.dialects.hip._arguments import HostAddress
from peerlane.dialects.hip._convention import SUCCESS, refusal
from peerlane.dialects.hip._enums import enumeration
from peerlane.dialects.hip._peer import device_of, refuse_strict
from peerlane.dialects.hip._policy import policy
from peerlane.dialects.hip._state import calls, machine
from peerlane.dialects.hip._stream import AnyStream, null_stream, stream_of, submits
from peerlane.dialects.hip._types import DeviceArray
from peerlane.errors import Error
from peerlane.raw import _copy

_DONE = (SUCCESS,)
_Kind = enumeration("hipMemcpyKind")


def copy_now(dst: int, src: int, nbytes: int, stream: AnyStream | None = None) -> None:
    """Copy in the order of a stream, by default what no stream means here; complete on return."""
    if not nbytes:
        return
    _check(dst, src, nbytes)
    (stream or stream_of(0)).catch_up()
    raw.copy(dst, src, nbytes)


def copy_on(dst: int, src: int, nbytes: int, stream: AnyStream) -> None:
    """Queue a copy; one with an end in pageable host memory waits for the stream, and is complete on return."""
    if not nbytes:
        return
    _check(dst, src, nbytes)
    if is_pageable(dst) or is_pageable(src):
        stream.catch_up()
        raw.copy(dst, src, nbytes)
    else:
        raw.copy(dst, src, nbytes, stream=submits(stream))


def _check(dst: int, src: int, nbytes: int) -> None:
    refuse_null(dst=dst, src=src)
    refuse_beyond(nbytes, dst=dst, src=src)
    _refuse_strict(dst, src)


def refuse_beyond(nbytes: int, **pointers: int) -> None:
    """Refuse more bytes than a host object has: hipErrorInvalidValue; hardware would overwrite its neighbour."""
    for name, pointer in pointers.items():
        if isinstance(pointer, HostAddress) and nbytes > pointer.nbytes:
            raise refusal(
                "hipErrorInvalidValue",
                f"{name} is a host object of {pointer.nbytes:,} bytes, and {nbytes:,} are asked for",
                "ask for fewer bytes, or pass a larger object",
            )


def is_pageable(address: int) -> bool:
    """Tell whether an address is ordinary host memory, which no stream can be trusted with."""
    return raw.locate(address).kind is Kind.PAGEABLE


def refuse_null(**pointers: int) -> None:
    """Refuse a NULL among the pointers: hipErrorInvalidValue."""
    for name, pointer in pointers.items():
        if not pointer:
            raise refusal("hipErrorInvalidValue", f"{name} is NULL", "pass memory")


def _refuse_strict(dst: int, src: int) -> None:
    if policy.peer_copies != "strict":
        return
    ends = raw.locate(dst), raw.locate(src)
    if all(end.kind is Kind.DEVICE for end in ends):
        devices = machine.devices()
        refuse_strict(devices[ends[0].ordinal], devices[ends[1].ordinal])


@calls.call("hipMemcpy")
def hipMemcpy(dst: int, src: int, sizeBytes: int, kind: Any) -> None:
    """Copy ``sizeBytes`` in the order of the null stream; complete on return (spec hip 1.4, 3.4).

    Refuses: hipErrorInvalidValue NULL, addresses that are not allocated or too small
    Basis: S
    """
    copy_now(dst, src, sizeBytes)


def _quick(checked: Any) -> Any:
    """Copy at once what is right in every way and has nothing to wait for; the rest goes the ordinary way."""

    def copy(*args: Any, **given: Any) -> Any:
        try:
            dst, src, nbytes, kind = args
            to = dst._address if type(dst) is DeviceArray else dst
            source = src._address if type(src) is DeviceArray else src
            context = machine.here.context
            null = context.default_stream
            if (
                type(to) is int
                and type(source) is int
                and type(nbytes) is int
                and type(kind) is _Kind
                and nbytes > 0
                and null.settled == null.submissions
                and null.group.is_idle
                and not context.node.is_closed
                and policy.is_plain
            ):
                _copy(to, source, nbytes, False)
                calls.last.newest = SUCCESS
                return _DONE
        except (Refusal, Error, AttributeError, TypeError, ValueError):
            pass  # nothing was written, or what a repetition writes again: the other path gives the reason
        return checked(*args, **given)

    return copy


calls.serve("hipMemcpy", _quick(hipMemcpy), hipMemcpy)


@calls.call("hipMemcpyWithStream")
def hipMemcpyWithStream(dst: int, src: int, sizeBytes: int, kind: Any, stream: int) -> None:
    """Copy in the order of a stream; complete on return.

    Refuses: as `hipMemcpy`; the stream
    Basis: S
    """
    found = stream_of(stream)
    copy_now(dst, src, sizeBytes, found)


@calls.call("hipMemcpyAsync")
def hipMemcpyAsync(dst: int, src: int, sizeBytes: int, kind: Any, stream: int) -> None:
    """Queue a copy.  With ordinary host memory it is complete on return, as that cannot wait.

    Refuses: as `hipMemcpy`; the stream
    Basis: S; C for ordinary host memory
    """
    copy_on(dst, src, sizeBytes, stream_of(stream))


@calls.call("hipMemcpyPeer")
def hipMemcpyPeer(dst: int, dstDeviceId: int, src: int, srcDeviceId: int, sizeBytes: int) -> None:
    """Queue a copy between devices behind the earlier work of both; the host does not wait (spec hip 3.3, 3.8).

    Ids are checked before pointers and need not match them; enabled access is not asked for.  It runs on the null
    stream of the destination's device; with ``memcpy_peer=current`` on the current device's, ordered by nothing else.
    With ordinary host memory it is complete on return.

    Refuses: hipErrorInvalidDevice an id; hipErrorInvalidValue NULL, more than an allocation has
    Basis: S
    """
    ends = device_of(dstDeviceId), device_of(srcDeviceId)
    if not sizeBytes:
        return
    check_peer_copy(dst, src, sizeBytes)
    refuse_strict(*ends)
    if policy.memcpy_peer == "current":
        copy_on(dst, src, sizeBytes, null_stream(machine.context()))
        return
    _copy_behind_both(dst, src, sizeBytes, *ends)


def _copy_behind_both(dst: int, src: int, nbytes: int, to: Device, source: Device) -> None:
    here = null_stream(machine.context_of(to.ordinal))
    there = null_stream(machine.context_of(source.ordinal))
    if here is not there:
        submits(here).wait(submits(there).record())
    copy_on(dst, src, nbytes, here)
    if here is not there:
        submits(there).wait(submits(here).record())


@calls.call("hipMemcpyPeerAsync")
def hipMemcpyPeerAsync(
    dst: int, dstDeviceId: int, src: int, srcDevice: int, sizeBytes: int, stream: int
) -> None:
    """Queue a copy between devices on a stream of any device (spec hip 3.3).

    Refuses: as `hipMemcpyPeer`; the stream
    Basis: S
    """
    ends = device_of(dstDeviceId), device_of(srcDevice)
    if not sizeBytes:
        return
    check_peer_copy(dst, src, sizeBytes)
    refuse_strict(*ends)
    copy_on(dst, src, sizeBytes, stream_of(stream))


def check_peer_copy(dst: int, src: int, nbytes: int) -> None:
    """Refuse a NULL, and more bytes than an allocation or a host object has; bare host addresses have no bound."""
    refuse_null(dst=dst, src=src)
    refuse_beyond(nbytes, dst=dst, src=src)
    for name, pointer in (("dst", dst), ("src", src)):
        place = raw.locate(pointer)
        left = place.base + place.size - pointer
        if place.kind is not Kind.PAGEABLE and nbytes > left:
            raise refusal(
                "hipErrorInvalidValue",
                f"{name} has {left:,} bytes from {pointer:#x} on, and {nbytes:,} are to be copied: "
                f"{machine.describe(pointer)}",
                "copy fewer bytes, or allocate more with hipMalloc",
            )
