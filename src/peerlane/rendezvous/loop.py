"""The serving thread of a rendezvous: accepts connections, reads, answers, and watches the ranks' processes.

Its subclasses carry the requests out: the rendezvous itself, and a relay to one on another machine.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from peerlane.rendezvous import frames, peers
from peerlane.rendezvous.frames import BadFrame, Operation, Request, Status
from peerlane.rendezvous.meeting import STORE_BYTES

MOST_CONNECTIONS = 64  # of one process; more if all ranks may be its threads
STALL_SECONDS = 10.0
_CHUNK = 1 << 18
NEVER = float("inf")


class Timed(Protocol):
    """What the loop calls at a time."""

    deadline: float  #: of the monotonic clock

    def on_deadline(self) -> None:
        """The time has come."""


def no_room(rank: int, nbytes: int) -> str:
    """Return the text of a refusal."""
    return (
        f"rank {rank} has no room for {nbytes:,} bytes more; {STORE_BYTES:,} is the most, and "
        "an old value counts until the new one of its key has come; delete values with Rendezvous.delete"
    )


class Connection:
    """One connection: reads one request, hands it to the loop, and writes one answer.

    A peer that sends half a frame, or does not read its answer, is dropped after ten seconds without progress.
    """

    operation: Operation
    rank: int
    key: str
    value: bytes

    def __init__(self, accepted: socket.socket, pid: int, loop: Loop) -> None:
        self.socket = accepted
        self.pid = pid  #: the peer's pid
        self.deadline = NEVER  #: the time of the monotonic clock at which to call ``on_deadline``
        self._loop = loop
        self._wanted = frames.REQUEST_BYTES
        self._received = bytearray()
        self._request: Request | None = None
        self._head = b""
        self._charged = 0
        self.is_waiting = False  #: whether its request is complete and not answered
        self._is_closed = False
        self._output: list[memoryview] = []
        loop.listen_to(accepted, selectors.EVENT_READ, self.on_ready)
        self._expect_progress()

    def on_ready(self) -> None:
        """Go on: the socket is readable or writable, or the peer has closed it."""
        try:
            if self._output:
                self._send()
            else:
                self._receive()
        except BlockingIOError:
            pass
        except OSError:
            self.close()

    def on_deadline(self) -> None:
        """Answer a wait that has timed out with what is missing; drop a peer that makes no progress."""
        if self.is_waiting:
            text, awaited = self._loop.why_waiting(self)
            self._loop.withdraw(self)
            self.answer(Status.WAIT_TIMEOUT, [text.encode(), frames.encode_ranks(awaited)])
        else:
            self.close()

    def answer(self, status: Status, values: Sequence[bytes], lost: int | None = None) -> None:
        """Write an answer, then close; read nothing more."""
        self.is_waiting = False
        self._output = [
            memoryview(frames.encode_answer(status, values, lost)),
            *(memoryview(value) for value in values),
        ]
        self._received = bytearray()
        self._give_back()
        self._loop.listen_to(self.socket, selectors.EVENT_WRITE, self.on_ready)
        self._expect_progress()
        self.on_ready()

    def request(self) -> bytes:
        """Return the bytes of the complete request."""
        return self._head + self.key.encode() + self.value

    def open_pidfd(self) -> int:
        """Return a descriptor that is readable once the peer has ended; raise OSError if there cannot be one."""
        return peers.open_pidfd(self.socket, self.pid)

    def close(self) -> None:
        """Drop the connection and its wait."""
        if self._is_closed:
            return
        self._is_closed = True
        if self.is_waiting:
            self._loop.withdraw(self)
        self._give_back()
        self.deadline = NEVER
        self.value = b""
        self._loop.listen_to(self.socket, 0, self.on_ready)
        self.socket.close()
        self._loop.on_closed(self)

    def _expect_progress(self) -> None:
        self.deadline = time.monotonic() + STALL_SECONDS

    def _give_back(self) -> None:
        if self._request is not None and self._charged:
            self._loop.give_back(self._request.rank, self._charged)
            self._charged = 0

    def _send(self) -> None:
        while self._output:
            sent = self.socket.send(self._output[0])
            self._output[0] = self._output[0][sent:]
            if not self._output[0]:
                del self._output[0]
            self._expect_progress()
        self.close()

    def _receive(self) -> None:
        chunk = self.socket.recv(min(_CHUNK, self._wanted - len(self._received)) or 1)
        if not chunk:
            self.close()
        elif self.is_waiting:
            self._refuse("more bytes than the request has")
        else:
            self._received += chunk
            self._expect_progress()
            if len(self._received) == self._wanted:
                self._go_on()

    def _go_on(self) -> None:
        if self._request is None:
            self._begin()
        if self._request is not None and len(self._received) == self._wanted:
            self._finish(self._request)

    def _begin(self) -> None:
        try:
            request = frames.decode_request(self._received)
        except BadFrame as error:
            self._refuse(str(error))
            return
        if request.size != self._loop.size:
            self._refuse(f"this rank was told a size of {request.size}; it serves {self._loop.size}")
            return
        charged = self._loop.reserve(request)
        if charged is None:
            self.answer(Status.FULL, [no_room(request.rank, request.value_bytes).encode()])
            return
        self._request, self._charged, self._head = request, charged, bytes(self._received)
        self._received = bytearray()
        self._wanted = request.key_bytes + request.value_bytes

    def _finish(self, request: Request) -> None:
        received = bytes(self._received)
        try:
            self.key = received[: request.key_bytes].decode()
        except UnicodeDecodeError:
            self._refuse("the key is not UTF-8")
            return
        self.operation, self.rank, self.value = request.operation, request.rank, received[request.key_bytes :]
        self._received = bytearray()
        self._charged = 0  # from here on the charge belongs to the stored value
        self.is_waiting = True
        self.deadline = NEVER if request.timeout is None else time.monotonic() + request.timeout
        self._loop.handle(self)
        if self.is_waiting and request.announces_wait:
            self.socket.send(frames.encode_answer(Status.WAITS, []))  # the first bytes there: they have room

    def _refuse(self, text: str) -> None:
        if self.is_waiting:
            self._loop.withdraw(self)
        self.answer(Status.INVALID, [text.encode()])


class Loop(ABC):
    """Serves a listening socket in the thread that calls `serve`.

    ``listener``: the listening socket, closed at the end.
    ``size``: the number of ranks.
    """

    def __init__(self, listener: socket.socket, size: int) -> None:
        self.size = size
        self.connections: set[Connection] = set()
        self._listener = listener
        self._is_ending = False
        self._posted: deque[Callable[[], None]] = deque()
        self._per_process: Counter[int] = Counter()
        self._most = max(MOST_CONNECTIONS, 2 * size)
        self._pidfds: dict[int, int] = {}
        self._selector = selectors.DefaultSelector()
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._wake_fd, selectors.EVENT_READ, self._on_wake)
        self._selector.register(listener, selectors.EVENT_READ, self._accept)

    def post(self, what: Callable[[], None]) -> None:
        """Call ``what`` in the serving thread; from any thread."""
        self._posted.append(what)
        with contextlib.suppress(OSError):  # the serving thread has ended
            os.eventfd_write(self._wake_fd, 1)

    def end(self) -> None:
        """Let `serve` return; from any thread."""
        self._is_ending = True
        self.post(lambda: None)

    def serve(self) -> None:
        """Serve until `end` is called."""
        while not self._is_ending:
            self.step(self._next_deadline())
        self.release()

    def step(self, seconds: float | None) -> bool:
        """Serve what comes, after a wait of at most ``seconds``; return whether anything came."""
        ready = self._selector.select(seconds)
        for key, _ in ready:
            key.data()
        if self._next_deadline() == 0:  # this thread may have been stopped: what has come was not late
            for key, _ in self._selector.select(0):
                key.data()
        self._expire()
        return bool(ready)

    def release(self) -> None:
        """Drop all connections and close all descriptors."""
        for connection in list(self.connections):
            connection.close()
        for pidfd in self._pidfds.values():
            os.close(pidfd)
        self._selector.close()
        self._listener.close()
        os.close(self._wake_fd)

    def _on_wake(self) -> None:
        os.eventfd_read(self._wake_fd)
        while self._posted:
            self._posted.popleft()()

    def _next_deadline(self) -> float | None:
        earliest = min((it.deadline for it in self.timed()), default=NEVER)
        left = max(0.0, earliest - time.monotonic())
        return None if earliest == NEVER else min(left, 3600.0)  # epoll counts in milliseconds of 31 bits

    def _expire(self) -> None:
        now = time.monotonic()
        for each in [it for it in self.timed() if it.deadline <= now]:
            if each.deadline <= now:  # check again: the end of one wait may have answered others
                each.on_deadline()

    def accepted(self, listener: socket.socket) -> tuple[socket.socket, Any] | None:
        """Return a connection and its peer's address; None if there is none now, or no descriptor for it."""
        try:
            return listener.accept()
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._make_room()
            return None

    def _accept(self) -> None:
        if (incoming := self.accepted(self._listener)) is None:
            return
        accepted, _ = incoming
        accepted.setblocking(False)
        try:
            pid, uid = peers.credentials(accepted)
        except OSError:
            accepted.close()
            return
        connection = Connection(accepted, pid, self)
        self.connections.add(connection)
        self._per_process[pid] += 1
        if uid != os.geteuid():
            connection.answer(Status.DENIED, [f"it serves uid {os.geteuid()}, and this is {uid}".encode()])
        elif pid == 0:
            connection.answer(Status.DENIED, [b"this process is in a pid namespace that it cannot see"])
        elif self._per_process[pid] > self._most:
            text = f"process {pid} has {self._most} requests under way, the most that are allowed"
            connection.answer(Status.BUSY, [text.encode()])

    def _make_room(self) -> None:
        """Free a descriptor: drop the newest connection of the process that has most."""
        if self._per_process:
            greedy = self._per_process.most_common(1)[0][0]
            victim = next((it for it in self.connections if it.pid == greedy), None)
            if victim is not None:
                victim.close()

    def listen_to(self, it: socket.socket, events: int, on_ready: Callable[[], None]) -> None:
        """Have ``on_ready`` called at these events of a socket, which may be none."""
        is_registered = it in self._selector.get_map()
        if is_registered and events:
            self._selector.modify(it, events, on_ready)
        elif events:
            self._selector.register(it, events, on_ready)
        elif is_registered:
            self._selector.unregister(it)

    def watch(self, pid: int, pidfd: int) -> None:
        """Call `on_death` once the process has ended; the descriptor becomes the loop's."""
        self._pidfds[pid] = pidfd
        self._selector.register(pidfd, selectors.EVENT_READ, lambda: self._end_watch(pid))

    def _end_watch(self, pid: int) -> None:
        pidfd = self._pidfds.pop(pid)
        self._selector.unregister(pidfd)
        os.close(pidfd)
        self.on_death(pid)

    def on_closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self.connections.discard(connection)
        self._per_process[connection.pid] -= 1
        if not self._per_process[connection.pid]:
            del self._per_process[connection.pid]

    def timed(self) -> Iterable[Timed]:
        """Return all that has a deadline."""
        return self.connections

    @abstractmethod
    def reserve(self, request: Request) -> int | None:
        """Charge the rank of a request for its value; return the charged bytes, None if it has no room left."""

    @abstractmethod
    def give_back(self, rank: int, nbytes: int) -> None:
        """Return the charge for a value that never came."""

    @abstractmethod
    def handle(self, connection: Connection) -> None:
        """Carry out a complete request."""

    @abstractmethod
    def withdraw(self, connection: Connection) -> None:
        """End the wait of a connection whose peer has gone."""

    @abstractmethod
    def why_waiting(self, connection: Connection) -> tuple[str, list[int]]:
        """Return a text with what a connection still waits for, and the ranks that could end the wait."""

    @abstractmethod
    def when_left(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` in the serving thread once this serves no process any more."""

    @abstractmethod
    def on_death(self, pid: int) -> None:
        """Take note that a process that is watched has ended."""
