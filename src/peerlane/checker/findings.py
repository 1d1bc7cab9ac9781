"""Findings as JSON: names for the numbers of the analysis, and words for what is missing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from peerlane.checker.texts import place_of

Data: TypeAlias = Mapping[str, Any]
Frame: TypeAlias = tuple[str, int, str]

#: What an operation is called, by its number in ``OpKind``: without a channel, and written or read by one.
_OPERATIONS = (
    ("copy", "Channel.write", "Channel.read"),
    ("copy of rows", "Channel.write", "Channel.read"),
    ("write_value", "Channel.write", "Channel.read"),
    ("fill", "Channel.write", "Channel.read"),
    ("reduce", "Channel.write_reduce", "Channel.read_reduce"),
    ("free", "free", "free"),
    ("copies of a list", "Channel.write_blocks", "Channel.read_blocks"),
    ("copies of a descriptor", "Channel.write_blocks", "Channel.read_blocks"),
)
_COLLECTIVES = (
    "barrier",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "reduce_scatter",
    "broadcast",
    "scatter",
    "reduce",
    "gather",
    "send",
    "receive",
)
_EVENTS = {
    "host_access": "host access",
    "allocated": "allocation",
    "freed": "free",
    "taken_back": "deregister",
    "event_record": "event record",
    "event_wait": "event wait",
    "notify_wait": "wait for a notify",
    "notify_waited": "wait for a notify",
    "callback_begin": "begin of a callback",
    "collected": "end of a collective",
}


@dataclass
class Names:
    """What the names file of a log says."""

    pid: int = 0
    rank: int = -1
    sites: dict[int, list[Frame]] = field(default_factory=dict)
    groups: dict[int, str] = field(default_factory=dict)

    def read(self, lines: Iterable[str]) -> None:
        """Take lines of the file; what is not understood is left out, since the process may have died in a line."""
        for line in lines:
            try:
                fact = json.loads(line)
            except ValueError:
                continue
            if not isinstance(fact, dict):
                continue
            number, frames = fact.get("site"), fact.get("frames")
            if isinstance(number, int) and isinstance(frames, list):
                self.sites[number] = [_frame(each) for each in frames if isinstance(each, list)]

    @property
    def owner(self) -> str:
        return f"rank {self.rank}" if self.rank >= 0 else f"process {self.pid}"


def _frame(words: list[Any]) -> Frame:
    file, line, function = [*words, "", 0, ""][:3] if len(words) >= 3 else ("", 0, "")
    return str(file), line if isinstance(line, int) else 0, str(function)


def findings_of(found: Iterable[Data], names: Mapping[int, Names]) -> list[dict[str, Any]]:
    """Return findings as ``docs/design/checker.md`` has them; those with the same kind, lines and verbs are one."""
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for data in found:
        made = _finding(data, names)
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


def _finding(data: Data, names: Mapping[int, Names]) -> dict[str, Any]:
    first, second = (_Place(data[which], names) for which in ("first", "second"))
    help_place = _Place(data["help"], names) if data["help"] else None
    _tell_apart(first, second, help_place)
    memory = None
    if data["memory"] is not None:
        of = names[data["memory"]["log"]]
        frames = of.sites.get(data["memory"]["site"], [])
        memory = {
            "rank": of.rank,
            "pid": of.pid,
            "allocation": data["memory"]["allocation"],
            "size": data["memory"]["size"],
            "made": list(frames[0][:2]) if frames else None,
        }
    order = data["last_order"]
    return {
        "kind": data["kind"],
        "certain": data["certain"],
        "why": "" if data["certain"] else _WHY.get(data["kind"], _WHY_ORDER),
        "count": data["count"],
        "sites": [first.as_json(), second.as_json()],
        "memory": memory,
        "bytes": list(data["bytes"]),
        "missing": _missing(data, first, second, help_place, names),
        "last_order": order and {"from": _end(order[:3], names), "to": _end(order[3:], names)},
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
    return _MESSAGES[data["kind"]]


class _Place:
    def __init__(self, data: Data, names: Mapping[int, Names]) -> None:
        self.data, self.names = data, names[data["log"]]
        self.rank = data["rank"] if data["rank"] >= 0 else self.names.rank
        frames = self.names.sites.get(data["site"], [])
        self.frames = frames or [("", 0, "")]
        self.named = self.frames[0]
        self.has_file = False

    @property
    def owner(self) -> str:
        return f"rank {self.rank}" if self.rank >= 0 else self.names.owner

    @property
    def verb(self) -> str:
        kind, op, channel = self.data["event_kind"], self.data["op"], self.data["channel"]
        if kind == "access":
            names = _OPERATIONS[op] if op < len(_OPERATIONS) else ("operation",) * 3
            return names[0] if channel == 0 else names[2 if self.data["fetch"] else 1]
        if kind == "notify":
            return "Channel.notify" if channel else "notify"
        if kind == "collective":
            return f"Group.{_COLLECTIVES[op]}" if op < len(_COLLECTIVES) else "collective"
        return _EVENTS.get(kind, str(kind))

    @property
    def did(self) -> str:
        return "writes" if self.data["access"] == "write" else "reads"

    @property
    def line(self) -> str:
        file, line, _ = self.named
        if not line:
            return f"event {self.data['event']}"
        return place_of(file, line) if self.has_file else f"line {line}"

    @property
    def actor(self) -> str:
        """The stream whose queue this was in, or the thread."""
        stream = self.data["stream"] or self.data["body_of"]
        return f"stream {stream}" if stream else f"thread {self.data['thread']}"

    @property
    def end(self) -> str:
        """The line, or the callback that has it: a stream knows of the whole callback alone."""
        return f"the callback that runs {self.line}" if self.data["body_of"] else self.line

    def __format__(self, spec: str) -> str:
        return f"{self.owner}'s {self.verb}"

    def as_json(self) -> dict[str, Any]:
        file, line, function = self.frames[0]
        return {
            "file": file,
            "line": line,
            "function": function,
            "rank": self.rank,
            "pid": self.names.pid,
            "thread": self.data["thread"],
            "stream": self.data["stream"],
            "callback": self.data["body_of"],
            "verb": self.verb,
            "access": self.data["access"],
            "callers": [list(each) for each in self.frames[1:]],
            "event": self.data["event"],
        }


def _end(end: tuple[int, int, str], names: Mapping[int, Names]) -> str:
    log, site, kind = end
    frames = names[log].sites.get(site)
    what = _EVENTS.get(kind, kind)
    return f"{what} of {names[log].owner}" + (f" at {place_of(*frames[0][:2])}" if frames else "")


def _tell_apart(first: _Place, second: _Place, help_place: _Place | None) -> None:
    """Let lines be those by which two events differ: programs often have one line of their own for all calls."""
    pairs = list(zip(first.frames, second.frames, strict=False))
    depth = next((number for number, (one, other) in enumerate(pairs) if one[:2] != other[:2]), 0)
    if depth and help_place and len(help_place.frames) > depth and help_place.frames[0] == first.frames[0]:
        help_place.named = help_place.frames[depth]
    first.named, second.named = first.frames[depth], second.frames[depth]
    places = [each for each in (first, second, help_place) if each is not None]
    has_file = len({each.named[0] for each in places}) > 1
    for each in places:
        each.has_file = has_file


def _earlier_record(help_place: _Place, order: Sequence[Any] | None, names: Mapping[int, Names]) -> str:
    """Name the wait for an earlier record of the line that could help, if it came before the second access."""
    if order is None or tuple(order[:3]) != (*(help_place.data[name] for name in ("log", "site")), "notify"):
        return ""
    frames = names[order[3]].sites.get(order[4])
    return f"{names[order[3]].owner}'s wait{f' at line {frames[0][1]}' if frames else ''}"


def _missing(
    data: Data, first: _Place, second: _Place, help_place: _Place | None, names: Mapping[int, Names]
) -> str:
    """Return the order that would make the finding go away: whose call, on which stream, between which lines."""
    between = f"after {first.line}, before {second.line}"
    index = data["line"][1]
    way = f"channel and on {first.actor}" if first.data["stream"] else "channel and without a stream"
    match data["missing"]:
        case "arrival" if help_place and (wait := _earlier_record(help_place, data["last_order"], names)):
            return (
                f"{wait} was for an earlier record at {help_place.line}. If {second.line} is to see these bytes: a "
                f"record after {first.line}, and a wait for it before {second.line}. If not, an answer: a notify "
                f"that {second.owner} records after {second.line}, and for which {first.owner} waits before "
                f"{first.line}"
            )
        case "arrival" if help_place and data["help_is_enough"]:
            return (
                f"a wait of {second.owner} for notify {index}, which {help_place.owner} records at "
                f"{help_place.line}; the wait must come before {second.line}"
            )
        case "arrival":
            wrong = ""
            if help_place:
                record = f"the record of notify {index} at {help_place.line}"
                wrong = f" ({record} is made before the write, or on another stream)"
            return f"a wait of {second.owner} for a notify that {first.owner} records on this {way} {between}{wrong}"
        case "sync":
            return f"a synchronization of {second.owner} with {first.actor}, after {first.end}, before {second.line}"
        case "event":
            return (
                f"a wait of {second.actor} for an event that {first.actor} records after {first.end}, or a "
                f"synchronization with {first.actor}, before {second.end}"
            )
        case "thread":
            return (
                f"an order between {first.actor} and {second.actor} of "
                f"{second.owner}, after {first.line}, before {second.end}: a join, a lock, a queue or peerlane.order"
            )
        case "answer":
            stream = f" on {first.actor}" if first.data["stream"] else ""
            answer = (
                f"a wait of {second.owner} for a notify that {first.owner} records{stream} after {first.line}; the "
                f"wait must come before {second.line}"
            )
            if data["kind"] == "race":  # which one came first is chance: either order can be the one meant
                answer += (
                    f". If {second.line} is to come first: a wait of {first.owner} for a notify that "
                    f"{second.owner} records after {second.line}, before {first.line}"
                )
            if min(first.rank, second.rank) < 0:
                answer += ". A join, a message or peerlane.order can order two processes, too"
            return answer
        case "fence":
            return f"a fence of the channel by {first.owner}, {between}"
        case "consumption":
            wait = f" at {help_place.line}" if help_place else ""
            waiter = help_place.owner if help_place else "the receiver"
            return (
                f"an answer: {waiter} records a notify after its wait{wait} for notify {index}, and "
                f"{second.owner} waits for it before {second.line}; or a notify of the kind fifo"
            )
        case "wait" if second.data["event_kind"] == "notify_wait":
            return (
                f"a record of the notify for which {second.owner} waits at {second.line}, or a wait for notify "
                f"{index}, which {first.owner} records at {first.line}"
            )
        case "wait":
            return f"a wait of the receiver for notify {index}, which {first.owner} records at {first.line}"
        case "write":
            return f"a write of these bytes before {second.line}"
        case _:
            return (
                f"a wait of {second.owner} for each record by itself, {between}: the wait consumed several "
                "records, and only the first of them is promised"
            )
