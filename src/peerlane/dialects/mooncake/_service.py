"""Requests between engines over TCP: descriptions of segments, notifies, probes, and bytes for other machines.

A request and its answer are one frame each.  Each body begins with a key of the event log: what its sender did before
comes before what its receiver does afterwards.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import operator
import os
import select
import socket
import struct
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from peerlane import Stream
from peerlane.diagnostics.log import event_log
from peerlane.dialects._shared import frames
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.mooncake._failures import DNS, SOCKET, refused
from peerlane.dialects.mooncake._memory import check
from peerlane.dialects.mooncake._segments import Description, Registered, Segment, decode
from peerlane.errors import Error
from peerlane.memory import raw

_MAGIC = b"plmoon-2"
_KEY, _PIECE, _NAME = struct.Struct("<QQ"), struct.Struct("<QQ"), struct.Struct("<I")
_NO_KEY = (0, 0)
_LOOKS = b"LKRD", b"LKWR"  # whether bytes can be read, and written
_CONNECT_SECONDS = 5.0
_PORT = 12001  # of a name without one
_CHUNK = 4 << 20  # bytes of a frame
_MOST_CONNECTIONS = 256
_MOST_OF_NOTIFY = frames.MOST - (1 << 10)  # bytes of a notify's name and message
_EXCHANGE_SECONDS = 30.0  # that a client may take to send a request, and to take its answer
_numbers = itertools.count(1)

Piece: TypeAlias = tuple[int, int, int]  # this process's address, the other's, and bytes


class Notice(NamedTuple):
    """A notify that has come, and the key of its sending in the event log."""

    name: str
    message: str
    key: event_log.Key


class Inbox:
    """The notifies that an engine has received."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._notices: list[Notice] = []

    def add(self, notice: Notice) -> None:
        """Add a notify."""
        with event_log.quiet(), self._lock:
            self._notices.append(notice)

    def take(self) -> list[Notice]:
        """Return the notifies that have come, and forget them."""
        with event_log.quiet(), self._lock:
            taken, self._notices = self._notices, []
        for each in taken:
            take(each.key)
        return taken


def post() -> event_log.Key:
    """Return a key that has what this thread did so far; without a log one that means nothing."""
    if not event_log.active:
        return _NO_KEY
    key = event_log.key_of("mooncake frame", os.getpid(), time.monotonic_ns(), next(_numbers))
    event_log.post(key)
    return key


def take(key: event_log.Key) -> None:
    """Log that this thread comes after a key was posted."""
    if event_log.active and key != _NO_KEY:
        event_log.take(key, 1)


