"""Operations on bare addresses: what dialects stand on.

An address in a device window is device memory and must lie in a live allocation; any other address is
host memory and is touched under a fault guard, so that a wild pointer is ``BadAddress`` and not a crash.
Everything here is complete on return.
"""

from __future__ import annotations

import operator

from peerlane import _core
from peerlane.backend import registry
from peerlane.backend.interface import Location
from peerlane.errors import InvalidValue

_copy = _core.copy
_WORD = 1 << 64


def _checked(call: str, **values: object) -> list[int]:
    """Return the values as ints of 64 bits.

    Raises
    ------
    TypeError, InvalidValue
        A value is no integer, negative, or beyond 64 bits; the text names it.
    """
    found = []
    for name, value in values.items():
        if not hasattr(type(value), "__index__"):
            raise TypeError(f"{call}: {name} must be an int, not {type(value).__name__}")
        number = operator.index(value)  # type: ignore[arg-type]  # it has __index__
        if not 0 <= number < _WORD:
            raise InvalidValue(f"{call}: {name} is {number}; valid are 0 to 2**64 - 1", call=call)
        found.append(number)
    return found


def _checked_pitch(name: str, pitch: int, width: int) -> int:
    """Return the pitch of a rectangle's ``name``; InvalidValue when it is less than the width."""
    (number,) = _checked("copy_2d", **{f"{name} pitch": pitch})
    if number < width:
        raise InvalidValue(
            f"copy_2d: {name} pitch is {number:,} bytes, less than the width of {width:,}", call="copy_2d"
        )
    return number


def copy(dst: int, src: int, nbytes: int, *, direct: bool = False) -> None:
    """Copy ``nbytes`` from address ``src`` to address ``dst``.

    Parameters
    ----------
    dst, src : int
        Device addresses, pinned or pageable host addresses.
    nbytes : int
        0 is a no-op.  Overlapping ranges behave as ``memmove``.
    direct : bool
        Refuse instead of staging through the host when two devices have no open route.

    Raises
    ------
    BadAddress
        ``NULL_ADDRESS``, ``UNKNOWN_ADDRESS``, ``FREED_ADDRESS``, ``OUT_OF_BOUNDS``: nothing was written.
        ``HOST_FAULT``: host memory faulted half-way; the destination's bytes are unspecified.
    AccessDenied
        ``PEER_NOT_ENABLED``, with ``direct`` only; nothing was written.
    InvalidValue, TypeError
        An argument is negative, beyond 64 bits, or no int.
    """
    try:
        _copy(dst, src, nbytes, direct)
    except TypeError:
        to, source, size = _checked("raw.copy", dst=dst, src=src, nbytes=nbytes)
        _copy(to, source, size, bool(direct))


def copy_2d(
    dst: int, dst_pitch: int, src: int, src_pitch: int, width: int, height: int, *, direct: bool = False
) -> None:
    """Copy ``height`` rows of ``width`` bytes; arguments and errors as :func:`copy` and ``copy_2d``."""
    dst, src, width, height = _checked("raw.copy_2d", dst=dst, src=src, width=width, height=height)
    to_pitch = _checked_pitch("destination", dst_pitch, width)
    from_pitch = _checked_pitch("source", src_pitch, width)
    _core.copy_2d(dst, to_pitch, src, from_pitch, width, height, bool(direct))


def fill(address: int, value: int, *, count: int, width: int = 1) -> None:
    """Write ``count`` elements of ``width`` bytes (1, 2 or 4), each holding ``value``; errors as :func:`copy`."""
    address, value, count, width = _checked(
        "raw.fill", address=address, value=value, count=count, width=width
    )
    if width not in (1, 2, 4):
        raise InvalidValue(f"raw.fill: width is {width}; valid are 1, 2 and 4 bytes", call="raw.fill")
    if value >> 8 * width:
        raise InvalidValue(f"raw.fill: value {value} does not fit {width} bytes", call="raw.fill")
    _core.fill(address, value, width, count)


def locate(address: int) -> Location:
    """Tell what an address points at: its kind, device and allocation.

    Raises
    ------
    BadAddress
        A device-window address where nothing lives; the text names the nearest allocation, or who freed it.
    """
    backend = registry.current()
    try:
        return backend.locate(address)
    except TypeError:
        (number,) = _checked("raw.locate", address=address)
    return backend.locate(number)
