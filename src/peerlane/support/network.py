"""The networks of this machine: by which one it reaches the other machines of a job, and its address there."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Mapping

from peerlane.support import netlink

INTERFACE = "PEERLANE_INTERFACE"
_SIOCGIFADDR, _LOOPBACK = 0x8915, "lo"


def interfaces_of(environ: Mapping[str, str] = os.environ, master: str = "", peer: str = "") -> list[str]:
    """Return the network interfaces for the other machines of a job; empty: they are not known.

    They are ``PEERLANE_INTERFACE``, else the one by which this machine reaches ``MASTER_ADDR``.  If that is the
    loopback, rank 0 is on this machine, and the address of a peer decides.  If it is the loopback too, they are the
    loopback and the interfaces of the default route: another one may belong to a container, and go with it.

    Parameters
    ----------
    environ : mapping
        The variables of the process.
    master : str
        Stands for ``MASTER_ADDR`` if that is not set.
    peer : str
        The address at which a peer's machine is reached; empty: it is not known.
    """
    if environ.get(INTERFACE):
        return [environ[INTERFACE]]
    for address in (environ.get("MASTER_ADDR") or master, peer):
        name = _interface_to(address)
        if name and name != _LOOPBACK:
            return [name]
    if not _is_loopback(peer):
        return []
    with contextlib.suppress(OSError):  # the kernel does not answer
        numbers = {route.interface for route in netlink.routes() if route.bits == 0}
        return [_LOOPBACK, *(name for number, name in socket.if_nameindex() if number in numbers)]
    return []


def own_address(environ: Mapping[str, str] = os.environ, master: str = "") -> str:
    """Return the address at which other machines of the job reach this one, as far as it is known; or empty.

    It is that of ``PEERLANE_INTERFACE``, else the one from which this machine reaches ``MASTER_ADDR``, or ``master``
    if that is not set.
    """
    with _probe() as probe:
        interface = environ.get(INTERFACE, "")
        return (
            _address_of(probe, interface)
            if interface
            else _address_to(probe, environ.get("MASTER_ADDR") or master)
        )


def _interface_to(address: str) -> str:
    with _probe() as probe:
        own = _address_to(probe, address)
        return next(
            (name for _, name in socket.if_nameindex() if own and _address_of(probe, name) == own), ""
        )


def _is_loopback(address: str) -> bool:
    with contextlib.suppress(ValueError):  # a name, or empty
        return ipaddress.ip_address(address).is_loopback
    return False


def _probe() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def _address_to(probe: socket.socket, master: str) -> str:
    if master:
        with contextlib.suppress(OSError):
            probe.connect((master, 9))  # sends nothing: the system only chooses a way
            address: str = probe.getsockname()[0]
            return address
    return ""


def _address_of(probe: socket.socket, interface: str) -> str:
    with contextlib.suppress(OSError):  # it does not exist, or has no address
        request = struct.pack("256s", interface.encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(probe, _SIOCGIFADDR, request)[20:24])
    return ""
