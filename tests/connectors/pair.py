"""Prefill and decode of a connector in two processes, and what befalls prefill.

``python -m peerlane run --devices 2 -m connectors.pair CONNECTOR EVENT`` prints a line of JSON: how the request
ended.  ``EVENT`` is ``right``; ``delay``, which stops prefill for two seconds when decode is about to ask; ``kill``,
which ends prefill there, or ``kill@SECONDS``, which ends it later; or ``early``, in which decode reads its blocks
before the connector says that they are there.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from importlib import import_module
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from threading import Timer
from typing import Any, NamedTuple

from connectors.caches import Caches
from connectors.registry import CONNECTORS, Connector

_SECONDS_OF_DELAY = 2.0
_MOST_SECONDS = 180.0
#: Prefill's blocks of the request, and where decode wants them.
SOURCE = [10, 11, 12, 20]
TARGET = [3, 4, 5, 9]


class Outcome(NamedTuple):
    """How a request ended at decode: by the connector's word, its error, and decode's blocks with prefill's."""

    done: bool
    error: str = ""
    moved: Mapping[int, int] = dict(zip(TARGET, SOURCE, strict=True))


class Link:
    """What a process has to do with the other one besides the connector: what a router does.

    Attributes
    ----------
    event : str
    variant : str
        Which of its module's connectors runs.
    port : int
        A free port, from which on some more are free.
    asked : float
        When decode was about to ask; infinite before.
    kept : list of object
        What lives until the process ends: the destructors of some connectors wait for the other process.
    """

    def __init__(self, event: str, variant: str, port: int, peer: Connection, parent: Connection):
        self.event, self.variant, self.port = event, variant, port
        self.asked, self.kept = float("inf"), list[object]()
        self._peer, self._parent = peer, parent

    def send(self, message: Any) -> None:
        """Send to the other process."""
        self._peer.send(message)

    def try_send(self, message: Any) -> None:
        """Send to the other process, which may have ended."""
        try:
            self._peer.send(message)
        except BrokenPipeError:
            return

    def receive(self, seconds: float = 30.0) -> Any:
        """Receive from the other process."""
        if not self._peer.poll(seconds):
            raise TimeoutError(f"The other process sent nothing within {seconds} s")
        return self._peer.recv()

    def ready(self) -> None:
        """Tell that the request comes next; return when what befalls prefill has begun."""
        self.asked = time.monotonic()
        self._parent.send("ready")
        if not self._parent.poll(30):
            raise TimeoutError("The parent did not answer within 30 s")
        self._parent.recv()

    def report(self, outcome: Mapping[str, Any]) -> None:
        """Tell the parent how the request ended."""
        self._parent.send(outcome)

    def lasts(self, seconds: float) -> bool:
        """Wait; tell whether the run goes on."""
        return not self._parent.poll(seconds)

    def end(self, status: int) -> None:
        """End this process when the parent says so."""
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            self._parent.send("ended")
            self._parent.poll(30)
        finally:
            os._exit(status)

    def until(self, ended: Callable[[], Outcome | None], seconds: float) -> Outcome:
        """Ask until a request has ended."""
        last = time.monotonic() + seconds
        while time.monotonic() < last:
            outcome = ended()
            if outcome is not None:
                return outcome
            time.sleep(0.005)
        return Outcome(False, f"no answer within {seconds} s")

    def look_early(self, caches: Caches) -> None:
        """Read the blocks too early, if that is the event."""
        if self.event == "early":
            caches.look(TARGET)


def _prefill(connector: Connector, link: Link) -> None:
    caches = Caches(0, connector.buffers, connector.dialect)
    caches.compute(SOURCE)
    import_module(f"connectors.{connector.module}").prefill(link, caches)


def _decode(connector: Connector, link: Link) -> None:
    caches = Caches(1, connector.buffers, connector.dialect)
    outcome = import_module(f"connectors.{connector.module}").decode(link, caches)
    seconds = time.monotonic() - link.asked
    wrong = caches.wrong(outcome.moved)
    if not outcome.done:
        wrong = [each for each in wrong if each[1] not in outcome.moved]
    link.report({"done": outcome.done, "error": outcome.error, "wrong": wrong, "seconds": round(seconds, 1)})


def _run(role: Callable[[Connector, Link], None], connector: Connector, link: Link) -> None:
    status = 1
    try:
        role(connector, link)
        status = 0
    finally:
        if status:
            traceback.print_exc()
        # Threads of connectors wait for ever, so the process ends itself, when the parent has no more use for it.
        link.end(status)


def _strike(event: str, prefill: BaseProcess) -> None:
    kind, _, seconds = event.partition("@")
    assert prefill.pid is not None
    if kind == "delay":
        os.kill(prefill.pid, signal.SIGSTOP)
        Timer(_SECONDS_OF_DELAY, os.kill, (prefill.pid, signal.SIGCONT)).start()
    elif kind == "kill" and seconds:
        Timer(float(seconds), prefill.kill).start()
    elif kind == "kill":
        prefill.kill()
        prefill.join()


def _no_end(error: str) -> dict[str, Any]:
    return {"done": False, "error": error, "wrong": [], "seconds": _MOST_SECONDS}


def run(connector: Connector, event: str, port: int) -> dict[str, Any]:
    """Run both processes; return how decode's request ended."""
    context = multiprocessing.get_context("spawn")
    peers = context.Pipe()
    pipes = [context.Pipe() for _ in peers]
    processes = [
        context.Process(
            target=_run, args=(role, connector, Link(event, connector.variant, port, peer, theirs))
        )
        for role, peer, (_, theirs) in zip((_prefill, _decode), peers, pipes, strict=True)
    ]
    for process in processes:
        process.start()
    prefill, decode = processes
    ours = [own for own, _ in pipes]
    result: dict[str, Any] = {}
    last = time.monotonic() + _MOST_SECONDS
    try:
        open_ends = list(ours)
        while not result and time.monotonic() < last and open_ends:
            for end in wait([*open_ends, decode.sentinel], timeout=1.0):
                if end is decode.sentinel or not isinstance(end, Connection):
                    return _no_end("decode's process ended")
                try:
                    message = end.recv()
                except EOFError:
                    open_ends.remove(end)
                    continue
                if message == "ready":
                    _strike(event, prefill)
                    end.send("go")
                elif isinstance(message, dict):
                    result = message
                elif end is ours[1]:
                    return _no_end("decode raised")
        return result or _no_end(f"no end within {_MOST_SECONDS:.0f} s")
    finally:
        for end in ours:
            try:
                end.send("end")
            except OSError:
                continue
        for process in processes:
            process.join(5)
            process.kill()


def free_port() -> int:
    """Return a port that is free with the three after it, below those that the system gives to clients."""
    while True:
        first = random.randrange(10_000, 30_000)
        with ExitStack() as held:
            try:
                for port in range(first, first + 4):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first


if __name__ == "__main__":
    print(json.dumps(run(CONNECTORS[sys.argv[1]], sys.argv[2], free_port())))
