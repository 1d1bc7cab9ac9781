"""Another process of the same node that runs code for a test; it never outlives its deadline."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from helpers import prepared

SECONDS = 30.0
_PIECE = 1 << 20

PROGRAM = """
import json, sys
import peerlane as pl
G = 2 << 20
for line in sys.stdin:
    scope = globals()
    try:
        scope.pop("result", None)
        exec(compile(json.loads(line), "peer", "exec"), scope)
        answer = {"result": scope.get("result")}
    except pl.Error as error:
        answer = {"error": [type(error).__name__, error.fault.name, str(error)]}
    except Exception as error:
        answer = {"error": [type(error).__name__, "", str(error)]}
    print(json.dumps(answer), flush=True)
"""


class Started(Protocol):
    """A started process: a ``subprocess.Popen`` or a process of ``helpers.prepared``."""

    pid: int

    def wait(self, timeout: float, /) -> int:
        """Wait for the end; return the exit code."""


class PeerError(Exception):
    """An error of the other process: ``kind``, ``fault`` and its text."""

    def __init__(self, kind: str, fault: str, text: str) -> None:
        super().__init__(f"{kind}/{fault}: {text}")
        self.kind, self.fault = kind, fault


class Peer:
    """A process with ``pl`` and ``G`` (2 MiB) at hand."""

    def __init__(self, env: Mapping[str, str]) -> None:
        stdin, to_child = os.pipe()
        from_child, stdout = os.pipe()
        self._to, self._from = os.fdopen(to_child, "wb", 0), os.fdopen(from_child, "rb", 0)
        self._read = b""  # behind the answer that was received last
        try:
            self._child = self.begin(env, stdin, stdout)
        finally:
            os.close(stdin)
            os.close(stdout)
        self.pid = self._child.pid

    def begin(self, env: Mapping[str, str], stdin: int, stdout: int) -> Started:
        """Start the process."""
        return prepared.start(["-c", PROGRAM], env=env, stdin=stdin, stdout=stdout)

    def send(self, code: str) -> None:
        """Start to run code in the process."""
        self._to.write(json.dumps(code).encode() + b"\n")

    def has_answered(self, seconds: float) -> bool:
        """Tell whether the code that was sent last ends within so many seconds."""
        if b"\n" in self._read:
            return True
        poll = select.poll()  # select() cannot wait for descriptors above 1,023
        poll.register(self._from, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def receive(self, seconds: float = SECONDS) -> Any:
        """Return the ``result`` of the code that was sent last."""
        if not self.has_answered(seconds):
            raise AssertionError(f"process {self.pid} did not answer within {seconds:g} s")
        parts, end = [self._read], b"\n" in self._read
        while not end and (part := self._from.read(_PIECE)):
            parts.append(part)
            end = b"\n" in part
        line, _, self._read = b"".join(parts).partition(b"\n")
        assert line, f"process {self.pid} ended with {self._child.wait(SECONDS)}"
        answer = json.loads(line)
        if "error" in answer:
            raise PeerError(*answer["error"])
        return answer["result"]

    def run(self, code: str, seconds: float = SECONDS) -> Any:
        """Run code in the process; return its ``result``."""
        self.send(code)
        return self.receive(seconds)

    def kill(self) -> None:
        """Kill the process and all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._child.wait(SECONDS)
        for pipe in (self._to, self._from):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def close(self) -> None:
        """Let the process end in order."""
        self._to.close()
        try:
            self._child.wait(SECONDS)
        finally:
            self.kill()


@contextlib.contextmanager
def peer(spec: str, **env: str) -> Iterator[Peer]:
    """Run a process in the node ``spec``."""
    child = Peer({**os.environ, "PEERLANE_NODE": spec, **env})
    try:
        child.run("devices = pl.devices()")
        yield child
    finally:
        child.kill()
