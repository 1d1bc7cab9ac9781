"""Schedules of the collectives over channels: results, and that no rank waits for what nobody sends; no processes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from helpers.schedules_alone import Bytes, Schedule, Together, plans
from peerlane.collectives.choice import ALL_REDUCE
from peerlane.collectives.schedules.all_gather_by_machine import all_gather_by_machine, broadcast_by_machine
from peerlane.collectives.schedules.all_to_all import all_to_all
from peerlane.collectives.schedules.barrier import barrier
from peerlane.collectives.schedules.point_to_point import receive, send
from peerlane.collectives.schedules.reductions_by_machine import reduce_by_machine, reduce_scatter_by_machine
from peerlane.collectives.schedules.scatter import scatter

pytestmark = pytest.mark.any_schedule

SLOT = 128
SIZES = (0, 4, 100, 128, 1540)  # bytes; elements have 4
PLACED = [
    placed
    for ranks in range(2, 10)
    for placed in dict.fromkeys(
        (
            "a" * ranks,
            "abcdefghi"[:ranks],
            ("ab" * 5)[:ranks],
            "a" * (ranks // 2) + "b" * (ranks - ranks // 2),
            "aab" * 3,
        )
    )
    if len(placed) == ranks
]


def floats(rank: int, nbytes: int) -> Bytes:
    """Return elements whose sum depends on the order."""
    drawn = np.random.default_rng((rank, nbytes)).normal(size=nbytes // 4)
    return (drawn * 10.0 ** (rank % 5)).astype(np.float32).view(np.uint8)


def summed(parts: list[Bytes]) -> Bytes:
    result = parts[0].view(np.float32).copy()
    for each in parts[1:]:
        result += each.view(np.float32)
    return result.view(np.uint8)


def empty(nbytes: int) -> Bytes:
    return np.full(nbytes, 0xEE, np.uint8)


def run(
    schedule: Schedule, placed: str, src: list[Bytes], dst: list[Bytes], each: Any = None, **details: Any
) -> list[Bytes]:
    """Run the ranks in several drawn orders, and return their results, which must not depend on it."""
    produced: list[list[Bytes]] = []
    for seed in range(2):
        planned = plans(placed, SLOT, **details)
        if each is not None:
            planned = [plan._replace(**each(rank)) for rank, plan in enumerate(planned)]
        results = [one.copy() for one in dst]
        Together(schedule, planned, src, results, "float32").run(random.Random(seed))
        produced.append(results)
    for other in produced[1:]:
        for one, two in zip(produced[0], other, strict=True):
            np.testing.assert_array_equal(one, two)
    return produced[0]


def same(produced: list[Bytes], expected: list[Bytes]) -> None:
    for rank, (one, two) in enumerate(zip(produced, expected, strict=True)):
        np.testing.assert_array_equal(one, two, f"rank {rank}")


def uneven(ranks: int, seed: int) -> Iterator[tuple[list[int], list[int]]]:
    """Yield offsets and sizes of parts, some of them empty, with gaps between them."""
    drawn = random.Random(seed)
    for longest in (8, 700):
        sizes = [4 * drawn.randrange(longest // 4) * (drawn.random() < 0.7) for _ in range(ranks)]
        yield [4 + sum(sizes[:rank]) + 4 * rank for rank in range(ranks)], sizes


@pytest.mark.parametrize("name", ALL_REDUCE)
def test_all_reduce_gives_every_rank_the_sum_in_the_order_of_ranks(name: str) -> None:
    for placed in PLACED:
        for size in SIZES:
            src = [floats(rank, size) for rank in range(len(placed))]
            produced = run(ALL_REDUCE[name].schedule, placed, src, [empty(size) for _ in src], size=size)
            same(produced, [summed(src)] * len(src))


def test_reduce_gives_the_root_the_sum() -> None:
    for placed in PLACED:
        for root in range(len(placed)):
            for size in (4, 516):
                src = [floats(rank, size) for rank in range(len(placed))]
                produced = run(
                    reduce_by_machine, placed, src, [empty(size) for _ in src], size=size, root=root
                )
                same([produced[root]], [summed(src)])
                same(produced[:root], [empty(size)] * root)


def test_reduce_scatter_gives_every_rank_its_part_of_the_sum() -> None:
    for placed in PLACED:
        for at, sizes in uneven(len(placed), 1):
            src = [floats(rank, max(map(sum, zip(at, sizes, strict=True)))) for rank in range(len(placed))]
            produced = run(
                reduce_scatter_by_machine, placed, src, [empty(size) for size in sizes], parts=(at, sizes)
            )
            whole = summed(src)
            same(produced, [whole[first : first + size] for first, size in zip(at, sizes, strict=True)])


def test_broadcast_gives_every_rank_the_bytes_of_the_root() -> None:
    for placed in PLACED:
        for root in range(len(placed)):
            for size in (0, 1, 129, 700):
                src = [
                    floats(root, 4 * size)[:size] if rank == root else empty(0) for rank in range(len(placed))
                ]
                dst = [empty(0 if rank == root else size) for rank in range(len(placed))]
                produced = run(broadcast_by_machine, placed, src, dst, size=size, root=root)
                same(produced, [each if rank == root else src[root] for rank, each in enumerate(dst)])


def test_all_gather_gives_every_rank_all_parts() -> None:
    for placed in PLACED:
        for at, sizes in uneven(len(placed), 2):
            src = [floats(rank, size) for rank, size in enumerate(sizes)]
            whole = empty(max(map(sum, zip(at, sizes, strict=True))))
            produced = run(all_gather_by_machine, placed, src, [whole.copy() for _ in src], parts=(at, sizes))
            for first, part in zip(at, src, strict=True):
                whole[first : first + len(part)] = part
            same(produced, [whole] * len(src))


def test_scatter_gives_every_rank_its_part_of_the_root() -> None:
    for placed in PLACED:
        ranks = len(placed)
        for root in range(ranks):
            for size in (0, 3, 300):
                src = [
                    floats(root, 4 * ranks * size)[: ranks * size] if rank == root else empty(0)
                    for rank in range(ranks)
                ]
                produced = run(scatter, placed, src, [empty(size)] * ranks, size=size, root=root)
                same(produced, [src[root][rank * size : (rank + 1) * size] for rank in range(ranks)])


def test_all_to_all_gives_every_rank_a_part_of_each() -> None:
    for placed in PLACED:
        ranks = len(placed)
        drawn = random.Random(ranks)
        table = [[drawn.choice((0, 1, 128, 500)) for _ in range(ranks)] for _ in range(ranks)]  # from, to

        def laid(sizes: list[int]) -> tuple[list[int], list[int]]:
            return [sum(sizes[:rank]) for rank in range(len(sizes))], sizes

        gives = [laid(row) for row in table]
        takes = [laid([row[rank] for row in table]) for rank in range(ranks)]
        src = [floats(rank, 4 * sum(table[rank]))[: sum(table[rank])] for rank in range(ranks)]
        dst = [empty(sum(sizes)) for _, sizes in takes]
        produced = run(
            all_to_all,
            placed,
            src,
            dst,
            lambda rank, t=takes, g=gives: {"parts": t[rank], "source_parts": g[rank]},
        )
        for rank, (at, sizes) in enumerate(takes):
            for peer, (first, size) in enumerate(zip(at, sizes, strict=True)):
                begin = gives[peer][0][rank]
                np.testing.assert_array_equal(
                    produced[rank][first : first + size], src[peer][begin : begin + size]
                )


def test_barrier_ends_when_all_have_come() -> None:
    for placed in PLACED:
        none = [empty(0) for _ in placed]
        run(barrier, placed, none, none)
        late = Together(barrier, plans(placed, SLOT), none, none)
        late.ranks[-1].next = None  # it never comes
        with pytest.raises(AssertionError, match="nobody sends what these ranks wait for"):
            late.run(random.Random(0))


def test_a_message_arrives() -> None:
    for size in (0, 1, 128, 2000):
        src = [floats(0, 4 * size)[:size], empty(0)]

        def either(plan: Any) -> Iterator[Any]:
            return send(plan) if plan.rank == 0 else receive(plan)

        produced = run(either, "ab", src, [empty(0), empty(size)], lambda rank: {"root": 1 - rank}, size=size)
        same(produced[1:], src[:1])
