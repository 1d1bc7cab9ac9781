"""A barrier of many ranks goes by a tree, and orders all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.checking import checked_program

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(240)]

# Ranks 5 and 9 are leaves of the tree, below ranks 0 and 1.
PROGRAM = """
import peerlane as pl

with pl.Group(window=64) as group:
    channel = group.channel({5: 9, 9: 5}[group.rank]) if group.rank in (5, 9) else None
    if group.rank == 5:
        group.window.fill(1)
    BEFORE
    if group.rank == 9:
        channel.read(bytearray(64))
    group.barrier()
    if group.rank == 5:
        group.window.fill(2)
"""


@pytest.mark.parametrize(("before", "kinds"), [("group.barrier()", []), ("pass", ["race"])])
def test_barrier_of_ten_ranks_orders_accesses_of_two_leaves(
    before: str, kinds: list[str], tmp_path: Path
) -> None:
    program = tmp_path / "leaves.py"
    program.write_text(PROGRAM.replace("BEFORE", before))
    done = checked_program(program, ranks=10)
    assert [each["kind"] for each in done.findings if each["certain"]] == kinds, done.output
