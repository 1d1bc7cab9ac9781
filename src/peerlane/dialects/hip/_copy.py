"""``hip``: copies between any two places (facts/hip 1.4).

``kind`` is a hint: the addresses decide.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from ctypes import c_void_p
from functools import partial
from typing import Any

from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.hip._checks import refuse_null
from peerlane.dialects.hip._convention import SUCCESS, invalid
from peerlane.dialects.hip._enums import enumeration
from peerlane.dialects.hip._places import knows, place_of, refuse_beyond
from peerlane.dialects.hip._policy import policy
from peerlane.dialects.hip._state import calls, machine
from peerlane.dialects.hip._stream import AnyStream, OnStream, null_stream, stream_of
from peerlane.dialects.hip._strict import refuse_strict
from peerlane.dialects.hip._types import DeviceArray, Pointer
from peerlane.errors import AccessDenied, Error, Fault
from peerlane.memory import raw
from peerlane.memory.raw import quick_copy_if_alone

_DONE = (SUCCESS,)
_Kind = enumeration("hipMemcpyKind")
_ANY_HOST = (_Kind["hipMemcpyHostToHost"], _Kind["hipMemcpyDefault"])

#: What HIP knows of destination and source; None for ordinary memory of the host.
Ends = tuple[Any, Any]
#: Copies at once, or on a stream.
Move = Callable[[AnyStream | None], None]


def copy_now(dst: int, src: int, nbytes: int, kind: Any = None) -> None:
    """Copy in the order of the null stream, complete on return but for a copy within one device; see `move_now`."""
    if nbytes:
        move_now(mover(dst, src, nbytes), check(dst, src, nbytes, kind))


def copy_on(dst: int, src: int, nbytes: int, stream: AnyStream, kind: Any = None) -> None:
    """Queue a copy; one with an end in ordinary host memory is complete on return, see `move_on`."""
    if not nbytes:
        return
    if None in check(dst, src, nbytes, kind, knows):
        stream.catch_up()
        raw.copy(dst, src, nbytes)
    else:
        raw.copy(dst, src, nbytes, stream=stream.neutral)


def mover(dst: int, src: int, nbytes: int) -> Move:
    """Return what copies these bytes."""
    return lambda stream: raw.copy(dst, src, nbytes, stream=None if stream is None else stream.neutral)


def move_now(move: Move, ends: Ends) -> None:
    """Move bytes in the order of what no stream means here, and of the null stream of the one device of both ends.

    What moves within a device is queued: it returns while earlier work runs.
    """
    here = stream_of(0)
    owner = _owner(here, ends)
    if _is_queued(ends):
        if owner is None:
            move(here)
        else:
            behind_both(owner, here, lambda: move(owner))
        return
    here.catch_up()
    if owner is not None:
        owner.catch_up()
    try:
        move(None)
    except AccessDenied as error:
        if error.fault is not Fault.NO_ACCESS:
            raise
        move(here)  # of mapped memory its device may have the right that neither end has
        here.wait()


def move_on(move: Move, ends: Ends, stream: AnyStream) -> None:
    """Move bytes on a stream; with an end in ordinary host memory, which cannot wait, once it is the copy's turn."""
    if None in ends:
        stream.catch_up()
        move(None)
    else:
        move(stream)


def _owner(here: AnyStream, ends: Ends) -> AnyStream | None:
    """Return the null stream of the one device that the ends lie on, if that is another than ``here``'s."""
    ordinals = {end.ordinal for end in ends if end is not None and end.is_device}
    if len(ordinals) != 1 or here.context.device.ordinal in ordinals:
        return None
    return null_stream(machine.context_of(ordinals.pop()))


def _is_queued(ends: Ends) -> bool:
    dst, src = ends
    return (
        dst is not None
        and src is not None
        and dst.is_device
        and src.is_device
        and dst.ordinal == src.ordinal
        and not (dst.allocation in machine.synchronous and src.allocation in machine.synchronous)
    )


def behind_both(here: AnyStream, there: AnyStream, submit: Callable[[], None]) -> None:
    """Queue work on one stream that comes after the earlier work of two, and before the later work of both."""
    if here is there:
        submit()
        return
    here.neutral.wait(there.neutral.record())
    submit()
    there.neutral.wait(here.neutral.record())


