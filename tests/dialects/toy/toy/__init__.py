"""The vendor's module ``toy``: each function returns its outputs and a code, 0 for success."""

from __future__ import annotations

import peerlane as pl

_things: list[pl.Buffer | pl.Stream] = []


def begin_anew() -> None:
    """Forget all that the functions have made."""
    _things.clear()


def toyMalloc(size: int) -> tuple[int, int]:
    """Return the address of new memory of the first device."""
    try:
        made = pl.devices()[0].allocate(size)
    except pl.Error:
        return 0, 2
    _things.append(made)
    return made.address, 0


def toyStreamCreate() -> tuple[int, int]:
    """Return the number of a new stream of the first device."""
    _things.append(pl.devices()[0].create_stream())
    return len(_things), 0


def toyMemset(pointer: int, value: int, size: int, stream: int) -> int:
    """Set bytes in the order of a stream."""
    queue = _things[stream - 1]
    if not isinstance(queue, pl.Stream):
        return 1
    pl.raw.fill(pointer, value, count=size, stream=queue)
    return 0
