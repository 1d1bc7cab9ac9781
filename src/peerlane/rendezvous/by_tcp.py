"""Rank 0 tells the other ranks the rendezvous's address over TCP; nothing else goes over TCP."""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
import time
from urllib.parse import urlsplit

from peerlane.errors import BadArgument, BadHandle, Busy, Error, Fault, InvalidValue, Refused, WaitTimeout
from peerlane.support.timeouts import SLICE_SECONDS

_HELLO = struct.Struct("<8sII")  # magic, rank, size
_ANSWER = struct.Struct("<8sI")  # magic, bytes that follow
_MAGIC = b"PLgroup1"
_LONGEST = 8192
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


def tell(call: str, host: str, port: int, size: int, message: bytes, timeout: float) -> None:
    """Listen, and send the message to every other rank.

    Raises
    ------
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
            with contextlib.suppress(OSError), listener.accept()[0] as line:
                _answer(call, line, size, missing, message, min(left, _PATIENCE))


def _answer(
    call: str, line: socket.socket, size: int, missing: set[int], message: bytes, patience: float
) -> None:
    hello = _received(line, _HELLO.size, time.monotonic() + patience)
    if hello is None:
        return
    magic, rank, says = _HELLO.unpack(hello)
    if magic != _MAGIC:
        return  # not one of the ranks: any process may connect
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
    line.sendall(_ANSWER.pack(_MAGIC, len(message)) + message)
    missing.discard(rank)


def ask(call: str, host: str, port: int, rank: int, size: int, timeout: float) -> bytes:
    """Return rank 0's message.

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
                line.sendall(_HELLO.pack(_MAGIC, rank, size))
                head = _received(line, _ANSWER.size, deadline)
                if head is not None:
                    return _told(call, host, port, head, line, deadline)
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
    body = _received(line, length, deadline) if magic == _MAGIC and length <= _LONGEST else None
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
    """Return a socket that listens; raise Busy or InvalidValue."""
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(where[:2], family=family)
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
