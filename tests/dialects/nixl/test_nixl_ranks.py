"""The dialect nixl under ``peerlane launch`` and ``check -n 2``: schedules, faults and timelines."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from helpers.prepared import run_python
from peerlane.testing.procs import Completed

PROGRAM = Path(__file__).parents[2] / "checker" / "programs" / "nixl_ranks.py"
BLOCKS = 8

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]


def _run(tmp_path: Path, *words: str, schedule: str = "eager") -> Completed:
    command = ["-m", "peerlane", *words, "--devices", "2", str(PROGRAM), str(tmp_path)]
    return run_python(command, timeout=90, env={**os.environ, "PEERLANE_SCHEDULE": schedule})


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:1", "seeded:2"])
def test_nixl_ranks_bring_each_block_before_its_notification_under_each_schedule(
    tmp_path: Path, schedule: str
) -> None:
    done = _run(tmp_path, "launch", "-n", "2", schedule=schedule)
    assert done.returncode == 0, done
    assert sorted(line for line in done.stdout.splitlines() if line) == ["[0] written", "[1] read"]


@pytest.mark.parametrize("op", [3, 12, 20])
@pytest.mark.parametrize("rank", [0, 1])
def test_nixl_rank_that_a_fault_kills_is_named_and_no_rank_hangs(tmp_path: Path, rank: int, op: int) -> None:
    fault = f"kill:rank={rank},op={op}"
    done = _run(tmp_path, "launch", "-n", "2", "--grace", "1", "--fault", fault)
    assert done.returncode != 0
    assert f"rank {rank} (pid " in done.stderr
    assert f"was killed by --fault {fault}" in done.stderr
    assert "Traceback" not in done.stderr, done


def test_nixl_rank_that_a_fault_delays_brings_the_same_bytes(tmp_path: Path) -> None:
    done = _run(tmp_path, "launch", "-n", "2", "--fault", "delay:rank=0,op=12,ms=200")
    assert done.returncode == 0, done
    assert "written" in done.stdout


def test_nixl_timeline_shows_transfers_registrations_and_notifications_of_both_ranks(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    done = _run(tmp_path, "launch", "-n", "2", "--trace", str(file))
    assert done.returncode == 0, done
    events = json.loads(file.read_text())["traceEvents"]
    rank = {each["pid"]: each["args"]["name"] for each in events if each["name"] == "process_name"}
    shown = Counter(
        (rank[each["pid"]].partition(" (")[0], each["name"], each["args"].get("line", "").rpartition("/")[2])
        for each in events
        if each["ph"] == "X"
    )
    assert shown["rank 0", "copy", _line("the write")] == BLOCKS
    assert shown["rank 1", "order take", _line("the notification")] == BLOCKS
    registered = [each for each, name, _ in shown.elements() if name == "registered"]
    assert sorted(registered) == ["rank 0", "rank 1"]


def test_nixl_ranks_in_order_have_no_findings_however_they_send_their_metadata(tmp_path: Path) -> None:
    file = tmp_path / "findings.json"
    done = _run(tmp_path, "check", "-n", "2", "--json", str(file))
    assert (done.returncode, json.loads(file.read_text())["findings"]) == (0, []), done


def _line(marked: str) -> str:
    lines = PROGRAM.read_text().splitlines()
    return f"{PROGRAM.name}:{next(at for at, line in enumerate(lines, 1) if line.endswith(f'# {marked}'))}"
