"""A timeline of all processes as a file for Perfetto and Chrome's tracing page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peerlane.checker import texts
from peerlane.checker.timeline import Mark, Timeline
from peerlane.diagnostics.log.log_files import ProcessLog

_SHORTEST_NS = 1000  # as wide is what did not last, where the next one leaves the room


def write_trace(path: Path, timeline: Timeline) -> None:
    """Write a timeline as JSON in Chrome's trace event format; an existing file is replaced.

    A process is a rank, a track a stream or a thread.  Arrows go from a record to its wait, and from a write to the
    wait by which it has come.
    """
    with path.open("w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit": "ns", "traceEvents": [\n')
        separator = ""
        for event in trace_events(timeline):
            file.write(separator + json.dumps(event))
            separator = ",\n"
        other = {"left out": timeline.left_out, "clocks": timeline.clocks}
        file.write(f'\n], "otherData": {json.dumps(other)}}}\n')


def trace_events(timeline: Timeline) -> Iterator[dict[str, Any]]:
    """Yield the events of the format."""
    shown = {lane.process + 1 for lane in timeline.lanes}
    for number, log in enumerate(timeline.processes, 1):
        if number not in shown:  # `peerlane launch` itself
            continue
        yield _named("process_name", number, 0, _name_of(log))
        yield {
            "ph": "M",
            "name": "process_sort_index",
            "pid": number,
            "tid": 0,
            "args": {"sort_index": number},
        }
    for number, lane in enumerate(timeline.lanes, 1):
        yield _named("thread_name", lane.process + 1, number, lane.name)
        yield _sorted(lane.process + 1, number)
    spans = _spans(timeline)
    for at, mark in enumerate(timeline.marks):
        yield _slice(timeline, mark, *spans[at])
    for number, arrow in enumerate(timeline.arrows, 1):
        tail, head = timeline.marks[arrow.tail], timeline.marks[arrow.head]
        sent, (begun, end) = spans[arrow.tail][0], spans[arrow.head]
        came = end - 1 if head.end > head.start else max(begun, min(sent, end - 1))
        if came < sent:  # slices that would be empty were stretched: an arrow cannot go back in time
            continue
        for phase, mark, at_ns in (("s", tail, sent), ("f", head, came)):
            lane = timeline.lanes[mark.lane]
            yield {
                "ph": phase,
                "bp": "e",
                "id": number,
                "cat": arrow.kind,
                "name": arrow.kind,
                "pid": lane.process + 1,
                "tid": mark.lane + 1,
                "ts": at_ns / 1000,
            }


def _name_of(log: ProcessLog) -> str:
    where = f" on {log.machine}" if log.machine else ""
    return f"{log.name} (pid {log.pid}{where})" if log.rank >= 0 else f"{log.name}{where}"


def _named(kind: str, process: int, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": track, "args": {"name": name}}


def _sorted(process: int, track: int) -> dict[str, Any]:
    return {
        "ph": "M",
        "name": "thread_sort_index",
        "pid": process,
        "tid": track,
        "args": {"sort_index": track},
    }


def _slice(timeline: Timeline, mark: Mark, start: int, end: int) -> dict[str, Any]:
    frames = timeline.sites[mark.site]
    args: dict[str, Any] = {"event": mark.number}
    if mark.note:
        args["what"] = mark.note
    if frames:
        args["line"] = texts.location_of(*frames[0][:2])
        args["function"] = frames[0][2]
    if len(frames) > 1:
        args["called at"] = ", ".join(texts.location_of(*frame[:2]) for frame in frames[1:])
    return {
        "ph": "X",
        "name": mark.label,
        "cat": mark.group,
        "pid": timeline.lanes[mark.lane].process + 1,
        "tid": mark.lane + 1,
        "ts": start / 1000,
        "dur": (end - start) / 1000,
        "args": args,
    }


def _spans(timeline: Timeline) -> list[tuple[int, int]]:
    """Return when the slice of each mark begins and ends, so that slices of a track nest and none is empty."""
    spans = [(0, 0)] * len(timeline.marks)
    lanes: dict[int, list[int]] = {}
    for number, mark in enumerate(timeline.marks):
        lanes.setdefault(mark.lane, []).append(number)
    for numbers in lanes.values():
        numbers.sort(key=lambda each: (timeline.marks[each].start, -timeline.marks[each].end, each))
        _nest(timeline, numbers, spans)
    return spans


def _nest(timeline: Timeline, numbers: list[int], spans: list[tuple[int, int]]) -> None:
    over = 0  # the end of what came before in the same slice
    outer: list[int] = []  # slices that last
    for at, number in enumerate(numbers):
        mark = timeline.marks[number]
        while outer and spans[outer[-1]][1] <= max(mark.start, over):
            over = max(over, spans[outer.pop()][1])
        start = max(mark.start, over)
        following = timeline.marks[numbers[at + 1]].start if at + 1 < len(numbers) else start + _SHORTEST_NS
        end = mark.end if mark.end > start else start + max(1, min(_SHORTEST_NS, following - start))
        if outer:
            end = min(end, spans[outer[-1]][1])
        spans[number] = (start, max(end, start + 1))
        if mark.end > start and at + 1 < len(numbers) and following < end:
            outer.append(number)
            over = start
        else:
            over = spans[number][1]
