"""Timelines as files for Perfetto: arrows pair, slices nest, and no two ranks share a track."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import timelines
from helpers.trace_format import flaws_of
from peerlane.checker.chrome_trace import write_trace
from peerlane.checker.timeline import NOTIFY, Arrow, Lane, Mark, Timeline
from peerlane.diagnostics.log.log_files import ProcessLog

pytestmark = pytest.mark.any_schedule


def test_trace_of_a_ring_is_valid_and_has_the_submitting_lines(tmp_path: Path) -> None:
    write_trace(tmp_path / "t.json", timelines.ring(tmp_path / "ring.py"))
    assert flaws_of(tmp_path / "t.json") == []
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) == 60
    assert sum(event["ph"] == "s" for event in events) == 24
    (first,) = [each for each in events if each["ph"] == "X" and each["name"] == "notify"][:1]
    assert first["args"]["line"].endswith("ring.py:3")
    assert [each["args"]["name"] for each in events if each["name"] == "process_name"] == [
        f"rank {rank} (pid {100 + rank})" for rank in range(4)
    ]


spans = st.tuples(st.integers(0, 40), st.integers(0, 20)).map(lambda each: (1000 + each[0], 1000 + sum(each)))


def _nested(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Keep those that lie in one another or apart, as callbacks of a thread do."""
    kept: list[tuple[int, int]] = []
    for start, end in intervals:
        if all(
            end <= a or start >= b or (a <= start and end <= b) or (start <= a and b <= end) for a, b in kept
        ):
            kept.append((start, end))
    return kept


def test_arrow_to_a_slice_that_ends_before_the_stretched_one_is_not_drawn(tmp_path: Path) -> None:
    timeline = Timeline(processes=[ProcessLog(Path("x.log"), pid=3)])
    for lane, marks in enumerate([[(1000, 1000)] * 9, [(1000, 1001)]]):
        timeline.lanes.append(Lane(0, f"stream {lane}", True, lane))
        timeline.marks += [Mark(lane, *mark, "copy", "write", "", at, 0, at) for at, mark in enumerate(marks)]
    timeline.arrows = [Arrow(0, 9, NOTIFY), Arrow(8, 9, NOTIFY)]
    path = tmp_path / "t.json"
    write_trace(path, timeline)
    assert flaws_of(path) == []
    assert path.read_text().count('"ph": "s"') == 1


@given(drawn=st.lists(st.lists(spans, max_size=12).map(_nested), max_size=3), pairs=st.data())
def test_trace_of_any_marks_is_valid(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[list[tuple[int, int]]], pairs: st.DataObject
) -> None:
    timeline = Timeline(
        processes=[ProcessLog(Path("x.log"), pid=3), ProcessLog(Path("y.log"), pid=4, rank=1)]
    )
    for lane, marks in enumerate(drawn):
        timeline.lanes.append(Lane(lane % 2, f"stream {lane}", True, lane))
        timeline.marks += [
            Mark(lane, start, end, "copy", "write", "", number, 0, number)
            for number, (start, end) in enumerate(marks)
        ]
    if timeline.marks:
        number = st.integers(0, len(timeline.marks) - 1)
        ends = pairs.draw(st.lists(st.tuples(number, number), max_size=6))
        timeline.arrows = [
            Arrow(tail, head, NOTIFY)
            for tail, head in ends
            if timeline.marks[tail].end <= timeline.marks[head].end
        ]
    path = tmp_path_factory.mktemp("trace") / "t.json"
    write_trace(path, timeline)
    assert flaws_of(path) == []


@pytest.mark.parametrize(
    ("events", "flaw"),
    [
        ([{"ph": "X", "name": "a"}], "fields"),
        ([{"ph": "s", "bp": "e", "id": 1, "cat": "c", "name": "n", "pid": 1, "tid": 1, "ts": 1}], "no slice"),
    ],
)
def test_validator_finds_flaws(tmp_path: Path, events: list[dict[str, object]], flaw: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"displayTimeUnit": "ns", "traceEvents": events}))
    assert flaw in " ".join(flaws_of(path))


def test_validator_finds_slices_that_cross_and_tracks_that_are_shared(tmp_path: Path) -> None:
    def slice_(process: int, ts: float) -> dict[str, object]:
        return {"ph": "X", "name": "a", "cat": "c", "pid": process, "tid": 1, "ts": ts, "dur": 3, "args": {}}

    path = tmp_path / "t.json"
    path.write_text(
        json.dumps({"displayTimeUnit": "ns", "traceEvents": [slice_(1, 1), slice_(1, 2), slice_(2, 9)]})
    )
    flaws = " ".join(flaws_of(path))
    assert "leaves" in flaws and "is of processes" in flaws and "has no name" in flaws
