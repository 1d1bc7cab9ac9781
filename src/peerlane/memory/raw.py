"""Operations on bare addresses: what dialects stand on.

An address in a device window is device memory and must lie in a live allocation; any other address is
host memory and is touched under a fault guard, so that a wild pointer is ``BadAddress`` and not a crash.
Everything here is complete on return, or queued on a ``stream``: device and pinned memory is kept until the
operation is over, pageable host memory is the caller's to keep.  With a stream, NULL and device addresses are
checked at the call; any other host address is first touched when the operation runs, so that a wild one is
``BadAddress`` at the synchronization.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy.typing as npt

from peerlane.backend import host, registry
from peerlane.backend.facts import Caps, Kind, Location
from peerlane.errors import BadAddress, Fault, InvalidValue
from peerlane.memory import dispatch
from peerlane.streams.stream import Stream, checked_stream
from peerlane.support import reductions
from peerlane.support.timeouts import in_nanoseconds
from peerlane.support.words import checked_pitch, checked_words

if TYPE_CHECKING:
    from peerlane.devices.base import DeviceBase

buffer_of = (
    host.buffer_of
)  #: (address, bytes, read-only) of an object's contiguous buffer, None where it has none
Exporter = host.Exporter  #: base of classes that export the buffer of what their ``_exported()`` returns

#: A quicker locate: (the device's number in native code, base, bytes, allocation), None for pageable memory.
find = host.locate

#: A quicker copy: (destination, source, bytes, whether it must be direct); nothing is converted, and only addresses
#: of virtual devices and of the host are known.
quick_copy = host.copy
#: A quicker copy on a stream: (stream, destination, source, bytes, whether it must be direct).
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
        0 is a no-op.  Overlapping ranges behave as ``memmove``.
    stream : Stream, optional
        Where it is queued.
    direct : bool
        Refuse instead of staging through the host when two devices have no open route.

    Raises
    ------
    BadAddress
        ``NULL_ADDRESS``, ``UNKNOWN_ADDRESS``, ``FREED_ADDRESS``, ``OUT_OF_BOUNDS``: nothing was written.
        ``HOST_FAULT``: host memory faulted half-way; the destination's bytes are unspecified.  On a stream it
        is raised by the synchronization.
    AccessDenied
        ``PEER_NOT_ENABLED``, with ``direct`` only; nothing was written.  On a stream it is decided when the
        copy starts, and raised by the synchronization.
    Closed
        The stream is closed.
    InvalidValue, TypeError
        An argument is negative, beyond 64 bits, or no int.
    """
    if registry.foreign and _copied(dst, src, nbytes, stream):
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


