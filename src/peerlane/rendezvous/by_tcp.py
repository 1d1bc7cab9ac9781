"""Rank 0 sends the other ranks the address of the rendezvous, over TCP."""

from __future__ import annotations

import contextlib
import errno
import hmac
import logging
import os
import queue
import socket
import struct
import threading
import time
from collections.abc import Iterable
from urllib.parse import urlsplit

from peerlane.errors import (
    AccessDenied,
    BadArgument,
    BadHandle,
    Busy,
    Error,
    Fault,
    InvalidValue,
    Refused,
    WaitTimeout,
)
from peerlane.rendezvous.late_ranks import LateRanks, named
from peerlane.rendezvous.strangers import to_give_up
from peerlane.rendezvous.whereabouts import LONGEST, Whereabouts
from peerlane.support.machine_identity import LONGEST_MACHINE
from peerlane.support.system_limits import no_thread
from peerlane.support.timeouts import SLICE_SECONDS

_HELLO = struct.Struct(f"<II{LONGEST_MACHINE}s")  # behind the magic: rank, size, machine
_ANSWER = struct.Struct("<8sI")  # magic, bytes that follow
_KIND, _MAGIC = b"PLgroup", b"PLgroup3"
_NONCE = 32  # bytes; also of a proof
_ASKS, _REFUSES = 1 << 31, 1 << 30  # instead of the number of bytes: a nonce follows; the proof is wrong
_STEP = 0.02  # seconds between two tries to connect, or two looks at what has come
_PATIENCE = 5.0  # seconds for a client that connected and sends nothing
_MOST_STRANGERS = 256  # clients at a time
log = logging.getLogger("peerlane.rendezvous")


def parse(call: str, address: str) -> tuple[str, int]:
    """Return the host and the port of ``tcp://host:port``."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    rest = parts.path or parts.query or parts.fragment or parts.username or parts.password
    if parts.scheme != "tcp" or not parts.hostname or not port or rest:
        raise InvalidValue(
            f"{call}: the rendezvous is {address[:200]!r}; valid is tcp://host:port",
            call=call,
            detail=BadArgument("rendezvous", address, rule="tcp://host:port"),
        )
    return parts.hostname, port


def announce(
    call: str,
    where: tuple[str, int],
    size: int,
    whereabouts: Whereabouts,
    timeout: float,
    secret: bytes | None = None,
    late: LateRanks | None = None,
) -> None:
    """Listen, and send each other rank the address of the rendezvous; if there is a secret, the rank must know it.

    Clients are served side by side, so a silent one delays no other.

    Raises AccessDenied: a rank comes from another machine, and the rendezvous serves this one only.
    Raises Busy: another process listens at the address.
    Raises InvalidValue: the host is not this machine; two processes have the same rank; or a rank has another size.
    Raises WaitTimeout: a rank did not come in time; the text names it.
    """
    host, port = where
    deadline = time.monotonic() + timeout
    missing = set(range(1, size))
    came: queue.SimpleQueue[_Client] = queue.SimpleQueue()
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(listen(call, host, port))
        clients: dict[_Client, None] = {}  # the oldest first
        stack.callback(_close_all, clients)
        while missing:
            if late is not None:
                late.look(missing)
            left = deadline - time.monotonic()
            if left <= 0:
                raise WaitTimeout(
                    f"{call}: {named(missing)} of {size} did not come to tcp://{host}:{port} within {timeout:g} s",
                    call=call,
                    detail=Refused(
                        reason="wait_timeout",
                        ranks=tuple(sorted(missing)),
                        size=size,
                        seconds=timeout,
                        address=f"tcp://{host}:{port}",
                    ),
                )
            listener.settimeout(min(left, _STEP if clients else SLICE_SECONDS))
            with contextlib.suppress(OSError):
                connection, address = listener.accept()
                client = _Client(connection, str(address[0]), secret, min(left, _PATIENCE), came)
                if len(clients) >= _MOST_STRANGERS:  # its thread ends, and hands it over
                    dropped = to_give_up(list(clients), lambda each: each.address, client.address)
                    clients.pop(dropped)
                    dropped.close()
                clients[client] = None
                try:
                    client.start()
                except RuntimeError:
                    raise no_thread(call) from None
            while not came.empty():
                client = came.get()
                was_kept = client in clients
                clients.pop(client, None)
                with client.connection:
                    if client.hello is not None and was_kept:
                        _answer(call, client, size, missing, whereabouts)


class _Client(threading.Thread):
    """A connection: of a rank, or of a stranger."""

    def __init__(
        self,
        connection: socket.socket,
        address: str,
        secret: bytes | None,
        patience: float,
        came: queue.SimpleQueue[_Client],
    ) -> None:
        super().__init__(daemon=True)
        self.connection, self.address, self._secret, self._came = connection, address, secret, came
        self._ends = time.monotonic() + patience
        #: Its first message, with a secret also proved; None: it is not a rank.
        self.hello: bytes | None = None

    def close(self) -> None:
        """End the connection, also under the thread."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()

    def run(self) -> None:
        try:
            why = self._hear()
        except OSError as error:
            why = str(error)
        if why:
            log.warning("a connection from %s is not one of a rank: %s", self.address, why)
        self._came.put(self)

    def _hear(self) -> str:
        """Receive a hello; return the reason if none comes."""
        magic = _received(self.connection, len(_MAGIC), self._ends)
        if magic != _MAGIC:
            if magic is None or not magic.startswith(_KIND):
                return "it said nothing, or something else"
            self.connection.sendall(_ANSWER.pack(_MAGIC, 0))
            return "its version of peerlane is another one"
        hello = _received(self.connection, _HELLO.size, self._ends)
        if hello is None:
            return "it ended before it had said which rank it is"
        if self._secret is not None:
            nonce = os.urandom(_NONCE)
            self.connection.sendall(_ANSWER.pack(_MAGIC, _ASKS) + nonce)
            proof = _received(self.connection, _NONCE, self._ends)
            if proof is None or not hmac.compare_digest(proof, _proof(self._secret, nonce, hello)):
                self.connection.sendall(_ANSWER.pack(_MAGIC, _REFUSES))
                return "it does not know the secret"
        self.hello = hello
        return ""


