"""Channels: one-sided writes into another rank's memory, with notifies."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Mapping, Sequence
from types import MappingProxyType, TracebackType

from peerlane import _core
from peerlane.backend.facts import Route
from peerlane.errors import Busy, Error, Fault
from peerlane.memory.buffer import Buffer
from peerlane.ranks.channel_setup import WINDOW, Ends
from peerlane.ranks.transfers import Transfers
from peerlane.streams.notify import Notify, NotifyKind
from peerlane.streams.stream import Stream, checked_stream
from peerlane.support.timeouts import checked_timeout


class Channel(Transfers):
    """This rank's end of a pair: the peer's memory, and notifies in both directions.

    Made by :meth:`Group.channel`.  Whatever takes ``stream=`` is queued there and returns, waits included; without a
    stream it is complete on return.  What is promised (facts/hcomm 3):

    * Operations of one stream run in the order in which they were submitted.
    * Bytes that were written before a notify, on the same channel and stream, are seen by whoever waited for that
      notify.  That is the only way to know from the other side, and all that is promised about the other side.
    * The source of a write may be changed by later operations of the same stream; what was read is there for them.
    * Nothing is promised between two channels, between two streams, or of ``nonblocking`` operations before a
      :meth:`fence`.  Under ``schedule=seeded`` such operations are delayed and reordered.
    * A notify is one bit by default: two records before a wait are one (:class:`Group`, ``notifies``).

    Attributes
    ----------
    group : Group
    peer : int
        The rank at the other end.
    memories : mapping of str to Buffer
        The peer's memory that can be reached, by tag.
    window : Buffer
        ``memories["window"]``.
    notifies, peer_notifies : int
        How many this end can wait for, and the other end.
    """

    def __init__(self, *_: object) -> None:
        raise TypeError("a Channel is made by Group.channel")

    @classmethod
    def _make(
        cls, ends: Ends, memories: Mapping[str, Buffer], outgoing: list[Notify], opened: list[_core.Signal]
    ) -> Channel:
        made = cls.__new__(cls)
        made.group, made.peer = ends.group, ends.peer
        made._incoming, made._outgoing = ends.lines, outgoing
        made.memories = MappingProxyType(dict(memories))
        made.window = memories[WINDOW]
        made._ends, made._opened = ends, opened
        made._is_closed = False
        made._deliveries = weakref.WeakKeyDictionary() if ends.is_late else None
        made._lock = threading.Lock()
        made._waiters, made._loose, made._turn = [], [], 0
        _core.ChannelEnd.__init__(made)
        served = (None, made._incoming, []) if ends.is_late else (made.window, made._incoming, made._outgoing)
        made._serve(*served)
        return made

    _opened: list[_core.Signal]

    @property
    def notifies(self) -> int:
        """How many notifies this end can wait for."""
        return len(self._incoming)

    @property
    def peer_notifies(self) -> int:
        """How many notifies the other end can wait for."""
        return len(self._outgoing)

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called, or the group was closed."""
        return self._is_closed or self.group.is_closed

    @property
    def route(self) -> Route:
        """How bytes go from this rank's window to the peer's, and why."""
        self._check_open("Channel.route")
        return self.group.window.route_to(self.window)

    def fence(self, *, stream: Stream | None = None) -> None:
        """Let what is submitted to this channel from now on come after all that was submitted before.

        Only ``nonblocking`` operations need it; their sources may be changed, and what they read is there, after it.

        Parameters
        ----------
        stream : Stream, optional
            What is submitted there from now on waits for them; without one the program does.

        Raises
        ------
        Error
            Without a stream: the first failure of a ``nonblocking`` operation.
        """
        self._check_open("Channel.fence")
        checked_stream("Channel.fence", stream)
        with self._lock:
            loose = list(self._loose)
            delivered = list(self._deliveries.values()) if self._deliveries else []
        if stream is None:
            _sync_all([*loose, *(delivery.stream for delivery in delivered)], None)
            return
        self._settle(stream)
        events = [each.record() for each in loose]
        for event in events:
            stream.wait(event)
            for each in loose:
                each.wait(event)

    def drain(self, *, stream: Stream | None = None, timeout: float | None = None) -> None:
        """Wait until all that this rank has submitted to the channel is over; report the first failure.

        Parameters
        ----------
        stream : Stream, optional
            Where it was queued; ``nonblocking`` operations are waited for in any case.
        timeout : float, optional
            Seconds, for each.

        Raises
        ------
        WaitTimeout, Error
        """
        self._check_open("Channel.drain")
        checked_timeout("Channel.drain", timeout)
        with self._lock:
            awaited = list(self._loose)
        if stream is not None:
            self._settle(checked_stream("Channel.drain", stream))
            awaited.append(stream)
        _sync_all(awaited, timeout)

    def _is_busy(self) -> bool:
        """Tell whether ``nonblocking`` operations are not over."""
        with self._lock:
            return any(not each.is_done for each in self._loose if not each.is_closed)

    def close(self) -> None:
        """End this end; idempotent.  What is queued goes on; the peer's waits for it fail with ``PeerLost`` then.

        Raises
        ------
        Busy
            ``NOTIFY_LEFT``: strict notifies were recorded here and not consumed; it is closed all the same.
        """
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._serve_nothing()
            streams = [*self._waiters, *self._loose]
            if self._deliveries is not None:
                streams += [each.stream for each in self._deliveries.values()]
                self._deliveries.clear()
            incoming, self._incoming = self._incoming, []
            outgoing, self._outgoing = self._outgoing, []
        left = [
            index
            for index, line in enumerate(incoming)
            if line.kind is NotifyKind.STRICT and line.recorded > line.consumed
        ]
        with contextlib.ExitStack() as ends:
            ends.callback(self.group._forget, self)
            ends.callback(self._ends.close)
            opened, self._opened = self._opened, []  # the peer is told when the last use of it goes
            for each in opened:
                ends.callback(each.let_go)
            for line in outgoing:
                ends.callback(line._abandon if self._ends.is_own_process else line.close)
            for stream in streams:
                ends.callback(stream.close)
        if left:
            raise Busy(
                f"Channel.close: notif{'ies' if len(left) > 1 else 'y'} {', '.join(map(str, left))} from rank "
                f"{self.peer} {'were' if len(left) > 1 else 'was'} recorded and nobody waited for it: a wait is "
                "missing, or a record too many",
                fault=Fault.NOTIFY_LEFT,
                call="Channel.close",
                device=self.group.device.name,
            )

    def __enter__(self) -> Channel:
        self._check_open("Channel")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        with contextlib.suppress(Error):  # what else went wrong is no news then
            self.close()

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"{self.notifies} notifies in, {self.peer_notifies} out"
        return f"<Channel of rank {self.group.rank} to rank {self.peer}: {state}>"


def _sync_all(streams: Sequence[Stream], timeout: float | None) -> None:
    """Wait for all of them; then raise what the first raised."""
    failed: list[Error] = []
    for stream in streams:
        try:
            stream.sync(timeout)
        except Error as error:
            failed.append(error)
    if failed:
        raise failed[0]
