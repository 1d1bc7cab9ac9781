"""What the tests of docs/errors.md share."""

from __future__ import annotations

from collections.abc import Callable

import peerlane as pl

Node = Callable[..., tuple[pl.Device, ...]]


def filled(device: pl.Device | pl.Host, nbytes: int, value: int) -> pl.Buffer:
    """Return a buffer whose bytes all have one value."""
    buffer = device.allocate(nbytes)
    buffer.fill(value)
    return buffer


def untouched(buffer: pl.Buffer, value: int) -> bool:
    """Tell whether all bytes still have the value."""
    return bool((buffer.view() == value).all())
