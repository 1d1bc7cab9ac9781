"""The checker on a directory of logs: findings as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.event_logs import Clock, EventLog
from peerlane.checker import Checker

pytestmark = pytest.mark.any_schedule


def _names(folder: Path, stem: str, *sites: int) -> None:
    lines = [
        json.dumps({"site": site, "frames": [["p.py", site, "work"], ["p.py", 90, "main"]]}) for site in sites
    ]
    (folder / f"{stem}.names").write_text("\n".join([*lines, '{"site": 99, "fra']))


def _logs(folder: Path, *, waits: bool) -> None:
    clock = Clock()
    zero, one = (
        EventLog(folder / f"{rank + 1}-7.log", clock, pid=2**30 + rank, rank=rank) for rank in (0, 1)
    )
    for log, peer in ((zero, 1), (one, 0)):
        log.channel(7, incoming=100 + log.rank, outgoing=100 + peer, peer=peer)
        _names(folder, log.path.stem, 1, 10, 11, 15, 20)
    one.allocate(3, (9, 0, 64), line=1)
    zero.fill((5, 0, 64), line=1)
    zero.copy((9, 0, 64), (5, 0, 64), line=10, stream=4, channel=7)
    zero.notify(101, 2, 1, line=11, stream=4)
    if waits:
        one.wait(101, 2, 1, line=15)
    one.host_reads((9, 0, 64), line=20)
    for log in (zero, one):
        log.publish()


def test_checker_on_a_program_that_is_right_finds_nothing(tmp_path: Path) -> None:
    _logs(tmp_path, waits=True)
    checker = Checker(tmp_path)
    checker.poll()
    assert checker.finish() == {"version": 1, "complete": True, "dropped": 0, "unwatched": [], "findings": []}


def test_checker_names_both_lines_and_the_wait_that_is_missing(tmp_path: Path) -> None:
    _logs(tmp_path, waits=False)
    (finding,) = Checker(tmp_path).finish()["findings"]
    assert (finding["kind"], finding["certain"], finding["count"], finding["why"]) == ("race", True, 1, "")
    assert finding["sites"][0] == {
        "file": "p.py",
        "line": 10,
        "function": "work",
        "rank": 0,
        "pid": 2**30,
        "thread": 2**30,
        "stream": 4,
        "callback": 0,
        "verb": "Channel.write",
        "call": "Channel.write",
        "access": "write",
        "callers": [["p.py", 90, "main"]],
        "event": 2,
        "helpers": 0,
        "launched": None,
        "with_end": False,
    }
    assert (finding["sites"][1]["line"], finding["sites"][1]["verb"], finding["sites"][1]["rank"]) == (
        20,
        "host access",
        1,
    )
    assert finding["memory"] == {
        "rank": 1,
        "pid": 2**30 + 1,
        "allocation": 3,
        "size": 64,
        "made": ["p.py", 1],
    }
    assert finding["missing"] == (
        "a wait (Channel.wait) of rank 1 for notify 2, which rank 0 records at line 11 and no wait takes; a "
        "wait for it must come before line 20"
    )
    json.dumps(finding)


def test_checker_merges_findings_of_the_same_lines_in_several_ranks(tmp_path: Path) -> None:
    clock = Clock()
    for rank in range(3):
        log = EventLog(tmp_path / f"{rank + 1}-7.log", clock, pid=2**30 + rank, rank=rank)
        _names(tmp_path, log.path.stem, 10, 20)
        log.fill((rank + 1, 0, 64), line=10, stream=4)
        log.host_reads((rank + 1, 0, 64), line=20)
    (finding,) = Checker(tmp_path).finish()["findings"]
    assert finding["count"] == 3
    assert (
        finding["missing"]
        == "a synchronization (Stream.sync) of rank 0 with stream 4, after line 10, before line 20"
    )


def test_checker_that_looks_again_at_the_log_of_a_killed_process_is_complete(tmp_path: Path) -> None:
    _logs(tmp_path, waits=True)
    for path in tmp_path.glob("*.log"):  # the last event could have grown, had its process lived
        with path.open("r+b") as file:
            file.seek(40)
            file.write(bytes(8))
    checker = Checker(tmp_path)
    for _ in range(3):
        checker.poll()
    assert checker.finish()["complete"] is True


def test_checker_with_a_file_that_is_not_a_log_is_not_complete(tmp_path: Path) -> None:
    _logs(tmp_path, waits=True)
    (tmp_path / "1073741900-5.log").write_bytes(b"x" * 5000)
    assert Checker(tmp_path).finish()["complete"] is False
