"""What the logs of a run have, as tasks for the links of a machine: their bytes, and what each has to wait for.

The order is that of streams, events, notifies, synchronizations, collectives, and of posts and takes between threads
and processes.  The host takes no time.
"""

from __future__ import annotations

import heapq
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from peerlane.diagnostics.log import log_files
from peerlane.diagnostics.log.event_log import COLLECTIVES
from peerlane.diagnostics.log.log_files import LoggedEvent, LoggedSpan, ProcessLog
from peerlane.prediction.fluid import Flow, Task
from peerlane.prediction.machines import COPY_LATENCY, HOST, Link, Machine

Key: TypeAlias = tuple[int, ...]

_BARRIER, _SEND = COLLECTIVES.index("barrier"), COLLECTIVES.index("send")


class Lane(NamedTuple):
    """A stream, or a thread of the host, of a process."""

    process: int
    is_stream: bool
    number: int


@dataclass(frozen=True, slots=True)
class Operation:
    """A task that moves bytes or computes."""

    task: int  #: its number among the tasks
    lane: Lane
    kind: str  #: ``copy``, ``fill``, ..., ``callback``, or the name of a collective
    nbytes: int


@dataclass(slots=True)
class _Collective:
    """A call of a group."""

    task: int  #: the one that takes its time
    name: str
    ranks: int  #: of the group
    nbytes: int
    machines: dict[int, int] = field(default_factory=dict)  #: of the ranks that have a log

    def counts(self) -> tuple[int, ...] | None:
        """Return how many ranks each machine has; None if logs of ranks on several machines are missing."""
        counts = tuple(Counter(self.machines.values()).values())
        if len(counts) == 1:  # also of a process alone, which sees no other rank
            return (self.ranks,)
        return counts if sum(counts) == self.ranks else None


