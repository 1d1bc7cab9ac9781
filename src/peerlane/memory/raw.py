"""Operations on bare addresses, the ground of the dialects.

An address in a device window is device memory and must lie in a live allocation.  Any other address is host memory;
it is touched under a fault guard, so that a wild pointer raises ``BadAddress`` instead of ending the process.
Everything here is complete on return, or queued on a ``stream``: device and pinned memory is kept until the
operation is over, pageable host memory is the caller's to keep.  With a stream, NULL and device addresses are
checked at the call; any other host address is first touched when the operation runs, so that a wild one is
``BadAddress`` at the synchronization.

Examples
--------
>>> with pl.device(0).allocate(8) as one, pl.device(0).allocate(8) as other:
...     pl.raw.fill(one.address, 7, count=8)
...     pl.raw.copy(other.address, one.address, 8)
...     print(other.view())
[7 7 7 7 7 7 7 7]
"""

from __future__ import annotations

import struct
from collections.abc import Container
from typing import TYPE_CHECKING

from peerlane.backend import host, registry
from peerlane.backend.facts import Caps, Kind, Location
from peerlane.diagnostics.memory import address_errors
from peerlane.errors import BadAddress, BadArgument, Fault, InvalidValue, Refused
from peerlane.memory import dispatch
from peerlane.node.base import DeviceBase, devices_of
from peerlane.streams.stream import Stream, checked_stream
from peerlane.support import reductions
from peerlane.support.timeouts import in_nanoseconds
from peerlane.support.words import checked_pitch, checked_words

if TYPE_CHECKING:
    import numpy.typing as npt

    from peerlane.memory.buffer import Buffer

buffer_of = (
    host.buffer_of
)  #: returns (address, bytes, read-only) of an object's contiguous buffer, None if it has none
Exporter = (
    host.Exporter
)  #: base of classes that export the buffer of the object that their ``_exported()`` returns

#: A faster locate: returns (the device's number in native code, base, bytes, allocation), None for pageable memory.
find = host.locate

#: A faster copy of (destination, source, bytes, whether it must be direct): it converts no arguments, and knows only
#: addresses of virtual devices and of the host.
quick_copy = host.copy
#: The same, if nothing is queued: (a stream of a group, destination, source, bytes, whether both ends must lie on its
#: device); an end may be an object with a buffer, too.  Returns whether it was done.
quick_copy_if_alone = host.copy_if_alone
#: A faster copy on a stream: (stream, destination, source, bytes, whether it must be direct).
quick_submit = host.submit_copy_at
LIST_HEADER = struct.Struct("<8sIIQQ")
_COMPARES = ("geq", "eq", "and", "nor", "since")


def copy(dst: int, src: int, nbytes: int, *, stream: Stream | None = None, direct: bool = False) -> None:
    """Copy ``nbytes`` from address ``src`` to address ``dst``.

    Parameters
    ----------
    dst, src : int
        Device addresses, pinned or pageable host addresses.
    nbytes : int
        0 is a no-op.  Overlapping ranges are copied as by ``memmove``.
    stream : Stream, optional
        The stream to queue it on.
    direct : bool
        Refuse the copy, instead of staging it through the host, if no route is open between two devices.

    Raises
    ------
    BadAddress
        ``NULL_ADDRESS``, ``UNKNOWN_ADDRESS``, ``FREED_ADDRESS``, ``OUT_OF_BOUNDS``: nothing was written.
        ``HOST_FAULT``: host memory faulted half-way; the destination's bytes are unspecified.  On a stream, the
        synchronization raises ``HOST_FAULT``.
    AccessDenied
        ``PEER_NOT_ENABLED``, with ``direct`` only; nothing was written.  On a stream, the route is checked when the
        copy starts, and the synchronization raises.
    Closed
        The stream is closed.
    InvalidValue, TypeError
        An argument is negative, exceeds 64 bits, or is not an int.
    """
    if registry.foreign and _copied(dst, src, nbytes, stream, direct):
        return
    try:
        if stream is None:
            quick_copy(dst, src, nbytes, direct)
        else:
            quick_submit(stream, dst, src, nbytes, direct)
    except TypeError:
        checked_stream("raw.copy", stream)
        to, source, size = checked_words("raw.copy", dst=dst, src=src, nbytes=nbytes)
        copy(to, source, size, stream=stream, direct=bool(direct))


def _copied(dst: int, src: int, nbytes: int, stream: Stream | None, direct: bool) -> bool:
    checked_stream("raw.copy", stream)
    to, source, size = checked_words("raw.copy", dst=dst, src=src, nbytes=nbytes)
    return dispatch.copy_at(to, source, size, stream, direct)


