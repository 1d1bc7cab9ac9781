"""Queued copy_2d whose ends span different sizes: each end holds exactly its own memory."""

from __future__ import annotations

import pytest

import peerlane as pl
from helpers.promises import Node, filled, untouched

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize(("dst_pitch", "src_pitch"), [(100, 70_000), (70_000, 100), (64, 300), (300, 64)])
def test_queued_copy_2d_with_unequal_spans_releases_its_memory(
    node: Node, dst_pitch: int, src_pitch: int
) -> None:
    d0, d1 = node("devices=2,memory=64MiB")
    s, height, width = d0.create_stream(), 40, 50
    for _ in range(20):
        spans = [(height - 1) * pitch + width for pitch in (dst_pitch, src_pitch)]
        a, b, neighbour = filled(d0, spans[0], 1), filled(d1, spans[1], 2), filled(d1, spans[1], 3)
        pl.copy_2d(a, dst_pitch, b, src_pitch, width, height, stream=s)
        b.close()
        fresh = filled(d1, spans[1], 4)
        s.sync(timeout=20)
        rows = bytes(a.view())
        assert all(rows[row * dst_pitch :][:width] == b"\2" * width for row in range(height))
        assert untouched(neighbour, 3)
        assert untouched(fresh, 4)
        for buffer in (a, neighbour, fresh):
            buffer.close()
    assert [device.free_bytes for device in (d0, d1)] == [64 << 20] * 2
