"""Writes event logs by hand, in the format of ``native/log/event.h``."""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).parents[2]
_EVENTS = (ROOT / "native" / "log" / "event.h").read_text()
_OPERATIONS = (ROOT / "native" / "stream" / "operation.h").read_text()


def _names(text: str, enum: str) -> dict[str, int]:
    body = re.search(rf"enum class {enum} : uint8_t {{(.*?)}};", text, re.DOTALL)
    assert body is not None, enum
    plain = re.sub(r"//.*", "", body[1]).replace("= 0", "")
    return {name.strip(): number for number, name in enumerate(plain.split(",")) if name.strip()}


KIND = SimpleNamespace(**_names(_EVENTS, "Kind"))
OP = SimpleNamespace(**_names(_OPERATIONS, "OpKind"))
COLLECTIVE = SimpleNamespace(**_names(_EVENTS, "Collective"))
MESSAGE = 5  #: kMessage in native/log/event.h
FLAG = SimpleNamespace(
    **{name.lower(): int(value) for name, value in re.findall(r"constexpr uint8_t k(\w+) = (\d+);", _EVENTS)}
)
MAGIC, HEADER, UNIT = 0x3230474F4C524550, 4096, 8
_HEAD = struct.Struct("<IBBBBIIIIQQQ")

Span = tuple[int, int, int]  # block, offset, size


class Clock:
    """Gives each event of all logs a later time."""

    def __init__(self, start: int = 1_000_000_000) -> None:
        self.now = start

    def tick(self) -> int:
        self.now += 1000
        return self.now


