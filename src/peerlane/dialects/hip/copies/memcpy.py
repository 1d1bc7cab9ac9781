"""``hip``: copies of bytes between any two addresses, also between named devices (facts/hip 1.4, 3.3, 3.8, 4).

``kind`` is a hint: the addresses decide.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from ctypes import c_void_p
from functools import partial
from typing import Any

from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.gpu.copies import Copies
from peerlane.dialects.hip.binding.convention import SUCCESS
from peerlane.dialects.hip.binding.enums import enumeration
from peerlane.dialects.hip.binding.types import DeviceArray, Pointer
from peerlane.dialects.hip.devices.peers import DeviceId
from peerlane.dialects.hip.policy import policy
from peerlane.dialects.hip.state import calls, gpu, machine
from peerlane.dialects.hip.streams.stream import OnStream, stream_of
from peerlane.errors import Error
from peerlane.memory.raw import quick_copy_if_alone

copies: Copies = gpu.copies
captures = gpu.streams.captures
_DONE = (SUCCESS,)
_Kind = enumeration("hipMemcpyKind")
_ANY_HOST = (_Kind["hipMemcpyHostToHost"], _Kind["hipMemcpyDefault"])


def with_device(kind: Any) -> str:
    """Return the name of a kind that has a device at one end, empty for the others."""
    return "" if kind in _ANY_HOST else kind.name


@calls.call("hipMemcpy")
def hipMemcpy(dst: int, src: int, sizeBytes: int, kind: Any) -> None:
    """Copy ``sizeBytes`` in the order of the null stream (facts/hip 1.4, 3.4); complete on return.

    A copy within one device follows earlier work of the stream, and returns while that runs [D: the code].  What
    touches one other device alone is in the order of its null stream too; between two devices only that of the
    current one holds.

    Refuses: hipErrorInvalidValue NULL, addresses where nothing is, more than an allocation has from there on, a kind
        with a device for two ends in ordinary host memory
    Basis: S; D for the waits and for kinds
    """
    copies.copy(dst, src, sizeBytes, with_device(kind))


#: Types of dst and src that native code copies from or to as they are: int is an address, and others are objects
#: with bytes of their own.  Pointer and c_void_p have an address in them, which the checked route reads.
_direct_types: set[type] = {int}


def _is_direct(operand: type) -> bool:
    if not issubclass(operand, (Pointer, c_void_p)):
        _direct_types.add(operand)
    return operand in _direct_types


def _quick(checked: Any) -> Any:
    """Copy at once if every argument is right and nothing has to be waited for; else take the checked route."""

    def copy(*args: Any, **keywords: Any) -> Any:
        try:
            dst, src, nbytes, kind = args
            to = dst._address if type(dst) is DeviceArray else dst
            source = src._address if type(src) is DeviceArray else src
            context = machine.thread.context
            null = context.default_stream
            if (
                type(nbytes) is int
                and type(kind) is _Kind
                and (to is not dst or type(to) in _direct_types or _is_direct(type(to)))
                and (source is not src or type(source) in _direct_types or _is_direct(type(source)))
                and not context.node.is_closed
                and policy.is_plain
                and not captures.begun
                and quick_copy_if_alone(null.neutral, to, source, nbytes, bool(machine.registrations.starts))
            ):
                calls.last.newest = SUCCESS
                return _DONE
        except (Refusal, Error, AttributeError, TypeError, ValueError):
            pass  # the checked route raises the reason; bytes that were written already are written again
        return checked(*args, **keywords)

    return copy


calls.serve("hipMemcpy", _quick(hipMemcpy), hipMemcpy, signature=inspect.signature(hipMemcpy))


@calls.call("hipMemcpyWithStream")
def hipMemcpyWithStream(dst: int, src: int, sizeBytes: int, kind: Any, stream: OnStream) -> None:
    """Copy in the order of a stream; complete on return.

    Refuses: as `hipMemcpy`; the stream
    Basis: S
    """
    copies.copy_with_stream(stream, dst, src, sizeBytes, with_device(kind))


@calls.call("hipMemcpyAsync")
def hipMemcpyAsync(dst: int, src: int, sizeBytes: int, kind: Any, stream: OnStream) -> None:
    """Queue a copy.  With ordinary host memory it is complete on return, as that cannot wait.

    Refuses: as `hipMemcpy`; the stream
    Basis: S; C for ordinary host memory
    """
    copies.copy_async(stream, dst, src, sizeBytes, with_device(kind))


def _copy_async(dst: int, src: int, nbytes: int, stream: int, kind: str) -> None:
    copies.copy_async(stream_of(stream), dst, src, nbytes, kind)


_SHORT = {"HtoD": "hipMemcpyHostToDevice", "DtoH": "hipMemcpyDeviceToHost", "DtoD": "hipMemcpyDeviceToDevice"}
_BODIES: dict[str, Callable[..., None]] = {"hipMemcpy": copies.copy, "hipMemcpyAsync": _copy_async}
for _of, _body in _BODIES.items():
    for _short, _name in _SHORT.items():
        calls.declare(
            _of.replace("Memcpy", f"Memcpy{_short}"),
            partial(_body, kind=_name),
            f"Do what {_of} does with {_name}.\n\nRefuses: as `{_of}`\nBasis: S",
            __name__,
        )


@calls.call("hipMemcpyPeer")
def hipMemcpyPeer(dst: int, dstDeviceId: DeviceId, src: int, srcDeviceId: DeviceId, sizeBytes: int) -> None:
    """Queue a copy between devices behind the earlier work of both; the host does not wait (facts/hip 3.3, 3.8).

    Both ids are checked before the pointers, and a pointer need not lie on the device of its id.  The copy works
    without peer access; with ``peer_copies=strict`` it needs the access of one of the two devices to the other's
    memory.  It runs on the null stream of the destination's device.  With ``memcpy_peer=current`` it runs on the null
    stream of the current device, and waits for no other stream.  With ordinary host memory it is complete on return.

    Refuses: hipErrorInvalidDevice an id; hipErrorInvalidValue NULL, more than an allocation has from there on
    Basis: S
    """
    copies.copy_peer(dstDeviceId, srcDeviceId, dst, src, sizeBytes)


@calls.call("hipMemcpyPeerAsync")
def hipMemcpyPeerAsync(
    dst: int, dstDeviceId: DeviceId, src: int, srcDevice: DeviceId, sizeBytes: int, stream: int
) -> None:
    """Queue a copy between devices on a stream of any device (facts/hip 3.3).

    Refuses: as `hipMemcpyPeer`; the stream
    Basis: S
    """
    copies.copy_peer_async(stream, dst, src, sizeBytes)
