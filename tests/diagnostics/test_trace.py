"""A trace has every stream of its recording, in order, and writes a file that Perfetto reads."""

from __future__ import annotations

import gc
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import peerlane as pl
from helpers.own_logs import own_logs
from helpers.promises import Node, filled
from peerlane import trace

pytestmark = pytest.mark.schedules_in_turn

MIB = 1 << 20


def written(timeline: trace.Trace, folder: Path) -> list[dict[str, Any]]:
    """Write the trace's file, and return its events."""
    path = folder / "timeline.json"
    timeline.write(path)
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return events


def named(events: list[dict[str, Any]], kind: str) -> dict[tuple[int, int], str]:
    """Return the names of processes or tracks in the file."""
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == kind}


@pytest.mark.timeout(60)
def test_trace_file_shows_device_as_process_and_stream_as_track(node: Node, tmp_path: Path) -> None:
    d0, d1 = node()
    a, b, c = filled(d0, 4 * MIB, 1), filled(d1, 4 * MIB, 2), filled(d1, 4 * MIB, 3)
    with d0.create_stream() as before, trace.recording() as timeline:
        with d1.create_stream() as during:
            timeline.label(during, "second hop")
            pl.copy(b, a, stream=before)
            during.wait(before.record())
            pl.copy(c, b, stream=during)
            pl.fill(b[:8], 7, stream=during)
            pl.reduce(b, c, dtype="int64", stream=during)
        before.sync()
        ids = before.id, during.id
    assert timeline.lost == 0
    assert [(each.device, each.stream, each.kind, each.nbytes) for each in timeline.operations] == [
        ("virtual:0", ids[0], "copy", 4 * MIB),
        ("virtual:1", ids[1], "copy", 4 * MIB),
        ("virtual:1", ids[1], "fill", 8),
        ("virtual:1", ids[1], "reduce", 4 * MIB),
    ]
    events = written(timeline, tmp_path)
    assert named(events, "process_name") == {(1, 0): "virtual:0", (2, 0): "virtual:1"}
    assert named(events, "thread_name") == {(1, ids[0]): f"stream {ids[0]}", (2, ids[1]): "second hop"}
    slices = [event for event in events if event["ph"] == "X"]
    assert [(e["pid"], e["tid"], e["name"], e["args"]["bytes"]) for e in slices] == [
        (1, ids[0], "copy", 4 * MIB),
        (2, ids[1], "copy", 4 * MIB),
        (2, ids[1], "fill", 8),
        (2, ids[1], "reduce", 4 * MIB),
    ]
    for event, operation in zip(slices, timeline.operations, strict=True):
        assert event["args"]["sequence"] == operation.sequence
        assert event["dur"] >= 0
        assert round(event["ts"] * 1000) == operation.start_ns
    tail, head = (event for event in events if event["ph"] in "sf")
    assert (tail["ph"], tail["tid"], tail["ts"]) == ("s", ids[0], slices[0]["ts"])
    assert (head["ph"], head["tid"], head["ts"]) == ("f", ids[1], slices[1]["ts"])
    assert tail["id"] == head["id"]
    assert c.view()[8] == 1


@pytest.mark.timeout(60)
def test_trace_operations_of_stream_lie_in_order_between_events(node: Node) -> None:
    d0, _ = node()
    a, b = filled(d0, 3 * MIB, 1), filled(d0, 3 * MIB, 2)
    with trace.recording() as timeline, d0.create_stream() as stream:
        first = stream.record()
        for size in (8, 3 * MIB, 64 << 10, 1, 2 * MIB) * 10:
            pl.copy(b[:size], a[:size], stream=stream)
        pl.copy_batch([b[:8], b[8:24]], [a[:8], a[8:24]], stream=stream)
        last = stream.record()
        stream.sync()
    spans = [(each.start_ns, each.end_ns) for each in timeline.operations]
    assert len(spans) == 51
    assert all(start <= end for start, end in spans)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert first.time_ns <= spans[0][0]
    assert spans[-1][1] <= last.time_ns
    assert [each.sequence for each in timeline.operations] == list(range(2, 53))
    assert timeline.operations[-1].nbytes == 24


@pytest.mark.timeout(60)
def test_trace_has_closed_and_dropped_streams(node: Node) -> None:
    d0, _ = node()
    a, b = filled(d0, 64, 1), filled(d0, 64, 2)
    with trace.recording() as timeline:
        closed = d0.create_stream()
        dropped = d0.create_stream()
        for stream in (closed, dropped):
            pl.copy(b, a, stream=stream)
            stream.sync()
        closed.close()
        numbers = [closed.id, dropped.id]
        del closed, dropped, stream
        gc.collect()
    assert [each.stream for each in timeline.operations] == numbers


@pytest.mark.timeout(60)
def test_stream_without_recording_writes_no_log(node: Node) -> None:
    d0, _ = node()
    a, b = filled(d0, 64, 1), filled(d0, 64, 2)
    with d0.create_stream() as stream:
        pl.copy(b, a, stream=stream)
        stream.sync()
        assert own_logs() == 0
        with trace.recording() as timeline:
            pl.copy(b, a, stream=stream)
            stream.sync()
            assert own_logs() == 1
        pl.copy(b, a, stream=stream)
        stream.sync()
        assert own_logs() == 0
        assert [each.sequence for each in timeline.operations] == [2]


@pytest.mark.timeout(120)
def test_trace_beyond_its_room_counts_lost_operations(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    d0, _ = node()
    monkeypatch.setattr(trace, "KEPT", 1 << 20)
    kept = trace.KEPT // 56
    a, b = filled(d0, 8, 1), filled(d0, 8, 2)
    with d0.create_stream() as stream:
        with trace.recording() as timeline:
            for _ in range(kept + 100):
                pl.copy(b, a, stream=stream)
            stream.sync()
        assert timeline.lost == 100
        assert [each.sequence for each in timeline.operations] == list(range(1, kept + 1))
        timeline.write(tmp_path / "t.json")
        assert json.loads((tmp_path / "t.json").read_text())["otherData"] == {"lost operations": 100}
        with trace.recording() as timeline:
            for _ in range(2):
                for _ in range(kept // 2 + 100):
                    pl.copy(b, a, stream=stream)
                stream.sync()
                assert timeline.lost == 0
        assert len(timeline.operations) == kept // 2 * 2 + 200


@pytest.mark.timeout(60)
def test_recording_left_by_exception_ends(node: Node) -> None:
    d0, _ = node()
    a, b = filled(d0, 8, 1), filled(d0, 8, 2)
    with d0.create_stream() as stream:
        with pytest.raises(KeyError), trace.recording() as timeline:
            pl.copy(b, a, stream=stream)
            stream.sync()
            raise KeyError
        assert trace.active is None
        assert len(timeline.operations) == 1
        assert "recorded" in repr(timeline)


@pytest.mark.timeout(60)
def test_trace_without_operations_writes_empty_file(tmp_path: Path) -> None:
    with trace.recording() as timeline:
        pass
    assert written(timeline, tmp_path) == []
