"""The client of a rendezvous, one in each rank."""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from peerlane.diagnostics.log import event_log
from peerlane.diagnostics.ranks import turns
from peerlane.diagnostics.waits import store_waits
from peerlane.diagnostics.waits.store_waits import StoreWait
from peerlane.errors import (
    BadArgument,
    Closed,
    Error,
    Fault,
    InvalidValue,
    MeetingWait,
    PeerLost,
    Refused,
    WaitTimeout,
)
from peerlane.rendezvous import frames, peers
from peerlane.rendezvous.frames import MAX_KEY, MAX_SIZE, MAX_VALUE, BadFrame, Operation, Status
from peerlane.rendezvous.wait_reports import Reply, Report, decode_reply, encode_report
from peerlane.support.late import Late
from peerlane.support.timeouts import SLICE_SECONDS, checked_timeout, in_nanoseconds

ANSWER_SECONDS = 30.0  # for the answer to a request that does not wait
_SLACK_SECONDS = 5.0  # the server times the waits; a client waits this much longer for its answer
_REPORT_SECONDS = 0.5  # for the answer to a report: the thread that sends it goes on with its wait
_CHUNK = 1 << 18
_AHEAD = 1 << 12  # bytes that are read at once, though fewer are asked for
_GET = "Rendezvous.get"
_deadlocks = Late(
    "peerlane.ranks.deadlock.detect"
)  # waiting threads call it again and again; it may end the wait
_WAITING = {Operation.GET: "key", Operation.BARRIER: "barrier", Operation.GATHER: "gather"}