def _close_all(clients: Iterable[_Client]) -> None:
    for each in clients:
        each.close()


def _proof(secret: bytes, nonce: bytes, hello: bytes) -> bytes:
    return hmac.digest(secret, b"peerlane group" + nonce + hello, "sha256")


def _answer(call: str, client: _Client, size: int, missing: set[int], whereabouts: Whereabouts) -> None:
    """Answer a rank."""
    assert client.hello is not None
    rank, its_size, name = _HELLO.unpack(client.hello)
    machine = name.rstrip(b"\0").decode("ascii", "replace")
    if its_size != size:
        raise InvalidValue(
            f"{call}: rank {rank} says that it is one of {its_size:,}, this one of {size:,}",
            call=call,
            detail=Refused(reason="sizes_differ", rank=rank, says=its_size, size=size),
        )
    if rank not in missing:
        known = f"came twice; give each process a rank of its own, 0 to {size - 1}"
        raise InvalidValue(
            f"{call}: rank {rank} {known}",
            call=call,
            detail=Refused(reason="rank_taken", rank=rank, size=size),
        )
    message = whereabouts.encode()
    try:
        client.connection.sendall(_ANSWER.pack(_MAGIC, len(message)) + message)
    except OSError:  # it will come again
        return
    missing.discard(rank)
    if machine != whereabouts.machine and not whereabouts.port:
        raise unserved_machine(call, f"rank {rank}", machine, whereabouts.machine)


def unserved_machine(call: str, who: str, machine: str, own: str) -> AccessDenied:
    """Return the error for a rank of another machine that the rendezvous does not serve."""
    return AccessDenied(
        f"{call}: {who} is on machine {machine!r}, and this rank on {own!r}: ranks of several machines need a "
        "secret, for anybody can reach a port: set PEERLANE_SECRET to the same 16 bytes or more in all ranks; "
        "PEERLANE_MACHINE is the name of a machine, if these two are one",
        fault=Fault.PEER_UNREACHABLE,
        call=call,
        detail=Refused(reason="no_secret", who=who, machine=machine, own_machine=own),
    )


