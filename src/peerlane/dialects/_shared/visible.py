"""Lists of devices in environment variables, as several vendors read them: a list ends before the first bad entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator


def places(text: str, count: int, place_of: Callable[[str], int | None]) -> Iterator[int]:
    """Yield the places that the entries of a list mean, up to the first that means none of ``count`` devices."""
    for entry in text.split(","):
        place = place_of(entry)
        if place is None or not 0 <= place < count:
            return
        yield place
