"""What the launcher and its part on another machine say to each other, over the standard streams of a command.

A part begins with `MAGIC`; what stands before it was printed by the other machine's shell.  Then both send frames: a
head (bytes of the body, kind, number), and the body.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
import selectors
import struct
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

MAGIC = b"\npeerlane part 1\n"
LONGEST = 16 << 20  # bytes of a body
_HEAD = struct.Struct("<IBi")
_CHUNK = 1 << 16


class Kind(enum.IntEnum):
    """The kind of a frame; bodies are JSON unless a comment names another form."""

    PREPARE = 1  # of the launcher, once: a job
    START = 2  # its ranks
    SIGNAL = 3  # send this signal to the ranks; the body is their group's flag, one byte
    PAUSE = 4  # stop reading the ranks' output
    RESUME = 5
    LEFTOVERS = 6  # end the processes that the ranks left
    KILL = 7  # kill all processes there

    READY = 33  # of the part, first of all: what it is
    PREPARED = 34  # it has reached the rendezvous
    STARTED = 35  # the pids of the ranks
    OUTPUT = 36  # of a rank (number): a byte that tells which output, and the bytes
    ENDED = 37  # ranks that ended together
    LEFT = 38  # the processes that the ranks left, which are ended
    KILLED = 39  # the processes that are killed
    EMPTY = 40  # no process is left; output may still come
    GONE = 41  # nor output
    FAILED = 42  # why the part cannot go on, as UTF-8
    FILE = 43  # a piece of a file that the ranks left, as `collecting` has it


class Frame(NamedTuple):
    """A frame that the other end has sent."""

    kind: Kind
    number: int
    body: bytes

    def json(self) -> Any:
        """Return what the body says; raise BadFrame if it says nothing."""
        try:
            return json.loads(self.body)
        except ValueError:
            raise BadFrame(f"the body of {self.kind.name} is not JSON") from None


class BadFrame(ValueError):
    """The other end sends what is not a frame."""


class Wire:
    """One end: reads and writes without waiting, in the thread of a selector.

    ``incoming``, ``outgoing``: descriptors, which become its own.
    ``hear``: called with each frame; may raise BadFrame.
    ``lose``: called once with the reason why nothing more will come; not after `close`.
    ``is_part``: whether the other end is a part, which begins with `MAGIC`.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        incoming: int,
        outgoing: int,
        hear: Callable[[Frame], None],
        lose: Callable[[str], None],
        *,
        is_part: bool,
    ) -> None:
        self._selector, self._incoming, self._outgoing = selector, incoming, outgoing
        self._hear, self._lose = hear, lose
        self._has_begun = not is_part
        self._received = bytearray()
        self._waiting: deque[memoryview] = deque()
        self.noise = bytearray()  #: what came before `MAGIC`
        self.unsent = 0  #: bytes that wait until the other end reads
        self.is_closed = False
        for descriptor in (incoming, outgoing):
            os.set_blocking(descriptor, False)
        selector.register(incoming, selectors.EVENT_READ, self._on_readable)

    def send(self, kind: Kind, number: int = 0, body: bytes = b"") -> None:
        """Send a frame; it waits while the other end does not read."""
        self._write(_HEAD.pack(len(body), kind, number) + body)

    def send_json(self, kind: Kind, body: object) -> None:
        """Send a frame whose body is JSON."""
        self.send(kind, 0, json.dumps(body).encode())

    def begin(self) -> None:
        """Say that this end is a part."""
        self._write(MAGIC)

    def _write(self, content: bytes) -> None:
        if not self.is_closed:
            if not self._waiting:
                self._selector.register(self._outgoing, selectors.EVENT_WRITE, self._flush)
            self._waiting.append(memoryview(content))
            self.unsent += len(content)

    def _flush(self) -> None:
        if self.is_closed:  # by another event that was found at the same time
            return
        try:
            while self._waiting:
                sent = os.write(self._outgoing, self._waiting[0])
                self.unsent -= sent
                self._waiting[0] = self._waiting[0][sent:]
                if not self._waiting[0]:
                    self._waiting.popleft()
        except BlockingIOError:
            return
        except OSError:  # its reading end tells why
            self._waiting.clear()
            self.unsent = 0
        self._selector.unregister(self._outgoing)

    def _on_readable(self) -> None:
        if self.is_closed:
            return
        try:
            chunk = os.read(self._incoming, _CHUNK)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(f"the connection ended ({error.strerror})")
            return
        if not chunk:
            self._end("the connection ended")
            return
        self._received += chunk
        try:
            for frame in self._frames():
                self._hear(frame)
                if self.is_closed:
                    return
        except BadFrame as error:
            self._end(f"it sent what is not a frame: {error}")

    def _frames(self) -> Iterator[Frame]:
        if not self._has_begun:
            before, magic, rest = self._received.partition(MAGIC)
            if not magic:
                if len(before) > _CHUNK:
                    raise BadFrame("it does not begin as a part of peerlane launch does")
                self.noise = before
                return
            self.noise, self._received, self._has_begun = before, rest, True
        while len(self._received) >= _HEAD.size:
            length, kind, number = _HEAD.unpack_from(self._received)
            if length > LONGEST or kind not in _KINDS:
                raise BadFrame(f"kind {kind} with {length:,} bytes")
            end = _HEAD.size + length
            if len(self._received) < end:
                return
            body = bytes(self._received[_HEAD.size : end])
            del self._received[:end]
            yield Frame(Kind(kind), number, body)

    def _end(self, why: str) -> None:
        self.close()
        self._lose(why)

    def close(self) -> None:
        """Close both directions; what was not sent is dropped; idempotent."""
        if not self.is_closed:
            self.is_closed = True
            if self._waiting:
                self._selector.unregister(self._outgoing)
                self._waiting.clear()
            self._selector.unregister(self._incoming)
            for descriptor in {self._incoming, self._outgoing}:
                with contextlib.suppress(OSError):
                    os.close(descriptor)


_KINDS = frozenset(Kind)
