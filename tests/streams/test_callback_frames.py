"""A callback, also one that raised, leaves no object behind."""

from __future__ import annotations

import time

import pytest

import peerlane as pl
from helpers.promises import Node

pytestmark = pytest.mark.timeout(60)


def test_callback_that_raised_keeps_no_device_memory(node: Node) -> None:
    d0 = node("devices=1,memory=64MiB")[0]
    free = d0.free_bytes
    with d0.create_stream() as stream:
        for _ in range(8):  # each holds a quarter of the device

            def callback() -> None:
                held = d0.allocate(16 << 20)
                raise ValueError(held.size)

            stream.launch_callback(callback)
            with pytest.raises(pl.DeviceFault, match="ValueError: 16777216") as failed:
                stream.sync(timeout=20)
            assert isinstance(failed.value.__cause__, ValueError)
            del failed
    assert d0.free_bytes == free


def test_callback_is_released_before_its_stream_goes_on(node: Node) -> None:
    gone: list[int] = []

    class Held:
        def __call__(self) -> None: ...

        def __del__(self) -> None:
            time.sleep(0.02)  # long enough to see a stream that went on first
            gone.append(1)

    with node("devices=1")[0].create_stream() as stream:
        for calls in range(1, 4):
            stream.launch_callback(Held())
            stream.sync(timeout=20)
            assert len(gone) == calls
