"""Another process of the node; a test makes ``hip`` calls in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import peerlane
from helpers import prepared

_SECONDS = 60.0


class HipPeer:
    """A process that makes ``hip`` calls for a test.

    ``peer("hipStreamQuery", 0)`` returns the name of the code that the call returned there, followed by its outputs
    as plain values: structs as bytes, pointers, streams and events as ints.  ``peer.done(...)`` returns the outputs
    of what must work.  Arguments are plain values too; of a copy the kind is left out.
    """

    def __init__(self, connection: Connection, process: prepared.Process) -> None:
        self._connection, self._process, self.pid = connection, process, process.pid

    def __call__(self, name: str, *args: object) -> Any:
        self._connection.send((name, args))
        assert self._connection.poll(_SECONDS), f"{name} did not return within {_SECONDS:g} s"
        return self._connection.recv()

    def done(self, name: str, *args: object) -> Any:
        """Make a call that must succeed, and return its outputs."""
        code, *outputs = self(name, *args)
        assert code == "hipSuccess", self("explain")
        return outputs[0] if len(outputs) == 1 else outputs

    def kill(self) -> None:
        """Kill the process, and wait for its end."""
        self._process.kill()


@contextmanager
def hip_peer(spec: str, **variables: str) -> Iterator[HipPeer]:
    """Start another process on the node, with environment variables of its own; end it however the test ends."""
    with prepared.serving(__name__, "_serve", spec, **variables) as (connection, process):
        peer = HipPeer(connection, process)
        assert peer("hipGetDeviceCount")[0] == "hipSuccess"
        yield peer


def _serve(connection: Connection, spec: str) -> None:
    from peerlane.dialects.hip import explain, hip

    peerlane.enter_node(spec)
    steps = _Steps(hip)
    while True:
        try:
            name, args = connection.recv()
        except EOFError:
            return
        if name == "explain":
            connection.send(explain())
            continue
        call = getattr(steps, name, None) or getattr(hip, name)
        words = [*args, hip.hipMemcpyKind.hipMemcpyDefault] if name == "hipMemcpy" else args
        connection.send([_plain(each) for each in call(*words)])


class _Steps:
    """The steps beside calls that a test makes in the process."""

    def __init__(self, hip: Any) -> None:
        from helpers.hip_calls import Gate

        self._hip, self._gate = hip, Gate(hip)

    def close_gate(self, stream: int) -> Any:
        """Make a stream wait."""
        self._gate.close(stream)
        return ("hipSuccess",)

    def open_gate(self) -> Any:
        """Let the stream go on."""
        self._gate.open()
        return ("hipSuccess",)

    def read(self, pointer: int, nbytes: int) -> Any:
        """Return bytes, in the order of the null stream."""
        from helpers.hip_calls import content

        return "hipSuccess", content(self._hip, pointer, nbytes)


def _plain(value: Any) -> Any:
    if hasattr(value, "reserved"):
        return bytes(value.reserved)
    if hasattr(value, "name") and hasattr(value, "value"):
        return value.name
    if value is None or isinstance(value, (str, bytes, float)):
        return value
    return int(value)
