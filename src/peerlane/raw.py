"""Operations on bare addresses: what dialects stand on.

An address in a device window is device memory and must lie in a live allocation; any other address is
host memory and is touched under a fault guard, so that a wild pointer is ``BadAddress`` and not a crash.
Everything here is complete on return.
"""

from __future__ import annotations

from peerlane import _core
from peerlane.backend import registry
from peerlane.backend.interface import Location
from peerlane.errors import InvalidValue

_copy = _core.copy
_WORD = 1 << 64


def _bad_integers(call: str, **values: object) -> Exception:
    """Return the exception that names which argument is not an address or a count."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int):
            return TypeError(f"{call}: {name} must be an int, not {type(value).__name__}")
        if not 0 <= value < _WORD:
            return InvalidValue(f"{call}: {name} is {value}; valid are 0 to 2**64 - 1", call=call)
    return TypeError(f"{call}: unsuitable arguments {values}")


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
        raise _bad_integers("raw.copy", dst=dst, src=src, nbytes=nbytes) from None


def _check_pitch(name: str, pitch: int, width: int, height: int) -> None:
    """Refuse a pitch below the width, and negative numbers."""
    for what, value in (("pitch", pitch), ("width", width), ("height", height)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"copy_2d: {name} {what} must be an int, not {type(value).__name__}")
        if not 0 <= value < _WORD:
            raise InvalidValue(f"copy_2d: {name} {what} is {value}; valid are 0 to 2**64 - 1", call="copy_2d")
    if pitch < width:
        raise InvalidValue(
            f"copy_2d: {name} pitch is {pitch:,} bytes, less than the width of {width:,}", call="copy_2d"
        )


def copy_2d(
    dst: int, dst_pitch: int, src: int, src_pitch: int, width: int, height: int, *, direct: bool = False
) -> None:
    """Copy ``height`` rows of ``width`` bytes; arguments and errors as :func:`copy` and ``copy_2d``."""
    _check_pitch("destination", dst_pitch, width, height)
    _check_pitch("source", src_pitch, width, height)
    try:
        _core.copy_2d(dst, dst_pitch, src, src_pitch, width, height, direct)
    except TypeError:
        raise _bad_integers("raw.copy_2d", dst=dst, src=src) from None


def fill(address: int, value: int, *, count: int, width: int = 1) -> None:
    """Write ``count`` elements of ``width`` bytes (1, 2 or 4), each holding ``value``; errors as :func:`copy`."""
    if width not in (1, 2, 4):
        raise InvalidValue(f"raw.fill: width is {width}; valid are 1, 2 and 4 bytes", call="raw.fill")
    try:
        _core.fill(address, value, width, count)
    except TypeError:
        raise _bad_integers("raw.fill", address=address, value=value, count=count) from None


def locate(address: int) -> Location:
    """Tell what an address points at: its kind, device and allocation.

    Raises
    ------
    BadAddress
        A device-window address where nothing lives; the text names the nearest allocation, or who freed it.
    """
    try:
        return registry.current().locate(address)
    except TypeError:
        raise _bad_integers("raw.locate", address=address) from None
