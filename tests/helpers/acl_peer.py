"""Another process of the node; a test makes ``acl`` calls in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import peerlane
from helpers import prepared

_SECONDS = 60.0


class AclPeer:
    """A process that makes ``acl`` calls for a test.

    ``peer("rt.malloc", 64, 0)`` returns what the call returned there, ``peer.ok(...)`` its outputs.
    """

    def __init__(self, connection: Connection, process: prepared.Process) -> None:
        self._connection, self._process, self.pid = connection, process, process.pid

    def __call__(self, name: str, *args: object) -> Any:
        self._connection.send((name, args))
        assert self._connection.poll(_SECONDS), f"{name} did not return within {_SECONDS:g} s"
        outcome = self._connection.recv()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def ok(self, name: str, *args: object) -> Any:
        """Make a call that must succeed, and return its outputs."""
        from helpers.acl_calls import ok

        result = self(name, *args)
        code = result[-1] if isinstance(result, tuple) else result
        assert code == 0, self("get_recent_err_msg")
        return ok(result)

    def read(self, pointer: int, size: int) -> bytes:
        """Return bytes of device memory as the process sees them."""
        read_bytes: bytes = self("read", pointer, size)
        return read_bytes

    def kill(self) -> None:
        """Kill the process, and wait for its end."""
        self._process.kill()


@contextmanager
def acl_peer(spec: str, device: int = 0) -> Iterator[AclPeer]:
    """Start another process on the node, with a device set; end it however the test ends."""
    with prepared.serving(__name__, "_serve", spec) as (connection, process):
        peer = AclPeer(connection, process)
        peer.ok("rt.set_device", device)
        yield peer


def _serve(connection: Connection, spec: str) -> None:
    import peerlane.dialects.acl as acl

    peerlane.enter_node(spec)

    def read(pointer: int, size: int) -> bytes:
        from helpers.acl_calls import content

        return content(acl, pointer, size)

    while True:
        try:
            name, args = connection.recv()
        except EOFError:
            return
        call: Any = acl
        for part in name.split("."):
            call = read if part == "read" else getattr(call, part)
        try:
            connection.send(call(*args))
        except (TypeError, ValueError) as error:
            connection.send(error)
