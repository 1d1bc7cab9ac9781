"""The events of all processes as marks on lanes, with arrows between them: what the page and the trace show."""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from peerlane.checker.clocks import align
from peerlane.diagnostics.log import log_files
from peerlane.diagnostics.log.event_log import COLLECTIVES
from peerlane.diagnostics.log.log_files import LoggedEvent, ProcessLog

MOST_EVENTS = 1_000_000

#: Kinds of arrows.
NOTIFY, EVENT, ARRIVAL = "notify", "event", "arrival"

#: Kinds of events that are marks, with the words for them and the group that has a colour.
_SHOWN = {
    "gap": ("events dropped here", "other"),
    "cancelled": ("cancelled", "other"),
    "view": ("view made", "other"),
    "event_record": ("event record", "notify"),
    "event_wait": ("event wait", "wait"),
    "sync": ("sync", "order"),
    "callback": ("callback", "order"),
    "callback_begin": ("callback body", "order"),
    "notify": ("notify", "notify"),
    "notify_wait": ("wait", "wait"),
    "notify_reset": ("notify reset", "notify"),
    "value_wait": ("wait for a value", "wait"),
    "channel_closed": ("channel closed", "memory"),
    "fence": ("fence", "order"),
    "drain": ("drain", "order"),
    "allocated": ("allocated", "memory"),
    "freed": ("freed", "memory"),
    "moved": ("moved", "memory"),
    "lent": ("registered", "memory"),
    "taken_back": ("deregistered", "memory"),
    "post": ("order post", "order"),
    "take": ("order take", "order"),
    "collective": ("collective", "order"),
}
#: Events of a stream that show when another one was over.
_ENDS = {"notified": "notify", "notify_waited": "notify_wait"}
_WAITS = ("notify_wait", "event_wait", "value_wait")


@dataclass(frozen=True, slots=True)
class Lane:
    """A stream or a thread."""

    process: int  #: the number of its process in the timeline
    name: str
    is_stream: bool
    number: int  #: that of the stream in the process, or of the thread in the system


@dataclass(slots=True)
class Mark:
    """An event on a lane."""

    lane: int
    start: int  #: ``start``, ``end``: nanoseconds of the monotonic clock; equal if it did not last
    end: int
    label: str
    group: str
    note: str
    number: int  #: its position among the events of its process
    site: int  #: the number of its line in the timeline; 0 if it is not known
    sequence: int


@dataclass(frozen=True, slots=True)
class Arrow:
    """An order between two marks, by their numbers."""

    tail: int
    head: int
    kind: str


@dataclass
class Timeline:
    """Marks of all processes."""

    processes: list[ProcessLog] = field(default_factory=list)
    lanes: list[Lane] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)
    #: Lines by number: frames, innermost first, each a file, a line and a function.  The first one is empty.
    sites: list[list[tuple[str, int, str]]] = field(default_factory=lambda: [[]])
    left_out: int = 0  #: how many marks it lacks because there were too many
    #: For each machine but the first: how its times were shifted to the first one's clock.
    clocks: list[str] = field(default_factory=list)


def read_timeline(
    directory: Path, *, about: Iterable[tuple[int, int]] = (), most: int = MOST_EVENTS
) -> Timeline:
    """Return the timeline of the logs in a directory.

    ``directory``: the directory that ``PEERLANE_LOG`` named.
    ``about``: process and number of events that matter: if there are more than ``most`` events, those near them are
        kept.
    ``most``: the most marks.
    """
    builder = _Builder()
    logs = log_files.logs_in(directory)
    builder.timeline.clocks = align(logs)
    for log in logs:
        builder.add(log)
    return builder.built(set(about), most)


