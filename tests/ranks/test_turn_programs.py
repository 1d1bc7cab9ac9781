"""Right programs under ``seeded``: a seed gives the same bytes and findings, and no rank waits for a rest of 1 s.

``turn_programs`` has the programs; each says what it saw by ``showing.show``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

import pytest

from helpers.prepared import run_python

pytestmark = [pytest.mark.timeout(300), pytest.mark.any_schedule]

_PROGRAM_FOLDER = Path(__file__).parent / "turn_programs"
_EXAMPLES = Path(__file__).parents[2] / "examples"

#: The number of processes of a program, where it is not 2.
_RANKS = {
    "collectives_behind_queued_work": 3,
    "collectives_of_all_kinds": 3,
    "fifo_notifies": 4,
    "handles": 3,
    "messages": 4,
    "rendezvous_barriers": 4,
    "subgroups": 4,
    "threads_as_ranks": 1,
    "uneven_ranks": 3,
    "values_of_the_rendezvous": 3,
}
_PROGRAMS = sorted(path.stem for path in _PROGRAM_FOLDER.glob("*.py") if path.stem != "showing")
_OF_EXAMPLES = {
    "channel_ring": 4,
    "collective_check": 4,
    "hcomm_all_reduce": 4,
    "hcomm_write_on_thread": 3,
    "kv_transfer": 2,
}

#: Those of which `make test` runs one seed; the soak runs all of them.
_TELLING = (
    "callbacks",
    "event_loops",
    "handles",
    "queued_work_then_barrier",
    "rendezvous_barriers",
    "subgroups",
    "threads_as_ranks",
    "uneven_ranks",
)


class Ran(NamedTuple):
    """A run.

    Attributes
    ----------
    said : list of str
        What the ranks printed, sorted by rank.
    steps : list of (int, int)
        The number of steps of each rank's group when the rank left it.
    reasons : set of (str, int)
        Why it may not repeat.
    findings : list
    """

    printed: list[str]
    steps: list[tuple[int, int]]
    reasons: set[tuple[str, int]]
    findings: list[tuple[object, ...]]


def _run(path: Path, ranks: int, seed: int, tmp_path: Path, command: str = "launch") -> Ran:
    report, findings_file = tmp_path / "report.jsonl", tmp_path / "findings.json"
    report.unlink(missing_ok=True)
    environ = os.environ | {"PEERLANE_SCHEDULE": f"seeded:{seed}", "PEERLANE_SCHEDULE_REPORT": str(report)}
    more = ["--json", str(findings_file)] if command == "check" else []
    words = ["-m", "peerlane", command, "-n", str(ranks), "--devices", "4", *more, str(path)]
    done = run_python(words, timeout=120, env=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    findings = json.loads(findings_file.read_text())["findings"] if more else []
    reported = [(each["kind"], each["certain"], each["count"], each["message"]) for each in findings]
    printed = sorted(done.stdout.splitlines(), key=lambda line: line.partition("]")[0])
    # A callback may end between two steps, or one step later.  Outside of its groups (-1) a process has no turns.
    steps = sorted(
        (line["rank"], line["steps"]) for line in lines if path.stem != "callbacks" and line["rank"] >= 0
    )
    reasons = {(line["why"], line["about"]) for line in lines if "why" in line}
    return Ran(printed, steps, reasons, sorted(reported))


def _repeats(path: Path, ranks: int, seed: int, tmp_path: Path, command: str = "launch") -> Ran:
    first = _run(path, ranks, seed, tmp_path, command)
    assert _run(path, ranks, seed, tmp_path, command) == first
    assert first.printed
    assert not first.reasons
    return first


@pytest.mark.parametrize("name", _TELLING)
def test_seeded_right_program_repeats(name: str, tmp_path: Path) -> None:
    _repeats(_PROGRAM_FOLDER / f"{name}.py", _RANKS.get(name, 2), 3, tmp_path)


@pytest.mark.parametrize("seed", [1, 2, 4, 5])
def test_seeded_queued_work_is_run_before_a_rest(seed: int, tmp_path: Path) -> None:
    assert not _run(_PROGRAM_FOLDER / "queued_work_then_barrier.py", 2, seed, tmp_path).reasons


@pytest.mark.parametrize("seed", range(4, 8))
def test_seeded_memory_taken_back_after_a_sync_has_the_bytes(seed: int, tmp_path: Path) -> None:
    assert not _run(_PROGRAM_FOLDER / "taken_back.py", 2, seed, tmp_path).reasons


@pytest.mark.parametrize("name", ["queued_work_then_barrier", "subgroups"])
def test_seeded_right_program_under_check_has_no_findings(name: str, tmp_path: Path) -> None:
    assert not _repeats(_PROGRAM_FOLDER / f"{name}.py", _RANKS.get(name, 2), 2, tmp_path, "check").findings


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("command", ["launch", "check"])
@pytest.mark.parametrize("name", [*_PROGRAMS, *_OF_EXAMPLES])
def test_seeded_right_program_repeats_with_each_of_5_seeds(name: str, command: str, tmp_path: Path) -> None:
    is_example = name in _OF_EXAMPLES
    path = (_EXAMPLES if is_example else _PROGRAM_FOLDER) / f"{name}.py"
    ranks = _OF_EXAMPLES[name] if is_example else _RANKS.get(name, 2)
    for seed in range(5):
        assert not _repeats(path, ranks, seed, tmp_path, command).findings
