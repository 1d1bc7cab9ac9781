"""A validator of Chrome's trace event format, for the kinds of events that peerlane writes."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

_NAMES = ("process_name", "thread_name", "process_sort_index", "thread_sort_index")
_FIELDS = {
    "M": {"ph", "name", "pid", "tid", "args"},
    "X": {"ph", "name", "cat", "pid", "tid", "ts", "dur", "args"},
    "s": {"ph", "bp", "id", "cat", "name", "pid", "tid", "ts"},
    "f": {"ph", "bp", "id", "cat", "name", "pid", "tid", "ts"},
}


def flaws_of(path: Path) -> list[str]:
    """Return what is wrong with a trace: fields, arrows that do not pair, slices that do not nest, shared tracks."""
    trace = json.loads(path.read_text(encoding="utf-8"))
    flaws = [f"{name} is missing" for name in ("traceEvents", "displayTimeUnit") if name not in trace]
    events: list[dict[str, Any]] = trace.get("traceEvents", [])
    for event in events:
        expected = _FIELDS.get(event.get("ph", ""))
        if expected is None or set(event) != expected:
            flaws.append(f"fields of {event}")
        elif not all(isinstance(event[name], int) for name in ("pid", "tid")):
            flaws.append(f"numbers of {event}")
        elif event["ph"] == "M" and event["name"] not in _NAMES:
            flaws.append(f"name of {event}")
        elif "ts" in event and not (event["ts"] >= 0 and event.get("dur", 1) > 0):
            flaws.append(f"times of {event}")
    if not flaws:
        slices = _slices(events)
        flaws += _tracks(events) + _nesting(slices) + _arrows(events, slices)
    return flaws


Slices = dict[tuple[int, int], list[tuple[int, int]]]


def _ns(microseconds: float) -> int:
    return round(microseconds * 1000)


def _slices(events: list[dict[str, Any]]) -> Slices:
    by_thread: Slices = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start = _ns(event["ts"])
            by_thread[event["pid"], event["tid"]].append((start, start + _ns(event["dur"])))
    for slices in by_thread.values():
        slices.sort(key=lambda each: (each[0], -each[1]))
    return by_thread


def _tracks(events: list[dict[str, Any]]) -> list[str]:
    processes: dict[int, set[int]] = defaultdict(set)
    named: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "M":
            named[event["name"]].append((event["pid"], event["tid"]))
        else:
            processes[event["tid"]].add(event["pid"])
    flaws = [f"track {track} is of processes {sorted(of)}" for track, of in processes.items() if len(of) > 1]
    used = {(pid, track) for track, of in processes.items() for pid in of}
    flaws += [f"track {track} has no name" for track in sorted(used - set(named["thread_name"]))]
    known = {pid for pid, _ in named["process_name"]}
    flaws += [f"process {pid} has no name" for pid, _ in sorted(used) if pid not in known]
    flaws += [f"{name} is told twice" for name, of in named.items() if len(of) != len(set(of))]
    return flaws


def _nesting(slices: Slices) -> list[str]:
    flaws = []
    for track, of in slices.items():
        outer: list[tuple[int, int]] = []
        for start, end in of:
            while outer and outer[-1][1] <= start:
                outer.pop()
            if outer and end > outer[-1][1]:
                flaws.append(f"slice {start} to {end} of track {track} leaves {outer[-1]}")
            outer.append((start, end))
    return flaws


def _arrows(events: list[dict[str, Any]], slices: Slices) -> list[str]:
    ends: dict[tuple[str, int], dict[str, list[dict[str, Any]]]] = defaultdict(lambda: {"s": [], "f": []})
    flaws = []
    for event in events:
        if event["ph"] in "sf":
            ends[event["cat"], event["id"]][event["ph"]].append(event)
            at = _ns(event["ts"])
            if not any(start <= at < end for start, end in slices[event["pid"], event["tid"]]):
                flaws.append(f"no slice at the end of an arrow: {event}")
    for arrow, of in ends.items():
        if [len(of["s"]), len(of["f"])] != [1, 1]:
            flaws.append(f"arrow {arrow} has {len(of['s'])} beginnings and {len(of['f'])} ends")
        elif of["s"][0]["ts"] > of["f"][0]["ts"]:
            flaws.append(f"arrow {arrow} goes back in time")
    return flaws
