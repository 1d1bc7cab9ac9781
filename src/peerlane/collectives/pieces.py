"""How bytes are cut into pieces, and pieces go through the stages of a pipeline."""

from __future__ import annotations

from collections.abc import Callable

_LINE = 64  # bytes; a multiple of every element's size


def pieces(nbytes: int, most: int) -> list[tuple[int, int]]:
    """Return first and last bytes of pieces of at most ``most`` bytes, all but the last of them that long."""
    return [(first, min(first + most, nbytes)) for first in range(0, nbytes, most)]


def shares(first: int, last: int, count: int) -> list[tuple[int, int]]:
    """Cut a range into ``count`` shares of whole cache lines, counted from its beginning; the last may be empty."""
    each = -(-(last - first) // (count * _LINE)) * _LINE
    return [(min(first + n * each, last), min(first + (n + 1) * each, last)) for n in range(count)]


def pipelined(count: int, *stages: Callable[[int], None]) -> None:
    """Let ``count`` pieces go through all stages, each stage one piece behind the stage before."""
    for tick in range(count + len(stages) - 1):
        for behind, stage in enumerate(stages):
            if 0 <= tick - behind < count:
                stage(tick - behind)
