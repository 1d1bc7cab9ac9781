"""``python -m benchmarks torch`` without torch: its figures, its bars, and back-ends that fail or are not there."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import peerlane as pl
from benchmarks import bars, rival_processes
from benchmarks.__main__ import main

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

#: A rank that reports one second for gloo, and a quarter for peerlane.
_RANK = """
import json, os, sys
_, backend, tasks, *jobs = sys.argv
if os.environ["RANK"] == "0":
    seconds = 1.0 if backend == "gloo" else 0.25
    print(json.dumps({task: [seconds] * len(jobs) for task in tasks.split(",")}))
"""


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return a function that replaces the program of a rank, where torch seems to be there."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: True)

    def replace(program: str) -> None:
        file = tmp_path / "rank.py"
        file.write_text(program)
        monkeypatch.setattr(rival_processes, "_RANK", file)

    yield replace
    pl.leave_node()


def bench(tmp_path: Path, *words: str) -> dict[str, list[dict[str, Any]]]:
    target = tmp_path / "out.json"
    assert main(["torch", "--rounds", "1", "--json", str(target), *words]) == 0
    result: dict[str, list[dict[str, Any]]] = json.loads(target.read_text())
    return result


def test_torch_has_a_figure_and_a_bar_for_each_case(tmp_path: Path, rank: Any) -> None:
    rank(_RANK)
    result = bench(tmp_path)
    cases = [
        bars.torch_case(task, size, processes)
        for processes in (2, 4)
        for task in ("all-reduce", "all-gather", "broadcast")
        for size in ("4 KiB", "64 KiB", "1 MiB", "16 MiB", "64 MiB")
    ]
    cases += [
        bars.torch_case(task, size, 2)
        for task in bars.TORCH_MESSAGES
        for size in ("8 B", "512 B", "4 KiB", "64 KiB")
    ]
    assert [(each["case"], each["contender"], each["reference"]) for each in result["figures"]] == [
        (case, "peerlane", "gloo") for case in cases
    ]
    assert {each["ratio"] for each in result["figures"]} == {4.0}
    assert sorted(each["case"] for each in result["bars"]) == sorted(f"{case}, peerlane" for case in cases)
    assert {(each["must"], each["met"]) for each in result["bars"]} == {(2.0, "goal")}


def test_torch_back_end_fails_is_named(tmp_path: Path, rank: Any) -> None:
    rank("import sys\nsys.exit('no such thing' if sys.argv[1] == 'gloo' else 0)\n" + _RANK)
    result = bench(tmp_path, "--sizes", "4K")
    assert result["figures"] == []
    assert any("no such thing" in each["why"] for each in result["skipped"])


def test_torch_without_torch_is_skipped_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "torch" else find_spec(name)
    )
    result = bench(tmp_path)
    assert (result["figures"], result["skipped"]) == ([], [{"case": "torch", "why": "not installed"}])
