"""The events that a finding names: whose they are, what they did, and at which line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from peerlane.checker.texts import location_of, nth
from peerlane.diagnostics.log.event_log import COLLECTIVES
from peerlane.diagnostics.log.log_files import Frame, ProcessLog

Data: TypeAlias = Mapping[str, Any]

#: The names of an operation, by its number in ``OpKind``: without a channel, as a channel's write, as its read.
_OPERATIONS = (
    ("copy", "Channel.write", "Channel.read"),
    ("copy of rows", "Channel.write", "Channel.read"),
    ("write_value", "Channel.write", "Channel.read"),
    ("fill", "Channel.write", "Channel.read"),
    ("reduce", "Channel.write_reduce", "Channel.read_reduce"),
    ("free", "free", "free"),
    ("batch copy", "Channel.write_blocks", "Channel.read_blocks"),
    ("launch of a descriptor", "Channel.write_blocks", "Channel.read_blocks"),
)
EVENTS = {
    "host_access": "host access",
    "allocated": "allocation",
    "freed": "free",
    "taken_back": "deregister",
    "event_record": "event record",
    "event_wait": "event wait",
    "sync": "synchronization",
    "notify_wait": "wait for a notify",
    "notify_waited": "wait for a notify",
    "callback_begin": "begin of a callback",
    "collected": "end of a collective",
    "source_changed": "changed bytes",
}


class Helpers:
    """The lines at which a program makes calls of many kinds, such as ``return function(*arguments)``.

    Such a line does not show what went wrong; its callers do.  A line that makes the same calls for each of its
    callers is not a helper.

    ``lines``: for each line that called peerlane its frames, innermost first, and a key of what it did.
    """

    def __init__(self, lines: Iterable[tuple[Sequence[Frame], Any]] = ()) -> None:
        # All callers count: a helper that only another helper calls has a single direct caller.
        did: dict[tuple[str, int], dict[tuple[tuple[str, int], ...], set[Any]]] = {}
        for frames, what in lines:
            stack = tuple(frame[:2] for frame in frames)
            for depth, line in enumerate(stack[:-1]):
                did.setdefault(line, {}).setdefault(stack[depth + 1 :], set()).add(what)
        self._lines = {
            line for line, callers in did.items() if len({frozenset(each) for each in callers.values()}) > 1
        }

    def depth_of(self, frames: Sequence[Frame]) -> int:
        """Return which of the frames is the first outside helpers."""
        inside = (number for number, frame in enumerate(frames) if frame[:2] not in self._lines)
        return next(inside, len(frames) - 1)


class Site:
    """An event of a process, as a finding names it.

    Attributes
    ----------
    rank : int
        -1 if it is not known.
    launch : list of Frame
        Of an operation of a graph: the frames of the launch, whose first is outside helpers; else empty.
    outer : sequence of Frame
        The frames outside helpers: those of the launch where texts name that.
    named : Frame
        The line by which texts name it.
    called : str
        The function that the program called, of a dialect too.
    call : str
        Words before the line in ``point``, where the line alone names two events.
    runs_again : bool
        Whether the finding is about the next run of the line, as in the next pass of a loop.
    repetition : int
        Which run of the line it is, if the finding has that run alone; else 0.
    is_with_end : bool
        Whether the end of a ``with`` block made the call; the line is that of the ``with``.
    is_alone : bool
        Whether its process has all events of the finding and is not a rank: then texts do not repeat its number.
    """

    def __init__(self, data: Data, logs: Mapping[int, ProcessLog], helpers: Helpers) -> None:
        self.data, self.log = data, logs[data["log"]]
        self.rank: int = data["rank"]
        self.frames = self.log.sites.get(data["site"]) or [("", 0, "")]
        self.dialect = self.log.dialects.get(data["site"], "")
        self.called = self.log.calls.get(data["site"], self.verb).removeprefix("hcomm.")
        self.depth_in = helpers.depth_of
        self.helpers = self.depth_in(self.frames)
        self.outer: Sequence[Frame] = self.frames[self.helpers :]
        launch = self.log.launches.get(data["site"], [])
        self.launch: Sequence[Frame] = launch[self.depth_in(launch) :] if launch else ()
        self.named = self.outer[0]
        self.has_file = False
        self.call = ""
        self.runs_again = False
        self.repetition = 0
        self.is_with_end = data["site"] in self.log.with_ends and not self.helpers
        self.is_alone = False

    @property
    def owner(self) -> str:
        if self.is_alone:
            return "the program"
        return f"rank {self.rank}" if self.rank >= 0 else self.log.name

    @property
    def verb(self) -> str:
        kind, op, channel = self.data["event_kind"], self.data["op"], self.data["channel"]
        if kind == "access":
            names = _OPERATIONS[op] if op < len(_OPERATIONS) else ("operation",) * 3
            return names[0] if channel == 0 else names[2 if self.data["fetch"] else 1]
        if kind == "notify":
            return "Channel.notify" if channel else "notify"
        if kind == "collective":
            return f"Group.{COLLECTIVES[op]}" if op < len(COLLECTIVES) else "collective"
        return EVENTS.get(kind, str(kind))

    @property
    def is_sight(self) -> bool:
        """Whether the line did not write, but is where the write was noticed."""
        return bool(self.data["event_kind"] == "source_changed")

    @property
    def did(self) -> str:
        return "writes" if self.data["access"] == "write" else "reads"

    @property
    def line(self) -> str:
        file, line, _ = self.named
        if not file:
            return f"event {self.data['event']}"
        return location_of(file, line) if self.has_file or not line else f"line {line}"

    @property
    def point(self) -> str:
        """The line, with the call if the other event of the finding is on the same line."""
        return f"{self.call} at {self.line}" if self.call else self.line

    @property
    def beginning(self) -> str:
        """The text of the point that an earlier event must precede."""
        if self.is_with_end:
            return f"the `with` of {self.line} ends"
        if self.call:
            return self.point
        if self.repetition > 1:
            return f"{self.point} runs the {nth(self.repetition)} time"
        return f"{self.point} runs again" if self.runs_again else self.point

    @property
    def actor(self) -> str:
        """The stream that ran the event, or the thread."""
        stream = self.data["stream"] or self.data["body_of"]
        return f"stream {stream}" if stream else f"thread {self.data['thread']}"

    @property
    def end(self) -> str:
        """The line, or the callback that runs it: a stream can only wait for a whole callback."""
        return f"the callback that runs {self.point}" if self.data["body_of"] else self.point

    @property
    def beginning_of_all(self) -> str:
        """The text of the point that an earlier event must precede: ``beginning``, or the callback that runs it."""
        return f"the callback that runs {self.beginning}" if self.data["body_of"] else self.beginning

    def __format__(self, spec: str) -> str:
        return self.called if self.is_alone else f"{self.owner}'s {self.called}"

    def as_json(self) -> dict[str, Any]:
        file, line, function = self.frames[0]
        return {
            "file": file,
            "line": line,
            "function": function,
            "rank": self.rank,
            "pid": self.log.pid,
            "thread": self.data["thread"],
            "stream": self.data["stream"],
            "callback": self.data["body_of"],
            "verb": self.verb,
            "call": "bytes have changed" if self.is_sight else self.called,
            "access": self.data["access"],
            "callers": [list(each) for each in self.frames[1:]],
            "helpers": self.helpers,
            "launched": list(self.launch[0]) if self.launch else None,
            "with_end": self.is_with_end,
            "event": self.data["event"],
        }


def distinguish(first: Site, second: Site, help_site: Site | None) -> None:
    """Name two events by the innermost lines that differ: programs often make all calls of a kind at one line.

    An operation of a graph is named by its launch, unless one launch has both: then an edge is missing.
    """
    if not are_of_one_launch(first, second):
        for each in (first, second, help_site):
            if each is not None and each.launch:
                each.outer, each.named = each.launch, each.launch[0]
    pairs = list(zip(first.outer, second.outer, strict=False))
    depth = next((number for number, (one, other) in enumerate(pairs) if one[:2] != other[:2]), 0)
    if depth and help_site and len(help_site.outer) > depth and help_site.outer[0] == first.outer[0]:
        help_site.named = help_site.outer[depth]
    first.named, second.named = first.outer[depth], second.outer[depth]
    sites = [each for each in (first, second, help_site) if each is not None]
    has_file = len({each.named[0] for each in sites}) > 1
    for each in sites:
        each.has_file = has_file
    is_one_event = all(first.data[name] == second.data[name] for name in ("log", "event"))
    if first.named[1] and first.named[:2] == second.named[:2] and not is_one_event:
        first.call, second.call = _calls_of_one_line(first, second)


def are_of_one_launch(first: Site, second: Site) -> bool:
    """Return whether two events are operations of graphs that one line launches."""
    return bool(first.launch) and first.log is second.log and first.launch == second.launch


def _calls_of_one_line(first: Site, second: Site) -> tuple[str, str]:
    if first.owner != second.owner:
        return f"{first}", f"{second}"
    calls = [
        "the launch of a graph" if each.launch and each.outer is each.launch else f"the {each.called}"
        for each in (first, second)
    ]
    if calls[0] != calls[1]:
        return calls[0], calls[1]
    return f"the first {first.called}", f"the second {second.called}"
