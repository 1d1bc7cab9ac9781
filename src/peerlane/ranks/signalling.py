"""The notifies of a channel."""

from __future__ import annotations

import functools
import operator
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, cast

from peerlane import _core
from peerlane.errors import Closed, Error, InvalidValue
from peerlane.ranks.late_delivery import Delivery
from peerlane.streams.notify import Notify, NotifyKind
from peerlane.streams.stream import Stream, checked_stream

if TYPE_CHECKING:
    from peerlane.ranks.channel_setup import Ends
    from peerlane.ranks.group import Group

_Method = TypeVar("_Method", bound=Callable[..., None])


def quickly(way: str) -> Callable[[_Method], _Method]:
    """Let native code serve what is right in every way; the method is for all else, errors included."""

    def made(method: _Method) -> _Method:
        served: Any = _core.QuickMethod(way, method)
        return cast("_Method", functools.update_wrapper(served, method))

    return made


class Signalling(_core.ChannelEnd):
    """The part of a :class:`peerlane.Channel` that records notifies and waits for them."""

    group: Group
    peer: int
    _incoming: list[Notify]
    _outgoing: list[Notify]
    _is_closed: bool
    _deliveries: weakref.WeakKeyDictionary[Stream, Delivery] | None
    _ends: Ends
    _waiters: list[Stream]  # on which the program waits: one a thread at a time
    _lock: threading.Lock

    @quickly("notify")
    def notify(self, index: int, *, stream: Stream | None = None) -> None:
        """Record a notify of the peer's, when everything that the stream was given before is done.

        Parameters
        ----------
        index : int
            0 to ``peer_notifies`` - 1.
        stream : Stream, optional
            Where it is queued; without one it is recorded now.

        Raises
        ------
        InvalidValue
            There is no such notify.
        Busy
            ``NOTIFY_DOUBLED``: it is strict, and the peer has not consumed the record before; on a stream at the
            synchronization.
        Closed
            The channel or the stream is closed.
        """
        call = "Channel.notify"
        line = self._line(call, index, self._outgoing)
        checked_stream(call, stream)
        if stream is None:
            line._record()
        elif self._deliveries is None or line.kind is not NotifyKind.BINARY:  # those may refuse
            self._settle(stream)
            stream._record_notify(line)
        else:
            self._delivery(stream).notify(stream, line, operator.index(index))

    @quickly("wait")
    def wait(self, index: int, *, stream: Stream | None = None, timeout: float | None = None) -> None:
        """Wait for a notify that the peer records, and consume it.

        Parameters
        ----------
        index : int
            0 to ``notifies`` - 1.
        stream : Stream, optional
            What is submitted there from now on waits, and the program does not; without one the program waits.
        timeout : float, optional
            Seconds, from when the stream comes to it; None waits for ever.

        Raises
        ------
        InvalidValue
            There is no such notify.
        WaitTimeout
            It was not recorded in time; on a stream at the synchronization, and what is behind it is cancelled.
        PeerLost
            The peer has died, or closed its end, and has not recorded it; on a stream at the synchronization.
        Busy
            ``DEADLOCK``: all ranks that it depends on wait too, and nothing there can run; or this process itself
            would have to record it, and nothing submitted does.
        Closed
            The channel or the stream is closed.
        """
        call = "Channel.wait"
        line = self._line(call, index, self._incoming)
        checked_stream(call, stream)
        if stream is not None:
            stream.wait(line, timeout=timeout)
            return
        waiter = self._borrowed_waiter()
        try:
            waiter.wait(line, timeout=timeout)
            waiter.sync()
        except BaseException as error:
            waiter.abort(close=True)  # interrupted: it waits still, and would take a record
            if isinstance(error, Error) and error.failed_operation is not None:
                raise self._of_wait(call, operator.index(index), error) from error.__cause__
            raise
        with self._lock:
            self._waiters.append(waiter)

    def _of_wait(self, call: str, index: int, error: Error) -> Error:
        """Tell a failure as the program's call: it knows no stream on which it waits."""
        failed = error.failed_operation
        line = f"notify {index} from rank {self.peer} to rank {self.group.rank}"
        site = f"; called at {failed.site}" if failed.site is not None else ""
        made = error.retold(f"{call}: {failed.why} [{line}{site}]")
        made.call = call
        return made

    def _borrowed_waiter(self) -> Stream:
        """Return a stream for the thread that waits."""
        with self._lock:
            if self._waiters:
                return self._waiters.pop()
        return self.group.device.create_stream()

    def _check_outgoing(self, call: str, index: int | None) -> None:
        if index is not None:
            self._line(call, index, self._outgoing)

    def _line(self, call: str, index: object, lines: list[Notify]) -> Notify:
        """Return one of the notifies of an end."""
        if type(index) is int and 0 <= index < len(lines):
            return lines[index]
        self._check_open(call)
        if isinstance(index, bool) or not isinstance(index, SupportsIndex):
            raise TypeError(f"{call}: a notify is an int, not {type(index).__name__}")
        number = operator.index(index)
        if 0 <= number < len(lines):
            return lines[number]
        whose = "this end" if lines is self._incoming else f"the end of rank {self.peer}"
        known = f"valid are 0 to {len(lines) - 1}" if lines else "it has none"
        raise InvalidValue(f"{call}: {number} is no notify of {whose}; {known}", call=call)

    def _delivery(self, stream: Stream) -> Delivery:
        with self._lock:
            assert self._deliveries is not None
            found = self._deliveries.get(stream)
            if found is None:
                found = self._deliveries[stream] = Delivery(self.group.device, self._ends.held)
            return found

    def _settle(self, stream: Stream | None) -> None:
        """Let a stream wait for what it gave to the channel, where that may be late."""
        found = self._deliveries.get(stream) if self._deliveries and stream is not None else None
        if found is not None and stream is not None:
            found.settle(stream)

    def _check_open(self, call: str) -> None:
        self.group._check_open(call)
        if self._is_closed:
            raise Closed(f"{call}: {self!r} was closed", call=call, device=self.group.device.name)