class Service:
    """The threads of an engine that answer other engines.

    ``host``: the address at which it listens.
    Raises OSError: the address is none of this machine.
    """

    def __init__(self, host: str, segment: Segment, inbox: Inbox) -> None:
        self._segment, self._inbox = segment, inbox
        with event_log.quiet():
            family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
            self._socket = socket.create_server((host, 0), family=family, backlog=_MOST_CONNECTIONS)
        self.port: int = self._socket.getsockname()[1]
        self._connections: dict[socket.socket, float | None] = {}  # since when each waits for a request
        _services.add(self)
        threading.Thread(target=self._accept, name="peerlane mooncake", daemon=True).start()

    def close_inherited(self) -> None:
        """Close what the child of a fork has inherited, else others do not see its parent's end."""
        with event_log.quiet():
            for each in (self._socket, *self._connections):
                each.close()

    def close(self) -> None:
        """End all connections."""
        with event_log.quiet():
            for each in (self._socket, *tuple(self._connections)):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            self._socket.close()

    def _accept(self) -> None:
        with event_log.quiet():
            while (connection := frames.accept(self._socket, self._end_idle)) is not None:
                if len(self._connections) >= _MOST_CONNECTIONS and not self._end_idle():
                    connection.close()
                    continue
                self._connections[connection] = time.monotonic()
                thread = threading.Thread(
                    target=self._serve, args=(connection,), name="peerlane mooncake", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:  # the system has no thread
                    del self._connections[connection]
                    connection.close()

    def _end_idle(self) -> bool:
        """End the connection that waits longest for a request: its client makes a new one.  False: there is none."""
        waiting = [(since, each) for each, since in list(self._connections.items()) if since is not None]
        if not waiting:
            return False
        _, longest = min(waiting, key=operator.itemgetter(0))
        self._connections.pop(longest, None)
        with contextlib.suppress(OSError):
            longest.shutdown(socket.SHUT_RDWR)
        return True

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, ValueError, struct.error):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while True:
                with event_log.quiet():
                    verb, body = frames.receive(connection, _MAGIC, _EXCHANGE_SECONDS, may_idle=True)
                if connection not in self._connections:
                    return  # it was ended just when the request came
                self._connections[connection] = None
                key, body = _KEY.unpack_from(body), body[_KEY.size :]
                if verb == b"NOTE":
                    (size,) = _NAME.unpack_from(body)
                    name, message = body[_NAME.size :][:size], body[_NAME.size :][size:]
                    self._inbox.add(Notice(name.decode(), message.decode(), key))
                    answer: tuple[str, frames.Content] = "DONE", b""
                else:
                    take(key)
                    answer = self._answer(verb, body)
                _send(connection, answer[0], post(), answer[1])
                self._connections[connection] = time.monotonic()
        self._connections.pop(connection, None)

    def _answer(self, verb: bytes, body: bytes) -> tuple[str, frames.Content]:
        if verb == b"PROB":
            return "DONE", b""
        if verb == b"DESC":
            return "DONE", self._segment.describe()
        try:
            if verb in _LOOKS:
                pieces = list(_PIECE.iter_unpack(body))
                for address, size in pieces:
                    self._region(address, size)
                check("the engine that was asked", pieces, writes=verb == _LOOKS[True])
                return "DONE", b""
            address, size = _PIECE.unpack_from(body)
            content = bytearray(body[_PIECE.size :])  # the copy below has only its address
            region = self._region(address, size)
            if verb == b"READ" and size <= _CHUNK and not content:
                content = bytearray(size)
                with event_log.called_at(region.line):
                    raw.copy(_address_of(content), address, size)
                return "DONE", bytes(content)
            if verb == b"WRIT" and size == len(content):
                with event_log.called_at(region.line):
                    raw.copy(address, _address_of(content), size)
                return "DONE", b""
        except (Refusal, Error) as error:
            return "FAIL", str(error).encode()
        raise ValueError(f"{verb!r} is no request")

    def _region(self, address: int, size: int) -> Registered:
        region = self._segment.find(address, size)
        if region is None:
            raise refused(f"{size:,} bytes at {address:#x} are not registered; {self._segment.shown}", "")
        return region


def _close_inherited() -> None:
    for each in list(_services):
        each.close_inherited()


_services: weakref.WeakSet[Service] = weakref.WeakSet()
os.register_at_fork(after_in_child=_close_inherited)


def _address_of(content: bytearray) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(content)) if content else 0


def _send(connection: socket.socket, verb: str, key: event_log.Key, *body: frames.Content) -> None:
    with event_log.quiet():
        frames.send(connection, _MAGIC, verb, _KEY.pack(*key), *body)


