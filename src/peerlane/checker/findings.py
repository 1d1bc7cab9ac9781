"""Findings as JSON: names in place of the analysis's numbers, and findings of one cause merged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from peerlane.checker.missing import is_in_c, missing_order
from peerlane.checker.sites import EVENTS, Data, Helpers, Site, distinguish
from peerlane.checker.texts import location_of, span_text
from peerlane.diagnostics.log.log_files import ProcessLog, is_installed

Record = dict[str, Any]


def findings_of(
    raw_findings: Iterable[Data], logs: Mapping[int, ProcessLog], helpers: Helpers
) -> list[Record]:
    """Return findings in the format of ``docs/design/checker.md``.

    Findings with the same kind, lines and verbs are merged.  A finding that the missing order of another one would
    remove is in the other's ``consequences``.
    """
    all_data = list(raw_findings)
    groups: dict[tuple[Any, ...], list[int]] = {}
    records = [_finding(data, logs, helpers) for data in all_data]
    for number, record in enumerate(records):
        groups.setdefault(_lines_of(record), []).append(number)
    group_of = {number: key for key, members in groups.items() for number in members}
    merged = {key: _merged([records[number] for number in members]) for key, members in groups.items()}

    def cause_of(key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        causes = [all_data[number]["cause"] for number in groups[key]]
        if not all(cause is not None for cause in causes):
            return None
        cause = next((group_of[cause] for cause in causes if group_of[cause] != key), None)
        # An uncertain finding may be no error at all, so it never hides a certain one.
        return None if cause is None or (merged[key]["certain"] and not merged[cause]["certain"]) else cause

    top = []
    for key, record in merged.items():
        root, seen = key, {key}
        while (cause := cause_of(root)) is not None and cause not in seen:
            root = cause
            seen.add(root)
        if root == key or cause_of(root) is not None:  # a circle has no cause
            top.append(record)
            continue
        merged[root]["consequences"].append(record)
    for record in top:
        _take_skipped_wait(record)
    return _by_skipped_wait(_by_failure(sorted(top, key=lambda each: not each["certain"])))


def _by_failure(findings: Sequence[Record]) -> list[Record]:
    """Move findings of the clean-up after an exception under a finding that may have caused it, or the first one."""
    left = [each for each in findings if not each["of_failure"]]
    for record in findings:
        if not record["of_failure"]:
            continue
        pids = {site["pid"] for site in record["sites"]}
        may_cause = (
            each for each in left if each["of_failure"] or (each["certain"] and pids & _pids_of(each))
        )
        cause = next(may_cause, None)
        if cause is None:
            left.append(record)
        else:
            cause["consequences"] += [{**record, "consequences": []}, *record["consequences"]]
    return left


def _pids_of(finding: Record) -> set[int]:
    return {site["pid"] for each in (finding, *finding["consequences"]) for site in each["sites"]}


def _by_skipped_wait(findings: Iterable[Record]) -> list[Record]:
    """Merge findings about one skipped wait: several ranks may skip the same line."""
    left: list[Record] = []
    for record in findings:
        lines = _skipped_lines(record)
        cause = next((each for each in left if lines is not None and _skipped_lines(each) == lines), None)
        if cause is None:
            left.append(record)
            continue
        cause["consequences"] += [{**record, "consequences": []}, *record["consequences"]]
    return left


def _skipped_lines(record: Record) -> tuple[Any, ...] | None:
    skipped = record["skipped"]
    if skipped is None:
        return None
    return (*skipped["wait"], *(skipped["record"][name] for name in ("file", "line")), skipped["record_nth"])


def _lines_of(record: Record) -> tuple[Any, ...]:
    # The caller counts: programs often have one line of their own for all calls of a kind.  So does the launch of a
    # graph, unless the graph lacks an edge, which no launch can mend.
    is_one_launch = len({str(site["launched"]) for site in record["sites"]}) == 1
    sites = [
        (
            *(site["file"], site["line"], site["verb"], site["access"]),
            *map(tuple, site["callers"][: max(1, site["helpers"])]),
            *(() if is_one_launch else map(str, [site["launched"]])),
        )
        for site in record["sites"]
    ]
    # Which of two racing accesses came first is chance.
    return (record["kind"], *(sorted(sites) if record["kind"] == "race" else sites))


def _merged(records: Sequence[Record]) -> Record:
    best = min(records, key=lambda each: (not each["certain"], each["skipped"] is None))
    return {**best, "count": sum(each["count"] for each in records)}


def _take_skipped_wait(record: Record) -> None:
    """Let a cause name the wait that its consequences prove to have been skipped."""
    known = next((each for each in record["consequences"] if each["skipped"]), None)
    if record["skipped"] is None and known is not None and record["kind"] != "unwritten-read":
        record["skipped"], record["missing"] = known["skipped"], known["missing"]


def _finding(data: Data, logs: Mapping[int, ProcessLog], helpers: Helpers) -> Record:
    first, second = (Site(data[which], logs, helpers) for which in ("first", "second"))
    help_site = Site(data["help"], logs, helpers) if data["help"] else None
    sites = [each for each in (first, second, help_site) if each is not None]
    owners = {each.data["log"] for each in sites}
    if data["memory"] is not None:
        owners.add(data["memory"]["log"])
    if len(owners) == 1 and first.rank < 0:
        for each in sites:
            each.is_alone = True
    distinguish(first, second, help_site)
    second.runs_again = data["runs_again"]
    second.repetition = data["second"]["nth"] if data["count"] == 1 and not second.runs_again else 0
    if second.runs_again and all(first.data[name] == second.data[name] for name in _OF_ONE_LINE):
        second.call = ""
    memory = None
    if data["memory"] is not None:
        of = logs[data["memory"]["log"]]
        frames = of.sites.get(data["memory"]["site"], [])
        of_program = [each for each in frames if not is_installed(each[0])]
        memory = {
            "rank": data["memory"]["rank"],
            "pid": of.pid,
            "allocation": data["memory"]["allocation"],
            "size": data["memory"]["size"],
            "made": next((list(each[:2]) for each in of_program or frames), None),
        }
    order = data["last_order"]
    has_lines = order is not None and all(order[at + 1] in logs[order[at]].sites for at in (0, 3))
    skipped = _skipped(data["skipped"], logs, helpers) if data["skipped"] else None
    is_of_failure = data["kind"] == "use-after-free" and data["second"]["site"] in second.log.failing
    elsewhere = [_elsewhere(each, logs, helpers) for each in _astray(data)]
    return {
        "kind": data["kind"],
        "certain": data["certain"] and not is_of_failure,
        "why": _WHY_FAILURE if is_of_failure else _why(data, can_declare=not is_in_c(first, second)),
        "of_failure": is_of_failure,
        "count": data["count"],
        "sites": [first.as_json(), second.as_json()],
        "memory": memory,
        "bytes": list(data["bytes"]),
        "missing": missing_order(data, first, second, help_site, logs, skipped, elsewhere),
        "skipped": skipped,
        "elsewhere": elsewhere,
        "last_order": _ends(order, logs, helpers) if has_lines else None,
        "consequences": [],
        "message": _message(data, elsewhere).format(
            first=first, second=second, first_did=first.did, second_did=second.did
        ),
    }


def _skipped(data: Mapping[str, Any], logs: Mapping[int, ProcessLog], helpers: Helpers) -> Record:
    record, before = Site(data["record"], logs, helpers), Site(data["before"], logs, helpers)
    waiter = logs[data["log"]]
    frames = waiter.sites.get(data["site"]) or [("", 0, "")]
    file, line, _ = frames[helpers.depth_of(frames)]
    return {
        "rank": before.rank,
        "pid": waiter.pid,
        "wait": [file, line],
        "call": waiter.calls.get(data["site"], "").removeprefix("hcomm."),
        "notify": data["notify"],
        "records": data["records"],
        "waits": data["waits"],
        "record": record.as_json(),
        "record_nth": data["record"]["nth"],
        "before": before.as_json(),
        "before_nth": data["before"]["nth"],
    }


def _astray(data: Data) -> list[Mapping[str, Any]]:
    """Return the writes that may have been meant for the unwritten bytes.

    Where ranks have equal parts of an allocation, the rank of the unwritten part is the one that missed it.
    """
    parts: list[Mapping[str, Any]] = data["elsewhere"]
    low, high = data["bytes"]
    size = high - low
    if len(parts) > 1 and low % size == 0:
        own = [each for each in parts if each["rank"] == low // size]
        if own:
            return own[:1]
    return parts if len(parts) <= 2 else []


def _why(data: Mapping[str, Any], *, can_declare: bool) -> str:
    if data["certain"]:
        return ""
    if data["is_of_look"]:
        return _WHY_LOOK
    if data["is_of_unseen"]:
        return _WHY_UNSEEN
    return _WHY.get(data["kind"]) or _WHY_ORDER + (_DECLARE if can_declare else "")


def _elsewhere(data: Mapping[str, Any], logs: Mapping[int, ProcessLog], helpers: Helpers) -> Record:
    return {**Site(data, logs, helpers).as_json(), "bytes": list(data["bytes"])}


_OF_ONE_LINE = ("log", "site", "thread", "event_kind", "op")
_WHY_ORDER = (
    "a thread knew that the first access was over before the second one was submitted, and could tell the other "
    "thread by a means that peerlane does not see: a variable, a socket, a pipe, shared memory"
)
_DECLARE = (
    ". Where the program does so, declare it: `peerlane.order(key).post()` before the message is sent, "
    "`peerlane.order(key).take()` behind its reception"
)
_WHY_UNSEEN = (
    "a process that this check does not see shares memory or notifies with the program, and may have done what "
    "is missing"
)
_WHY_LOOK = (
    "a loop may wait until these bytes have a value: peerlane cannot read the source of the line that reads"
)
_WHY_FAILURE = "what cleans up after an exception ended the memory before its time: look at why it was raised"
_WHY = {
    "unconsumed-notify": "a program may end without a wait for a notify that it does not need any more",
    "unwritten-read": "a part of the bytes was written, and the program may use only that part",
}
_MESSAGES = {
    "race": "{first} {first_did}, {second} {second_did} the same bytes, and nothing orders the two",
    "use-after-free": "{first} may use memory after it has ended at {second}",
    "lost-notify": "the record by {second} at {second.line} may come before an earlier record, at {first.line}, is "
    "consumed; then one of them is lost",
    "relied-on-schedule": "{first} {first_did} and {second} {second_did} the same bytes; a record ordered them this "
    "time, and no promise does",
    "unwritten-read": "{second} reads bytes that nobody wrote since {first}",
    "unconsumed-notify": "nobody waits for the record at {first}",
}


def _message(data: Data, elsewhere: Sequence[Record]) -> str:
    if data["kind"] == "unconsumed-notify" and data["second"]["event_kind"] == "notify_wait":
        return "nobody waits for the record at {first}, and {second} waits in vain for another notify"
    if data["kind"] == "use-after-free" and data["first"]["event_kind"] == "host_access":
        return "{first} {first_did} memory that ended at {second}"
    if data["second"]["event_kind"] == "source_changed" and data["first"]["access"] == "write":
        return (
            "{first} writes host memory, and before it began the program changed it: between {first.point} and "
            "{second.point}"
        )
    if data["second"]["event_kind"] == "source_changed" and not data["second"]["site"]:
        return "{first} reads host memory, and the program changes it and never asks whether the read is over"
    if data["second"]["event_kind"] == "source_changed":
        is_one_line = all(data["first"][name] == data["second"][name] for name in ("log", "site"))
        between = (
            "between two runs of {first.line}" if is_one_line else "between {first.point} and {second.point}"
        )
        return (
            "{first} reads host memory, and the program changes it before it knows that the read is over: "
            f"{between}"
        )
    if elsewhere:
        writers = " and ".join(
            f"rank {each['rank']} wrote {span_text(each['bytes'])} at {location_of(each['file'], each['line'])}"
            for each in elsewhere
        )
        low, high = data["bytes"]
        were = "was" if high - low == 1 else "were"
        return f"{writers}; {{second}} reads {span_text(data['bytes'])}, which {were} never written"
    return _MESSAGES[data["kind"]]


def _ends(order: Sequence[Any], logs: Mapping[int, ProcessLog], helpers: Helpers) -> dict[str, str]:
    texts = []
    is_alone = order[0] == order[3] and logs[order[0]].rank < 0
    for log, site, kind in (order[:3], order[3:]):
        frames = logs[log].sites[site]
        file, line, _ = frames[helpers.depth_of(frames)]
        owner = "" if is_alone else f" of {logs[log].name}"
        texts.append(f"{EVENTS.get(kind, kind)}{owner} at {location_of(file, line)}")
    return dict(zip(("from", "to"), texts, strict=True))
