"""The guide's algorithm runs without processes, and in a group, once its line is in the table."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import peerlane as pl
from helpers.documented import programs
from helpers.promises import Node
from helpers.schedules_alone import Together, plans
from helpers.threads_as_ranks import run_ranks
from peerlane.collectives import choice

pytestmark = pytest.mark.schedules_in_turn

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "collective-algorithms.md").read_text()


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> choice.OverChannels:
    """Add the guide's file and its line."""
    (program,) = programs(GUIDE)
    names: dict[str, Any] = {"OverChannels": choice.OverChannels}
    exec(compile(program.code, program.name, "exec"), names)
    (line,) = re.findall(r"```python\n\"(\w+)\": (.*),\n```", GUIDE)
    chosen: choice.OverChannels = eval(line[1], names)
    monkeypatch.setitem(choice.ALL_REDUCE, line[0], chosen)
    return chosen


@pytest.mark.any_schedule
def test_guide_algorithm_gives_the_sum_without_processes(added: choice.OverChannels) -> None:
    for ranks in range(2, 10):
        for size in (0, 1, 128, 500):
            src = [np.random.default_rng(rank).integers(0, 256, size, np.uint8) for rank in range(ranks)]
            dst = [np.zeros(size, np.uint8) for _ in src]
            Together(added.schedule, plans("a" * ranks, 128, size=size), src, dst).run(random.Random(ranks))
            for each in dst:
                np.testing.assert_array_equal(each, np.sum(src, axis=0, dtype=np.uint8))


@pytest.mark.parametrize("size", range(2, 6))
def test_guide_algorithm_gives_a_group_the_bits_of_the_usual_one(
    added: choice.OverChannels, node: Node, size: int
) -> None:
    node("devices=4")

    def work(group: pl.Group) -> None:
        for count in (1, 1000, 50_000):
            own = np.random.default_rng(group.rank).normal(size=count).astype(np.float32)
            usual, produced = own.copy(), own.copy()
            group.all_reduce(usual, dtype="float32")
            group.all_reduce(produced, dtype="float32", algorithm="doubling")
            with group.device.create_stream() as stream:
                group.all_reduce(own, dtype="float32", algorithm="doubling", stream=stream)
                stream.sync()
            assert usual.tobytes() == produced.tobytes() == own.tobytes()

    run_ranks(size, work, workspace=1 << 18)
