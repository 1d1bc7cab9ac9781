"""Helpers of the tests of docs/errors.md."""

from __future__ import annotations

from collections.abc import Callable

import pytest

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


WILD = 0x1000  # a host address that no process has


def parked(*streams: pl.Stream) -> pl.Notify:
    """Make streams wait for a fifo notify and return it; one record for each stream lets them go on."""
    gate = streams[0].device.create_notify("fifo")
    for stream in streams:
        stream.wait(gate)
    return gate


def timed_out(wait: Callable[[], object]) -> str:
    """Return the text of a wait's time-out; wait again if it came before the engine had looked at the streams."""
    while True:
        with pytest.raises(pl.WaitTimeout) as late:
            wait()
        if "can run" not in str(late.value):
            return str(late.value)


def fails(stream: pl.Stream) -> None:
    """Queue an operation that fails when it runs."""
    with stream.device.allocate(8) as target:
        pl.raw.copy(target.address, WILD, 8, stream=stream)