class Client:
    """Sends requests to the service of another engine.

    ``name``: the segment: ``host:port``.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        host, colon, port = name.rpartition(":")
        if not colon:
            host, port = name, str(_PORT)
        if not host or not port.isdecimal() or int(port) >= 1 << 16:
            raise refused(
                f"{name!r} is no segment", "pass host:port of an engine, its port from get_rpc_port()", DNS
            )
        self._address = host.strip("[]"), int(port)
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None

    def ask(self, verb: str, *body: frames.Content) -> bytes:
        """Send a request of this thread, and return the answer; raise as :meth:`exchange`."""
        key, answer = self.exchange(verb, post(), *body, seconds=_CONNECT_SECONDS)
        take(key)
        return answer

    def exchange(
        self, verb: str, key: event_log.Key, *body: frames.Content, seconds: float
    ) -> tuple[event_log.Key, bytes]:
        """Send a request that follows what posted a key, and return the answer with its key.

        Raises Refusal: the other engine refuses, cannot be reached, or has not answered in so many seconds.
        """
        with self._lock:
            try:
                with event_log.quiet():
                    connection = self._connected(seconds)
                _send(connection, verb, key, *body)
                with event_log.quiet():
                    outcome, answer = frames.receive(connection, _MAGIC, seconds)
                first, second = _KEY.unpack_from(answer)
            except (OSError, ValueError, struct.error) as error:
                self._disconnect()
                raise refused(
                    f"engine {self.name!r} cannot be reached within {seconds:g} s: {error}",
                    "look whether its process lives, and whether the port is that of its get_rpc_port(): the engine "
                    "chooses it, whatever port initialize got",
                    DNS if isinstance(error, (socket.gaierror, UnicodeError)) else SOCKET,
                ) from None
        content = answer[_KEY.size :]
        if outcome != b"DONE":
            raise refused(
                f"engine {self.name!r} refused: {content.decode(errors='replace')}",
                "register the bytes there, and pass addresses inside of them",
            )
        return (first, second), content

    def _connected(self, seconds: float) -> socket.socket:
        """Return the connection, a new one if the other end has closed the present one."""
        if self._connection is not None:
            events = select.poll()  # select() cannot wait for descriptors above 1,023
            events.register(self._connection, select.POLLIN)
            if events.poll(0):  # between two requests only its end can come
                self._disconnect()
        if self._connection is None:
            self._connection = socket.create_connection(self._address, timeout=min(seconds, _CONNECT_SECONDS))
            self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection.settimeout(seconds)
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with event_log.quiet():
                connection.close()

    def close(self) -> None:
        """End the connection; idempotent."""
        with self._lock:
            self._disconnect()

    def describe(self) -> Description:
        """Return the other engine's description."""
        content = self.ask("DESC")
        try:
            return decode(content)
        except ValueError as error:
            raise refused(f"the segment {self.name!r} is impossible: {error}", "restart its engine") from None

    def notify(self, name: str, message: str) -> None:
        """Send a notify."""
        encoded, content = name.encode(), message.encode()
        if len(encoded) + len(content) > _MOST_OF_NOTIFY:
            raise refused(
                f"a notify has {len(encoded) + len(content):,} bytes, and may have {_MOST_OF_NOTIFY:,}",
                "write the bytes to memory of the other engine, and notify it of them",
            )
        self.ask("NOTE", _NAME.pack(len(encoded)), encoded, content)

    def look(self, pieces: Sequence[Piece], is_write: bool) -> None:
        """Refuse pieces that are not registered there, or are no memory that can be read or written."""
        rows = [_PIECE.pack(far, size) for _, far, size in pieces]
        for at in range(0, len(rows), _CHUNK // _PIECE.size):
            self.ask(_LOOKS[is_write].decode(), b"".join(rows[at : at + _CHUNK // _PIECE.size]))


class FarCall:
    """Moves bytes between a staging buffer of this process and memory of another machine.

    ``pieces``: a part of the buffer, and the other's address.
    ``seconds``: the most to wait for an answer.
    """

    def __init__(
        self, client: Client, is_write: bool, pieces: Sequence[tuple[memoryview, int]], seconds: float
    ) -> None:
        self._client, self._is_write, self._pieces, self._seconds = client, is_write, pieces, seconds
        self.is_brief = False  # another machine may be slow
        self._key, self._answers = _NO_KEY, [_NO_KEY]

    def __call__(self) -> None:
        for content, address in self._pieces:
            for at in range(0, len(content), _CHUNK):
                self._move(address + at, content[at : at + _CHUNK])

    def _move(self, address: int, part: memoryview) -> None:
        piece = _PIECE.pack(address, len(part))
        if self._is_write:
            key, _ = self._client.exchange("WRIT", self._key, piece, part, seconds=self._seconds)
        else:
            key, answer = self._client.exchange("READ", self._key, piece, seconds=self._seconds)
            if len(answer) != len(part):
                raise refused(
                    f"engine {self._client.name!r} answered {len(answer):,} bytes for {len(part):,}",
                    "restart it",
                )
            part[:] = answer
        self._answers.append(key)

    @contextlib.contextmanager
    def logged(self, stream: Stream | None) -> Iterator[None]:
        """Let the other engine's work come after what this thread did."""
        self._key, self._answers = post(), []
        with event_log.quiet():
            yield

    def is_over(self) -> None:
        """Let this thread come after the other engine's work."""
        for key in self._answers:
            take(key)