class Run:
    """The tasks of a run.

    ``machine``: its routes are those of the copies, and its like stands for each machine of the run.
    ``device_of``: the number of a device in its machine, for its number in the log; None if the machine has no such
        device.
    ``compute``: seconds that each callback takes on its stream.
    ``collective_seconds``: what a collective takes: its name, the ranks of each machine, and its bytes; None if that
        is not known.
    """

    def __init__(
        self,
        machine: Machine,
        device_of: Callable[[int], int | None],
        compute: float,
        collective_seconds: Callable[[str, Sequence[int], int], float | None],
    ) -> None:
        self.tasks: list[Task[Link]] = []
        self.operations: list[Operation] = []
        #: In words, what takes no time here although it does on the machine, and how often that was.
        self.unknown: Counter[str] = Counter()
        self._machine, self._device_of = machine, device_of
        self._compute, self._collective_seconds = compute, collective_seconds
        self._machines: list[int] = []  # of the processes
        self._last: dict[Lane, int] = {}
        self._sequences: defaultdict[Lane, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        self._devices: dict[int, int | None] = {}  # by block
        self._events: dict[Key, int] = {}  # shared events
        self._records: dict[Key, int] = {}  # of notifies
        self._lines: dict[int, Key] = {}  # of notifies and waits, by their tasks
        self._waits: list[tuple[int, dict[Key, int], Key]] = []
        # Notifies by their banks, streams and sequences, and those that another machine recorded, with the numbers.
        self._unnumbered: dict[Key, int] = {}
        self._came: list[tuple[Key, int]] = []
        self._posts: defaultdict[Key, list[int]] = defaultdict(list)
        self._collectives: dict[Key, _Collective] = {}

    def note_devices(self, devices: Mapping[int, int], machine: int = 0) -> None:
        """Note the devices of a machine's blocks, as numbers of the log; 0 is the host."""
        for block, number in devices.items():
            device = self._device_of(number) if number else None
            counted = None if device is None else self._machine.device(machine, device)
            self._devices[block] = counted if number else HOST - machine

    def add(self, logs: Sequence[ProcessLog]) -> None:
        """Take the events of all logs, whose clocks are aligned; machines count in the order of their first logs."""
        number_of = {name: number for number, name in enumerate(dict.fromkeys(log.machine for log in logs))}
        self._machines = [number_of[log.machine] for log in logs]
        merged = heapq.merge(*map(_numbered, range(len(logs)), logs), key=lambda item: item[1].time_ns)
        for process, event in merged:
            self._take(process, event)
        # Only now: another process's log may have an earlier event behind a later one.
        for submission, number in self._came:
            if (task := self._unnumbered.get(submission)) is not None:
                self._number(task, True, number)
        for task, records, key in self._waits:
            if key in records:
                self.tasks[task].after.append(records[key])
        for each in self._collectives.values():
            self._time(each)
        self.unknown["logs of processes that are not complete"] += sum(
            bool(log.problem or log.dropped) for log in logs
        )

    def _take(self, process: int, event: LoggedEvent) -> None:
        a, b, c, _ = event.words
        thread = Lane(process, False, event.thread)
        stream = Lane(process, True, event.stream)
        lane = stream if event.stream else thread
        match event.kind:
            case "allocated" if b:
                self.note_devices({span.block: b - 1 for span in event.spans}, self._machines[process])
            case "moved" if len(event.spans) == 2:
                self._devices[event.spans[1].block] = self._devices.get(event.spans[0].block)
            case "access":
                self._move(lane, thread, event)
            case "pieces":
                self._add_flows(self._task_at(stream, event.sequence), process, event)
            case "callback":
                self._operation(self._submit(lane, thread, event, self._compute), lane, "callback", 0)
                self.unknown["callbacks"] += not self._compute
            case "event_record" | "event_wait":
                self._event(lane, thread, event)
            case "notify" | "notify_wait":
                task = self._submit(lane, thread, event)
                self._lines[task] = (a, b) if a else (process, 0, b)
                if c:
                    self._number(task, event.kind == "notify", c)
                elif event.kind == "notify" and a:
                    self._unnumbered[a, event.stream, event.sequence] = task
            case "came":
                self._came.append(((a, b, c), event.words[3]))
            case "notified" | "notify_waited":
                submitted = self._task_at(stream, event.sequence)
                if submitted in self._lines:
                    self._number(submitted, event.kind == "notified", c)
            case "value_wait":
                self._submit(lane, thread, event)
                self.unknown["waits for a value: the write that ends them"] += 1
            case "sync":
                self._chain(thread, [self._task_at(stream, event.sequence)])
            case "post":
                past = self._task_at(stream, event.sequence) if event.stream else self._last.get(thread)
                self._posts[_post_key(process, a, b)] += [] if past is None else [past]
            case "take":
                self._chain(thread, self._posts[_post_key(process, a, b)])
            case "collective":
                self._collective(lane, thread, event)

    def _chain(self, lane: Lane, after: Iterable[int | None], latency: float = 0.0) -> int:
        """Add a task at the end of a lane."""
        before = self._last.get(lane)
        number = self._last[lane] = len(self.tasks)
        self.tasks.append(Task([each for each in (before, *after) if each is not None], latency))
        return number

    def _submit(self, lane: Lane, thread: Lane, event: LoggedEvent, latency: float = 0.0) -> int:
        task = self._chain(lane, [self._last.get(thread)] if lane.is_stream else [], latency)
        if lane.is_stream:
            sequences, tasks = self._sequences[lane]
            sequences.append(event.sequence)
            tasks.append(task)
        return task

    def _operation(self, task: int, lane: Lane, kind: str, nbytes: int) -> None:
        self.operations.append(Operation(task, lane, kind, nbytes))

    def _task_at(self, lane: Lane, sequence: int) -> int | None:
        """Return the last task of a stream that an operation and all before it have; None if there is none."""
        sequences, tasks = self._sequences[lane]
        at = bisect(sequences, sequence)
        return tasks[at - 1] if at else None

    def _event(self, lane: Lane, thread: Lane, event: LoggedEvent) -> None:
        a, b = event.words[:2]
        task = self._submit(lane, thread, event)
        is_shared = event.flags & log_files.SHARED
        if event.kind == "event_record":
            if is_shared:
                self._events[a, b] = task
        elif is_shared:
            self._waits.append((task, self._events, (a, b)))
        else:
            past = self._task_at(lane._replace(number=a), b)
            self.tasks[task].after += [] if past is None else [past]

    def _number(self, task: int, is_record: bool, number: int) -> None:
        key = *self._lines[task], number
        if is_record:
            self._records[key] = task
        else:
            self._waits.append((task, self._records, key))

    def _move(self, lane: Lane, thread: Lane, event: LoggedEvent) -> None:
        task = self._submit(lane, thread, event, COPY_LATENCY * max(event.repeats, 1))
        kind = log_files.OPS[event.op] if event.op < len(log_files.OPS) else "access"
        self._operation(task, lane, kind, sum(nbytes for _, _, nbytes in _moves(event)))
        self._add_flows(task, lane.process, event)

    def _add_flows(self, task: int | None, process: int, event: LoggedEvent) -> None:
        if task is None:
            return
        host = HOST - self._machines[process]
        for src, dst, nbytes in _moves(event):
            one, other = (self._devices.get(each.block) if each.block else host for each in (src, dst))
            if one is None or other is None:
                self.unknown["copies with memory of devices that the machine or the log lacks"] += 1
                continue
            route = self._machine.route(one, other)
            if not all(map(self._machine.rate, route)):
                self.unknown["copies by links without a published rate"] += 1
            else:
                self.tasks[task].flows.append(Flow(route, nbytes))

    def _collective(self, lane: Lane, thread: Lane, event: LoggedEvent) -> None:
        group, call, _, ranks = *event.words[:3], event.words[3] >> 32
        what = call >> 8 & 0xFF
        if what >= _SEND or what >= len(COLLECTIVES):
            self._submit(lane, thread, event)
            self.unknown["messages of a group"] += 1
            return
        arrival = self._submit(lane, thread, event)
        # The larger end is the whole: the source of a reduce-scatter, the destination of an all-gather or broadcast.
        read, written = (
            sum(span.size for span in event.spans if span.written is is_end) for is_end in (False, True)
        )
        nbytes = max(read, written)
        if (group, call) not in self._collectives:
            self._collectives[group, call] = _Collective(len(self.tasks), COLLECTIVES[what], ranks, nbytes)
            self.tasks.append(Task())
        one = self._collectives[group, call]
        one.machines[event.words[3] & 0xFFFFFFFF] = self._machines[lane.process]
        self.tasks[one.task].after.append(arrival)
        self._chain(lane, [one.task])
        self._operation(one.task, lane, one.name, nbytes)

    def _time(self, call: _Collective) -> None:
        """Let a collective take its time, now that the machines of its ranks are known."""
        if call.name == COLLECTIVES[_BARRIER]:
            return
        counts = call.counts()
        seconds = None if counts is None else self._collective_seconds(call.name, counts, call.nbytes)
        self.unknown[f"collectives of kind {call.name}"] += seconds is None
        self.tasks[call.task].latency = seconds or 0.0


def _post_key(process: int, a: int, b: int) -> Key:
    """Return what names a key in all processes: locks and threads have one of their process."""
    return (process, a, b) if a < log_files.FIRST_SHARED_KEY else (a, b)


def _numbered(process: int, log: ProcessLog) -> Iterator[tuple[int, LoggedEvent]]:
    return ((process, event) for event in log.events())


def _moves(event: LoggedEvent) -> Iterator[tuple[LoggedSpan, LoggedSpan, int]]:
    """Yield the source, the destination and the bytes of each part of an operation.

    What is written without a source, as by a fill, has its own memory as the source.
    """
    spans = [
        span._replace(size=width * height) if rows else span
        for span, rows in zip(event.spans, event.rows or [()] * len(event.spans), strict=True)
        for _, width, height in [rows or (0, 0, 0)]
    ]
    written = [span for span in spans if span.written]
    in_place = {span[:3] for span in written}
    read = [span for span in spans if not span.written and span[:3] not in in_place]
    at, used = 0, 0
    for dst in written:
        left = dst.size
        while left and at < len(read):
            nbytes = min(left, read[at].size - used)
            yield read[at], dst, nbytes
            left, used = left - nbytes, used + nbytes
            if used == read[at].size:
                at, used = at + 1, 0
        if left:
            yield dst, dst, left
