"""Lists of devices in environment variables, as several vendors read them: the first bad entry ends a list."""

from __future__ import annotations

from collections.abc import Callable, Iterator


def positions(text: str, count: int, position_of: Callable[[str], int | None]) -> Iterator[int]:
    """Yield the device positions that a list's entries name, until an entry names none of the ``count`` devices."""
    for entry in text.split(","):
        position = position_of(entry)
        if position is None or not 0 <= position < count:
            return
        yield position
