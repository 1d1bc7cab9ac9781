"""The serving thread of a rendezvous: accepts connections, reads, answers, and watches the ranks' processes."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence

from peerlane.rendezvous import frames, peers
from peerlane.rendezvous.frames import BadFrame, Operation, Request, Status, decode_keys
from peerlane.rendezvous.hangs import Hangs
from peerlane.rendezvous.meeting import STORE_BYTES, Meeting, cost
from peerlane.rendezvous.stuck import decode_report, encode_reply

MOST_CONNECTIONS = 64  # of one process; more if all ranks may be its threads
STALL_SECONDS = 10.0
_CHUNK = 1 << 18
NEVER = float("inf")


class Connection:
    """One connection: reads one request, hands it to the loop, and writes one answer.

    A peer that sends half a frame, or does not read its answer, is dropped after ten seconds without progress.

    Attributes
    ----------
    pid : int
        The peer's pid.
    deadline : float
        The time of the monotonic clock at which to call ``on_deadline``.
    is_waiting : bool
        Whether its request is complete and not answered.
    """

    operation: Operation
    rank: int
    key: str
    value: bytes

    def __init__(self, accepted: socket.socket, pid: int, loop: Loop) -> None:
        self.socket = accepted
        self.pid = pid
        self.deadline = NEVER
        self._loop = loop
        self._wanted = frames.REQUEST_BYTES
        self._received = bytearray()
        self._request: Request | None = None
        self._charged = 0
        self.is_waiting = False
        self._is_closed = False
        self._output: list[memoryview] = []
        loop.listen_to(self, selectors.EVENT_READ)
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
        """Answer a wait that has timed out, and say what is missing; drop a peer that makes no progress."""
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
        self._loop.listen_to(self, selectors.EVENT_WRITE)
        self._expect_progress()
        self.on_ready()

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
        self._loop.listen_to(self, 0)
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
            text = (
                f"rank {request.rank} has no room for {request.value_bytes:,} bytes more; "
                f"{STORE_BYTES:,} is the most, and an old value counts until the new one of its key has come; "
                "delete values with Rendezvous.delete"
            )
            self.answer(Status.FULL, [text.encode()])
            return
        self._request, self._charged = request, charged
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
        if self.is_waiting and request.says_waits:
            self.socket.send(frames.encode_answer(Status.WAITS, []))  # the first bytes there: they have room

    def _refuse(self, text: str) -> None:
        if self.is_waiting:
            self._loop.withdraw(self)
        self.answer(Status.INVALID, [text.encode()])


class Loop:
    """Serves a listening socket in the thread that calls `serve`.

    Parameters
    ----------
    listener : socket
        The listening socket, closed at the end.
    size : int
        The number of ranks.
    follow : bool
        Count a rank as lost if its process ends with a rendezvous open.
    """

    def __init__(self, listener: socket.socket, size: int, *, follow: bool) -> None:
        self.size = size
        self.meeting = Meeting(size)
        self.hangs = Hangs(self.meeting, self._requests_of)
        self.connections: set[Connection] = set()
        self._listener = listener
        self._follow = follow
        self._is_ending = False
        self._posted: deque[Callable[[], None]] = deque()
        self._per_process: Counter[int] = Counter()
        self._most = max(MOST_CONNECTIONS, 2 * size)
        self._members: dict[int, _Member] = {}
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
            for key, _ in self._selector.select(self._next_deadline()):
                key.data()
            self._expire()
        self.release()

    def release(self) -> None:
        """Drop all connections and close all descriptors."""
        for connection in list(self.connections):
            connection.close()
        for member in self._members.values():
            os.close(member.pidfd)
        self._selector.close()
        self._listener.close()
        os.close(self._wake_fd)

    def _on_wake(self) -> None:
        os.eventfd_read(self._wake_fd)
        while self._posted:
            self._posted.popleft()()

    def _next_deadline(self) -> float | None:
        earliest = min((it.deadline for it in self.connections), default=NEVER)
        left = max(0.0, earliest - time.monotonic())
        return None if earliest == NEVER else min(left, 3600.0)  # epoll counts in milliseconds of 31 bits

    def _expire(self) -> None:
        now = time.monotonic()
        for connection in [it for it in self.connections if it.deadline <= now]:
            if connection.deadline <= now:  # check again: the end of one wait may have answered others
                connection.on_deadline()

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._make_room()
            return
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

    def listen_to(self, connection: Connection, events: int) -> None:
        """Register a connection for these events, which may be none."""
        is_registered = connection.socket in self._selector.get_map()
        if is_registered and events:
            self._selector.modify(connection.socket, events, connection.on_ready)
        elif events:
            self._selector.register(connection.socket, events, connection.on_ready)
        elif is_registered:
            self._selector.unregister(connection.socket)

    def on_closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self.connections.discard(connection)
        self._per_process[connection.pid] -= 1
        if not self._per_process[connection.pid]:
            del self._per_process[connection.pid]

    def withdraw(self, connection: Connection) -> None:
        """End the wait of a connection whose peer has gone."""
        self.meeting.withdraw(connection)

    def why_waiting(self, connection: Connection) -> tuple[str, list[int]]:
        """Return a text with what a connection still waits for, and the ranks that could end the wait."""
        return self.meeting.missing(connection), self.meeting.awaited(connection)

    def reserve(self, request: Request) -> int | None:
        """Charge the rank of a request for its value; return the charged bytes, None if it has no room left."""
        if request.operation not in (Operation.PUT, Operation.GATHER):
            return 0
        nbytes = cost("", request.value_bytes) + request.key_bytes
        return nbytes if self.meeting.charge(request.rank, nbytes) else None

    def give_back(self, rank: int, nbytes: int) -> None:
        """Return the charge for a value that never came."""
        self.meeting.charge(rank, -nbytes)

    def handle(self, connection: Connection) -> None:
        """Carry out a complete request."""
        operation, rank = connection.operation, connection.rank
        self.hangs.note(rank, connection.pid)
        if operation is Operation.PUT:
            self.meeting.put(rank, connection.key, connection.value)
            connection.answer(Status.OK, [])
        elif operation is Operation.GET:
            self.meeting.get(connection)
        elif operation is Operation.DELETE:
            self._delete(connection)
        elif operation is Operation.CLEAR:
            self.meeting.clear(connection.key)
            connection.answer(Status.OK, [])
        elif operation is Operation.CLOSE:
            self._leave(connection.pid, rank)
            connection.answer(Status.OK, [])
        elif operation is Operation.OPEN:
            self._open(connection)
        elif operation is Operation.STUCK:
            self._hear_stuck(connection)
        else:
            self.meeting.meet(connection)

    def _delete(self, connection: Connection) -> None:
        try:
            keys = decode_keys(connection.value)
        except BadFrame as error:
            connection.answer(Status.INVALID, [str(error).encode()])
            return
        for key in keys:
            self.meeting.delete(key)
        connection.answer(Status.OK, [])

    def _requests_of(self, pid: int) -> list[Connection]:
        of_process = [it for it in self.connections if it.pid == pid and it.is_waiting]
        return [it for it in of_process if it.operation is not Operation.STUCK]

    def _hear_stuck(self, connection: Connection) -> None:
        try:
            report = decode_report(connection.value)
        except BadFrame as error:
            connection.answer(Status.INVALID, [str(error).encode()])
            return
        reply = self.hangs.hear(connection.rank, connection.pid, report, time.monotonic_ns())
        connection.answer(Status.OK, [encode_reply(reply)])

    def _open(self, connection: Connection) -> None:
        if refusal := self.meeting.open(connection.rank):
            connection.answer(Status.LOST, [refusal.encode()])
            return
        if self._follow:
            try:
                self._join(connection)
            except OSError:  # the process has ended already, or no descriptor is left
                connection.close()
                return
        connection.answer(Status.OK, [])

    def _join(self, connection: Connection) -> None:
        pid = connection.pid
        member = self._members.get(pid)
        if member is None:
            pidfd = peers.open_pidfd(connection.socket, pid)
            member = self._members[pid] = _Member(pidfd)
            self._selector.register(pidfd, selectors.EVENT_READ, lambda: self._on_death(pid))
        member.opened[connection.rank] += 1

    def _leave(self, pid: int, rank: int) -> None:
        if pid in self._members:
            self._members[pid].opened[rank] -= 1
            if not any(other.opened[rank] > 0 for other in self._members.values()):
                self.meeting.leave(rank)

    def _on_death(self, pid: int) -> None:
        member = self._members.pop(pid)
        self._selector.unregister(member.pidfd)
        os.close(member.pidfd)
        for rank, opened in member.opened.items():
            who = f"rank {rank} (pid {pid})"
            if opened > 0:
                self.meeting.lose(rank, f"{who} ended without closing its rendezvous")
            elif all(rank not in other.opened for other in self._members.values()):
                self.meeting.end(rank, f"{who} has ended")


class _Member:
    """A process that has opened a rendezvous.

    Attributes
    ----------
    opened : Counter
        By rank, how many rendezvous the process has open as that rank.
    """

    def __init__(self, pidfd: int) -> None:
        self.pidfd = pidfd
        self.opened: Counter[int] = Counter()
