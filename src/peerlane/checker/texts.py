"""Findings as text for people: both lines with their source, the bytes, and what is missing."""

from __future__ import annotations

import os
import shlex
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from peerlane.diagnostics.log.log_files import is_installed

Finding: TypeAlias = Mapping[str, Any]
Style: TypeAlias = Callable[[str, str], str]

WIDTH = 100

#: Verbs whose words state the access, or that access no memory.
_NAMES_ACCESS = frozenset(
    ("allocation", "deregister", "free", "notify", "Channel.notify", "wait for a notify", "changed bytes")
)

_COLOURS = {"certain": "1;31", "uncertain": "1;33", "place": "36", "missing": "1", "clean": "32"}


def plain(_part: str, text: str) -> str:
    """Return the text as it is."""
    return text


def coloured(part: str, text: str) -> str:
    """Return the text with the escapes of a terminal for a part of a finding."""
    return f"\x1b[{_COLOURS[part]}m{text}\x1b[0m" if part in _COLOURS else text


class Sources:
    """The source lines of a program.

    ``known``: the text of sources that are not files, such as ``<string>`` of ``python -c``.
    """

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        self._lines: dict[str, list[str]] = {name: text.splitlines() for name, text in (known or {}).items()}

    def line(self, file: str, number: int) -> str:
        """Return a line without its end, or an empty text if it cannot be read."""
        lines = self._of(file)
        return lines[number - 1] if 0 < number <= len(lines) else ""

    def around(self, file: str, number: int, context: int) -> list[tuple[int, str]]:
        """Return a line and its neighbours, with their numbers; empty if it cannot be read."""
        lines = self._of(file)
        if not 0 < number <= len(lines):
            return []
        first, last = max(1, number - context), min(len(lines), number + context)
        return [(each, lines[each - 1]) for each in range(first, last + 1)]

    def _of(self, file: str) -> list[str]:
        if file not in self._lines:
            try:
                self._lines[file] = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
            except (OSError, ValueError):
                self._lines[file] = []
        return self._lines[file]


def finding_text(finding: Finding, sources: Sources, *, style: Style = plain, width: int = WIDTH) -> str:
    """Return a finding as a block of lines.

    ``finding``: as ``docs/design/checker.md`` has it.
    ``sources``: where the source lines come from.
    ``style``: :func:`plain` or :func:`coloured`.
    ``width``: the most characters of a line.
    """
    certainty = "certain" if finding["certain"] else "uncertain"
    times = f", {finding['count']:,} times" if finding["count"] > 1 else ""
    head = f"{finding['kind']} ({certainty}{times})"
    first, *rest = _wrapped(f"{head}: {finding['message']}", width)
    lines = [style(certainty, first[: len(head)]) + first[len(head) :], *rest]
    before, behind = finding_facts(finding, is_before=True), finding_facts(finding, is_before=False)
    for name, text in before:
        lines += _fact(name, text, style, width)
    for site in distinct_sites(finding):
        lines += _site(site, sources, style, width, names_process=not _is_of_one_process(finding))
    for name, text in behind:
        lines += _fact(name, text, style, width)
    for line in consequence_lines(finding):
        lines.append(_clipped("  " if line.startswith("and") else "    ", line, width))
    return "\n".join(lines)


_MOST_CONSEQUENCES = 4


def consequence_lines(finding: Finding) -> list[str]:
    """Return what follows from a finding: a line that counts it, and a line for each of the first."""
    follow = finding.get("consequences") or []
    if not follow:
        return []
    go = "goes" if len(follow) == 1 else "go"
    lines = [f"and {_counted_consequences(len(follow))}, which {go} away with it:"]
    for each in follow[:_MOST_CONSEQUENCES]:
        sites = ", ".join(
            f"{_owner(site)}'s {site['call']} at {location_of(*named_line(site))}"
            for site in distinct_sites(each)
        )
        lines.append(f"{each['kind']}: {sites}")
    if len(follow) > _MOST_CONSEQUENCES:
        lines.append(f"… {len(follow) - _MOST_CONSEQUENCES:,} more (--json has them)")
    return lines


def _counted_consequences(number: int) -> str:
    return f"{number:,} consequence{'s' * (number != 1)}"


def named_line(site: Mapping[str, Any]) -> tuple[str, int]:
    """Return the file and line of a site, outside helpers."""
    depth = site.get("helpers", 0)
    file, line = site["callers"][depth - 1][:2] if depth else (site["file"], site["line"])
    return file, line


