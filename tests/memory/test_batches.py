"""Batches and copy lists with many parts of one allocation: it is held once, and each entry is checked."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

import peerlane as pl
from helpers.promises import Node, filled, untouched

KIB = 1 << 10

Run = Callable[[list[pl.Buffer], list[pl.Buffer]], None]


def parts(whole: pl.Buffer, size: int) -> list[pl.Buffer]:
    """Return a buffer in parts of one size."""
    return [whole[start : start + size] for start in range(0, whole.size, size)]


def as_list(dsts: list[pl.Buffer], srcs: list[pl.Buffer]) -> None:
    """Copy by a list in device memory instead of a batch."""
    with dsts[0].device.allocate(pl.CopyDescriptor.size_for(len(dsts))) as table:
        pl.CopyDescriptor.build(table, zip(dsts, srcs, strict=True)).launch()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("run", [pl.copy_batch, as_list])
def test_batch_of_parts_in_any_order_moves_every_byte(node: Node, run: Run) -> None:
    d0, d1 = node()
    sources, targets = [d0.allocate(64 * KIB) for _ in range(3)], [d1.allocate(64 * KIB) for _ in range(3)]
    contents = np.random.default_rng(1).integers(0, 256, (3, 64 * KIB), np.uint8)
    for source, content in zip(sources, contents, strict=True):
        source.copy_from(content)
    srcs = [part for source in sources for part in parts(source, 512)]
    dsts = [part for target in targets for part in parts(target, 512)]
    for shuffled in (False, True):
        for target in targets:
            target.fill(0)
        order = list(range(len(srcs)))
        if shuffled:
            random.Random(2).shuffle(order)
        run([dsts[n] for n in order], [srcs[n] for n in order])
        assert (np.stack([target.view() for target in targets]) == contents).all()


@pytest.mark.timeout(60)
def test_batch_with_closed_part_raises_closed_naming_entry(node: Node) -> None:
    d0, _ = node()
    src, dst = filled(d0, 4 * KIB, 1), filled(d0, 4 * KIB, 2)
    for end in (0, 1):
        ends = parts(dst, KIB), parts(src, KIB)
        ends[end][2].close()
        with pytest.raises(pl.Closed, match="entry 2"):
            pl.copy_batch(*ends)
        assert untouched(dst, 2)


@pytest.mark.timeout(60)
def test_batch_refused_keeps_no_memory(node: Node) -> None:
    (d0,) = node("devices=1,memory=64MiB,cache_bytes=0")
    before = d0.free_bytes
    src, dst = filled(d0, 4 << 20, 1), filled(d0, 4 << 20, 2)
    other = filled(d0, 4 << 20, 3)
    other_part = other[:KIB]
    other.close()
    ends = [*parts(dst, KIB)[:3], other_part], parts(src, KIB)[:4]
    with pytest.raises(pl.Closed, match="entry 3"):
        pl.copy_batch(*ends)
    with d0.allocate(pl.CopyDescriptor.size_for(2)) as table:
        good = pl.CopyDescriptor.encode([(dst[:KIB], src[:KIB])] * 2)
        bad = bytearray(good)
        bad[64 + 8 : 64 + 16] = (1 << 62).to_bytes(8, "little")  # the second entry's source
        table[: len(bad)].copy_from(bad)
        with pytest.raises(pl.Error, match="entry 1"):
            pl.CopyDescriptor(table).launch()
    assert untouched(dst, 2)
    src.close()
    dst.close()
    assert d0.free_bytes == before


@pytest.mark.timeout(60)
def test_batch_queued_keeps_closed_source_until_it_ran(node: Node) -> None:
    d0, _ = node()
    src, dst = filled(d0, 8 * KIB, 5), filled(d0, 8 * KIB, 6)
    gate = d0.create_notify()
    with d0.create_stream() as stream:
        stream.wait(gate)
        pl.copy_batch(parts(dst, KIB), parts(src, KIB), stream=stream)
        src.close()
        again = filled(d0, 8 * KIB, 7)
        gate.record()
        stream.sync()
        assert untouched(dst, 5)
        assert untouched(again, 7)
