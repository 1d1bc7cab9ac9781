"""Ports for servers that a test starts later."""

from __future__ import annotations

import contextlib
import itertools
import random
import socket

# From here to 32767 the kernel gives no port to those who ask for any, and few programs listen.
_PORTS = range(20_000, 32_000, 2)
_taken: list[socket.socket] = []


def free_port() -> int:
    """Return a port at which nobody listens, nor at the next one; no other test gets it while this process lives."""
    for port in itertools.islice(iter(lambda: random.SystemRandom().choice(_PORTS), None), 1000):
        name = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):
            name.bind(f"\0peerlane tests: port {port}")
            with socket.create_server(("", port)), socket.create_server(("", port + 1)):
                _taken.append(name)
                return port
        name.close()
    raise RuntimeError("no port is free")