class Rendezvous:
    """The store, barriers and gathers that the ranks of a program share.

    Each call is a connection of its own, so that threads and forked children may call at the same time, and a call
    that Ctrl-C ends leaves nothing behind.  Close it, or use it in a ``with``: a process that ends without closing it
    counts as lost, and all waiting calls fail.  (Under ``peerlane launch`` the exit code decides instead.)

    Parameters
    ----------
    address : str
        ``RendezvousServer.address``.
    rank : int
        This process's rank.
    size : int
        The number of ranks.

    Raises
    ------
    TypeError, InvalidValue
        An argument has the wrong type or an impossible value, or the server has another size.
    PeerLost
        No server is at the address, or this rank was lost before.
    AccessDenied
        The server belongs to another user, or cannot see this process.
    """

    def __init__(self, address: str, rank: int, size: int) -> None:
        for name, value in (("rank", rank), ("size", size)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"Rendezvous: {name} must be an int, not {type(value).__name__}")
        if not 1 <= size <= MAX_SIZE or not 0 <= rank < size:
            raise InvalidValue(
                f"Rendezvous: rank is {rank} of {size}; valid are sizes of 1 to {MAX_SIZE:,} and ranks from 0",
                call="Rendezvous",
                detail=Refused(reason="bad_rank", rank=rank, size=size, most=MAX_SIZE),
            )
        self._address = Path(address)
        self._rank = rank
        self._size = size
        self._pid = os.getpid()
        self._is_closed = False
        self._name: str = self.address  # in event logs: what all machines call it
        for shared_name in self._ask("Rendezvous", Operation.OPEN):
            self._name = shared_name.decode("ascii", "replace")

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Rendezvous:
        """Return the rendezvous that ``peerlane launch`` gave this process.

        Raises
        ------
        InvalidValue
            ``BAD_CONFIG``: ``PEERLANE_RENDEZVOUS``, ``RANK`` or ``WORLD_SIZE`` is missing or is not a number.  For
            other errors see the class.
        """
        call = "Rendezvous.from_environment"
        environ = os.environ if environ is None else environ  # as a default, help() would show all of it
        values = {name: environ.get(name, "") for name in ("PEERLANE_RENDEZVOUS", "RANK", "WORLD_SIZE")}
        missing = [name for name, value in values.items() if not value]
        if missing:
            raise InvalidValue(
                f"{call}: {' and '.join(missing)} not set; start the program with `peerlane launch -n N`, or "
                "set what RendezvousServer.environment returns",
                fault=Fault.BAD_CONFIG,
                call=call,
                detail=Refused(reason="not_set", variables=tuple(missing)),
            )
        for name in ("RANK", "WORLD_SIZE"):
            if not (values[name].isascii() and values[name].isdigit() and len(values[name]) < 10):
                raise InvalidValue(
                    f"{call}: {name} is {values[name][:40]!r}; valid are whole numbers",
                    fault=Fault.BAD_CONFIG,
                    call=call,
                    detail=BadArgument(name, values[name], rule="a whole number"),
                )
        return cls(values["PEERLANE_RENDEZVOUS"], int(values["RANK"]), int(values["WORLD_SIZE"]))

    @property
    def address(self) -> str:
        """The server's address."""
        return str(self._address)

    @property
    def rank(self) -> int:
        """This process's rank, from 0."""
        return self._rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._size

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def put(self, key: str, value: bytes) -> None:
        """Store a value for all ranks, until it is replaced or deleted, or the server ends.

        Parameters
        ----------
        key : str
            At most 255 bytes of UTF-8.
        value : bytes
            At most 16 MiB.  A rank has 64 MiB for all its values; each counts its key and 512 bytes more.

        Raises
        ------
        TypeError, InvalidValue
            The key is not a str or too long, or the value is not bytes or too long.
        OutOfMemory
            ``OUT_OF_RESOURCES``: the rank's 64 MiB are used up.
        Closed
            This rendezvous was closed.
        PeerLost
            The server has ended.
        """
        self._ask("Rendezvous.put", Operation.PUT, key, value)

    def get(self, key: str, *, timeout: float | None = None) -> bytes:
        """Return the value of a key; wait until a rank puts it.

        Parameters
        ----------
        key : str
            At most 255 bytes of UTF-8.
        timeout : float, optional
            Seconds; by default for ever.

        Raises
        ------
        TypeError, InvalidValue
            The key is not a str or too long, or the timeout is not a number of seconds.
        WaitTimeout
            No rank put it in time.
        PeerLost
            It is not there, and a rank was lost, or no other is left to put it; the text names the rank.  Or the
            server has ended.
        Deadlock
            All ranks that could put it wait in vain; the text names them, and ``detail`` has the places.
        Busy
            This process already has 64 calls under way.
        Closed
            This rendezvous was closed.
        """
        return self._ask(_GET, Operation.GET, key, timeout=timeout)[0]

    def delete(self, *keys: str) -> None:
        """Delete values, whichever rank put them; ignore a key without a value.

        The rank that put a value gets its room back.  A later :meth:`get` of the key waits for a new value.

        Parameters
        ----------
        *keys : str
            At most 255 bytes of UTF-8 each.

        Raises
        ------
        TypeError, InvalidValue
            A key is not a str or too long; nothing was deleted.
        Closed
            This rendezvous was closed.
        PeerLost
            The server has ended.
        """
        call = "Rendezvous.delete"
        for value in frames.encode_keys([_checked_key(call, key) for key in keys]):
            self._ask(call, Operation.DELETE, value=value)

    def barrier(self, name: str = "", *, timeout: float | None = None) -> None:
        """Wait until every rank has come to the barrier of this name; the name can be used again at once.

        Parameters
        ----------
        name : str
            At most 255 bytes of UTF-8.
        timeout : float, optional
            Seconds; by default for ever.

        Raises
        ------
        TypeError, InvalidValue
            The name is not a str or too long, or the timeout is not a number of seconds.
        WaitTimeout
            Some ranks did not come in time; the text names them.  This rank does not count as having come either.
        PeerLost
            A rank was lost, or has ended and cannot come; the text names it.  Or the server has ended.
        Deadlock
            The ranks that have not come wait in vain; the text names them, and ``detail`` has the places.
        Busy
            This rank already waits there, in another thread or process, or this process has 64 calls under way.
        Closed
            This rendezvous was closed.
        """
        self._ask("Rendezvous.barrier", Operation.BARRIER, name, timeout=timeout)

    def gather(self, key: str, value: bytes, *, timeout: float | None = None) -> list[bytes]:
        """Return the values that all ranks give for a key, in the order of ranks; the key can be used again.

        Raises
        ------
        OutOfMemory
            As for `put`.  For other errors see `barrier`.
        """
        return self._ask("Rendezvous.gather", Operation.GATHER, key, value, timeout=timeout)

    def close(self) -> None:
        """Leave, so that the end of this process is not a loss; idempotent, and a no-op in a forked child."""
        if self._is_closed or self._pid != os.getpid():
            return
        with contextlib.suppress(PeerLost):  # the server has ended, so there is nothing to leave
            self._ask("Rendezvous.close", Operation.CLOSE)
        self._is_closed = True

    def __enter__(self) -> Rendezvous:
        if self._is_closed:
            raise self._closed("Rendezvous.__enter__")
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = ", closed" if self._is_closed else ""
        return f"<Rendezvous of rank {self._rank} of {self._size} at {self._address}{state}>"

    def _closed(self, call: str) -> Closed:
        return Closed(
            f"{call}: rank {self._rank} has closed this rendezvous",
            call=call,
            detail=Refused(reason="closed", what=repr(self)),
        )

    def _ask(
        self,
        call: str,
        operation: Operation,
        key: str = "",
        value: bytes = b"",
        *,
        timeout: float | None = None,
    ) -> list[bytes]:
        if self._is_closed:
            raise self._closed(call)
        encoded = _checked_key(call, key)
        if not isinstance(value, bytes):
            raise TypeError(f"{call}: value must be bytes, not {type(value).__name__}")
        if len(value) > MAX_VALUE:
            raise InvalidValue(
                f"{call}: the value has {len(value):,} bytes; {MAX_VALUE:,} is the most",
                call=call,
                detail=Refused(reason="too_long", size=len(value), most=MAX_VALUE),
            )
        turns.point()
        if event_log.active:
            with self._logged(operation, key):
                return self._exchanged(call, operation, key, encoded, value, timeout)
        return self._exchanged(call, operation, key, encoded, value, timeout)

    @contextlib.contextmanager
    def _logged(self, operation: Operation, key: str) -> Iterator[None]:
        """Log the order between ranks that a call makes."""
        where = "rendezvous", self._name, key
        if operation is Operation.PUT:
            event_log.post(event_log.key_of(*where))
        if operation in (Operation.BARRIER, Operation.GATHER):
            with event_log.barrier(*where, operation.name, rank=self._rank, size=self._size):
                yield
            return
        yield
        if operation is Operation.GET:
            event_log.take(event_log.key_of(*where), 1)

    def _exchanged(
        self, call: str, operation: Operation, key: str, encoded: bytes, value: bytes, timeout: float | None
    ) -> list[bytes]:
        waits = operation in _WAITING
        seconds = checked_timeout(call, timeout)
        head = frames.encode_request(
            operation,
            self._rank,
            self._size,
            encoded,
            value,
            in_nanoseconds(call, timeout),
            announces_wait=waits and turns.is_participant(),
        )
        limit = (None if seconds < 0 else seconds + _SLACK_SECONDS) if waits else ANSWER_SECONDS
        if not waits:
            request = Refused(
                operation=operation.name.lower(), key=key, nbytes=len(value), rank=self._rank, size=self._size
            )
            return _exchange(_Connection(call, self._address, limit, asked=request), head, value)
        asked = MeetingWait(
            _WAITING[operation], key, self._rank, self._size, None if seconds < 0 else seconds
        )
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        with store_waits.noted(StoreWait(self, _WAITING[operation], key, call, deadline)) as wait:
            try:
                return _exchange(_Connection(call, self._address, limit, wait, asked), head, value)
            except (PeerLost, WaitTimeout):
                if wait.in_vain is None:
                    raise
                raise wait.in_vain from None


