"""What a callback that raised leaves behind."""

from __future__ import annotations

import pytest

import peerlane as pl
from helpers.promises import Node

pytestmark = pytest.mark.timeout(60)


def test_a_callback_that_raised_keeps_no_memory(node: Node) -> None:
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
