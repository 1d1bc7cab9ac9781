"""The records of objects that ended last, by number and by address, compared with a plain list."""

from __future__ import annotations

import random
from dataclasses import dataclass

from peerlane.diagnostics.memory.freed_allocations import FreedAllocations


@dataclass(eq=False)
class Ended:
    id: int
    offset: int
    size: int
    ended: int = 0


def test_freed_allocations_at_address_give_the_newest() -> None:
    random_ = random.Random(5)
    freed: FreedAllocations[Ended] = FreedAllocations(50)
    model: list[Ended] = []
    for number in range(2_000):
        size = random_.choice([1, 100, 4096, 4097, 1 << 21, 1 << 30])
        each = Ended(number, random_.randrange(0, 1 << 31, 256), size)
        freed.add(each)
        model = [*model, each][-50:]
        for offset in (each.offset, each.offset + size - 1, random_.randrange(1 << 31)):
            freed_before = [m for m in model if m.offset <= offset < m.offset + m.size]
            assert freed.at(offset) is (freed_before[-1] if freed_before else None)
        assert [freed.get(m.id) for m in model] == model and freed.get(number - 50) is None


def test_freed_allocations_that_nobody_reads_keep_only_the_newest() -> None:
    freed: FreedAllocations[Ended] = FreedAllocations(10)
    for number in range(25):
        freed.add(Ended(number, number * 4096, 4096))
    assert [freed.get(number) is not None for number in range(25)] == [False] * 15 + [True] * 10
    last = freed.at(24 * 4096)
    assert last is not None and last.id == 24 and last.ended == 25 and freed.at(14 * 4096) is None


def test_freed_allocations_of_one_address_keep_only_their_limit() -> None:
    freed: FreedAllocations[Ended] = FreedAllocations(100)
    for number in range(1_000):
        freed.add(Ended(number, 4096, 512))
    freed_before = freed.at(4100)
    assert freed_before is not None and freed_before.id == 999
    assert freed.get(899) is None and freed.get(900) is not None
    assert sum(map(len, freed._pages.values())) == 100
