"""Metadata over sockets: an agent's listening thread, and its requests to other agents (facts/nixl 8)."""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import threading
import weakref
from typing import Protocol

from peerlane.dialects._shared import frames
from peerlane.dialects.nixl._status import Failure

_MAGIC = b"plnixl-1"
_SECONDS = 5.0

_log = logging.getLogger("nixl.listener")


class Agent(Protocol):
    """What the threads use of their agent."""

    name: str

    def getLocalMD(self) -> bytes:
        """Return its metadata."""

    def loadRemoteMD(self, metadata: bytes) -> bytes:
        """Load another agent's metadata."""

    def invalidateRemoteMD(self, agent: str) -> object:
        """Forget an agent."""


class Listener:
    """The threads of an agent that exchange metadata: one answers other agents, one sends them requests.

    ``port``: 0 for any.
    Raises RuntimeError: the port is taken.
    """

    def __init__(self, port: int, agent: weakref.ref[Agent]) -> None:
        self._agent = agent
        try:
            self._socket = socket.create_server(("", port))
        except (OSError, OverflowError) as error:
            raise RuntimeError(
                f"Failed to bind metadata listener socket to port {port}: {error}; choose a free port, or 0 for any"
            ) from error
        self.port: int = self._socket.getsockname()[1]  #: where it listens
        self._asked: queue.SimpleQueue[tuple[str, int, str, bytes] | None] = queue.SimpleQueue()
        for work in (self._hear, self._go_on):
            threading.Thread(target=work, name="peerlane nixl listener", daemon=True).start()

    def close(self) -> None:
        """End both threads."""
        self._asked.put(None)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def ask(self, address: str, port: int, verb: str, body: bytes) -> None:
        """Send a request to the agent that listens at an address, soon."""
        self._asked.put((address, port, verb, body))

    def _hear(self) -> None:
        while (connection := frames.accept(self._socket)) is not None:
            with connection, contextlib.suppress(OSError, Failure, ValueError):
                self._answer(connection, *frames.receive(connection, _MAGIC, _SECONDS))

    def _answer(self, connection: socket.socket, verb: bytes, body: bytes) -> None:
        agent = self._agent()
        if agent is None:
            return
        if verb == b"LOAD":
            agent.loadRemoteMD(body)
        elif verb == b"GONE":
            agent.invalidateRemoteMD(body.decode())
        elif verb == b"SEND" and body.decode() == agent.name:
            frames.send(connection, _MAGIC, "LOAD", agent.getLocalMD())

    def _go_on(self) -> None:
        while True:
            asked = self._asked.get()
            if asked is None:
                return
            try:
                self._ask(*asked)
            except (OSError, OverflowError, ValueError, Failure) as error:
                _log.warning("metadata was not exchanged with %s port %s: %s", asked[0], asked[1], error)

    def _ask(self, address: str, port: int, verb: str, body: bytes) -> None:
        with socket.create_connection((address, port), timeout=_SECONDS) as connection:
            frames.send(connection, _MAGIC, verb, body)
            if verb == "SEND":
                _, metadata = frames.receive(connection, _MAGIC, _SECONDS)
                agent = self._agent()
                if agent is not None:
                    agent.loadRemoteMD(metadata)