class _Builder:
    def __init__(self) -> None:
        self.timeline = Timeline()
        self._lanes: dict[tuple[int, bool, int], int] = {}
        self._sites: dict[tuple[int, int], int] = {}
        # Marks by the keys by which other events name them: a stream's operation, a record of a notify or an event.
        self._operations: dict[tuple[int, int, int], int] = {}
        self._notifies: dict[int, tuple[int, ...]] = {}  # of notifies and waits, by their marks
        self._records: dict[tuple[int, ...], int] = {}
        self._event_records: dict[tuple[int, ...], int] = {}
        self._writes: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)  # not recorded so far
        self._recorded: dict[int, list[int]] = {}  # the writes that come with a record, by its mark
        self._waits: list[tuple[int, tuple[int, ...], int]] = []  # mark, notify, newest record
        self._event_waits: list[tuple[int, tuple[int, ...]]] = []
        self._open: dict[tuple[int, int], list[int]] = {}  # callbacks that threads run
        self._collectives: dict[tuple[int, int, int], int] = {}
        # Records to other machines, by bank and operation, and the events that log their arrival there.
        self._far_records: dict[tuple[int, int, int], int] = {}
        self._came: list[tuple[tuple[int, int, int], LoggedEvent]] = []

    def add(self, log: ProcessLog) -> None:
        process = len(self.timeline.processes)
        self.timeline.processes.append(log)
        for event in log.events():
            self._take(process, log, event)
        self._writes.clear()

    def built(self, about: set[tuple[int, int]], most: int) -> Timeline:
        self._draw_arrows()
        self._order_streams()
        self._sort_lanes()
        if len(self.timeline.marks) > most:
            self._keep(about, most)
        return self.timeline

    def _take(self, process: int, log: ProcessLog, event: LoggedEvent) -> None:
        a, b, c, d = event.words
        if event.kind == "access":
            mark = self._mark(process, log, event, *_access_words(event))
            if a and not event.flags & log_files.FETCH:
                self._writes[process, a, event.stream].append(mark)
        elif event.kind == "host_access":
            self._mark(process, log, event, *_host_words(event))
        elif event.kind in _SHOWN and (event.kind != "view" or not event.flags & log_files.END):
            label, group = _SHOWN[event.kind]
            if event.kind == "collective":
                what = b >> 8 & 0xFF
                label = COLLECTIVES[what] if what < len(COLLECTIVES) else label
            mark = self._mark(process, log, event, label, group, _note(event))
            if event.kind in ("notify", "notify_wait"):
                self._notifies[mark] = (a, b) if a else (process, 0, b)
            if event.kind == "notify":
                self._recorded[mark] = self._writes.pop((process, d, event.stream), []) if d else []
                if c:
                    self._record(mark, c)
            elif event.kind == "notify_wait" and c:
                self._waits.append((mark, self._notifies[mark], c))
            elif event.kind == "event_record":
                shared = event.flags & log_files.SHARED
                self._event_records[(a, b) if shared else (process, event.stream, event.sequence)] = mark
            elif event.kind == "event_wait":
                self._event_waits.append(
                    (mark, (a, b) if event.flags & log_files.SHARED else (process, a, b))
                )
            elif event.kind == "callback_begin":
                self._open.setdefault((process, event.thread), []).append(mark)
            elif event.kind == "collective" and event.flags & log_files.END and not event.stream:
                self.timeline.marks[mark].start -= min(event.sequence, event.time_ns)
            elif event.kind == "collective":
                self._collectives[process, a, b] = mark
            if event.kind == "notify" and a and not c:
                self._far_records[a, event.stream, event.sequence] = mark
        elif event.kind == "came":
            self._came.append(((a, b, c), event))
        elif event.kind in _ENDS:
            self._end(process, event)
        elif event.kind == "callback_end" and self._open.get((process, event.thread)):
            self.timeline.marks[self._open[process, event.thread].pop()].end = event.time_ns
        elif event.kind == "collected" and (process, a, b) in self._collectives:
            self.timeline.marks[self._collectives.pop((process, a, b))].end = event.time_ns
        elif event.kind == "op_ended" and (process, event.stream, event.sequence) in self._operations:
            mark = self._operations[process, event.stream, event.sequence]
            self.timeline.marks[mark].start, self.timeline.marks[mark].end = min(a, b), max(a, b)

    def _end(self, process: int, event: LoggedEvent) -> None:
        """Take the end of a notify or of a wait that was submitted before."""
        number = event.words[2]
        mark = self._operations.get((process, event.stream, event.sequence))
        if mark is None or mark not in self._notifies:
            return
        self.timeline.marks[mark].end = max(event.time_ns, self.timeline.marks[mark].start)
        if event.kind == "notified":
            self._record(mark, number)
        else:
            self._waits.append((mark, self._notifies[mark], number))

    def _record(self, mark: int, number: int) -> None:
        key = *self._notifies[mark], number
        self._records[key] = mark

    def _mark(
        self, process: int, log: ProcessLog, event: LoggedEvent, label: str, group: str, note: str
    ) -> int:
        on_stream = event.stream != 0 and event.kind not in ("sync", "callback_begin")
        number = event.stream if on_stream else event.thread
        key = (process, on_stream, number)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = len(self.timeline.lanes)
            if on_stream:
                name = log.streams.get(number, f"stream {number}")
            else:
                name = log.threads.get(number) or ("main thread" if number == log.pid else f"thread {number}")
            self.timeline.lanes.append(Lane(process, name, on_stream, number))
        mark = len(self.timeline.marks)
        self.timeline.marks.append(
            Mark(
                *(lane, event.time_ns, event.time_ns, label, group, note, event.number),
                *(self._site(process, log, event.site), event.sequence if on_stream else 0),
            )
        )
        if on_stream:
            for back in range(min(event.repeats, 64)):
                self._operations[process, event.stream, event.sequence - back] = mark
        return mark

    def _site(self, process: int, log: ProcessLog, number: int) -> int:
        key = (process, number)
        if key not in self._sites:
            frames = log.sites.get(number)
            self._sites[key] = len(self.timeline.sites) if frames else 0
            if frames:
                self.timeline.sites.append([*frames, *log.launches.get(number, ())])
        return self._sites[key]

    def _take_came(self) -> None:
        for key, event in self._came:
            if (mark := self._far_records.get(key)) is not None:
                self.timeline.marks[mark].end = max(event.time_ns, self.timeline.marks[mark].start)
                self._record(mark, event.words[3])

    def _draw_arrows(self) -> None:
        self._take_came()
        arrows = self.timeline.arrows
        consumed: dict[tuple[int, ...], int] = {}
        for mark, notify, newest in self._waits:
            record = self._records.get((*notify, newest))
            if record is not None:
                arrows.append(Arrow(record, mark, NOTIFY))
            first = max(consumed.get(notify, 0), newest - 64) + 1
            consumed[notify] = max(consumed.get(notify, 0), newest)
            for number in range(first, newest + 1):
                known = self._records.get((*notify, number))
                arrows += (
                    [Arrow(write, mark, ARRIVAL) for write in self._recorded.pop(known, [])]
                    if known is not None
                    else []
                )
        for mark, key in self._event_waits:
            record = self._event_records.get(key)
            if record is not None:
                arrows.append(Arrow(record, mark, EVENT))

    def _order_streams(self) -> None:
        """Let no operation of a stream begin before the one before it was over."""
        over: dict[int, int] = {}
        marks = self.timeline.marks
        for number in sorted(
            range(len(marks)), key=lambda each: (marks[each].lane, marks[each].sequence, each)
        ):
            mark = marks[number]
            if self.timeline.lanes[mark.lane].is_stream:
                mark.start = max(mark.start, over.get(mark.lane, 0))
                mark.end = max(mark.end, mark.start)
                over[mark.lane] = mark.end

    def _sort_lanes(self) -> None:
        lanes = self.timeline.lanes
        order = sorted(
            range(len(lanes)), key=lambda at: (lanes[at].process, lanes[at].is_stream, lanes[at].number)
        )
        new_number = {old: new for new, old in enumerate(order)}
        self.timeline.lanes = [lanes[old] for old in order]
        for mark in self.timeline.marks:
            mark.lane = new_number[mark.lane]

    def _keep(self, about: set[tuple[int, int]], most: int) -> None:
        timeline = self.timeline
        pids = [log.pid for log in timeline.processes]
        times = sorted(
            mark.start
            for mark in timeline.marks
            if (pids[timeline.lanes[mark.lane].process], mark.number) in about
        ) or [max(mark.end for mark in timeline.marks)]
        near = sorted(
            range(len(timeline.marks)), key=lambda each: _distance(times, timeline.marks[each].start)
        )
        kept = sorted(near[:most])
        new_number = {old: new for new, old in enumerate(kept)}
        timeline.left_out = len(timeline.marks) - len(kept)
        timeline.marks = [timeline.marks[old] for old in kept]
        timeline.arrows = [
            Arrow(new_number[each.tail], new_number[each.head], each.kind)
            for each in timeline.arrows
            if each.tail in new_number and each.head in new_number
        ]


