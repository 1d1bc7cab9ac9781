"""Findings as text: both lines with their source, the bytes, what is missing, and why it is uncertain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from peerlane.checker import texts

pytestmark = pytest.mark.any_schedule

PROGRAM = """\
import peerlane as pl
def send(channel, block, stream):
    channel.write(block, stream=stream)
def look(view):
    return view[0] + view[1] + view[2] + view[3] + view[4] + view[5] + view[6] + view[7] + view[8] + 1
"""


def site(file: Path | str, line: int, **changed: Any) -> dict[str, Any]:
    return {
        "file": str(file),
        "line": line,
        "function": "main",
        "rank": 0,
        "pid": 71,
        "thread": 72,
        "stream": 2,
        "verb": "Channel.write",
        "call": "Channel.write",
        "access": "write",
        "callers": [],
        "event": 1044,
    } | changed


def race(file: Path | str, **changed: Any) -> dict[str, Any]:
    return {
        "kind": "race",
        "certain": True,
        "why": "",
        "count": 1,
        "sites": [
            site(file, 3, function="send"),
            site(file, 5, function="look", rank=1, stream=0, call="Buffer.view", access="read"),
        ],
        "memory": {"rank": 1, "allocation": 3, "size": 4096, "made": [str(file), 1]},
        "bytes": [0, 64],
        "missing": "a wait of rank 1 for a notify that rank 0 records on this channel and stream after line 3, "
        "before line 5",
        "last_order": None,
        "message": "rank 0 writes what rank 1 reads, in no order",
    } | changed


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "p.py"
    path.write_text(PROGRAM)
    return path


def test_race_has_both_lines_with_source_and_what_is_missing(program: Path) -> None:
    assert texts.finding_text(race(program), texts.Sources()).splitlines() == [
        "race (certain): rank 0 writes what rank 1 reads, in no order",
        "  memory: bytes 0 to 63 of 4,096 in allocation 3 of rank 1, made at p.py:1",
        "  rank 0, stream 2: Channel.write at p.py:3, in send",
        "        3 | channel.write(block, stream=stream)",
        "  rank 1, thread 72: Buffer.view (read) at p.py:5, in look",
        "        5 | return view[0] + view[1] + view[2] + view[3] + view[4] + view[5] + view[6] + view[7] + …",
        "  missing: a wait of rank 1 for a notify that rank 0 records on this channel and stream after line",
        "    3, before line 5",
    ]


def test_long_locations_keep_the_number_of_their_line(program: Path) -> None:
    long = "/" + "folder/" * 20 + "p.py"
    seen = site(program, 3, callers=[[long, 12, "main"], [str(program), 7, "f" * 200]])
    seen["launched"] = [long, 13, "main"]
    sites = [{**site(program, 5), "file": long}, seen]
    lines = texts.finding_text(race(program, sites=sites), texts.Sources()).splitlines()
    assert any(line == f"    {texts.location_of(long, 5)}" for line in lines)
    assert f"          called at {texts.location_of(long, 12)}" in lines
    assert f"          launched at {texts.location_of(long, 13)}" in lines
    [clipped] = [line for line in lines if "fff" in line]
    assert (
        clipped.startswith("          called at p.py:7, in f")
        and clipped.endswith("…")
        and len(clipped) == 100
    )


def test_uncertain_finding_has_its_reason_and_its_count(program: Path) -> None:
    text = texts.finding_text(
        race(program, certain=False, why="process 71 has a socket", count=1200), texts.Sources()
    )
    assert text.startswith("race (uncertain, 1,200 times): ")
    assert text.endswith("\n  uncertain: process 71 has a socket")


def test_finding_without_rank_memory_and_source_has_a_text(tmp_path: Path) -> None:
    lost = race(
        tmp_path / "gone.py",
        kind="lost-notify",
        memory=None,
        bytes=None,
        missing="",
        last_order={"from": "rank 0 at p.py:3", "to": "rank 1 at p.py:4"},
    )
    lost["sites"] = [site("<string>", 1, rank=-1, callers=[["q.py", 9, "run"]])]
    text = texts.finding_text(lost, texts.Sources({"<string>": "notify()"})).splitlines()
    assert text[1:] == [
        "  process 71, stream 2: Channel.write at <string>:1, in main",
        "        1 | notify()",
        "          called at q.py:9, in run",
        "  last order: from rank 0 at p.py:3 to rank 1 at p.py:4",
    ]


@pytest.mark.parametrize("width", [60, 100])
def test_no_line_is_wider_than_asked(tmp_path: Path, width: int) -> None:
    file = tmp_path / ("long_" * 30 + ".py")
    file.write_text("x = 1  # " + "word " * 60)
    text = texts.finding_text(
        race(file, sites=[site(file, 1, callers=[[str(file), 1, "f"]])], message="many words " * 30),
        texts.Sources(),
        width=width,
    )
    # A path has no place to break at: only the line with where memory was made may be wider.
    assert (
        max(len(line) for line in text.splitlines() if "made at" not in line and "long_" not in line) <= width
    )


def test_control_characters_of_a_program_are_escaped(tmp_path: Path) -> None:
    file = tmp_path / "evil.py"
    file.write_text("x = '\x1b[31mred'\n")
    text = texts.finding_text(race(file, sites=[site(file, 1)], message="a\x1b[0m"), texts.Sources())
    assert "\x1b" not in text


def test_colours_only_with_the_style(program: Path) -> None:
    text = texts.finding_text(race(program), texts.Sources(), style=texts.coloured)
    assert "\x1b[1;31mrace (certain)\x1b[0m: rank 0" in text
    assert "\x1b[36mp.py:3\x1b[0m, in send" in text
    assert "  \x1b[1mmissing:\x1b[0m a wait" in text


@pytest.mark.parametrize(
    ("certain", "uncertain", "expected"),
    [
        (0, 0, "no findings"),
        (1, 0, "1 certain finding"),
        (2, 1, "2 certain findings and 1 uncertain finding"),
        (0, 3, "3 uncertain findings"),
    ],
)
def test_summary_counts_findings(certain: int, uncertain: int, expected: str) -> None:
    findings = [race("p.py", certain=n < certain) for n in range(certain + uncertain)]
    assert texts.summary_text({"complete": True, "dropped": 0, "findings": findings}) == expected


def test_summary_of_incomplete_log_counts_dropped_events() -> None:
    text = texts.summary_text({"complete": False, "dropped": 12345, "findings": []})
    assert "12,345 events were dropped" in text


def test_process_that_has_all_of_a_finding_is_named_once(program: Path) -> None:
    alone = race(program)
    alone["memory"] |= {"rank": -1, "pid": 71}
    alone["sites"] = [each | {"rank": -1} for each in alone["sites"]]
    assert texts.finding_text(alone, texts.Sources()).count("process 71") == 1
    alone["sites"][1]["pid"] = 75
    text = texts.finding_text(alone, texts.Sources())
    assert "process 71, stream 2" in text and "process 75, thread 72" in text


@pytest.mark.parametrize("number", [1, 2, 6])
def test_consequences_are_counted_in_good_english(program: Path, number: int) -> None:
    findings = race(program, consequences=[race(program, kind="lost-notify")] * number)
    first, *rest = texts.consequence_lines(findings)
    assert first == (
        "and 1 consequence, which goes away with it:"
        if number == 1
        else f"and {number} consequences, which go away with it:"
    )
    assert len(rest) == min(number, 5)
    assert (rest[-1] == "… 2 more (--json has them)") is (number == 6)