def finding_facts(finding: Finding, *, is_before: bool | None = None) -> list[tuple[str, str]]:
    """Return the named facts of a finding: all, or with ``is_before`` those before, or after, the source lines."""
    before = [("memory", where)] if (where := _bytes(finding)) else []
    behind = [("missing", finding["missing"])] if finding.get("missing") else []
    if order := finding.get("last_order"):
        behind.append(("last order", f"from {order['from']} to {order['to']}"))
    if not finding["certain"]:
        behind.append(("uncertain", finding["why"]))
    return before + behind if is_before is None else before if is_before else behind


def _fact(name: str, text: str, style: Style, width: int) -> list[str]:
    first, *rest = _wrapped(f"  {name}: {text}", width)
    return [
        f"  {style('missing', name + ':') if name == 'missing' else name + ':'}{first[len(name) + 3 :]}",
        *rest,
    ]


def _bytes(finding: Finding) -> str:
    memory, span = finding.get("memory"), finding.get("bytes")
    if not memory or not span:
        return ""
    which = span_text(span)
    allocated_at = memory.get("made")
    at = f", made at {location_of(allocated_at[0], allocated_at[1])}" if allocated_at else ""
    return f"{which} of {memory['size']:,} in allocation {memory['allocation']} of {_owner(memory)}{at}"


def span_text(span: Sequence[int]) -> str:
    """Return bytes as ``bytes 0 to 63``; the second number is behind the last one."""
    first, end = span
    return f"byte {first:,}" if end - first == 1 else f"bytes {first:,} to {end - 1:,}"


def _owner(what: Mapping[str, Any]) -> str:
    rank = what.get("rank")
    if rank is not None and rank >= 0:
        return f"rank {rank}"
    return f"process {what['pid']}" if what.get("pid") else "the process"


def distinct_sites(finding: Finding) -> list[Mapping[str, Any]]:
    """Return the lines of a finding, each once: two rounds of a loop are one line."""
    first, *rest = finding["sites"]
    return [first, *(each for each in rest if _without_event(each) != _without_event(first))]


def _without_event(site: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in site.items() if name != "event"}


def what_of(site: Mapping[str, Any]) -> str:
    """Return what a line did: ``Channel.write (write)``."""
    is_named = site["access"] in site["call"].lower() or site["verb"] in _NAMES_ACCESS
    return str(site["call"]) if is_named else f"{site['call']} ({site['access']})"


def actor_of(site: Mapping[str, Any], *, names_process: bool = True) -> str:
    """Return who did something: ``rank 0, stream 2``."""
    queue = ""
    if site.get("stream"):
        queue = f"stream {site['stream']}"
    elif site.get("callback"):
        queue = f"callback of stream {site['callback']}"
    elif site.get("thread"):
        queue = f"thread {site['thread']}"
    return ", ".join(filter(None, [_owner(site) if names_process or not queue else "", queue]))


def _is_of_one_process(finding: Finding) -> bool:
    """Return whether all of a finding is of one process that is not a rank; then only the memory's line names it."""
    memory = finding.get("memory")
    involved = [*finding["sites"], *filter(None, [memory])]
    return (
        memory is not None
        and len({each.get("pid") for each in involved}) == 1
        and all(each.get("rank") in (None, -1) for each in involved)
    )


def _call_of_library(site: Mapping[str, Any]) -> int:
    """Return which caller calls the library whose line the site names, 1 for the first one; 0 for none."""
    if not is_installed(site["file"]):
        return 0
    callers = enumerate(site.get("callers", ()), 1)
    return next((number for number, caller in callers if not is_installed(caller[0])), 0)


def _site(
    site: Mapping[str, Any], sources: Sources, style: Style, width: int, *, names_process: bool
) -> list[str]:
    location = location_of(site["file"], site["line"])
    within = ", as its `with` ends" if site.get("with_end") else ""
    within += f", in {site['function']}" if site.get("function") else ""
    head = f"  {actor_of(site, names_process=names_process)}: {what_of(site)} at "
    if len(head) + len(location) + len(within) <= width:
        lines = [head + style("place", location) + within]
    else:
        lines = [head.rstrip(), f"    {style('place', location)}"]
    text = sources.line(site["file"], site["line"]).strip()
    if text:
        lines.append(_clipped(f"    {site['line']:>5} | ", printable(text), width))
    shown = {site.get("helpers"), _call_of_library(site)}
    for number, caller in enumerate(site.get("callers", ()), 1):
        file, line, *function = caller
        within = f", in {function[0]}" if function else ""
        lines.append(_located("          called at ", location_of(file, line), within, width))
        text = sources.line(file, line).strip() if number in shown else ""
        if text:
            lines.append(_clipped(f"    {line:>5} | ", printable(text), width))
    if site.get("launched"):
        file, line, function = site["launched"]
        lines.append(_located("          launched at ", location_of(file, line), f", in {function}", width))
        text = sources.line(file, line).strip()
        if text:
            lines.append(_clipped(f"    {line:>5} | ", printable(text), width))
    return lines