def copy_2d(
    dst: int,
    dst_pitch: int,
    src: int,
    src_pitch: int,
    width: int,
    height: int,
    *,
    stream: Stream | None = None,
    direct: bool = False,
) -> None:
    """Copy ``height`` rows of ``width`` bytes; arguments and errors as :func:`copy` and ``copy_2d``."""
    checked_stream("raw.copy_2d", stream)
    dst, src, width, height = checked_words("raw.copy_2d", dst=dst, src=src, width=width, height=height)
    to_pitch = checked_pitch("destination", dst_pitch, width)
    from_pitch = checked_pitch("source", src_pitch, width)
    rectangle = (dst, to_pitch, src, from_pitch, width, height, bool(direct))
    if registry.foreign and dispatch.copy_2d_at(*rectangle[:-1], stream, direct):
        return
    if stream is None:
        host.copy_2d(*rectangle)
    else:
        host.submit_copy_2d_at(stream, *rectangle)


def fill(address: int, value: int, *, count: int, width: int = 1, stream: Stream | None = None) -> None:
    """Write ``count`` elements of ``width`` bytes (1, 2 or 4), each holding ``value``; errors as :func:`copy`."""
    checked_stream("raw.fill", stream)
    address, value, count, width = checked_words(
        "raw.fill", address=address, value=value, count=count, width=width
    )
    if width not in (1, 2, 4):
        raise InvalidValue(
            f"raw.fill: width is {width}; valid are 1, 2 and 4 bytes",
            call="raw.fill",
            detail=BadArgument("width", width, choices=(1, 2, 4)),
        )
    if value >> 8 * width:
        raise InvalidValue(
            f"raw.fill: value {value} does not fit {width} bytes",
            call="raw.fill",
            detail=BadArgument("value", value, least=0, most=(1 << 8 * width) - 1),
        )
    if registry.foreign and dispatch.fill_at(address, value, width, count, stream):
        return
    if stream is None:
        host.fill(address, value, width, count)
    else:
        host.submit_fill_at(stream, address, value, width, count)


def reduce(
    dst: int,
    src: int,
    count: int,
    *,
    dtype: npt.DTypeLike,
    op: str = "sum",
    stream: Stream | None = None,
    direct: bool = False,
) -> None:
    """Combine ``count`` elements at address ``src`` into those at ``dst``; see :func:`peerlane.reduce`.

    Parameters
    ----------
    dst, src : int
        Device addresses, pinned or pageable host addresses; multiples of an element's size.  The ranges are the same
        or do not overlap.
    count : int
        Elements, not bytes; 0 is a no-op.
    dtype, op
        As :func:`peerlane.reduce`.
    stream, direct
        As :func:`copy`.

    Raises
    ------
    BadAddress, AccessDenied, Closed, InvalidValue, TypeError
        As :func:`copy` and :func:`peerlane.reduce`.  After a fault half-way some elements have been combined, others
        not.
    """
    number = reductions.number_of("raw.reduce", dtype, op)
    if registry.foreign:
        checked_stream("raw.reduce", stream)
        to, source, n = checked_words("raw.reduce", dst=dst, src=src, count=count)
        if dispatch.reduce_at(to, source, n, number, stream, direct):
            return
    try:
        if stream is None:
            host.reduce(dst, src, count, number, direct)
        else:
            host.submit_reduce_at(stream, dst, src, count, number, direct)
    except TypeError:
        checked_stream("raw.reduce", stream)
        to, source, n = checked_words("raw.reduce", dst=dst, src=src, count=count)
        reduce(to, source, n, dtype=dtype, op=op, stream=stream, direct=bool(direct))


def write_value(address: int, value: int, *, stream: Stream, width: int = 8) -> None:
    """Store a word when all operations submitted before are done.

    A thread or process that sees the word also sees the bytes that those operations wrote.

    Parameters
    ----------
    address : int
        A multiple of ``width``.
    value : int
        A value of ``width`` bytes.
    stream : Stream
        The stream to queue it on.
    width : int
        4 or 8 bytes.

    Raises
    ------
    BadAddress, Closed, InvalidValue, TypeError
        As :func:`copy`; or the width is not 4 or 8, the value does not fit it, or the address is not a multiple of
        it.  Nothing was queued.  Only ``HOST_FAULT`` is raised later, by the synchronization.
    """
    address, value, width = _checked_word("raw.write_value", stream, address, value, width)
    if registry.foreign:
        dispatch.refuse_foreign("raw.write_value", address, Caps.QUEUE)
    host.submit_write_value(stream, address, value, width)


