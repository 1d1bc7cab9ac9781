"""The rendezvous of a communicator: a socket on one machine, and a port for relays of other machines."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from typing import NamedTuple, Protocol

from peerlane.dialects.hcomm._codes import NETWORK
from peerlane.errors import WaitTimeout
from peerlane.rendezvous import Rendezvous, RendezvousRelay, RendezvousServer
from peerlane.rendezvous.by_file import MeetingFile
from peerlane.rendezvous.by_machines import relay
from peerlane.rendezvous.by_tcp import listen
from peerlane.rendezvous.launchers import assignment_of
from peerlane.rendezvous.meet import rendezvous_of_launcher
from peerlane.rendezvous.server import serve_relays
from peerlane.support.machine_identity import is_machine, own_machine
from peerlane.support.network import own_address

_SECRET_BYTES = 16
_SLICE = 0.1  # seconds that one look at a board takes
_LONGEST_PATH = 4096


class RendezvousAddress(NamedTuple):
    """The address of a rendezvous, with what relays on other machines need to reach it."""

    machine: str  #: the identity of the machine that serves it
    path: str = ""  #: the path of its socket; empty as long as nobody serves it
    host: str = ""  #: the address for other machines; empty if they cannot reach it
    port: int = 0
    secret: str = ""  #: in hexadecimal digits

    def encode(self) -> bytes:
        return json.dumps(self).encode()

    @classmethod
    def decode(cls, content: bytes) -> RendezvousAddress | None:
        """Return the address that bytes encode, None for other bytes."""
        try:
            fields = json.loads(content)
        except (ValueError, RecursionError):
            return None
        match fields:
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


class RelayPort:
    """A port of this machine for relays of other machines; it listens from its creation on."""

    def __init__(self, call: str, host: str) -> None:
        self._call = call
        self._listener: socket.socket | None = listen(call, host, 0)
        self.host, self.port = host, int(self._listener.getsockname()[1])
        self.secret = os.urandom(_SECRET_BYTES)  #: a relay that knows it may join

    def serve(self, size: int) -> RendezvousServer:
        """Return a new rendezvous that serves this port; the caller has closed an earlier one."""
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
        """Stop listening; do nothing if a rendezvous serves the port."""
        if self._listener is not None:
            self._listener.close()


def relay_port(call: str) -> RelayPort | None:
    """Return a new port, None if the address of this machine for other machines is not known."""
    launched = assignment_of()
    host = "" if launched is not None and not launched.spans else own_address()
    return RelayPort(call, host) if host else None


def address_of(server: RendezvousServer, port: RelayPort | None) -> RendezvousAddress:
    """Return the address of a rendezvous."""
    outside = (port.host, port.port, port.secret.hex()) if port is not None else ("", 0, "")
    return RendezvousAddress(own_machine(), server.address, *outside)


def client_of(
    call: str, address: RendezvousAddress, rank: int, size: int, timeout: float
) -> tuple[Rendezvous, RendezvousRelay | None]:
    """Return a rank's client of a rendezvous, and its relay if the rendezvous is on another machine.

    Refuses: HCCL_E_NETWORK, if the address has no port for other machines.
    """
    if address.machine == own_machine():
        return Rendezvous(address.path, rank, size), None
    if not address.port:
        raise NETWORK.refusal(
            f"the ranks meet on machine {address.machine!r}, this rank is on {own_machine()!r}, and nothing said at "
            "which address that machine is reached",
            "set MASTER_ADDR or PEERLANE_INTERFACE in all ranks, as `peerlane launch --hosts` and torchrun do",
        )
    local = relay(call, address.host, address.port, bytes.fromhex(address.secret), timeout)
    try:
        return Rendezvous(local.address, rank, size), local
    except BaseException:
        local.close()
        raise


class Board(Protocol):
    """A board on which one rank leaves a message for the others."""

    def write(self, message: bytes) -> None: ...
    def look(self) -> bytes | None: ...
    def close(self) -> None: ...


class JobBoard:
    """A board at the rendezvous of a launcher's job, for the ranks of all machines."""

    def __init__(self, rendezvous: Rendezvous, key: str) -> None:
        self._rendezvous, self._key, self._has_written = rendezvous, f"hccl/{key}", False

    def write(self, message: bytes) -> None:
        """Publish a message."""
        self._rendezvous.put(self._key, message)
        self._has_written = True

    def look(self) -> bytes | None:
        """Return the message, None if there is none soon."""
        ends = time.monotonic() + _SLICE
        try:
            return self._rendezvous.get(self._key, timeout=ends - time.monotonic())
        except WaitTimeout:
            return None

    def close(self) -> None:
        """Remove the message that this rank has published."""
        if self._has_written:
            self._has_written = False
            self._rendezvous.delete(self._key)


def board(call: str, key: str, timeout: float, *, spans: bool) -> Board:
    """Return the board of a key: of the launcher's job if ranks may be on several machines, else of this machine."""
    rendezvous = rendezvous_of_launcher(call, timeout) if spans else None
    return MeetingFile([key], "hccl") if rendezvous is None else JobBoard(rendezvous, key)
