"""Findings as JSON, with names for the numbers of the analysis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from peerlane.checker.missing import missing_order
from peerlane.checker.places import EVENTS, Data, Place, tell_apart
from peerlane.checker.texts import place_of
from peerlane.diagnostics.log_files import ProcessLog


def findings_of(found: Iterable[Data], logs: Mapping[int, ProcessLog]) -> list[dict[str, Any]]:
    """Return findings as ``docs/design/checker.md`` has them; those with the same kind, lines and verbs are one."""
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for data in found:
        made = _finding(data, logs)
        # The caller counts: programs often have one line of their own for all calls of a kind.
        sites = [
            (site["file"], site["line"], site["verb"], site["access"], *map(tuple, site["callers"][:1]))
            for site in made["sites"]
        ]
        # Which of two racing accesses came first is chance.
        key = (made["kind"], *(sorted(sites) if made["kind"] == "race" else sites))
        known = merged.get(key)
        if known is None:
            merged[key] = made
            continue
        count = known["count"] + made["count"]
        if made["certain"] and not known["certain"]:
            merged[key] = known = made
        known["count"] = count
    order = {kind: number for number, kind in enumerate(_MESSAGES)}
    return sorted(merged.values(), key=lambda each: (not each["certain"], order[each["kind"]]))


def _finding(data: Data, logs: Mapping[int, ProcessLog]) -> dict[str, Any]:
    first, second = (Place(data[which], logs) for which in ("first", "second"))
    help_place = Place(data["help"], logs) if data["help"] else None
    places = [each for each in (first, second, help_place) if each is not None]
    owners = {each.data["log"] for each in places}
    if data["memory"] is not None:
        owners.add(data["memory"]["log"])
    if len(owners) == 1 and first.rank < 0:
        for each in places:
            each.is_alone = True
    tell_apart(first, second, help_place)
    memory = None
    if data["memory"] is not None:
        of = logs[data["memory"]["log"]]
        frames = of.sites.get(data["memory"]["site"], [])
        memory = {
            "rank": data["memory"]["rank"],
            "pid": of.pid,
            "allocation": data["memory"]["allocation"],
            "size": data["memory"]["size"],
            "made": list(frames[0][:2]) if frames else None,
        }
    order = data["last_order"]
    has_lines = order is not None and all(order[at + 1] in logs[order[at]].sites for at in (0, 3))
    return {
        "kind": data["kind"],
        "certain": data["certain"],
        "why": "" if data["certain"] else _WHY.get(data["kind"], _WHY_ORDER),
        "count": data["count"],
        "sites": [first.as_json(), second.as_json()],
        "memory": memory,
        "bytes": list(data["bytes"]),
        "missing": missing_order(data, first, second, help_place, logs),
        "last_order": _ends(order, logs) if has_lines else None,
        "message": _message(data).format(
            first=first,
            second=second,
            first_did=first.did,
            second_did=second.did,
        ),
    }


_WHY_ORDER = (
    "a thread knew that the first access was over before the second one was submitted, and could tell the other "
    "thread by a means that peerlane does not see: a variable, a socket, a pipe, shared memory"
)
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


def _message(data: Data) -> str:
    if data["kind"] == "unconsumed-notify" and data["second"]["event_kind"] == "notify_wait":
        return "nobody waits for the record at {first}, and {second} waits in vain for another notify"
    if data["kind"] == "use-after-free" and data["first"]["event_kind"] == "host_access":
        return "{first} {first_did} memory that ended at {second}"
    if data["second"]["event_kind"] == "source_changed":
        is_one_line = all(data["first"][name] == data["second"][name] for name in ("log", "site"))
        between = (
            "between two runs of {first.line}" if is_one_line else "between {first.point} and {second.point}"
        )
        return (
            "{first} reads host memory, and the program changes it before it knows that the read is over: "
            f"{between}"
        )
    return _MESSAGES[data["kind"]]


def _ends(order: Sequence[Any], logs: Mapping[int, ProcessLog]) -> dict[str, str]:
    texts = []
    is_alone = order[0] == order[3] and logs[order[0]].rank < 0
    for log, site, kind in (order[:3], order[3:]):
        file, line, _ = logs[log].sites[site][0]
        owner = "" if is_alone else f" of {logs[log].name}"
        texts.append(f"{EVENTS.get(kind, kind)}{owner} at {place_of(file, line)}")
    return dict(zip(("from", "to"), texts, strict=True))
