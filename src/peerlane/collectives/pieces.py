"""Cuts bytes into pieces, and passes pieces through the stages of a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

_LINE = 64  # bytes; a multiple of every element's size


def pieces(nbytes: int, most: int) -> list[tuple[int, int]]:
    """Return (first, end) of pieces of ``most`` bytes each, of which the last may be shorter."""
    return [(first, min(first + most, nbytes)) for first in range(0, nbytes, most)]


def shares(first: int, last: int, count: int) -> list[tuple[int, int]]:
    """Cut a range into ``count`` shares of whole cache lines from its beginning on; the last ones may be empty."""
    each = -(-(last - first) // (count * _LINE)) * _LINE
    return [(min(first + n * each, last), min(first + (n + 1) * each, last)) for n in range(count)]


def pipelined(count: int, *stages: Callable[[int], Iterable[Any]]) -> Iterator[Any]:
    """Yield what the stages yield for ``count`` pieces; each stage is one piece behind the stage before it."""
    for tick in range(count + len(stages) - 1):
        for behind, stage in enumerate(stages):
            if 0 <= tick - behind < count:
                yield from stage(tick - behind)
