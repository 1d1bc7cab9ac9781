"""The networks of this machine: by which one it reaches the other machines of a job, and its address there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Mapping

INTERFACE = "PEERLANE_INTERFACE"
_SIOCGIFADDR = 0x8915


def interface_of(environ: Mapping[str, str] = os.environ, master: str = "") -> str:
    """Return ``PEERLANE_INTERFACE``, else the network interface by which this machine reaches ``MASTER_ADDR``.

    ``master`` stands for ``MASTER_ADDR`` if that is not set.  Empty: it is not known, or it is the loopback.
    """
    if environ.get(INTERFACE):
        return environ[INTERFACE]
    with _probe() as probe:
        mine = _address_to(probe, environ.get("MASTER_ADDR") or master)
        for _, name in socket.if_nameindex() if mine else ():
            if _address_of(probe, name) == mine:
                return "" if name == "lo" else name
    return ""


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