def _copied(dst: int, src: int, nbytes: int, stream: Stream | None) -> bool:
    checked_stream("raw.copy", stream)
    to, source, size = checked_words("raw.copy", dst=dst, src=src, nbytes=nbytes)
    return dispatch.copy_at(to, source, size, stream)


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
    if registry.foreign and dispatch.copy_2d_at(dst, to_pitch, src, from_pitch, width, height, stream):
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
        raise InvalidValue(f"raw.fill: width is {width}; valid are 1, 2 and 4 bytes", call="raw.fill")
    if value >> 8 * width:
        raise InvalidValue(f"raw.fill: value {value} does not fit {width} bytes", call="raw.fill")
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
        Device addresses, pinned or pageable host addresses; multiples of an element's size, the same or apart.
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
        if dispatch.reduce_at(to, source, n, number, stream):
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
    """Store a word when everything submitted before is done; whoever sees it sees the bytes before it too.

    Parameters
    ----------
    address : int
        A multiple of ``width``.
    value : int
        Of ``width`` bytes.
    stream : Stream
        Where it is queued.
    width : int
        4 or 8 bytes.

    Raises
    ------
    BadAddress, Closed, InvalidValue, TypeError
        As :func:`copy`; a width, value or address that does not fit.  Nothing was queued, but for
        ``HOST_FAULT``, which surfaces at the synchronization.
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
    """Let what is submitted from now on wait until a word of memory holds what is wanted.

    The word is looked at every 20 us to 8 ms, so an event or a notify is quicker.

    Parameters
    ----------
    address : int
        Of device or pinned memory, a multiple of ``width``; with ``pageable`` also of other host memory.
    value, mask : int
        Of ``width`` bytes; by default all bits count.
    stream : Stream
        Where it is queued.
    compare : str
        With ``w = word & mask``: ``"geq"`` w >= value; ``"eq"`` w == value; ``"and"`` w & value != 0; ``"nor"`` a
        bit of the mask is neither in w nor in value; ``"since"`` w - value, as a signed number of ``width`` bytes, is
        not negative, so that counters may wrap (facts/hip 3.7, facts/acl 2.7).
    width : int
        4 or 8 bytes.
    timeout : float, optional
        Seconds from when the stream comes to it; beyond it the wait fails with ``WaitTimeout``, at the next
        synchronization.
    pageable : bool
        The caller keeps the word until the wait is over: it may lie in pageable host memory.

    Raises
    ------
    BadAddress, Closed, InvalidValue, TypeError
        As :func:`write_value`; pageable host memory without ``pageable``.  Nothing was queued.  A word of pageable
        memory that cannot be read is ``HOST_FAULT`` at the synchronization.
    """
    address, value, width = _checked_word("raw.wait_value", stream, address, value, width)
    bits = (1 << 8 * width) - 1
    (chosen,) = checked_words("raw.wait_value", mask=bits if mask is None else mask)
    if compare not in _COMPARES:
        raise InvalidValue(
            f"raw.wait_value: compare is {compare!r}; valid are {', '.join(_COMPARES)}", call="raw.wait_value"
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
            f"raw.wait_value: {address:#x} is pageable host memory, which no stream keeps; allocate the word "
            "with Host().allocate or on a device, or pass pageable=True and keep it until the wait is over",
            fault=Fault.UNKNOWN_ADDRESS,
            call="raw.wait_value",
        ) from None


def _checked_word(call: str, stream: Stream, address: int, value: int, width: int) -> list[int]:
    if not isinstance(stream, Stream):
        raise TypeError(f"{call}: stream must be a Stream, not {type(stream).__name__}")
    address, value, width = checked_words(call, address=address, value=value, width=width)
    if width not in (4, 8):
        raise InvalidValue(f"{call}: width is {width}; valid are 4 and 8 bytes", call=call)
    if value >> 8 * width:
        raise InvalidValue(f"{call}: value {value} does not fit {width} bytes", call=call)
    if address % width:
        raise InvalidValue(f"{call}: address {address:#x} is no multiple of {width}", call=call)
    return [address, value, width]


def launch_descriptor(
    table: int,
    nbytes: int,
    *,
    stream: Stream | None = None,
    direct: bool = False,
    device: DeviceBase | None = None,
) -> None:
    """Run the copy list that lies at an address; see :class:`peerlane.CopyDescriptor`.

    Parameters
    ----------
    table, nbytes : int
        Where the list lies, and the bytes it may have there.
    stream : Stream, optional
        Where it is queued.
    direct : bool
        Refuse entries between devices without an open route instead of staging them.
    device : Device, optional
        Refuse entries with an end that is not on this device.

    Raises
    ------
    BadAddress, Closed, InvalidValue, TypeError
        The table is no memory, the stream is closed, an argument is negative; what is wrong with the list, or a
        table in host memory that cannot be read, is raised here without a stream, else by the synchronization.
        No byte was copied.
    """
    checked_stream("raw.launch_descriptor", stream)
    table, nbytes = checked_words("raw.launch_descriptor", table=table, nbytes=nbytes)
    if nbytes < LIST_HEADER.size:
        raise InvalidValue(
            f"raw.launch_descriptor: {nbytes} bytes cannot hold a list, whose header has {LIST_HEADER.size}",
            call="raw.launch_descriptor",
        )
    if registry.foreign:
        dispatch.refuse_foreign("raw.launch_descriptor", table, Caps.DESCRIPTOR)
        if device is not None and Caps.DESCRIPTOR not in device.caps:
            raise dispatch.lacks("raw.launch_descriptor", device.backend, Caps.DESCRIPTOR)
    only = 0 if device is None else device.backend.number(device.ordinal)
    host.launch_descriptor(stream, table, nbytes, bool(direct), only)


def locate(address: int) -> Location:
    """Tell what an address points at: its kind, device and allocation.

    Raises
    ------
    BadAddress
        A device-window address where nothing lives; the text names the nearest allocation, or who freed it.
    """
    mine = registry.current()
    try:
        found = mine.locate(address)
    except TypeError:
        (number,) = checked_words("raw.locate", address=address)
        return locate(number)
    if found.kind is not Kind.PAGEABLE:
        return found
    others = (each.locate(address) for each in registry.entered() if each is not mine)
    return next((each for each in others if each.kind is not Kind.PAGEABLE), found)


def view(address: int, nbytes: int) -> memoryview:
    """Return the bytes at an address of a device or of pinned memory: no copy, writes are seen by the device.

    It never waits for what is queued, and keeps the bytes while it lives, as a view of a :class:`peerlane.Buffer`
    does; a range may lie in several mappings of one :class:`peerlane.AddressRange`.

    Parameters
    ----------
    address, nbytes : int
        Inside one allocation or address range.

    Returns
    -------
    memoryview
        Of unsigned bytes; read-only where the memory is.

    Raises
    ------
    BadAddress
        As :func:`copy`; ``UNKNOWN_ADDRESS`` also for pageable host memory, which nothing here could keep.
    AccessDenied, Busy, Closed
        As for a view of a Buffer: no right to read, a free that is under way.
    InvalidValue, TypeError
        An argument is negative, beyond 64 bits, or no int.
    """
    address, nbytes = checked_words("raw.view", address=address, nbytes=nbytes)
    if registry.foreign:
        dispatch.refuse_foreign("raw.view", address, Caps.HOST_VIEW)
    if locate(address).kind is Kind.PAGEABLE:
        raise BadAddress(
            f"raw.view: {address:#x} is pageable host memory, which a view could not keep alive; take a "
            "memoryview of the object that it belongs to",
            fault=Fault.UNKNOWN_ADDRESS if address else Fault.NULL_ADDRESS,
            call="raw.view",
        )
    return memoryview(host.memory_at(address, nbytes))
