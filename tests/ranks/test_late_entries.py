"""The area of a channel's late writes: entries in use never overlap."""

from __future__ import annotations

import random

import pytest

import peerlane as pl
from helpers.promises import Node
from peerlane.ranks.late_delivery import Entry, LateEntries

_NOTIFY = 3  # an entry of this kind names no memory of the peer


def _span(entry: Entry) -> tuple[int, int]:
    return entry.bytes.address, entry.before.address + entry.before.size


@pytest.mark.parametrize("largest", [100, 1 << 20, 16 << 20])
def test_late_entries_random_takes_and_drops_never_overlap(node: Node, largest: int) -> None:
    device, _ = node()
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    ranks = device.backend.ranks
    entries = LateEntries(ranks, ranks.create_bank(ranks.LATE_LINES), [])
    bytes_of = memoryview(entries._area)  # type: ignore[arg-type]  # before Python 3.12 no type says so
    used: list[Entry] = []
    refused = 0
    for _ in range(3000):
        if used and dice.random() < 0.45:
            entries.drop(used.pop(dice.choice((0, -1))))
            continue
        size, spare = dice.randrange(largest), dice.choice((0, dice.randrange(largest)))
        taken = entries.take(_NOTIFY, 1, 0, size, spare)
        if taken is None:
            refused += 1
            assert len(used) > 1000 or largest > 100
            for each in used:
                entries.drop(each)
            used.clear()
            continue
        assert (taken.bytes.size, taken.before.size) == (size, spare)
        begin, end = _span(taken)
        for other in used:
            first, last = _span(other)
            assert end <= first or last <= begin
            assert other.number != taken.number
        used.append(taken)
    assert refused or largest <= 1 << 20
    table = pl.as_buffer(bytes_of[: ranks.LATE_ENTRIES * 64])
    for each in used:
        assert _span(each)[0] >= table.address + table.size
        assert _span(each)[1] <= table.address + len(bytes_of)
        entries.drop(each)
    assert entries.room(16 << 20) == 16 << 20
    assert entries.room((16 << 20) + 1) == 4096


def test_late_entries_take_for_memory_not_offered_returns_none(node: Node) -> None:
    device, _ = node()
    offered, other = device.allocate(4096), device.allocate(4096)
    ranks = device.backend.ranks
    entries = LateEntries(ranks, ranks.create_bank(ranks.LATE_LINES), [offered])
    assert entries.take(0, other, 0, 16) is None
    for target, at in ((offered, 8), (offered[8:], 0)):
        entry = entries.take(0, target, at, 16)
        assert entry is not None
        assert entries._words[entry.number * 8 + 4] == 8
    offered.close()
    assert entries.take(0, other, 0, 16) is None
