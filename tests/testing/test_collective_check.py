"""The check of hand-written collectives: right ones pass, of wrong ones it names rank, chunk and contributors."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import peerlane as pl
from helpers.promises import Node
from helpers.threads_as_ranks import run_ranks
from peerlane.support.host_reductions import _UFUNCS as UFUNCS
from peerlane.testing.collective_check import COLLECTIVES, OPERATIONS, CollectiveCheck
from peerlane.testing.procs import run_python

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

Array = Any
EXAMPLES = Path(__file__).parents[2] / "examples"
DTYPES = ("float32", "float64", "float16", "int8", "uint8", "int16", "int64", "uint32")


def counts_of(collective: str, ranks: int, count: int) -> Any:
    if collective == "all_to_all_v":
        return [[(source + 2 * to) % 4 * count for to in range(ranks)] for source in range(ranks)]
    return [rank % 3 * count for rank in range(ranks)] if collective.endswith("_v") else count


def right(
    collective: str, op: str, ranks: int, count: Any, root: int, sources: Sequence[Array], rank: int
) -> Array:
    """Return what a rank should have, by NumPy."""
    if "to_all" in collective:
        counts = np.asarray(count) if collective.endswith("_v") else np.full((ranks, ranks), count)
        ends = np.cumsum(counts, axis=1)
        return np.concatenate(
            [sources[s][ends[s, rank] - counts[s, rank] : ends[s, rank]] for s in range(ranks)]
        )
    if "gather" in collective:
        return np.concatenate([each for each in sources if each is not None])
    if collective == "broadcast":
        return sources[root]
    if collective == "scatter":
        return sources[root][rank * count : (rank + 1) * count]
    total = sources[0].copy()
    for each in sources[1:]:
        total = UFUNCS[op](total, each)
    if "scatter" not in collective:
        return total
    counts = np.asarray(count) if collective.endswith("_v") else np.full(ranks, count)
    ends = np.cumsum(counts)
    return total[ends[rank] - counts[rank] : ends[rank]]


def reports(
    checks: Sequence[CollectiveCheck], make: Callable[[int, list[Array], list[Array]], None]
) -> list[str]:
    """Make the rounds of all ranks in step; ``make`` gets the number of the round, the sources and the results."""
    for number, ends in enumerate(zip(*checks, strict=True)):
        make(number, [src for src, _ in ends], [dst for _, dst in ends])
    return [each.report() for each in checks]


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_right_collective_of_each_type_operation_and_count_has_no_report(collective: str) -> None:
    for dtype in DTYPES:
        for op in OPERATIONS if COLLECTIVES[collective] else ("sum",):
            for ranks, count, root in ((1, 3, 0), (3, 7, 2), (5, 150, 1)):
                counts = counts_of(collective, ranks, count)
                checks = [
                    CollectiveCheck(collective, rank, ranks, counts, dtype=dtype, op=op, root=root)
                    for rank in range(ranks)
                ]

                def make(_: int, sources: list[Array], results: list[Array]) -> None:
                    for rank, result in enumerate(results):
                        if result is not None:
                            result[:] = right(collective, op, ranks, counts, root, sources, rank)  # noqa: B023

                assert reports(checks, make) == [""] * ranks, (dtype, op, ranks)


def broken_all_reduce(mistake: Callable[[int, list[Array], Array], None], **options: Any) -> list[str]:
    """Return the reports of four ranks about an all-reduce of 16 elements with a mistake at rank 2."""
    checks = [CollectiveCheck("all_reduce", rank, 4, 16, **options) for rank in range(4)]

    def make(number: int, sources: list[Array], results: list[Array]) -> None:
        for rank, result in enumerate(results):
            result[:] = sum(sources[1:], sources[0])
            if rank == 2:
                mistake(number, sources, result)

    return reports(checks, make)


MISTAKES: dict[str, tuple[Callable[[int, list[Array], Array], Any], str]] = {
    "rank missing": (lambda _, s, d: d[4:8].__isub__(s[3][4:8]), "chunk 1 (elements 4 to 7): rank 3 missing"),
    "rank twice and rank missing": (
        lambda _, s, d: d[12:].__iadd__(s[2][12:] - s[0][12:]),
        "chunk 3 (elements 12 to 15): rank 0 missing, rank 2 twice",
    ),
    "not written": (
        lambda _, s, d: d.view(np.uint8)[8 * 4 : 12 * 4].fill(0xA5),
        "chunk 2 (elements 8 to 11): not written",
    ),
    "part of a chunk": (
        lambda _, s, d: d[9:10].__isub__(s[1][9:10]),
        "chunk 2 (elements 9 to 9): rank 1 missing",
    ),
    "all chunks": (lambda _, s, d: d.__iadd__(2 * s[3]), "chunks 0 to 3 (elements 0 to 15): rank 3 3 times"),
    "elements of another chunk": (
        lambda _, s, d: d[:4].__iadd__(s[1][8:12] - s[1][:4]),
        "chunk 0 (elements 0 to 3): rank 1's elements 8 to 11 instead of 0 to 3",
    ),
    "other values": (
        lambda _, s, d: d[:2].fill(0.5),
        "chunk 0 (elements 0 to 1): values that no combination of the inputs gives",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_wrong_all_reduce_is_reported_at_its_rank_with_chunk_and_contributors(mistake: str) -> None:
    change, line = MISTAKES[mistake]
    texts = broken_all_reduce(change)
    assert [bool(text) for text in texts] == [False, False, True, False]
    assert texts[2].splitlines() == ["all_reduce of 16 float32 in 4 ranks is wrong at rank 2:", f"  {line}"]


def test_wrong_rank_in_a_gather_is_named_with_the_one_that_is_missing() -> None:
    checks = [CollectiveCheck("all_gather", rank, 3, 4, dtype="int8") for rank in range(3)]

    def make(_: int, sources: list[Array], results: list[Array]) -> None:
        for result in results:
            result[:] = np.concatenate([sources[0], sources[2], sources[2]])

    for rank, text in enumerate(reports(checks, make)):
        assert text.splitlines() == [
            f"all_gather of 4 int8 in 3 ranks is wrong at rank {rank}:",
            "  chunk 1 (elements 4 to 7): rank 1 missing, rank 2, which has no part in it",
        ]
    with pytest.raises(AssertionError, match="rank 1 missing"):
        checks[0].check()


def test_rank_that_is_missing_in_a_maximum_is_named() -> None:
    checks = [CollectiveCheck("reduce", rank, 3, 6, dtype="uint8", op="max", root=1) for rank in range(3)]

    def make(_: int, sources: list[Array], results: list[Array]) -> None:
        assert results[0] is None and results[2] is None
        results[1][:] = np.maximum(sources[0], sources[1])

    texts = reports(checks, make)
    assert texts[0] == texts[2] == ""
    assert texts[1].splitlines()[1] == "  chunks 0 to 2 (elements 0 to 5): rank 2 missing"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"collective": "all_gathr"},
            r"collective is 'all_gathr' \(did you mean 'all_gather'\?\); valid are all_gather,",
        ),
        ({"op": "avg"}, "op is 'avg'; valid are sum, prod, max, min"),
        ({"rank": 2}, "rank is 2; valid are 0 to 1"),
        ({"root": -1}, "root is -1; valid are 0 to 1"),
        ({"count": 0}, "count is 0; valid are 1 to"),
        ({"collective": "all_gather_v", "count": [1, -1]}, r"valid are numbers of the shape \(2,\)"),
        ({"dtype": "bool"}, "bool has not the numbers 0 to 4"),
    ],
)
def test_wrong_argument_of_the_check_raises_with_valid_values(change: dict[str, Any], text: str) -> None:
    with pytest.raises(pl.InvalidValue, match=text):
        CollectiveCheck(**{"collective": "all_reduce", "rank": 0, "ranks": 2, "count": 4, **change})


def test_check_that_was_not_run_to_its_end_has_no_report() -> None:
    check = CollectiveCheck("broadcast", 0, 2, 4)
    next(iter(check))
    with pytest.raises(pl.InvalidValue, match=f"not all of the {len(check)} rounds were made"):
        check.report()


def of_group(group: pl.Group, collective: str, src: Array, dst: Array) -> None:
    """Make a collective of peerlane's, with the root 1; a rank that gets nothing has no destination."""
    make = getattr(group, collective)
    match collective:
        case "broadcast":
            if src is not None:
                dst[:] = src
            make(dst, 1)
        case "scatter":
            make(dst, src, 1)
        case "reduce":
            make(np.zeros_like(src) if dst is None else dst, src, 1, dtype=src.dtype)
            return
        case "all_gather" | "all_to_all":
            make(dst, src)
        case _:
            make(dst, src, dtype=src.dtype)


@pytest.mark.parametrize(
    "collective",
    ["all_gather", "all_reduce", "all_to_all", "broadcast", "reduce", "reduce_scatter", "scatter"],
)
def test_collectives_of_a_group_are_right(node: Node, collective: str) -> None:
    node("devices=3")

    def rank_of(group: pl.Group) -> str:
        check = CollectiveCheck(
            collective, group.rank, 3, counts_of(collective, 3, 48), dtype="int32", root=1
        )
        for src, dst in check:
            of_group(group, collective, src, dst)
        return check.report()

    assert run_ranks(3, rank_of) == [""] * 3


def test_example_breaks_a_ring_by_five_mistakes_and_each_is_named(tmp_path: Path) -> None:
    words = ["-m", "peerlane", "launch", "-n", "4", str(EXAMPLES / "collective_check.py")]
    done = run_python(words, timeout=100, env=dict(os.environ), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for text in (
        "the ring is right",
        "one step too few:",
        "adds its own part twice:",
        "copies where it should add:",
        "passes the wrong chunk on:",
        "writes one element too far:",
        "twice",
        "missing",
        "'s elements ",
    ):
        assert text in done.stdout, done.stdout