def check(dst: int, src: int, nbytes: int, kind: Any = None, ask: Callable[[int], object] = place_of) -> Ends:
    """Return what both ends are; refuse NULL, and a kind that names a device where both are ordinary host memory."""
    refuse_null("dst", dst)
    refuse_null("src", src)
    refuse_beyond(nbytes, dst=dst, src=src)
    ends = ask(dst), ask(src)
    if ends == (None, None) and kind is not None and kind not in _ANY_HOST:
        raise invalid(
            f"kind is {kind.name}, and both ends are ordinary memory of the host, which devices do not reach",
            "pass hipMemcpyHostToHost or hipMemcpyDefault",
        )
    refuse_strict(dst, src, nbytes)
    return ends


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
    copy_now(dst, src, sizeBytes, kind)


#: Classes whose objects are what their buffer has, and not what it points to.
_of_buffers: set[type] = {int}


def _is_buffer(kind: type) -> bool:
    if not issubclass(kind, (Pointer, c_void_p)):
        _of_buffers.add(kind)
    return kind in _of_buffers


def _quick(checked: Any) -> Any:
    """Copy at once if every argument is right and nothing has to be waited for; other calls go the ordinary way."""

    def copy(*args: Any, **given: Any) -> Any:
        try:
            dst, src, nbytes, kind = args
            to = dst._address if type(dst) is DeviceArray else dst
            source = src._address if type(src) is DeviceArray else src
            context = machine.here.context
            null = context.default_stream
            if (
                type(nbytes) is int
                and type(kind) is _Kind
                and (type(to) in _of_buffers or _is_buffer(type(to)))
                and (type(source) in _of_buffers or _is_buffer(type(source)))
                and not context.node.is_closed
                and policy.is_plain
                and quick_copy_if_alone(null.neutral, to, source, nbytes, bool(machine.registrations.starts))
            ):
                calls.last.newest = SUCCESS
                return _DONE
        except (Refusal, Error, AttributeError, TypeError, ValueError):
            pass  # nothing was written, or a repetition writes it again: the ordinary way gives the reason
        return checked(*args, **given)

    return copy


calls.serve("hipMemcpy", _quick(hipMemcpy), hipMemcpy, signature=inspect.signature(hipMemcpy))


@calls.call("hipMemcpyWithStream")
def hipMemcpyWithStream(dst: int, src: int, sizeBytes: int, kind: Any, stream: OnStream) -> None:
    """Copy in the order of a stream; complete on return.

    Refuses: as `hipMemcpy`; the stream
    Basis: S
    """
    if sizeBytes:
        check(dst, src, sizeBytes, kind, knows)
        stream.catch_up()
        raw.copy(dst, src, sizeBytes)


@calls.call("hipMemcpyAsync")
def hipMemcpyAsync(dst: int, src: int, sizeBytes: int, kind: Any, stream: OnStream) -> None:
    """Queue a copy.  With ordinary host memory it is complete on return, as that cannot wait.

    Refuses: as `hipMemcpy`; the stream
    Basis: S; C for ordinary host memory
    """
    copy_on(dst, src, sizeBytes, stream, kind)


def _queue(dst: int, src: int, nbytes: int, stream: int, kind: Any) -> None:
    copy_on(dst, src, nbytes, stream_of(stream), kind)


_SHORT = {"HtoD": "hipMemcpyHostToDevice", "DtoH": "hipMemcpyDeviceToHost", "DtoD": "hipMemcpyDeviceToDevice"}
_BODIES: dict[str, Callable[..., None]] = {"hipMemcpy": copy_now, "hipMemcpyAsync": _queue}
for _of, _body in _BODIES.items():
    for _short, _name in _SHORT.items():
        calls.made(
            _of.replace("Memcpy", f"Memcpy{_short}"),
            partial(_body, kind=_Kind[_name]),
            f"Do what {_of} does with {_name}.\n\nRefuses: as `{_of}`\nBasis: S",
            __name__,
        )
