"""Rank 0 tells the other ranks over TCP where the rendezvous is."""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
import time
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
from peerlane.rendezvous.whereabouts import LONGEST, Whereabouts
from peerlane.support.machine_identity import LONGEST_MACHINE
from peerlane.support.timeouts import SLICE_SECONDS

_HELLO = struct.Struct(f"<II{LONGEST_MACHINE}s")  # behind the magic: rank, size, machine
_ANSWER = struct.Struct("<8sI")  # magic, bytes that follow
_KIND, _MAGIC = b"PLgroup", b"PLgroup2"
_STEP = 0.02  # seconds between two tries to connect
_PATIENCE = 5.0  # seconds for a client that connected and sends nothing


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


def tell(call: str, host: str, port: int, size: int, said: Whereabouts, timeout: float) -> None:
    """Listen, and tell every other rank where the rendezvous is.

    Raises
    ------
    AccessDenied
        A rank comes from another machine, and the rendezvous serves this one only.
    Busy
        Another process listens at the address.
    InvalidValue
        The host is not this machine; two processes have the same rank; or a rank has another size.
    WaitTimeout
        A rank did not come in time; the text names it.
    """
    deadline = time.monotonic() + timeout
    missing = set(range(1, size))
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(listen(call, host, port))
        while missing:
            left = deadline - time.monotonic()
            if left <= 0:
                raise WaitTimeout(
                    f"{call}: rank{'s' if len(missing) > 1 else ''} {_named(missing)} of {size} did not come to "
                    f"tcp://{host}:{port} within {timeout:g} s",
                    call=call,
                    detail=Refused(
                        reason="wait_timeout",
                        ranks=tuple(sorted(missing)),
                        size=size,
                        seconds=timeout,
                        address=f"tcp://{host}:{port}",
                    ),
                )
            listener.settimeout(min(left, SLICE_SECONDS))
            found: tuple[int, str] | None = None
            with contextlib.suppress(OSError), listener.accept()[0] as line:
                found = _answer(call, line, size, missing, said, min(left, _PATIENCE))
            if found is not None and found[1] != said.machine and not said.port:
                raise no_way(call, f"rank {found[0]}", found[1], said.machine)


def _answer(
    call: str, line: socket.socket, size: int, missing: set[int], said: Whereabouts, patience: float
) -> tuple[int, str] | None:
    """Answer a rank; return it and its machine, None if the other end is not a rank."""
    ends = time.monotonic() + patience
    magic = _received(line, len(_MAGIC), ends)
    if magic != _MAGIC:  # not one of the ranks: any process may connect
        if magic is not None and magic.startswith(_KIND):  # a rank of another version, which says so
            line.sendall(_ANSWER.pack(_MAGIC, 0))
        return None
    hello = _received(line, _HELLO.size, ends)
    if hello is None:
        return None
    rank, says, machine = _HELLO.unpack(hello)
    if says != size:
        raise InvalidValue(
            f"{call}: rank {rank} says that it is one of {says:,}, this one of {size:,}",
            call=call,
            detail=Refused(reason="sizes_differ", rank=rank, says=says, size=size),
        )
    if rank not in missing:
        known = f"came twice; give each process a rank of its own, 0 to {size - 1}"
        raise InvalidValue(
            f"{call}: rank {rank} {known}",
            call=call,
            detail=Refused(reason="rank_taken", rank=rank, size=size),
        )
    message = said.encode()
    line.sendall(_ANSWER.pack(_MAGIC, len(message)) + message)
    missing.discard(rank)
    return rank, machine.rstrip(b"\0").decode("ascii", "replace")


def no_way(call: str, who: str, machine: str, own: str) -> AccessDenied:
    """Return the error for a rank of another machine that the rendezvous does not serve."""
    return AccessDenied(
        f"{call}: {who} is on machine {machine!r}, and this rank on {own!r}: ranks of several machines need a "
        "secret, for anybody can reach a port: set PEERLANE_SECRET to the same 16 bytes or more in all ranks; "
        "PEERLANE_MACHINE is the name of a machine, if these two are one",
        fault=Fault.PEER_UNREACHABLE,
        call=call,
        detail=Refused(reason="no_secret", who=who, machine=machine, own_machine=own),
    )


def ask(call: str, host: str, port: int, rank: int, size: int, machine: str, timeout: float) -> Whereabouts:
    """Return where rank 0 says that the rendezvous is; ``machine``: this rank's.

    Raises
    ------
    WaitTimeout
        No process listened, or answered, in time.
    BadHandle
        The process that answers is not a rank 0 of peerlane.
    """
    deadline = time.monotonic() + timeout
    reason = "nobody listened"
    while (left := deadline - time.monotonic()) > 0:
        try:
            with socket.create_connection((host, port), timeout=left) as line:
                line.sendall(_MAGIC + _HELLO.pack(rank, size, machine.encode()))
                head = _received(line, _ANSWER.size, deadline)
                if head is not None:
                    body = _told(call, host, port, head, line, deadline)
                    return Whereabouts.decode(call, "rank 0", body)
                reason = "it ended the connection"
        except OSError as error:
            reason = error.strerror or str(error)
        time.sleep(min(_STEP, max(left, 0.0)))
    raise WaitTimeout(
        f"{call}: rank 0 did not answer at tcp://{host}:{port} within {timeout:g} s ({reason})",
        call=call,
        detail=Refused(
            reason="wait_timeout", ranks=(0,), seconds=timeout, address=f"tcp://{host}:{port}", cause=reason
        ),
    )


def _told(call: str, host: str, port: int, head: bytes, line: socket.socket, deadline: float) -> bytes:
    magic, length = _ANSWER.unpack(head)
    body = _received(line, length, deadline) if magic == _MAGIC and length <= LONGEST else None
    if body is None:
        raise BadHandle(
            f"{call}: the process that answers at tcp://{host}:{port} is not a rank 0 of this version of peerlane",
            fault=Fault.HANDLE_VERSION,
            call=call,
            detail=Refused(reason="not_rank_0", address=f"tcp://{host}:{port}"),
        )
    return body


def _received(line: socket.socket, nbytes: int, deadline: float) -> bytes | None:
    """Return ``nbytes`` bytes, None if the other side ends or the deadline passes."""
    found = bytearray()
    while len(found) < nbytes:
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        line.settimeout(min(left, SLICE_SECONDS))
        try:
            chunk = line.recv(nbytes - len(found))
        except TimeoutError:
            continue
        except OSError:
            return None
        if not chunk:
            return None
        found += chunk
    return bytes(found)


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


def _named(ranks: set[int]) -> str:
    shown = sorted(ranks)
    more = f" and {len(shown) - 8} more" if len(shown) > 8 else ""
    return ", ".join(map(str, shown[:8])) + more