def report_waits(rendezvous: Rendezvous, report: Report) -> Reply:
    """Send the server the report of this process, which is blocked; return the reply.

    Raises Error: the server did not answer soon, or is of another version.
    """
    call, value = "Rendezvous", encode_report(report)
    head = frames.encode_request(Operation.REPORT, rendezvous.rank, rendezvous.size, b"", value, 0)
    (reply,) = _exchange(_Connection(call, Path(rendezvous.address), _REPORT_SECONDS), head, value) or [b""]
    try:
        return decode_reply(reply)
    except BadFrame as error:
        raise _bad_answer(call, rendezvous.address, "a reply", error) from None


def delete_unanswered(rendezvous: Rendezvous, keys: Sequence[str]) -> None:
    """Delete values before this rank's next request is carried out, without waiting for it.

    Raises
    ------
    Error
        As :meth:`Rendezvous.delete`; a refusal of the server is not raised.
    """
    call = "Rendezvous.delete"
    for value in frames.encode_keys([_checked_key(call, key) for key in keys]):
        head = frames.encode_request(Operation.DELETE, rendezvous.rank, rendezvous.size, b"", value, 0)
        with _Connection(call, Path(rendezvous.address), ANSWER_SECONDS) as connection:
            connection.send(head + value)


def clear(rendezvous: Rendezvous, folder: str) -> None:
    """Delete all values whose keys are the folder, a slash, and a name without a slash."""
    rendezvous._ask("Rendezvous.delete", Operation.CLEAR, folder)


def put_all(rendezvous: Rendezvous, values: Mapping[str, bytes]) -> None:
    """Put several values in one request, or a few if they are long; errors as of :meth:`Rendezvous.put`."""
    call = "Rendezvous.put"
    log_put(rendezvous, values)
    for request in frames.encode_entries({_checked_key(call, key): value for key, value in values.items()}):
        rendezvous._ask(call, Operation.PUT_ALL, value=request)