def ask(
    call: str,
    where: tuple[str, int],
    rank: int,
    size: int,
    machine: str,
    timeout: float,
    secret: bytes | None = None,
    late: LateRanks | None = None,
) -> Whereabouts:
    """Ask rank 0 for the address of the rendezvous; ``machine`` is this rank's.

    Raises WaitTimeout: no process listened, or answered, in time.
    Raises AccessDenied: rank 0 has a secret, and this rank has none, or another one.
    Raises BadHandle: the process that answers is not a rank 0 of peerlane.
    """
    host, port = where
    hello = _HELLO.pack(rank, size, machine.encode())
    deadline = time.monotonic() + timeout
    reason = "nobody listened"
    while (left := deadline - time.monotonic()) > 0:
        try:
            with socket.create_connection((host, port), timeout=left) as connection:
                connection.sendall(_MAGIC + hello)
                head = _received(connection, _ANSWER.size, deadline)
                if head == _ANSWER.pack(_MAGIC, _ASKS):
                    nonce = _received(connection, _NONCE, deadline)
                    if nonce is not None and secret is not None:
                        connection.sendall(_proof(secret, nonce, hello))
                        head = _received(connection, _ANSWER.size, deadline)
                    elif nonce is not None:
                        raise _denied(call, host, port, "has a secret, and this rank has none")
                if head == _ANSWER.pack(_MAGIC, _REFUSES):
                    raise _denied(call, host, port, "was started with another secret")
                if head is not None:
                    body = _reply_body(call, host, port, head, connection, deadline)
                    return Whereabouts.decode(call, "rank 0", body)
                reason = "it ended the connection"
        except AccessDenied:
            raise
        except OSError as error:
            reason = error.strerror or str(error)
        if late is not None:
            late.look((0,))
        time.sleep(min(_STEP, max(left, 0.0)))
    raise WaitTimeout(
        f"{call}: rank 0 did not answer at tcp://{host}:{port} within {timeout:g} s ({reason})",
        call=call,
        detail=Refused(
            reason="wait_timeout", ranks=(0,), seconds=timeout, address=f"tcp://{host}:{port}", cause=reason
        ),
    )


def _denied(call: str, host: str, port: int, how: str) -> AccessDenied:
    return AccessDenied(
        f"{call}: rank 0 cannot be reached: what listens at {host}:{port} {how}: set the same PEERLANE_SECRET on all "
        "machines",
        fault=Fault.PEER_UNREACHABLE,
        call=call,
        detail=Refused(reason="other_secret", address=f"tcp://{host}:{port}"),
    )


def _reply_body(
    call: str, host: str, port: int, head: bytes, connection: socket.socket, deadline: float
) -> bytes:
    magic, length = _ANSWER.unpack(head)
    body = _received(connection, length, deadline) if magic == _MAGIC and length <= LONGEST else None
    if body is None:
        raise BadHandle(
            f"{call}: the process that answers at tcp://{host}:{port} is not a rank 0 of this version of peerlane",
            fault=Fault.HANDLE_VERSION,
            call=call,
            detail=Refused(reason="not_rank_0", address=f"tcp://{host}:{port}"),
        )
    return body


def _received(connection: socket.socket, nbytes: int, deadline: float) -> bytes | None:
    """Return ``nbytes`` bytes, None if the other side ends or the deadline passes."""
    received = bytearray()
    while len(received) < nbytes:
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        connection.settimeout(min(left, SLICE_SECONDS))
        try:
            chunk = connection.recv(nbytes - len(received))
        except TimeoutError:
            continue
        except OSError:
            return None
        if not chunk:
            return None
        received += chunk
    return bytes(received)


def listen(call: str, host: str, port: int) -> socket.socket:
    """Return a socket that listens, at ``"::"`` for IPv4 too; raise Busy or InvalidValue."""
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        both = where[0] == "::" and socket.has_dualstack_ipv6()
        return socket.create_server(where[:2], family=family, dualstack_ipv6=both)
    except OSError as error:
        kind: type[Error] = Busy if error.errno == errno.EADDRINUSE else InvalidValue
        raise kind(
            f"{call}: rank 0 cannot listen at tcp://{host}:{port}: {error.strerror or error}; choose a free port of "
            "this machine",
            call=call,
            detail=Refused(reason="no_listener", address=f"tcp://{host}:{port}", errno=error.errno),
        ) from None
