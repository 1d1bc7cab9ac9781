"""What an agent shares with other processes: which registrations live, and rings for notifications.

A board is a sealed memfd of its agent.  Other processes open it through ``/proc``.  It has a word for each
registration, which ends with it, and 64 *lanes*.  A process that sends notifications holds one lane by a lock of the
system, which ends with the process.  A lane is a ring of bytes: only its sender moves the head, and only the agent
the tail.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import select
import struct
import threading
import time
from collections import deque
from typing import TypeAlias

from peerlane.diagnostics import event_log
from peerlane.dialects.nixl._status import nixlBackendError
from peerlane.support.processes import start_time

LINES = 1 << 15  # registrations at a time
_LANES = 64
_RING = 1 << 20
_CHUNK = _RING // 4
_PAGE = 4096
_WORDS_AT = _PAGE
_HEADS_AT = _WORDS_AT + 8 * LINES
_HEADS_END = _HEADS_AT + 8 * _LANES
_TAILS_AT = _HEADS_AT + _PAGE
_RINGS_AT = _TAILS_AT + _PAGE
_SIZE = _RINGS_AT + _LANES * _RING
_MAGIC = b"plnixl01"
_HEADER = struct.Struct("<8s16s")
_RECORD = struct.Struct("<IHH")  # bytes of it all, bytes of the sender's name, whether more follows
_BEGIN = _RECORD.size
_LOCK = struct.Struct("hhxxxxqqixxxx")
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_PAUSE = 0.001  # seconds between two looks for room in a ring
_LOOK = 0.0001  # seconds between two looks whether a process has ended


Past: TypeAlias = "tuple[int, int] | None"  #: a stream and its last operation; None: the thread


class Message(bytes):
    """A notification, while there is an event log: with the key under which the log has that it was sent."""

    key: event_log.Key

    def __reduce__(self) -> tuple[type[bytes], tuple[bytes]]:
        return bytes, (bytes(self),)


def key_of(ident: bytes, lane: int, at: int) -> event_log.Key:
    """Return the key of the message that stands at a place of a lane of the board ``ident``."""
    return event_log.key_of("nixl", ident, lane, at)


def logged(message: bytes, ident: bytes, lane: int, at: int) -> Message:
    """Return a message with its key."""
    made = Message(message)
    made.key = key_of(ident, lane, at)
    return made


def log_sent(key: event_log.Key, past: Past) -> None:
    """Let what a stream or this thread did come before what :func:`log_seen` the message."""
    if past is None:
        event_log.post(key)
    else:
        event_log.post_of(key, *past)


def log_seen(message: bytes) -> None:
    """Let what came before a notification was sent come before what this thread does from now on."""
    if isinstance(message, Message):
        event_log.take(message.key, 1)


class _Board:
    """The parts of a mapped board."""

    def __init__(self, fd: int, ident: bytes) -> None:
        self.fd, self.ident = fd, ident
        self.memory = mmap.mmap(fd, _SIZE)
        self._whole = memoryview(self.memory)
        self.words = self._whole[_WORDS_AT : _WORDS_AT + 8 * LINES].cast("Q")
        self.heads = self._whole[_HEADS_AT : _HEADS_AT + 8 * _LANES].cast("Q")
        self.tails = self._whole[_TAILS_AT : _TAILS_AT + 8 * _LANES].cast("Q")

    def close(self) -> None:
        """Unmap it; idempotent."""
        for part in (self.words, self.heads, self.tails, self._whole):
            part.release()
        self.memory.close()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _write(self, lane: int, at: int, data: bytes) -> None:
        base, at, size = _RINGS_AT + lane * _RING, at % _RING, len(data)
        if at + size <= _RING:
            self.memory[base + at : base + at + size] = data
        else:
            fits = _RING - at
            self.memory[base + at : base + _RING] = data[:fits]
            self.memory[base : base + size - fits] = data[fits:]

    def _read(self, lane: int, at: int, size: int) -> bytes:
        base, at = _RINGS_AT + lane * _RING, at % _RING
        if at + size <= _RING:
            return self.memory[base + at : base + at + size]
        return self.memory[base + at : base + _RING] + self.memory[base : base + at + size - _RING]


class OwnBoard(_Board):
    """The board of an agent of this process."""

    def __init__(self) -> None:
        fd = os.memfd_create("peerlane-nixl", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, _SIZE)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        super().__init__(fd, os.urandom(16))
        self.memory[: _HEADER.size] = _HEADER.pack(_MAGIC, self.ident)
        self._free = deque(range(LINES))
        self._number = 0
        self._seen = bytes(8 * _LANES)
        self._read_to = [0] * _LANES
        self._parts: dict[int, list[bytes]] = {}

    def begin(self) -> tuple[int, int]:
        """Return the line and the number of a new registration."""
        if not self._free:
            raise nixlBackendError(f"{LINES:,} regions are registered already", "register larger regions")
        line, self._number = self._free.popleft(), self._number + 1
        self.words[line] = self._number
        return line, self._number

    def end(self, line: int) -> None:
        """End a registration."""
        self.words[line] = 0
        self._free.append(line)

    def collect(self, inbox: dict[str, list[bytes]]) -> None:
        """Append the notifications that other processes have sent to those of each agent.

        Raises
        ------
        nixlBackendError
            A process wrote nonsense; the rest of its lane is dropped.
        """
        heads = self.memory[_HEADS_AT:_HEADS_END]
        if heads == self._seen:
            return
        lanes = (len(heads.rstrip(b"\0")) + 7) // 8  # behind the last one that was ever used
        for lane, head in enumerate(memoryview(heads).cast("Q")[:lanes]):
            if head != self._read_to[lane]:
                self._take(lane, head, inbox)
        self._seen = heads

    def _take(self, lane: int, head: int, inbox: dict[str, list[bytes]]) -> None:
        at = self._read_to[lane]
        while at != head:
            size, named, more = _RECORD.unpack(self._read(lane, at, _BEGIN))
            if not _BEGIN + named <= size <= head - at <= _RING or more > 1:
                self._read_to[lane] = self.tails[lane] = head
                raise nixlBackendError(
                    f"a process that sends notifications wrote {head - at:,} bytes that are none",
                    "look for stray writes in that process",
                )
            record = self._read(lane, at, size)
            message, place = record[_BEGIN + named :], at
            self._read_to[lane] = self.tails[lane] = at = at + size
            if more or lane in self._parts:
                self._parts.setdefault(lane, []).append(message)
                if more:
                    continue
                message = b"".join(self._parts.pop(lane))
            if event_log.active:
                message = logged(message, self.ident, lane, place)
            name = record[_BEGIN : _BEGIN + named].decode(errors="replace")
            if name in inbox:
                inbox[name].append(message)
            else:
                inbox[name] = [message]


class OtherBoard(_Board):
    """The board of another process's agent.

    Raises
    ------
    nixlBackendError
        That process, or that board, is not there.
    """

    def __init__(self, pid: int, started: int, fd: int, ident: bytes) -> None:
        self._process = -1
        opened = -1
        try:
            self._process = os.pidfd_open(pid)
            opened = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
            seals = fcntl.fcntl(opened, fcntl.F_GET_SEALS)
            fits = (
                start_time(pid) == started and os.fstat(opened).st_size == _SIZE and seals & _SEALS == _SEALS
            )
            if fits:
                fits = os.pread(opened, _HEADER.size, 0) == _HEADER.pack(_MAGIC, ident)
            why = "" if fits else "its agent is gone"
        except OSError as error:
            why = error.strerror or str(error)
        if why:
            for each in (opened, self._process):
                if each >= 0:
                    os.close(each)
            raise nixlBackendError(
                f"the agent lives in process {pid}, which cannot be reached from this one: {why}",
                "load the metadata of an agent that lives, of the same user on the same machine",
            )
        super().__init__(opened, ident)
        self.pid = pid
        self._guard = threading.Lock()
        self._lane = -1
        self._waiting: deque[tuple[bytes, Past]] = deque()
        self._ended, self._asked = False, 0.0

    def has_ended(self, now: float) -> bool:
        """Tell whether the process has ended, by ``time.monotonic()``: it is asked at most every 0.1 ms."""
        if now - self._asked > _LOOK:
            self._asked = now
            exit = select.poll()  # one of its own: two threads may not use the same
            exit.register(self._process, select.POLLIN)
            self._ended = self._ended or bool(exit.poll(0))
        return self._ended

    def close(self) -> None:
        with self._guard:
            if self._process >= 0:
                os.close(self._process)
                self._process = -1
                super().close()

    def send(self, name: bytes, message: bytes, past: Past) -> None:
        """Send a notification of the agent of that name; it waits in this process while the ring is full."""
        with self._guard:
            if self._process < 0:  # a transfer outlived its agent's removal
                return
            if self._lane < 0:
                self._lane = self._claim()
            was_waiting = bool(self._waiting)
            for at in range(0, len(message) or 1, _CHUNK):
                piece, more = message[at : at + _CHUNK], at + _CHUNK < len(message)
                record = _RECORD.pack(_BEGIN + len(name) + len(piece), len(name), more) + name + piece
                if self._waiting or not self._put(record, past):
                    self._waiting.append((record, past))
            if self._waiting and not was_waiting:
                threading.Thread(target=self._go_on, name="peerlane nixl", daemon=True).start()

    def _put(self, record: bytes, past: Past) -> bool:
        """Write a record, if there is room."""
        lane, size = self._lane, len(record)
        head = self.heads[lane]
        if head + size - self.tails[lane] > _RING:
            return False
        self._write(lane, head, record)
        if event_log.active:
            log_sent(key_of(self.ident, lane, head), past)
        self.heads[lane] = head + size
        return True

    def _go_on(self) -> None:
        while self._process >= 0 and not self.has_ended(time.monotonic()):
            time.sleep(_PAUSE)
            with self._guard:
                while self._process >= 0 and self._waiting and self._put(*self._waiting[0]):
                    self._waiting.popleft()
                if not self._waiting:
                    return

    def _claim(self) -> int:
        for lane in range(_LANES):
            with contextlib.suppress(BlockingIOError):
                lock = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, lane, 1, 0)
                fcntl.fcntl(self.fd, fcntl.F_OFD_SETLK, lock)  # the descriptor's, not the process's
                return lane
        raise nixlBackendError(
            f"{_LANES} processes send notifications to this agent already",
            "let one of them remove the agent first",
        )
