"""Where the ranks of a communicator meet: a socket of one machine, and a port for the other machines."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from typing import NamedTuple, Protocol

from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.hcomm._codes import NETWORK
from peerlane.errors import WaitTimeout
from peerlane.rendezvous import Rendezvous, RendezvousRelay, RendezvousServer
from peerlane.rendezvous.by_file import MeetingFile
from peerlane.rendezvous.by_machines import relay
from peerlane.rendezvous.by_tcp import listen
from peerlane.rendezvous.launchers import told
from peerlane.rendezvous.meet import line_of_launcher
from peerlane.rendezvous.server import serve_relays
from peerlane.support.machine_identity import is_machine, own_machine
from peerlane.support.network import own_address

_SECRET_BYTES = 16
_SLICE = 0.1  # seconds of one look at a board
_LONGEST_PATH = 4096


class Place(NamedTuple):
    """Where a rendezvous is, and what relays of other machines must know.

    Attributes
    ----------
    machine : str
        The identity of the machine that serves it.
    path : str
        Its socket there; empty as long as nobody serves it.
    host : str
        Where other machines reach it; empty if they cannot.
    port : int
    secret : str
        In hexadecimal digits.
    """

    machine: str
    path: str = ""
    host: str = ""
    port: int = 0
    secret: str = ""

    def encode(self) -> bytes:
        return json.dumps(self).encode()

    @classmethod
    def decode(cls, content: bytes) -> Place | None:
        """Return what any bytes say; None if they say no place."""
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            return None
        match found:
            case [str(machine), str(path), str(host), int(port), str(secret)] if (
                is_machine(machine)
                and len(path) <= _LONGEST_PATH
                and "\0" not in path
                and len(host) < 256
                and host.isprintable()
                and port in range(1 << 16)
                and len(secret) in (0, 2 * _SECRET_BYTES)
            ):
                with contextlib.suppress(ValueError):
                    bytes.fromhex(secret)
                    return cls(machine, path, host, int(port), secret)
        return None


class Door:
    """A port of this machine for relays of other machines, which listens from the beginning.

    Attributes
    ----------
    host : str
    port : int
    secret : bytes
        Who knows it may join.
    """

    def __init__(self, call: str, host: str) -> None:
        self._call = call
        self._listener: socket.socket | None = listen(call, host, 0)
        self.host, self.port = host, int(self._listener.getsockname()[1])
        self.secret = os.urandom(_SECRET_BYTES)

    def serve(self, size: int) -> RendezvousServer:
        """Return a rendezvous that serves this door; the one before, if any, was closed."""
        listener, self._listener = self._listener or listen(self._call, self.host, self.port), None
        try:
            server = RendezvousServer(size, start=False)
        except BaseException:
            listener.close()
            raise
        serve_relays(server, listener, self.secret)
        server.start()
        return server

    def close(self) -> None:
        """Listen no longer; do nothing if a rendezvous serves it."""
        if self._listener is not None:
            self._listener.close()


def door(call: str) -> Door | None:
    """Return a new door, None if nothing says at which address other machines reach this one."""
    launched = told()
    host = "" if launched is not None and not launched.spans else own_address()
    return Door(call, host) if host else None


def place_of(server: RendezvousServer, by: Door | None) -> Place:
    """Return where a rendezvous is."""
    outside = (by.host, by.port, by.secret.hex()) if by is not None else ("", 0, "")
    return Place(own_machine(), server.address, *outside)


def reached(
    call: str, place: Place, rank: int, size: int, timeout: float
) -> tuple[Rendezvous, RendezvousRelay | None]:
    """Return a rank's client of a rendezvous, and the relay to it if that is on another machine.

    Refuses: HCCL_E_NETWORK, if nothing says how another machine is reached.
    """
    if place.machine == own_machine():
        return Rendezvous(place.path, rank, size), None
    if not place.port:
        raise Refusal(
            NETWORK,
            f"the ranks meet on machine {place.machine!r}, this rank is on {own_machine()!r}, and nothing said at "
            "which address that machine is reached",
            "set MASTER_ADDR or PEERLANE_INTERFACE in all ranks, as `peerlane launch --hosts` and torchrun do",
        )
    made = relay(call, place.host, place.port, bytes.fromhex(place.secret), timeout)
    try:
        return Rendezvous(made.address, rank, size), made
    except BaseException:
        made.close()
        raise


class Board(Protocol):
    """Where one rank leaves a message for the others."""

    def write(self, message: bytes) -> None: ...
    def look(self) -> bytes | None: ...
    def close(self) -> None: ...


class JobBoard:
    """A message at the rendezvous of a launcher's job, for the ranks of all machines.

    Parameters
    ----------
    line : Rendezvous
    key : str
    """

    def __init__(self, line: Rendezvous, key: str) -> None:
        self._line, self._key, self._has_written = line, f"hccl/{key}", False

    def write(self, message: bytes) -> None:
        """Publish a message."""
        self._line.put(self._key, message)
        self._has_written = True

    def look(self) -> bytes | None:
        """Return the message, None if there is none soon."""
        ends = time.monotonic() + _SLICE
        try:
            return self._line.get(self._key, timeout=ends - time.monotonic())
        except WaitTimeout:
            return None

    def close(self) -> None:
        """Remove the message that this rank has published."""
        if self._has_written:
            self._has_written = False
            self._line.delete(self._key)


def board(call: str, key: str, timeout: float, *, spans: bool) -> Board:
    """Return the board of a key: of the launcher's job if ranks may be on several machines, else of this machine."""
    line = line_of_launcher(call, timeout) if spans else None
    return MeetingFile([key], "hccl") if line is None else JobBoard(line, key)