def _distance(times: Sequence[int], at: int) -> int:
    behind = bisect(times, at)
    return min(abs(at - times[each]) for each in (behind - 1, behind) if 0 <= each < len(times))


def _in_bytes(event: LoggedEvent) -> str:
    written = sum(span.size for span in event.spans if span.written)
    size = written or sum(span.size for span in event.spans)
    return f"{size:,} byte{'s' * (size != 1)}"


def _access_words(event: LoggedEvent) -> tuple[str, str, str]:
    op = log_files.OPS[event.op] if event.op < len(log_files.OPS) else "access"
    times = f", {event.repeats:,} times" if event.repeats > 1 else ""
    loose = ", nonblocking" if event.flags & log_files.LOOSE else ""
    note = f"{_in_bytes(event)}{times}{loose}"
    if event.words[0]:
        verb, group = ("read", "read") if event.flags & log_files.FETCH else ("write", "write")
        return f"channel {verb}", group, f"channel {event.words[0]}, {note}"
    return op, "write" if any(span.written for span in event.spans) else "read", note


def _host_words(event: LoggedEvent) -> tuple[str, str, str]:
    times = f", {event.repeats:,} times" if event.repeats > 1 else ""
    if event.flags & log_files.UNKNOWN:
        return "host may access", "other", _in_bytes(event) + times
    if any(span.written for span in event.spans):
        return "host writes", "write", _in_bytes(event) + times
    return "host reads", "read", _in_bytes(event) + times


def _note(event: LoggedEvent) -> str:
    a, b, c, d = event.words
    match event.kind:
        case "notify" | "notify_wait":
            channel = f", channel {d}" if d else ""
            return f"line {b}{f', record {c}' if c else ''}{channel}"
        case "sync":
            return f"stream {event.stream} up to operation {event.sequence}"
        case "fence" | "drain" | "channel_closed":
            return f"channel {a}"
        case "allocated" | "freed" | "moved":
            return f"allocation {a}{', ' + _in_bytes(event) if event.spans else ''}"
        case "gap":
            return f"{a:,} events"
        case "collective":
            return f"group {a & 0xFFFF:x}, of {d >> 32} ranks"
    return ""
