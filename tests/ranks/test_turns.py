"""Under ``seeded`` the ranks of a group take turns: the same seed gives the same bytes, also between processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)

#: Ranks write to one another without all the waits that they need, and say what they saw.
_RACES = """
import hashlib, os, sys
import numpy as np
import peerlane as pl
from peerlane.rendezvous import Rendezvous

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
with pl.Group(window=1 << 16, notifies="fifo") as group:
    me, seen = group.window, hashlib.sha256()
    me.fill(0)
    rendezvous = Rendezvous.from_environment()
    others = [each for each in range(size) if each != rank]
    channels = dict(zip(others, group.channels(others, notifies=2), strict=True))
    s, t = group.device.create_stream(), group.device.create_stream()
    rendezvous.barrier()
    for turn in range(6):
        source = np.full(512, 16 * rank + turn, np.uint8)
        for peer, channel in channels.items():
            channel.write(source, at=1024 * (turn % 3), stream=s if turn % 2 else t)  # all ranks, one place
            channel.notify(0, stream=s)
        for peer, channel in channels.items():
            channel.wait(0, timeout=30)
            seen.update(bytes(me.view()[:4096]))
    s.sync(); t.sync()
    rendezvous.barrier()
    seen.update(bytes(me.view()[:4096]))
    print("saw", rank, seen.hexdigest()[:16])
    {more}
"""


def _run(
    program: str, schedule: str, tmp_path: Path, ranks: int = 4
) -> tuple[list[str], list[dict[str, object]]]:
    script, report = tmp_path / "races.py", tmp_path / "report.jsonl"
    script.write_text(program.replace("{more}", "pass"))
    report.unlink(missing_ok=True)
    environ = os.environ | {"PEERLANE_SCHEDULE": schedule, "PEERLANE_SCHEDULE_REPORT": str(report)}
    command = [sys.executable, "-m", "peerlane", "launch", "-n", str(ranks), str(script)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    return sorted(line.partition("saw ")[2] for line in done.stdout.splitlines() if "saw" in line), lines


def _reasons(lines: list[dict[str, object]]) -> set[object]:
    return {line["why"] for line in lines if line["why"]}


@pytest.mark.parametrize("schedule", ["seeded:5", "seeded:6:40,90,300"])
def test_seeded_four_processes_same_seed_gives_same_bytes(schedule: str, tmp_path: Path) -> None:
    first, _ = _run(_RACES, schedule, tmp_path)
    assert len(first) == 4
    for _ in range(4):
        again, lines = _run(_RACES, schedule, tmp_path)
        assert not _reasons(lines)
        assert again == first


def test_seeded_other_seeds_give_other_bytes(tmp_path: Path) -> None:
    assert len({tuple(_run(_RACES, f"seeded:{seed}", tmp_path)[0]) for seed in range(5)}) > 1