def wait_value(
    address: int,
    value: int,
    *,
    stream: Stream,
    compare: str = "geq",
    mask: int | None = None,
    width: int = 8,
    timeout: float | None = None,
    pageable: bool = False,
) -> None:
    """Queue a wait: later operations of the stream wait until a word of memory satisfies a comparison.

    The word is polled every 20 us to 8 ms, so an event or a notify is faster.

    Parameters
    ----------
    address : int
        An address of device or pinned memory, a multiple of ``width``; with ``pageable``, of any host memory.
    value, mask : int
        Values of ``width`` bytes; by default the mask has all bits.
    stream : Stream
        The stream to queue it on.
    compare : str
        The condition, with ``w = word & mask``.  ``"geq"``: w >= value.  ``"eq"``: w == value.  ``"and"``:
        w & value != 0.  ``"nor"``: some bit of the mask is set neither in w nor in value.  ``"since"``: w - value, as
        a signed number of ``width`` bytes, is not negative, so that counters may wrap (facts/hip 3.7, facts/acl 2.7).
    width : int
        4 or 8 bytes.
    timeout : float, optional
        Seconds from the moment that the stream reaches the wait.  When they are over, the wait fails with
        ``WaitTimeout``, which the next synchronization raises.
    pageable : bool
        Allow a word in pageable host memory: the caller promises to keep it until the wait is over.

    Raises
    ------
    BadAddress, Closed, InvalidValue, TypeError
        As :func:`write_value`; or the word is in pageable host memory and ``pageable`` is False.  Nothing was queued.
        If a word of pageable memory cannot be read, the synchronization raises ``HOST_FAULT``.
    """
    address, value, width = _checked_word("raw.wait_value", stream, address, value, width)
    bits = (1 << 8 * width) - 1
    (chosen,) = checked_words("raw.wait_value", mask=bits if mask is None else mask)
    if compare not in _COMPARES:
        raise InvalidValue(
            f"raw.wait_value: compare is {compare!r}; valid are {', '.join(_COMPARES)}",
            call="raw.wait_value",
            detail=BadArgument("compare", compare, choices=tuple(_COMPARES)),
        )
    deadline = in_nanoseconds("raw.wait_value", timeout)
    if registry.foreign:
        dispatch.refuse_foreign("raw.wait_value", address, Caps.QUEUE)
    try:
        host.submit_wait_value(
            stream, address, value, chosen & bits, _COMPARES.index(compare), width, deadline, pageable
        )
    except BadAddress as error:
        if error.fault is Fault.NULL_ADDRESS or host.locate(address) is not None:
            raise
        raise BadAddress(
            f"raw.wait_value: {address:#x} is pageable host memory, which no stream keeps alive; allocate the word "
            "with Host().allocate or on a device, or pass pageable=True and keep it until the wait is over",
            fault=Fault.UNKNOWN_ADDRESS,
            call="raw.wait_value",
            detail=Refused(reason="pageable", role="address", address=address),
        ) from None


def _checked_word(call: str, stream: Stream, address: int, value: int, width: int) -> list[int]:
    if not isinstance(stream, Stream):
        raise TypeError(f"{call}: stream must be a Stream, not {type(stream).__name__}")
    address, value, width = checked_words(call, address=address, value=value, width=width)
    if width not in (4, 8):
        raise InvalidValue(
            f"{call}: width is {width}; valid are 4 and 8 bytes",
            call=call,
            detail=BadArgument("width", width, choices=(4, 8)),
        )
    if value >> 8 * width:
        raise InvalidValue(
            f"{call}: value {value} does not fit {width} bytes",
            call=call,
            detail=BadArgument("value", value, least=0, most=(1 << 8 * width) - 1),
        )
    if address % width:
        raise InvalidValue(
            f"{call}: address {address:#x} is not a multiple of {width}",
            call=call,
            detail=Refused(reason="misaligned", address=address, width=width),
        )
    return [address, value, width]


