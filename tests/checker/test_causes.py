"""Mistakes that have nothing to do with each other stay findings of their own, also at the same lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.event_logs import FLAG, KIND, Clock, EventLog
from peerlane.checker import Checker

pytestmark = pytest.mark.any_schedule

ONE, OTHER, WINDOW = (5, 0, 64), (6, 0, 64), (9, 0, 64)


def logs(folder: Path, size: int) -> list[EventLog]:
    clock = Clock()
    created = [
        EventLog(folder / f"{rank + 1}-7.log", clock, pid=2**30 + rank, rank=rank) for rank in range(size)
    ]
    names = "\n".join(json.dumps({"site": line, "frames": [["p.py", line, "f"]]}) for line in range(1, 60))
    for log in created:
        log.path.with_suffix(".names").write_text(names)
    return created


def top(folder: Path) -> list[tuple[str, bool, tuple[int, ...]]]:
    """Return the findings that are nobody's consequence: kind, certainty and lines."""
    findings: list[dict[str, Any]] = Checker(folder).finish()["findings"]
    return sorted(
        (each["kind"], each["certain"], tuple(site["line"] for site in each["sites"])) for each in findings
    )


@pytest.mark.parametrize("is_one_stream", [False, True])
def test_race_beside_a_use_after_free_folds_only_if_one_order_excuses_both(
    tmp_path: Path, is_one_stream: bool
) -> None:
    (log,) = logs(tmp_path, 1)
    log.allocate(1, ONE)
    log.allocate(2, OTHER)
    log.fill(ONE, line=10, stream=4)
    log.fill(OTHER, line=11, stream=4 if is_one_stream else 5)
    log.write(KIND.freed, 2, writes=[OTHER], line=12, flags=FLAG.end)
    log.host_reads(ONE, line=20)
    ended, race = ("use-after-free", True, (11, 12)), ("race", True, (10, 20))
    # A synchronization with stream 4 before line 12 would order line 20, too.
    assert top(tmp_path) == ([ended] if is_one_stream else [race, ended])


def test_writer_that_never_waits_and_reader_that_never_waits_are_two_mistakes_of_one_line(
    tmp_path: Path,
) -> None:
    zero, one = logs(tmp_path, 2)
    zero.channel(1, incoming=10, outgoing=11, peer=1)
    one.channel(2, incoming=11, outgoing=10, peer=0)
    one.allocate(3, WINDOW)
    for number in (1, 2):
        zero.host_writes(ONE, line=9)  # while the write of the pass before may read it
        zero.copy((9, 32 * (number - 1), 32), (5, 0, 32), line=10, stream=4, channel=1)
        zero.notify(11, number, 1, line=11, stream=4)
    one.host_reads(WINDOW, line=20)  # without a wait for either notify
    assert top(tmp_path) == [("race", True, (10, 9)), ("race", True, (10, 20))] or top(tmp_path) == [
        ("race", True, (10, 20)),
        ("race", True, (10, 9)),
    ]


@pytest.mark.parametrize("waits", [(), (1,), (2,), (1, 2)])
def test_each_of_two_channels_that_a_line_uses_needs_its_own_wait(
    tmp_path: Path, waits: tuple[int, ...]
) -> None:
    zero, one, two = logs(tmp_path, 3)
    for rank, sender in ((1, one), (2, two)):
        sender.channel(rank, incoming=10 + rank, outgoing=20 + rank, peer=0)
        zero.channel(rank, incoming=20 + rank, outgoing=10 + rank, peer=rank)
    zero.allocate(3, WINDOW)
    for rank, sender in ((1, one), (2, two)):
        sender.copy((9, 32 * (rank - 1), 32), (5, 0, 32), line=10, stream=4, channel=rank)
        sender.notify(20 + rank, 0, 1, line=11, stream=4)
    for rank in waits:
        zero.wait(20 + rank, 0, 1, line=19)
    zero.host_reads(WINDOW, line=20)
    findings = Checker(tmp_path).finish()["findings"]
    races = [
        (each["count"], {site["rank"] for site in each["sites"]})
        for each in findings
        if each["kind"] == "race"
    ]
    left = [rank for rank in (1, 2) if rank not in waits]
    assert sum(count for count, _ in races) == len(left)
    assert not left or any({0, rank} == ranks for rank in left for _, ranks in races)


@pytest.mark.parametrize("written", [2, 1])
def test_pages_that_are_read_before_they_are_written_fold_unless_one_is_never_written(
    tmp_path: Path, written: int
) -> None:
    zero, one = logs(tmp_path, 2)
    one.allocate(3, WINDOW)
    for page in range(2):
        one.host_reads((9, 32 * page, 32), line=20)
    for page in range(written):
        zero.copy((9, 32 * page, 32), (5, 0, 32), line=10, stream=4)
    race = ("race", True, (10, 20))
    never = ("unwritten-read", True, (1, 20))
    assert top(tmp_path) == ([race] if written == 2 else [race, never])
