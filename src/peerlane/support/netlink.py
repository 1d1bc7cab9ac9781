"""What the kernel tells of this process's network: its interfaces, and by which of them routes lead to an address."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
import sys
from collections.abc import Iterator
from typing import NamedTuple

_GET_LINK, _GET_ADDRESS, _GET_ROUTE = 18, 22, 26
_ERROR, _DONE, _REQUEST, _DUMP = 2, 3, 0x1, 0x300
_HEADER, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=HH")
_LINK, _ADDRESS, _ROUTE = struct.Struct("=BxHiII"), struct.Struct("=BBBBI"), struct.Struct("=8BI")
_LINK_NAME, _LINK_STATE = 3, 16
_TO, _OUT, _TABLE = 1, 4, 15
_UP, _RUNNING = 0x1, 0x40
_LINK_LOCAL = 253
_BYTES, _SECONDS = 1 << 18, 5.0
_STATES = ("unknown", "not present", "down", "lower layer down", "testing", "dormant", "up")


class Interface(NamedTuple):
    """A network interface."""

    number: int  #: its number in the kernel
    state: str  #: the kernel's operational state: ``up``, ``down``, ``dormant``, ...
    is_up: bool  #: whether it was set up
    is_running: bool  #: whether it is up, and the kernel says that it passes frames
    has_address: bool  #: whether it has an address that is known outside its link

    @property
    def lacks(self) -> str:
        """What it lacks to be used; empty: nothing."""
        if not self.is_up:
            return "it was not set up"
        if not self.is_running:
            return f"its state is {self.state!r}, not 'up'"
        return "" if self.has_address else "it has no address"


class Route(NamedTuple):
    """A route of any routing table, or one that the kernel has learnt."""

    interface: int  #: the number of the interface by which it leads
    network: int  #: ``network``, ``bits``: the IPv4 network, and how many of its bits count
    bits: int
    table: int

    def covers(self, address: str) -> bool:
        """Tell whether an IPv4 address lies in the network."""
        return (int(ipaddress.IPv4Address(address)) ^ self.network) >> (32 - self.bits) == 0

    def __str__(self) -> str:
        try:
            name = socket.if_indextoname(self.interface)
        except OSError:
            name = f"number {self.interface}"
        return f"{ipaddress.IPv4Address(self.network)}/{self.bits} by {name} in table {self.table}"


def interface_named(name: str) -> Interface | None:
    """Return a network interface; None if there is none of this name.

    Raises OSError: the kernel does not tell.
    """
    for body, attributes in _dump(_GET_LINK, _LINK, socket.AF_UNSPEC):
        if attributes.get(_LINK_NAME, b"").rstrip(b"\0") == name.encode():
            _, _, number, flags, _ = body
            code = attributes.get(_LINK_STATE, b"\0")[0]
            state = _STATES[code] if code < len(_STATES) else str(code)
            is_up = bool(flags & _UP)
            return Interface(number, state, is_up, is_up and bool(flags & _RUNNING), _has_address(number))
    return None


def routes() -> list[Route]:
    """Return the IPv4 routes of all routing tables, and those that the kernel has learnt.

    Raises OSError: the kernel does not tell.
    """
    links = []
    for body, attributes in _dump(_GET_ROUTE, _ROUTE, socket.AF_INET):
        bits, to, out = body[1], attributes.get(_TO, bytes(4)), attributes.get(_OUT)
        table = attributes.get(_TABLE, b"")
        if out is not None and len(to) == len(out) == 4 and bits <= 32:
            number = int.from_bytes(table, sys.byteorder) if table else body[4]
            links.append(Route(int.from_bytes(out, sys.byteorder), int.from_bytes(to, "big"), bits, number))
    return links


def _has_address(interface: int) -> bool:
    for body, _ in _dump(_GET_ADDRESS, _ADDRESS, socket.AF_UNSPEC):
        family, _, _, scope, of = body
        if of == interface and not (family == socket.AF_INET6 and scope == _LINK_LOCAL):
            return True
    return False


def _dump(kind: int, body: struct.Struct, family: int) -> Iterator[tuple[tuple[int, ...], dict[int, bytes]]]:
    """Yield the fixed part and the attributes of each object of a kind."""
    with contextlib.closing(
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    ) as line:
        line.settimeout(_SECONDS)
        asked = bytes([family]).ljust(body.size, b"\0")
        line.send(_HEADER.pack(_HEADER.size + len(asked), kind, _REQUEST | _DUMP, 1, 0) + asked)
        while True:
            answer, at = line.recv(_BYTES), 0
            while at + _HEADER.size <= len(answer):
                size, what, _, _, _ = _HEADER.unpack_from(answer, at)
                if what == _DONE:
                    return
                if what == _ERROR or size < _HEADER.size:
                    raise OSError("the kernel refuses to tell of its network")
                message = answer[at + _HEADER.size : at + size]
                if len(message) >= body.size:
                    yield body.unpack_from(message), _attributes(message[body.size :])
                at += (size + 3) & ~3


def _attributes(rest: bytes) -> dict[int, bytes]:
    attributes, at = {}, 0
    while at + _ATTRIBUTE.size <= len(rest):
        size, kind = _ATTRIBUTE.unpack_from(rest, at)
        if size < _ATTRIBUTE.size:
            break
        attributes[kind] = rest[at + _ATTRIBUTE.size : at + size]
        at += (size + 3) & ~3
    return attributes
