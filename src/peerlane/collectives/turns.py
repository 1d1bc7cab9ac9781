"""Whose turn it is: collectives of a group run one after the other, on whatever streams they are."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from peerlane.collectives.workspace import Workspace
from peerlane.errors import Closed

if TYPE_CHECKING:
    from peerlane.event import Event
    from peerlane.group import Group
    from peerlane.stream import Stream


class Turns:
    """The workspace of a group, made by the first collective, and what the last one on a stream left behind.

    Parameters
    ----------
    group : Group
    nbytes : int
        Of the workspace.
    """

    def __init__(self, group: Group, nbytes: int) -> None:
        self._group, self._nbytes = group, nbytes
        self._work: Workspace | None = None
        self._last: Event | None = None
        self._own: Stream | None = None
        self._failure = ""
        self._lock = threading.Lock()

    def run(self, call: str, stream: Stream | None, algorithm: Callable[..., None], *what: Any) -> None:
        """Run a collective behind those before it, or queue it on a stream.

        One that fails half-way leaves nobody knows which records behind: the channels end, so that no peer waits for
        this rank, and there are no more collectives.
        """
        with self._lock:
            if self._failure:
                raise Closed(
                    f"{call}: the collectives of this group ended with a failure ({self._failure}); make a new group",
                    call=call,
                    device=self._group.device.name,
                )
            try:
                if self._work is None:
                    self._work = Workspace(self._group, self._nbytes)
                if stream is None:
                    if self._last is not None:
                        self._last.sync()
                    algorithm(self._work, *what, None)
                    self._last = None
                else:
                    self._last = self._queued(self._work, stream, algorithm, what)
            except BaseException as error:
                self._failure = f"{call}: {type(error).__name__}: {error}"
                self._end()
                raise

    def _queued(
        self, work: Workspace, stream: Stream, algorithm: Callable[..., None], what: tuple[Any, ...]
    ) -> Event:
        """Queue a collective on a stream that stops at a failure: none is told that bytes are there that are not."""
        stops = stream
        if stream.on_error != "stop":
            if self._own is None:
                self._own = self._group.device.create_stream()
            stops = self._own
            stops.wait(stream)
        if self._last is not None:
            stops.wait(self._last)
        algorithm(work, *what, stops)
        last = stops.record()
        if stops is not stream:
            stream.wait(last)
        return last

    def end(self) -> None:
        """Let go of everything; what is queued goes on."""
        with self._lock:
            self._failure = self._failure or "the group was closed"
            self._end()

    def _end(self) -> None:
        work, self._work, self._last = self._work, None, None
        own, self._own = self._own, None
        if own is not None:
            own.close(wait=False)
        if work is not None:
            work.close()
