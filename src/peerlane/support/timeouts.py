"""Time-outs as users give them: seconds, or None to wait for ever."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from peerlane.errors import BadArgument, InvalidValue

FOREVER = -1.0
SLICE_SECONDS = 0.1  # the longest sleep in Python: a signal that comes just before a sleep does not end it


def checked_timeout(call: str, timeout: float | None) -> float:
    """Return the seconds; negative means for ever.

    Raises TypeError, InvalidValue: ``timeout`` is not a number, is negative, or is NaN.
    """
    if timeout is None:
        return FOREVER
    if type(timeout) is float and timeout >= 0:
        return timeout
    if isinstance(timeout, bool) or not hasattr(type(timeout), "__float__"):
        raise TypeError(f"{call}: timeout must be seconds or None, not {type(timeout).__name__}")
    try:
        seconds = float(timeout)
    except OverflowError:
        seconds = math.inf if timeout > 0 else -math.inf
    if math.isnan(seconds) or seconds < 0:
        raise InvalidValue(
            f"{call}: timeout is {timeout}; valid are seconds from 0 on, or None to wait for ever",
            call=call,
            detail=BadArgument("timeout", seconds, least=0, rule="or None"),
        )
    return seconds


def in_nanoseconds(call: str, timeout: float | None) -> int:
    """Return the time-out of a wait on the device in nanoseconds, at least 1; 0 means for ever."""
    seconds = checked_timeout(call, timeout)
    if seconds < 0 or seconds > 1e9:
        return 0
    return max(1, round(seconds * 1e9))


def slices(seconds: float | None) -> Iterator[float]:
    """Yield how long to sleep next, until ``seconds`` are over: at least once, and without end for None."""
    until = math.inf if seconds is None else time.monotonic() + seconds
    yield min(max(until - time.monotonic(), 0.0), SLICE_SECONDS)
    while (left := until - time.monotonic()) > 0:
        yield min(left, SLICE_SECONDS)
