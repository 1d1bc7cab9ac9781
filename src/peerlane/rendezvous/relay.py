"""A relay: serves the processes of its machine as the rendezvous does that lives on another machine."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable

from peerlane.errors import AccessDenied, BadHandle, Error, Fault, Refused, WaitTimeout
from peerlane.rendezvous import frames
from peerlane.rendezvous.frames import BadFrame, Operation, Request, Status
from peerlane.rendezvous.link import BadLink, Frame, Kind, Link
from peerlane.rendezvous.loop import NEVER, Connection, Loop, Timed
from peerlane.rendezvous.machine_connection import MachineConnection
from peerlane.rendezvous.machines import MOST_NAME, PID, SIZE
from peerlane.rendezvous.server import UNREACHABLE_SECONDS, checked_secret, checked_unreachable, host_and_port
from peerlane.rendezvous.serving import Serving
from peerlane.rendezvous.wait_reports import Reply, decode_report, encode_reply

_LONGEST = 1 << 30  # of an answer: a gather has a value of each rank
_STEP = 0.02  # seconds between two tries to connect


class Hub(MachineConnection):
    """The connection to the server."""

    def __init__(self, connected: socket.socket, link: Link, loop: RelayLoop, unreachable: float) -> None:
        self._relay = loop
        super().__init__(connected, link, loop, unreachable)

    def hear(self, frame: Frame) -> None:
        if frame.kind is Kind.ANSWER:
            self._relay.on_answer(frame.number, frame.body)
        elif frame.kind is Kind.BYE:
            self._lose("its process has ended or closed it")
        elif frame.kind is not Kind.ALIVE:
            raise BadLink("forged", f"a server sends no frame of kind {frame.kind}")

    def lost(self, why: str) -> None:
        self._relay.end_all(why)


class RelayLoop(Loop):
    """Sends the requests of this machine's processes to the server, and its answers to them.

    ``listener``, ``size``: as `Loop` has them.
    ``where``: the server's address, for texts.
    """

    def __init__(self, listener: socket.socket, size: int, where: str) -> None:
        super().__init__(listener, size)
        self._where = where
        #: Called in the serving thread, with the reason, when the server is lost.
        self.on_loss: Callable[[str], None] | None = None
        self._hub: Hub | None = None
        self._why = ""
        self._numbers = itertools.count(1)
        self._asked: dict[int, Connection] = {}
        self._by_connection: dict[Connection, int] = {}
        self._open: Counter[int] = Counter()  # how many rendezvous a process has open
        self._when_left: list[Callable[[], None]] = []

    def serve_by(
        self, connected: socket.socket, link: Link, unreachable: float, more: Iterable[Frame]
    ) -> None:
        """Use an open connection to the server, and the frames that it has sent already; before `serve`."""
        self._hub = Hub(connected, link, self, unreachable)
        for frame in more:
            self._hub.hear(frame)

    def timed(self) -> Iterable[Timed]:
        return self.connections if self._hub is None else (*self.connections, self._hub)

    def release(self) -> None:
        if self._hub is not None:
            self._hub.leave()
        super().release()

    def reserve(self, request: Request) -> int | None:
        return 0  # the server charges

    def give_back(self, rank: int, nbytes: int) -> None:
        pass

    def handle(self, connection: Connection) -> None:
        connection.deadline = NEVER  # the server keeps the time
        if self._why or self._hub is None:
            self._refuse(connection)
        elif connection.operation is Operation.REPORT:
            self._hear_report(connection)
        else:
            if connection.operation is Operation.OPEN and connection.pid not in self._pidfds:
                try:
                    self.watch(connection.pid, connection.open_pidfd())
                except OSError:  # the process has ended already, or no descriptor is left
                    connection.close()
                    return
            number = next(self._numbers)
            self._asked[number], self._by_connection[connection] = connection, number
            self._hub.send(Kind.REQUEST, number, PID.pack(connection.pid) + connection.request())

    def _hear_report(self, connection: Connection) -> None:
        """Answer that nothing is known: the server names no deadlock of ranks on other machines."""
        try:
            report = decode_report(connection.value)
        except BadFrame as error:
            connection.answer(Status.INVALID, [str(error).encode()])
        else:
            connection.answer(Status.OK, [encode_reply(Reply((None,) * len(report.waits)))])

    def on_answer(self, number: int, body: bytes) -> None:
        """Give a process the server's answer, if it waits still."""
        try:
            answer = frames.decode_answer(body[: frames.ANSWER_BYTES])
            at = frames.ANSWER_BYTES + 4 * answer.count
            lengths = frames.decode_lengths(body[frames.ANSWER_BYTES : at])
            if len(lengths) != answer.count or at + sum(lengths) != len(body):
                raise BadFrame("its lengths are not those of its values")
        except (BadFrame, struct.error) as error:
            raise BadLink("forged", f"an answer is none: {error}") from None
        connection = self._asked.pop(number, None)
        if connection is not None:
            del self._by_connection[connection]
            starts = itertools.accumulate(lengths, initial=at)
            values = [body[start : start + length] for start, length in zip(starts, lengths, strict=False)]
            connection.answer(answer.status, values, answer.lost)
            if answer.status is Status.OK:
                self._count(connection)

    def _count(self, connection: Connection) -> None:
        """Count a process's open rendezvous, when the server has opened or closed one."""
        if connection.operation is Operation.OPEN:
            self._open[connection.pid] += 1
        elif connection.operation is Operation.CLOSE:
            self._open[connection.pid] -= 1
            self._call_if_left()

    def when_left(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once no process of this machine has a rendezvous open, or the server is lost."""
        self._when_left.append(callback)
        self._call_if_left()

    def _call_if_left(self) -> None:
        if self._why or not any(opened > 0 for opened in self._open.values()):
            callbacks, self._when_left = self._when_left, []
            for each in callbacks:
                each()

    def withdraw(self, connection: Connection) -> None:
        number = self._by_connection.pop(connection, None)
        if number is not None:
            del self._asked[number]
            if self._hub is not None:
                self._hub.send(Kind.WITHDRAW, number)

    def why_waiting(self, connection: Connection) -> tuple[str, list[int]]:
        return "the server did not answer", []

    def on_death(self, pid: int) -> None:
        if self._hub is not None:
            self._hub.send(Kind.DIED, 0, PID.pack(pid))
        self._open.pop(pid, None)
        self._call_if_left()

    def end_all(self, why: str) -> None:
        """Answer all that wait, and all that come, that the server is lost."""
        self._why = why
        asked, self._asked, self._by_connection = self._asked, {}, {}
        for connection in asked.values():
            self._refuse(connection)
        self._call_if_left()
        if self.on_loss is not None:
            self.on_loss(why)

    def _refuse(self, connection: Connection) -> None:
        text = f"the rendezvous at {self._where} is lost: {self._why}"
        connection.answer(Status.LOST, [text.encode()])


class RendezvousRelay(Serving[RelayLoop]):
    """Serves this machine's ranks of a rendezvous whose server is on another machine, until it is closed.

    The processes here use ``environment(rank)`` or the address as they would those of the server.  The relay watches
    them, and reports their ends to the server.

    Parameters
    ----------
    machines : str
        ``"host:port"`` of the server.
    secret : bytes
        The server's.
    timeout : float
        Seconds to wait for the server.
    unreachable : float
        Seconds of silence after which the server's machine counts as lost, from 0.5.
    name : str, optional
        What the server calls this machine in texts; the host's name by default.
    start : bool
        Begin to serve at once.  A process that forks its ranks passes False, forks, calls `serve_now` meanwhile, so
        that this machine is not silent, and then calls `start`.

    Attributes
    ----------
    address : str
        The path of the socket.
    size : int
        The number of ranks.

    Raises
    ------
    TypeError, InvalidValue
        An argument has the wrong type, or is not valid.
    AccessDenied
        There is no secret, or the server has another one; or the runtime directory is open to other users.
    BadHandle
        What listens there is not a server, or one of another version.
    WaitTimeout
        Nobody listened, or answered, in time.
    Error
        ``OUT_OF_RESOURCES``: the socket cannot be made.
    """

    def __init__(
        self,
        machines: str,
        *,
        secret: bytes | None,
        timeout: float = 60.0,
        unreachable: float = UNREACHABLE_SECONDS,
        name: str | None = None,
        start: bool = True,
    ) -> None:
        call = "RendezvousRelay"
        secret, unreachable = checked_secret(call, secret), checked_unreachable(call, unreachable)
        host, port = host_and_port(call, "machines", machines)
        name = socket.gethostname() if name is None else name
        connected, link, more, size = connect(call, host, port, secret, timeout, name)
        try:
            super().__init__(lambda local: RelayLoop(local, size, f"tcp://{host}:{port}"))
        except BaseException:
            connected.close()
            raise
        self._loop.serve_by(connected, link, unreachable, more)
        if start:
            try:
                self.start()
            except BaseException:
                self.close()
                raise

    def serve_now(self) -> None:
        """Serve what has come, in this thread and before `start`: the server would give up a silent machine."""
        with self._lock:
            while self._thread is None and not self._is_closing and self._loop.step(0.0):
                pass


def watch_server(relay: RendezvousRelay, lost: Callable[[str], None]) -> None:
    """Have ``lost`` called, by the serving thread and with the reason, when the server of a relay is lost."""
    relay._loop.on_loss = lost


def connect(
    call: str, host: str, port: int, secret: bytes, timeout: float, name: str
) -> tuple[socket.socket, Link, list[Frame], int]:
    """Open the connection to a server that may not listen yet.

    Returns the socket, the connection's end, frames that have come already, and the number of ranks.
    Raises AccessDenied: the server has another secret.
    Raises BadHandle: what listens there is not a server, or one of another version.
    Raises WaitTimeout: nobody listened, or answered, in time.
    """
    where, deadline, reason = f"tcp://{host}:{port}", time.monotonic() + timeout, "nobody listened"
    while (left := deadline - time.monotonic()) > 0:
        try:
            connected = socket.create_connection((host, port), timeout=left)
        except OSError as error:
            reason = error.strerror or str(error)
            time.sleep(min(_STEP, max(left, 0.0)))
            continue
        with contextlib.ExitStack() as stack:
            stack.enter_context(connected)
            link = Link(secret, is_hub=False, longest=_LONGEST)
            try:
                opened = _open(connected, link, deadline, name)
            except BadLink as error:
                raise _refused(call, where, error) from None
            except OSError as error:
                reason = error.strerror or str(error)
                continue
            if opened is None:
                reason = "it closed the connection, or sent nothing"
                time.sleep(min(_STEP, max(left, 0.0)))
                continue
            stack.pop_all()
            return connected, link, *opened
    raise WaitTimeout(
        f"{call}: no rendezvous answered at {where} within {timeout:g} s ({reason}); start the one that serves it, "
        "and look whether this machine can reach the port",
        call=call,
        detail=Refused(reason="wait_timeout", address=where, seconds=timeout, cause=reason),
    )


def _open(connected: socket.socket, link: Link, deadline: float, name: str) -> tuple[list[Frame], int] | None:
    connected.sendall(link.begin())
    received: list[Frame] = []
    has_joined = False
    while not received:
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        connected.settimeout(left)
        data = connected.recv(1 << 16)
        if not data:
            return None
        if not link.is_open:
            connected.sendall(link.meet(data))
            data = b""
        if link.is_open and not has_joined:
            has_joined = True
            connected.sendall(b"".join(link.frame(Kind.JOIN, 0, name.encode()[:MOST_NAME])))
        if link.is_open:
            received = list(link.hear(data))
    first, *more = received
    if first.kind is not Kind.WELCOME or len(first.body) != SIZE.size:
        raise BadLink("forged", "the server's first frame is not a welcome")
    return more, SIZE.unpack(first.body)[0]


def _refused(call: str, where: str, error: BadLink) -> Error:
    detail = Refused(reason=error.reason, address=where, why=str(error))
    if error.reason == "secret":
        return AccessDenied(
            f"{call}: {where} was started with another secret: set the same PEERLANE_SECRET on all machines",
            fault=Fault.PEER_UNREACHABLE,
            call=call,
            detail=detail,
        )
    return BadHandle(
        f"{call}: what listens at {where} cannot be used: {error}; use the same version of peerlane on all machines",
        fault=Fault.HANDLE_VERSION,
        call=call,
        detail=detail,
    )