def launch_descriptor(
    table: int,
    nbytes: int,
    *,
    stream: Stream | None = None,
    direct: bool = False,
    device: DeviceBase | None = None,
) -> None:
    """Run the copy list at an address; see :class:`peerlane.CopyDescriptor`.

    Parameters
    ----------
    table, nbytes : int
        The address of the list, and the most bytes that it may have.
    stream : Stream, optional
        The stream to queue it on.
    direct : bool
        Refuse entries between devices without an open route instead of staging them.
    device : Device, optional
        Refuse entries with an end that is not on this device.

    Raises
    ------
    BadAddress, Closed, InvalidValue, TypeError
        The table is not memory, the stream is closed, or an argument is negative.  A mistake in the list, or a table
        in host memory that cannot be read, is raised here without a stream, else by the synchronization.  No byte was
        copied.
    """
    checked_stream("raw.launch_descriptor", stream)
    table, nbytes = checked_words("raw.launch_descriptor", table=table, nbytes=nbytes)
    if nbytes < LIST_HEADER.size:
        raise InvalidValue(
            f"raw.launch_descriptor: {nbytes} bytes cannot hold a list, whose header has {LIST_HEADER.size}",
            call="raw.launch_descriptor",
            detail=BadArgument("nbytes", nbytes, least=LIST_HEADER.size),
        )
    if registry.foreign:
        dispatch.refuse_foreign("raw.launch_descriptor", table, Caps.DESCRIPTOR)
        if device is not None and Caps.DESCRIPTOR not in device.caps:
            raise dispatch.lacks("raw.launch_descriptor", device.backend, Caps.DESCRIPTOR)
    only = 0 if device is None else device.backend.number(device.ordinal)
    host.launch_descriptor(stream, table, nbytes, bool(direct), only)


def locate(address: int) -> Location:
    """Return the kind of memory, the device and the allocation that an address points at.

    Raises
    ------
    BadAddress
        The address lies in a device window but in no allocation; the text names the nearest allocation, or the line
        that freed the one there.
    """
    mine = registry.current()
    try:
        location = mine.locate(address)
    except TypeError:
        (number,) = checked_words("raw.locate", address=address)
        return locate(number)
    if location.kind is not Kind.PAGEABLE:
        return location
    others = (each.locate(address) for each in registry.entered() if each is not mine)
    return next((each for each in others if each.kind is not Kind.PAGEABLE), location)


def view(address: int, nbytes: int) -> memoryview:
    """Return a view of device or pinned memory at an address: not a copy; the device sees what is written to it.

    It never waits for queued operations, and it keeps the bytes alive, as a view of a :class:`peerlane.Buffer` does.
    The bytes may lie in several mappings of one :class:`peerlane.AddressRange`.

    Parameters
    ----------
    address, nbytes : int
        Inside one allocation or address range.

    Returns
    -------
    memoryview
        A view of unsigned bytes; read-only if the memory is.

    Raises
    ------
    BadAddress
        As :func:`copy`; ``UNKNOWN_ADDRESS`` also for pageable host memory, which the view could not keep alive.
    AccessDenied, Busy, Closed
        As for a view of a Buffer: there is no right to read, or the memory is being freed.
    InvalidValue, TypeError
        An argument is negative, exceeds 64 bits, or is not an int.
    """
    address, nbytes = checked_words("raw.view", address=address, nbytes=nbytes)
    if registry.foreign:
        dispatch.refuse_foreign("raw.view", address, Caps.HOST_VIEW)
    otherwise = (
        "pageable host memory, which a view could not keep alive; take a memoryview of the object it belongs "
        "to"
    )
    _located("raw.view", address, nbytes, (Kind.DEVICE, Kind.PINNED), otherwise)
    return memoryview(host.memory_at(address, nbytes))


def buffer(address: int, nbytes: int) -> Buffer:
    """Return the device memory at an address as a buffer, which can be exported; closing it frees nothing.

    Parameters
    ----------
    address, nbytes : int
        Inside one allocation, or inside mapped memory of an address range.

    Raises
    ------
    BadAddress
        As :func:`copy`; ``UNKNOWN_ADDRESS`` also for host memory.
    InvalidValue, TypeError
        An argument is negative, exceeds 64 bits, or is not an int.
    """
    address, nbytes = checked_words("raw.buffer", address=address, nbytes=nbytes)
    if registry.foreign:
        dispatch.refuse_foreign("raw.buffer", address, Caps.SHARE)
    otherwise = "host memory; use peerlane.as_buffer with the object that it belongs to"
    location = _located("raw.buffer", address, nbytes, (Kind.DEVICE,), otherwise)
    device = devices_of(registry.current())[location.ordinal]
    whole: Buffer = device.backend.buffer_at(address, nbytes, device)
    return whole


def _located(call: str, address: int, nbytes: int, kinds: Container[Kind], otherwise: str) -> Location:
    """Return where an address points; BadAddress, which says what it is ``otherwise``, unless at memory of a kind."""
    if not address:
        raise address_errors.null("address", nbytes)
    location = locate(address)
    if location.kind not in kinds:
        raise BadAddress(
            f"{call}: {address:#x} is {otherwise}",
            fault=Fault.UNKNOWN_ADDRESS,
            call=call,
            detail=Refused(reason="pageable", role="address", address=address),
        )
    return location
