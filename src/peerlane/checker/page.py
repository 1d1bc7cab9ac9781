"""The report as one HTML page, which needs no network: findings with both lines, and a timeline of all processes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from peerlane.checker import texts
from peerlane.checker.timeline import Timeline

MOST_EVENTS = 100_000  #: of a page

_CONTEXT = 5  # lines above and below


def write_page(
    path: Path, report: Mapping[str, Any], timeline: Timeline, sources: texts.Sources, *, command: str
) -> None:
    """Write the page.

    ``path``: the file; an existing one is replaced.
    ``report``: as ``docs/design/checker.md`` has it.
    ``timeline``: what the lanes show.
    ``sources``: where the source lines come from.
    ``command``: what was checked.
    """
    # "<" could end the element of the page that has the data.
    data = json.dumps(page_data(report, timeline, sources, command), separators=(",", ":")).replace(
        "<", "\\u003c"
    )
    page = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    path.write_text(page.replace("/*DATA*/", data, 1), encoding="utf-8")


def page_data(
    report: Mapping[str, Any], timeline: Timeline, sources: texts.Sources, command: str
) -> dict[str, Any]:
    """Return what the page's script reads."""
    files, notes, labels = _Numbers(), _Numbers(""), _Numbers()
    sites = [
        [files.of(frames[0][0]), frames[0][1], frames[0][2]] if frames else [] for frames in timeline.sites
    ]
    marks = timeline.marks
    events = {
        "lane": [mark.lane for mark in marks],
        "start": [mark.start for mark in marks],
        "end": [mark.end for mark in marks],
        "label": [labels.of((mark.label, mark.group)) for mark in marks],
        "site": [mark.site for mark in marks],
        "note": [notes.of(mark.note) for mark in marks],
    }
    pids = [log.pid for log in timeline.processes]
    marks_of_events = {
        (pids[timeline.lanes[mark.lane].process], mark.number): at for at, mark in enumerate(marks)
    }
    return {
        "command": command,
        "summary": _summary(report, timeline),
        "processes": [log.name for log in timeline.processes],
        "lanes": [{"process": lane.process, "name": lane.name} for lane in timeline.lanes],
        "labels": labels.known,
        "notes": notes.known,
        "files": [texts.shown_path(file) for file in files.known],
        "sites": sites,
        "sources": _source_lines(sites, files.known, sources),
        "events": events,
        "arrows": [[arrow.tail, arrow.head, arrow.kind] for arrow in timeline.arrows],
        "findings": [_finding(each, marks_of_events, sources) for each in report["findings"]],
    }


class _Numbers:
    """Numbers keys in the order of their first use."""

    def __init__(self, *known: Any) -> None:
        self.known: list[Any] = list(known)
        self._numbers = {key: number for number, key in enumerate(known)}

    def of(self, key: Any) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self.known)
            self.known.append(key)
        return self._numbers[key]


def _summary(report: Mapping[str, Any], timeline: Timeline) -> list[list[str]]:
    certain = sum(bool(each["certain"]) for each in report["findings"])
    kind = "certain" if certain else "uncertain" if report["findings"] else "clean"
    first, *rest = texts.summary_text(report).splitlines()
    rows = [[first, kind], *([line.strip(), "uncertain"] for line in rest)]
    if timeline.left_out:
        rows.append([f"The timeline lacks {timeline.left_out:,} events, far from the findings.", "uncertain"])
    return rows


def _finding(
    finding: Mapping[str, Any], marks_of_events: Mapping[tuple[int, int], int], sources: texts.Sources
) -> dict[str, Any]:
    return {
        "kind": finding["kind"],
        "certain": bool(finding["certain"]),
        "count": finding["count"],
        "message": finding["message"],
        "facts": texts.finding_facts(finding),
        "consequences": texts.consequence_lines(finding),
        "sites": [_site(site, sources) for site in texts.distinct_sites(finding)],
        "events": [
            marks_of_events.get((site["pid"], site["event"]), -1) for site in texts.distinct_sites(finding)
        ],
    }


def _site(site: Mapping[str, Any], sources: texts.Sources) -> dict[str, Any]:
    file, line = texts.named_line(site)
    frames = [(site["file"], site["line"]), *(caller[:2] for caller in site["callers"])]
    helpers = site.get("helpers", 0)
    return {
        "actor": texts.actor_of(site),
        "what": texts.what_of(site),
        "place": texts.location_of(file, line),
        "line": line,
        "source": sources.around(file, line, _CONTEXT),
        "helpers": [texts.location_of(*each) for each in frames[:helpers]],
        "callers": [texts.location_of(*each) for each in frames[helpers + 1 :]],
        "launched": texts.location_of(*site["launched"][:2]) if site.get("launched") else "",
    }


def _source_lines(sites: list[list[Any]], files: list[str], sources: texts.Sources) -> list[dict[int, str]]:
    lines_of: list[dict[int, str]] = [{} for _ in files]
    for site in sites:
        if site:
            file, line, _ = site
            lines_of[file].update(sources.around(files[file], line, _CONTEXT))
    return lines_of