class EventLog:
    """The log of one process, written as it calls; `publish` makes what was written visible to a reader."""

    def __init__(self, path: Path, clock: Clock, *, pid: int, rank: int, capacity: int = 1 << 20) -> None:
        self.path, self.clock, self.pid, self.rank, self.capacity = path, clock, pid, rank, capacity
        self.head = 0
        self.sequences: dict[int, itertools.count[int]] = {}
        self.thread = pid
        with path.open("wb") as file:
            file.write(struct.pack("<QQiiQ", MAGIC, capacity, pid, rank, clock.now))
            file.truncate(HEADER + capacity)
        self.publish()

    def set_clock(self, machine: int, clock: int, since_epoch_ns: int = 0) -> None:
        """Say which machine it is of, and which clock its times are of."""
        with self.path.open("r+b") as file:
            file.seek(80)
            file.write(struct.pack("<QQQ", machine, clock, since_epoch_ns))

    def publish(self, *, ended: bool = False) -> None:
        with self.path.open("r+b") as file:
            file.seek(32)
            file.write(struct.pack("<QQ", self.head, self.head))
            file.seek(32 + 32)
            file.write(struct.pack("<I", ended))

    def write(
        self,
        kind: int,
        *words: int,
        line: int = 0,
        stream: int = 0,
        sequence: int = 0,
        reads: Iterable[Span] = (),
        writes: Iterable[Span] = (),
        flags: int = 0,
        op: int = 0,
        repeats: int = 1,
        rows: Iterable[tuple[int, int, int]] = (),
        time: int | None = None,
    ) -> None:
        """Append an event; `line` is its site."""
        spans = [*reads, *((block | 1 << 63, offset, size) for block, offset, size in writes)]
        shapes = list(rows)
        flags |= FLAG.rows if shapes else 0
        body = b"".join(struct.pack("<Q", word) for word in words)
        body += b"".join(struct.pack("<QQQ", *span) for span in spans)
        body += b"".join(struct.pack("<QQQ", *shape) for shape in shapes)
        units = -(-(_HEAD.size + len(body)) // UNIT)
        head = _HEAD.pack(
            units,
            kind,
            flags,
            op,
            len(words),
            len(spans),
            line,
            self.thread,
            repeats,
            time or self.clock.tick(),
            stream,
            sequence,
        )
        record = (head + body).ljust(units * UNIT, b"\0")
        left = self.capacity - self.head % self.capacity
        with self.path.open("r+b") as file:
            if len(record) > left:
                file.seek(HEADER + self.head % self.capacity)
                file.write(struct.pack("<IB", left // UNIT, KIND.pad))
                self.head += left
            file.seek(HEADER + self.head % self.capacity)
            file.write(record)
        self.head += len(record)
        self.publish()

    def next(self, stream: int) -> int:
        return next(self.sequences.setdefault(stream, itertools.count(1)))

    def submit(self, stream: int, kind: int, *words: int, **more: Any) -> int:
        """Append an event of an operation on a stream, and return its sequence number."""
        sequence = self.next(stream)
        self.write(kind, *words, stream=stream, sequence=sequence, **more)
        return sequence

    # What a program does, in one line each.  `stream` 0: over when the call returns.

    def on(self, stream: int, kind: int, *words: int, **more: Any) -> int:
        if stream:
            return self.submit(stream, kind, *words, **more)
        self.write(kind, *words, **more)
        return 0

    def allocate(self, number: int, span: Span, *, line: int = 1) -> None:
        self.write(KIND.allocated, number, reads=[span], line=line)

    def fill(self, span: Span, *, line: int, stream: int = 0) -> int:
        return self.on(stream, KIND.access, 0, writes=[span], line=line, op=OP.fill)

    def copy(
        self, dst: Span, src: Span, *, line: int, stream: int = 0, channel: int = 0, flags: int = 0
    ) -> int:
        return self.on(
            stream, KIND.access, channel, reads=[src], writes=[dst], line=line, op=OP.copy, flags=flags
        )

    def sync(self, stream: int, sequence: int, *, line: int = 0) -> None:
        self.write(KIND.sync, stream=stream, sequence=sequence, line=line)

    def host_reads(self, span: Span, *, line: int) -> None:
        self.write(KIND.host_access, reads=[span], line=line)

    def host_writes(self, span: Span, *, line: int) -> None:
        self.write(KIND.host_access, writes=[span], line=line)

    def channel(self, number: int, *, incoming: int, outgoing: int, peer: int) -> None:
        self.write(KIND.channel, number, incoming, outgoing, self.rank << 32 | peer)

    def notify(self, bank: int, index: int, number: int, *, line: int, stream: int = 0) -> None:
        if stream:
            sequence = self.submit(stream, KIND.notify, bank, index, line=line)
            self.write(KIND.notified, bank, index, number, stream=stream, sequence=sequence, line=line)
        else:
            self.write(KIND.notify, bank, index, number, line=line)

    def notify_far(self, bank: int, index: int, *, line: int, stream: int = 0, channel: int = 7) -> int:
        """Append a record to another machine, and return the operation that `come` names."""
        if stream:
            return self.submit(stream, KIND.notify, bank, index, 0, channel, line=line)
        sequence = self.next(0)
        self.write(KIND.notify, bank, index, 0, channel, line=line, sequence=sequence)
        return sequence

    def come(self, bank: int, stream: int, sequence: int, number: int) -> None:
        """Append what the other machine's log has of a record."""
        self.write(KIND.came, bank, stream, sequence, number)

    def wait(self, bank: int, index: int, number: int, *, line: int, stream: int = 0) -> int:
        if not stream:
            self.write(KIND.notify_wait, bank, index, number, line=line)
            return 0
        sequence = self.submit(stream, KIND.notify_wait, bank, index, line=line)
        self.write(KIND.notify_waited, bank, index, number, stream=stream, sequence=sequence)
        return sequence

    def post(self, key: int) -> None:
        self.write(KIND.post, key, key)

    def take(self, key: int, posts: int) -> None:
        self.write(KIND.take, key, key, posts)

    def send_message(self, contents: int, socket: int = 1, *, is_undone: bool = False) -> None:
        self.write(KIND.post, MESSAGE, contents, 0, socket, flags=FLAG.end if is_undone else 0)

    def take_message(self, contents: int, count: int = 1, socket: int = 1) -> None:
        self.write(KIND.take, MESSAGE, contents, count, socket)

    def end(self) -> None:
        self.write(KIND.ended)
        self.publish(ended=True)