def _clipped(before: str, text: str, width: int) -> str:
    room = width - len(before)
    return before + (text if len(text) <= room else text[: room - 1] + "…")


def _located(before: str, location: str, within: str, width: int) -> str:
    """Return a line with a location, which is whole however long it is: the number of the line is its end."""
    whole = before + location
    return _clipped(whole, within, width) if len(whole) < width else whole


def _wrapped(text: str, width: int) -> list[str]:
    indent = len(text) - len(text.lstrip())
    return textwrap.wrap(
        printable(text),
        width,
        initial_indent="",
        subsequent_indent=" " * (indent + 2),
        drop_whitespace=True,
        break_on_hyphens=False,
    )


def nth(number: int) -> str:
    """Return ``3rd`` for 3."""
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def location_of(file: str, line: int) -> str:
    """Return a line as ``p.py:12``; C code without line numbers has its function, or file and offset, instead."""
    if not file:
        return "an unknown line"
    return f"{shown_path(file)}:{line}" if line else shown_path(file)


def shown_path(file: str) -> str:
    """Return a path as short as it can be from the current directory."""
    try:
        relative = os.path.relpath(file) if os.path.isabs(file) else file  # noqa: PTH117 - a name, not a file
    except (OSError, ValueError):  # the current directory was removed
        return printable(file)
    return printable(file if relative.startswith("..") else relative)


def printable(text: str) -> str:
    """Return a text with escapes in place of what a terminal would act on."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text
    )


_UNWATCHED = {
    "source": "whether the program changed too early the host memory that {operations} had to read",
    "destination": "whether the program looked too early at the host memory that {operations} had to write",
    "alias": "what the program reads and writes through {arrays} on buffers (np.asarray, memoryview, tensors)",
}


def _unwatched(each: Mapping[str, Any]) -> str:
    many = "s" * (each["count"] != 1)
    counted = {
        "operations": f"{each['count']:,} operation{many}",
        "arrays": f"{each['count']:,} array{many}",
    }
    at = f" (first at {location_of(*each['first'])})" if each["first"] else ""
    return f"not seen: {_UNWATCHED[each['what']].format(**counted)}{at}"


def unseen_text(process: Mapping[str, Any]) -> str:
    """Return a sentence on a process that has no log and may use memory of one that has."""
    command = f" ({shlex.join(process['argv'])})" if process["argv"] else ""
    peers = ", ".join(map(str, process["shares_with"]))
    return (
        f"process {process['pid']}{command}, which this check does not see, may use memory of process {peers}: races "
        "with it are not found; start both under one check"
    )


def summary_text(report: Mapping[str, Any], *, style: Style = plain, width: int = WIDTH) -> str:
    """Return the line that ends a report, with more for processes that are not seen, and if events were dropped."""
    findings: Sequence[Finding] = report["findings"]
    certain = sum(bool(each["certain"]) for each in findings)
    uncertain = len(findings) - certain
    if not findings:
        lines = [style("clean", "no findings")]
    else:
        parts = [
            f"{number} {word} finding{'s' * (number != 1)}"
            for number, word in ((certain, "certain"), (uncertain, "uncertain"))
            if number
        ]
        follow = sum(len(each.get("consequences") or ()) for each in findings)
        counted = f" ({_counted_consequences(follow)})" if follow else ""
        lines = [style("certain" if certain else "uncertain", " and ".join(parts)) + counted]
    lines += [line for each in report.get("unwatched", ()) for line in _wrapped(_unwatched(each), width)]
    lines += [line for each in report.get("unseen", ()) for line in _wrapped(unseen_text(each), width)]
    if not report["complete"]:
        lines += _wrapped(
            f"not complete: {report.get('dropped', 0):,} events were dropped for lack of room; nothing that rests on "
            "them is reported",
            width,
        )
    return "\n".join(lines)