def get_present(rendezvous: Rendezvous, keys: Sequence[str]) -> dict[str, bytes]:
    """Return the values that are there, by key, without waiting for others.

    Of very many bytes it returns only some values.
    """
    call, values = _GET, dict[str, bytes]()
    for request in frames.encode_keys([_checked_key(call, key) for key in keys]):
        answer = rendezvous._ask(call, Operation.GET_PRESENT, value=request)
        try:
            values |= frames.decode_present(frames.decode_keys(request), answer)
        except BadFrame as error:
            raise _bad_answer(call, rendezvous.address, "the values of keys", error) from None
    log_got(rendezvous, values)
    return values


def log_put(rendezvous: Rendezvous, keys: Iterable[str]) -> None:
    """Log that this rank puts values, by whichever route they go."""
    if event_log.active:
        for key in keys:
            event_log.post(event_log.key_of("rendezvous", rendezvous._name, key))


def log_got(rendezvous: Rendezvous, keys: Iterable[str]) -> None:
    """Log that this rank has values that another one has put."""
    if event_log.active:
        for key in keys:
            event_log.take(event_log.key_of("rendezvous", rendezvous._name, key), 1)


def get_of(rendezvous: Rendezvous, key: str, rank: int, timeout: float) -> bytes:
    """Return the value of a key that only ``rank`` puts: the loss of other ranks does not end the wait for it.

    Raises
    ------
    WaitTimeout, PeerLost, Deadlock, Busy, Closed
        As :meth:`Rendezvous.get`.
    """
    return rendezvous._ask(_GET, Operation.GET, key, frames.encode_source(rank), timeout=timeout)[0]


def put_once(address: str, rank: int, size: int, key: str, value: bytes, seconds: float) -> None:
    """Put a value within ``seconds``, without a `Rendezvous`, whose opening and end the server would count."""
    call = "Rendezvous.put"
    head = frames.encode_request(Operation.PUT, rank, size, _checked_key(call, key), value, 0)
    _exchange(_Connection(call, Path(address), seconds), head, value)


def _exchange(connection: _Connection, head: bytes, value: bytes) -> list[bytes]:
    try:
        with connection:
            return connection.ask(head, value)
    except BadFrame as error:
        raise _bad_answer(connection.call, str(connection.address), "a frame", error) from None


def _bad_answer(call: str, address: str, due: str, error: BadFrame) -> InvalidValue:
    return InvalidValue(
        f"{call}: {address} does not answer with {due}: {error}",
        detail=Refused(reason="bad_reply", address=address, why=str(error)),
    )


