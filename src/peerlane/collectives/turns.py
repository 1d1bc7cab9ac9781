"""Whose turn it is: collectives of a group run one after the other, on whatever streams they are."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from peerlane.collectives.workspace import Workspace
from peerlane.errors import Closed

if TYPE_CHECKING:
    from peerlane.event import Event
    from peerlane.group import Group
    from peerlane.stream import Stream


_LONG = 4 << 20  # bytes; from here on waits are long too, and a stream waits better than a call

#: ``"to"`` or ``"from"``, and the peer.
Lane: TypeAlias = "tuple[str, int]"


class Turns:
    """The workspace of a group, made by the first collective, and what those on streams have left behind.

    Collectives run one after the other.  A message runs behind those of its lane, and behind the collectives before
    it; a collective behind all messages before it.

    Parameters
    ----------
    group : Group
    nbytes : int
        Of the workspace.
    """

    def __init__(self, group: Group, nbytes: int) -> None:
        self._group, self._nbytes = group, nbytes
        self._work: Workspace | None = None
        self._lasts: dict[Lane | None, Event] = {}  # None: of the collectives
        self._own: dict[Lane | None, Stream] = {}
        self._failure = ""
        self._lock = threading.Lock()
        self._running: dict[Lane | None, threading.Lock] = {}

    def run(
        self,
        call: str,
        stream: Stream | None,
        algorithm: Callable[..., None],
        *what: Any,
        lane: Lane | None = None,
        nbytes: int = 0,
    ) -> None:
        """Run a collective of so many bytes behind those before it, or queue it on a stream.

        One that fails half-way leaves nobody knows which records behind: the channels end, so that no peer waits for
        this rank, and there are no more collectives.
        """
        with self._lock:
            self._check_sound(call)
            try:
                work = self._work = self._work or Workspace(self._group, self._nbytes)
            except BaseException as error:
                self._fail(call, error)
                raise
            running = self._running.setdefault(lane, threading.Lock())
        with running:
            with self._lock:
                self._check_sound(call)
                before = [last for each, last in self._lasts.items() if lane is None or each in (None, lane)]
            try:
                last = None
                if stream is not None:
                    last = self._queue(work, stream, lane, before, algorithm, what)
                elif nbytes < _LONG:
                    for event in before:
                        event.sync()
                    algorithm(work, *what, None)
                else:
                    own = self._own_stream(lane)
                    self._queue(work, own, lane, before, algorithm, what)
                    own.sync()
            except BaseException as error:
                with self._lock:
                    self._fail(call, error)
                raise
            with self._lock:
                if lane is None:
                    self._lasts.clear()
                self._lasts.pop(lane, None)
                if last is not None:
                    self._lasts[lane] = last

    def _queue(
        self,
        work: Workspace,
        stream: Stream,
        lane: Lane | None,
        before: list[Event],
        algorithm: Callable[..., None],
        what: tuple[Any, ...],
    ) -> Event:
        """Queue a collective on a stream that stops at a failure: none is told that bytes are there that are not."""
        stops = stream
        if stream.on_error != "stop":
            stops = self._own_stream(lane)
            stops.wait(stream)
        for event in before:
            stops.wait(event)
        algorithm(work, *what, stops)
        last = stops.record()
        if stops is not stream:
            stream.wait(last)
        return last

    def _own_stream(self, lane: Lane | None) -> Stream:
        if lane not in self._own:
            self._own[lane] = self._group.device.create_stream()
        return self._own[lane]

    def _check_sound(self, call: str) -> None:
        if self._failure:
            raise Closed(
                f"{call}: the collectives of this group ended with a failure ({self._failure}); make a new group",
                call=call,
                device=self._group.device.name,
            )

    def _fail(self, call: str, error: BaseException) -> None:
        self._failure = self._failure or f"{call}: {type(error).__name__}: {error}"
        for own in self._own.values():
            own.abort(close=True)
        self._own.clear()
        self._end()

    def end(self) -> None:
        """Let go of everything; what is queued goes on."""
        with self._lock:
            self._failure = self._failure or "the group was closed"
            self._end()

    def _end(self) -> None:
        work, self._work = self._work, None
        self._lasts.clear()
        for own in self._own.values():
            own.close(wait=False)
        self._own.clear()
        if work is not None:
            work.close()
