"""Serves a rendezvous on an owner-only Unix socket, in a thread of its own."""

from __future__ import annotations

import atexit
import contextlib
import errno
import itertools
import os
import selectors
import socket
import stat
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path

from peerlane.errors import Closed, Error, Fault, InvalidValue
from peerlane.node.runtime import runtime_directory
from peerlane.rendezvous import peers
from peerlane.rendezvous.connection import NEVER, Connection
from peerlane.rendezvous.frames import MAX_SIZE, Operation, Request, Status
from peerlane.rendezvous.meeting import Meeting, cost

MOST_CONNECTIONS = 64  # of one process
STALE_SECONDS = 10.0

_numbers = itertools.count()


class RendezvousServer:
    """Serves a rendezvous of ``size`` ranks until it is closed.

    ``peerlane launch`` has one.  With processes that were started otherwise, give each
    ``environment(rank)``, or the address, its rank and the size.  The socket lies in the runtime directory, and is
    removed by `close`, or by the next server if this process is killed.

    Parameters
    ----------
    size : int
        The number of ranks, 1 to 65,536.
    start : bool
        Begin to serve at once.  A process that forks its ranks says False, forks, and calls `start`: a fork
        beside threads is unsafe.  Ranks that come meanwhile wait.
    follow : bool
        Take a rank for lost when a process ends that has not closed its `Rendezvous`.  If False, `end_rank`
        alone tells.

    Attributes
    ----------
    address : str
        The path of the socket.

    Raises
    ------
    TypeError, InvalidValue
        ``size`` is no int, or not valid.
    AccessDenied
        The runtime directory is not this user's alone.
    Error
        The socket cannot be made there; ``fault`` is ``OUT_OF_RESOURCES``.
    """

    def __init__(self, size: int, *, start: bool = True, follow: bool = True) -> None:
        if isinstance(size, bool) or not isinstance(size, int):
            raise TypeError(f"RendezvousServer: size must be an int, not {type(size).__name__}")
        if not 1 <= size <= MAX_SIZE:
            raise InvalidValue(f"RendezvousServer: size is {size}; valid are 1 to {MAX_SIZE:,}")
        self.size = size
        self._follow = follow
        self._meeting = Meeting(size)
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._posted: deque[Callable[[], None]] = deque()
        self._is_closing = False
        self._per_process: Counter[int] = Counter()
        self._connections: set[Connection] = set()
        self._members: dict[int, _Member] = {}
        self._path = (
            runtime_directory() / f"rendezvous-{self._pid}-{next(_numbers)}-{os.urandom(4).hex()}.sock"
        )
        self.address = str(self._path)
        _remove_stale(self._path.parent)
        self._listener = _listen(self._path)
        self._selector = selectors.DefaultSelector()
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._wake_fd, selectors.EVENT_READ, self._on_wake)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        atexit.register(self.close)
        if start:
            self.start()

    def start(self) -> None:
        """Begin to serve; a second time nothing happens.

        Raises
        ------
        Closed
            The server was closed.
        """
        with self._lock:
            if self._is_closing:
                raise Closed(f"RendezvousServer.start: the rendezvous at {self.address} was closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="peerlane-rendezvous", daemon=True)
                self._thread.start()

    def environment(self, rank: int) -> dict[str, str]:
        """Return the variables that ``Rendezvous.from_environment`` reads in the process of a rank.

        Raises
        ------
        InvalidValue
            There is no such rank.
        """
        self._check_rank("RendezvousServer.environment", rank)
        return {
            "PEERLANE_RENDEZVOUS": self.address,
            "RANK": str(rank),
            "WORLD_SIZE": str(self.size),
            "LOCAL_RANK": str(rank),
        }

    def end_rank(self, rank: int, fate: str, *, lost: bool) -> None:
        """Tell that the process of a rank has ended; asynchronous.

        Parameters
        ----------
        rank : int
            Which.
        fate : str
            What became of it, for the texts of others: ``"rank 1 (pid 17) was killed by SIGKILL"``.
        lost : bool
            Whether that fails all who wait, or only those who wait for this rank.

        Raises
        ------
        InvalidValue
            There is no such rank.
        """
        self._check_rank("RendezvousServer.end_rank", rank)
        self._post(lambda: (self._meeting.lose if lost else self._meeting.end)(rank, fate))

    def close(self) -> None:
        """Stop serving and remove the socket; who waits gets `PeerLost`.  A second time nothing happens.

        In a forked child nothing happens: the server is its parent's.
        """
        if self._pid != os.getpid():
            return
        atexit.unregister(self.close)
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
            thread = self._thread
        if thread is None:
            self._release()
        else:
            self._wake()
            thread.join()
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()

    def __enter__(self) -> RendezvousServer:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closing else "serving" if self._thread else "not started"
        return f"<RendezvousServer of {self.size} at {self.address}, {state}>"

    def _check_rank(self, call: str, rank: int) -> None:
        if not 0 <= rank < self.size:
            raise InvalidValue(f"{call}: rank is {rank}; valid are 0 to {self.size - 1}")

    def _post(self, what: Callable[[], None]) -> None:
        self._posted.append(what)
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # closed meanwhile
            os.eventfd_write(self._wake_fd, 1)

    # What follows runs in the serving thread.

    def _serve(self) -> None:
        while not self._is_closing:
            for key, _ in self._selector.select(self._next_deadline()):
                key.data()
            self._expire()
        self._release()

    def _release(self) -> None:
        for connection in list(self._connections):
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
        earliest = min((it.deadline for it in self._connections), default=NEVER)
        left = max(0.0, earliest - time.monotonic())
        return None if earliest == NEVER else min(left, 3600.0)  # epoll counts in milliseconds of 31 bits

    def _expire(self) -> None:
        now = time.monotonic()
        for connection in [it for it in self._connections if it.deadline <= now]:
            if connection.deadline <= now:  # still: the end of one wait may have been that of another
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
        self._connections.add(connection)
        self._per_process[pid] += 1
        if uid != os.geteuid():
            connection.answer(Status.DENIED, [f"it serves uid {os.geteuid()}, and this is {uid}".encode()])
        elif pid == 0:
            connection.answer(Status.DENIED, [b"this process is in a pid namespace that it cannot see"])
        elif self._per_process[pid] > MOST_CONNECTIONS:
            text = f"process {pid} has {MOST_CONNECTIONS} requests under way, the most"
            connection.answer(Status.BUSY, [text.encode()])

    def _make_room(self) -> None:
        """Without a descriptor left, drop the newest connection of whoever has most."""
        if self._per_process:
            greedy = self._per_process.most_common(1)[0][0]
            victim = next((it for it in self._connections if it.pid == greedy), None)
            if victim is not None:
                victim.close()

    def listen_to(self, connection: Connection, events: int) -> None:
        """Register a connection for these events, none at all included."""
        is_registered = connection.socket in self._selector.get_map()
        if is_registered and events:
            self._selector.modify(connection.socket, events, connection.on_ready)
        elif events:
            self._selector.register(connection.socket, events, connection.on_ready)
        elif is_registered:
            self._selector.unregister(connection.socket)

    def on_closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self._connections.discard(connection)
        self._per_process[connection.pid] -= 1
        if not self._per_process[connection.pid]:
            del self._per_process[connection.pid]

    def withdraw(self, connection: Connection) -> None:
        """End the wait of a connection that nobody waits at any more."""
        self._meeting.withdraw(connection)

    def why_waiting(self, connection: Connection) -> str:
        """Return what a waiting connection still waits for."""
        return self._meeting.missing(connection)

    def reserve(self, request: Request) -> int | None:
        """Charge the rank of a request for its value; return the bytes, or None if it has no room left."""
        if request.operation not in (Operation.PUT, Operation.GATHER):
            return 0
        nbytes = cost("", request.value_bytes) + request.key_bytes
        return nbytes if self._meeting.charge(request.rank, nbytes) else None

    def give_back(self, rank: int, nbytes: int) -> None:
        """Take back a charge whose value never came."""
        self._meeting.charge(rank, -nbytes)

    def handle(self, connection: Connection) -> None:
        """Do what a complete request asks."""
        operation, rank = connection.operation, connection.rank
        if operation is Operation.PUT:
            self._meeting.put(rank, connection.key, connection.value)
            connection.answer(Status.OK, [])
        elif operation is Operation.GET:
            self._meeting.get(connection)
        elif operation is Operation.CLOSE:
            self._leave(connection.pid, rank)
            connection.answer(Status.OK, [])
        elif operation is Operation.OPEN:
            self._open(connection)
        else:
            self._meeting.meet(connection)

    def _open(self, connection: Connection) -> None:
        if refusal := self._meeting.open(connection.rank):
            connection.answer(Status.LOST, [refusal.encode()])
            return
        if self._follow:
            try:
                self._join(connection)
            except OSError:  # it has ended already, or no descriptor is left
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

    def _on_death(self, pid: int) -> None:
        member = self._members.pop(pid)
        self._selector.unregister(member.pidfd)
        os.close(member.pidfd)
        for rank, opened in member.opened.items():
            who = f"rank {rank} (pid {pid})"
            if opened > 0:
                self._meeting.lose(rank, f"{who} ended without closing its rendezvous")
            elif all(rank not in other.opened for other in self._members.values()):
                self._meeting.end(rank, f"{who} has ended")


class _Member:
    """A process that has opened a rendezvous.

    Attributes
    ----------
    opened : Counter
        How many it has open as which rank.
    """

    def __init__(self, pidfd: int) -> None:
        self.pidfd = pidfd
        self.opened: Counter[int] = Counter()


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        with peers.reachable(path) as short:
            listener.bind(short)
        path.chmod(0o600)  # before listen: until then nobody connects
        listener.listen(512)
    except OSError as error:
        listener.close()
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        raise Error(
            f"cannot make the socket of a rendezvous at {path}: {error.strerror}; make room there, or set "
            "PEERLANE_RUNTIME_DIR to another directory",
            fault=Fault.OUT_OF_RESOURCES,
        ) from error
    return listener


def _remove_stale(directory: Path) -> None:
    """Remove the sockets of servers that were killed: nobody listens there any more."""
    for path in directory.glob("rendezvous-*.sock"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            # A young one may be a server between bind and listen.
            if stat.S_ISSOCK(status.st_mode) and time.time() - status.st_mtime > STALE_SECONDS:
                with socket.socket(socket.AF_UNIX) as probe, peers.reachable(path) as short:
                    probe.setblocking(False)
                    if probe.connect_ex(short) == errno.ECONNREFUSED:
                        path.unlink()