class _Connection:
    """A connection to the server; it fails when the server dies or does not answer in time.

    The event log has none of its messages: it has the order that the whole call makes.
    """

    def __init__(
        self,
        call: str,
        address: Path,
        limit: float | None,
        wait: StoreWait | None = None,
        asked: MeetingWait | Refused | None = None,
    ) -> None:
        self._asked = asked
        self.call = call
        self.address = address
        self._waits_for = wait
        self._limit = limit
        self._deadline = None if limit is None else time.monotonic() + limit
        self._stack = contextlib.ExitStack()
        self._received = bytearray()
        self._poll: select.poll | None = None

    def __enter__(self) -> _Connection:
        with event_log.quiet(), contextlib.ExitStack() as stack:
            self._socket = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            try:
                self._connect()
                pid, _ = peers.credentials(self._socket)
                # A forked child of the server may hold the socket open: only the pidfd shows the server's end.
                self._server = peers.open_pidfd(self._socket, pid) if pid else -1
            except OSError as error:
                raise self._nobody(error) from None
            if pid:
                stack.callback(os.close, self._server)
            self._socket.setblocking(False)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_exception: object) -> None:
        with event_log.quiet():
            self._stack.close()

    def _connect(self) -> None:
        with peers.reachable(self.address) as short:
            # It waits while the backlog is full.
            self._socket.settimeout(min(ANSWER_SECONDS, self._limit or ANSWER_SECONDS))
            self._socket.connect(short)

    def ask(self, head: bytes, value: bytes) -> list[bytes]:
        """Send a request and return the values of its answer."""
        # A server that refuses a request answers before it has read all; its answer explains more than our error.
        with turns.inside():
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.send(head + value)
            answer = self._answer()
        if answer.status is Status.WAITS:
            self._await_after_others()
            answer = self._answer()
        lengths = frames.decode_lengths(self._receive(4 * answer.count))
        values = [bytes(self._receive(length)) for length in lengths]
        if answer.status is not Status.OK:
            raise frames.as_error(answer, self.call, values, self._asked)
        return values

    def _answer(self) -> frames.Answer:
        # Not more bytes than these: another answer may follow, for which this rank must wait in its turn.
        self._fill(frames.START_BYTES, frames.ANSWER_BYTES)
        frames.check_start(self._received[: frames.START_BYTES])  # a frame of another version may be shorter
        self._fill(frames.ANSWER_BYTES, frames.ANSWER_BYTES)
        return frames.decode_answer(self._receive(frames.ANSWER_BYTES))

    def _await_after_others(self) -> None:
        """Wait until the server answers; other ranks go first, and operations of this one run.

        The server answers the waiting requests before the request that ends their wait.  So time does not decide
        whether the answer is there when this rank has its turn.
        """
        server = select.poll()
        if self._server >= 0:
            server.register(self._server, select.POLLIN)
        try:
            while not turns.await_readable(self._socket.fileno(), self._slice()):
                with event_log.quiet():
                    has_ended = bool(server.poll(0))
                if has_ended:
                    raise self._nobody(None)
                self._go_on_waiting()
        finally:
            turns.regain()

    def send(self, content: bytes) -> None:
        """Send a request."""
        left = memoryview(content)
        while left:
            try:
                with event_log.quiet():
                    left = left[self._socket.send(left) :]
            except BlockingIOError:
                self._wait(select.POLLOUT)

    def _receive(self, nbytes: int) -> bytearray:
        self._fill(nbytes, max(nbytes, _AHEAD))
        received, self._received = self._received[:nbytes], self._received[nbytes:]
        return received

    def _fill(self, least: int, most: int) -> None:
        """Read until ``least`` bytes are there, and at most ``most``."""
        while len(self._received) < least:
            try:
                with event_log.quiet():
                    chunk = self._socket.recv(min(_CHUNK, most - len(self._received)))
            except BlockingIOError:
                self._wait(select.POLLIN)
                continue
            except OSError as error:
                raise self._nobody(error) from None
            if not chunk:
                raise self._nobody(None)
            self._received += chunk

    def _wait(self, event: int) -> None:
        if self._poll is None:
            self._poll = select.poll()
            if self._server >= 0:
                self._poll.register(self._server, select.POLLIN)
        self._poll.register(self._socket, event)
        while True:
            with event_log.quiet():
                ready = dict(self._poll.poll(self._slice() * 1000))
            if self._socket.fileno() in ready:
                return
            if ready:
                raise self._nobody(None)
            self._go_on_waiting()

    def _slice(self) -> float:
        """Return how long to wait before the next look, in seconds."""
        left = math.inf if self._deadline is None else self._deadline - time.monotonic()
        return min(SLICE_SECONDS, max(0.0, left))

    def _go_on_waiting(self) -> None:
        """Raise if the server is late; look for deadlocks, as this thread still waits."""
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise WaitTimeout(
                f"{self.call}: the server at {self.address} did not answer within {self._limit:g} s; is it "
                "stopped?",
                call=self.call,
                detail=Refused(reason="no_answer", address=str(self.address), seconds=self._limit),
            )
        if self._waits_for is not None:
            with turns.suspended():
                _deadlocks.look_from_rendezvous(self._waits_for)

    def _nobody(self, error: OSError | None) -> Error:
        reason = f" ({error.strerror})" if error is not None and error.strerror else ""
        return PeerLost(
            f"{self.call}: nobody serves the rendezvous at {self.address}{reason}; its process has ended or "
            "closed it",
            call=self.call,
            detail=Refused(
                reason="no_server",
                address=str(self.address),
                errno=error.errno if error is not None else None,
            ),
        )


def _checked_key(call: str, key: str) -> bytes:
    if not isinstance(key, str):
        raise TypeError(f"{call}: the key must be a str, not {type(key).__name__}")
    try:
        encoded = key.encode()
    except UnicodeEncodeError:
        raise InvalidValue(
            f"{call}: the key {key[:60]!r} is not valid text",
            call=call,
            detail=BadArgument("key", key, rule="text that UTF-8 can encode"),
        ) from None
    if len(encoded) > MAX_KEY:
        raise InvalidValue(
            f"{call}: the key has {len(encoded)} bytes; {MAX_KEY} is the most",
            call=call,
            detail=BadArgument("key", key, most=MAX_KEY, rule="bytes of UTF-8"),
        )
    return encoded
