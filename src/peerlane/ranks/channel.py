"""Channels: one-sided writes into another rank's memory, with notifies."""

from __future__ import annotations

import contextlib
import operator
import threading
import weakref
from collections.abc import Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from peerlane.backend.facts import Route
from peerlane.errors import BadAddress, Busy, Closed, Error, Fault, InvalidValue
from peerlane.memory import buffer as buffers
from peerlane.memory import copy
from peerlane.memory.buffer import Buffer
from peerlane.ranks.arguments import as_number
from peerlane.ranks.late_delivery import Delivery
from peerlane.ranks.lending import WINDOW
from peerlane.streams.notify import Notify, NotifyKind
from peerlane.streams.stream import Stream, checked_stream
from peerlane.support.timeouts import checked_timeout

if TYPE_CHECKING:
    import numpy.typing as npt

    from peerlane.backend.ranks import Bank, Ranks
    from peerlane.ranks.channel_setup import Answer, End
    from peerlane.ranks.session import Session


class Channel:
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

    group: Session
    peer: int
    memories: Mapping[str, Buffer]
    window: Buffer
    _ranks: Ranks  # what the back-end does for it
    _end: End
    _incoming: list[Notify]
    _outgoing: list[Notify]
    _opened: list[Bank]
    _is_closed: bool
    _lock: threading.Lock
    _waiters: list[Stream]  # on which the program waits: one a thread at a time
    _loose: list[Stream]  # of nonblocking operations
    _turn: int
    _deliveries: weakref.WeakKeyDictionary[Stream, Delivery] | None

    def __init__(self, *_: object) -> None:
        raise TypeError("a Channel is made by Group.channel")

    @classmethod
    def _make(cls, end: End, answer: Answer) -> Channel:
        ranks = end.session.device.backend.ranks
        served = ranks.channel_type(cls)
        made: Channel = served.__new__(served)
        made.group, made.peer = end.session, end.peer
        made._incoming, made._outgoing, made._opened = end.lines, answer.notifies, answer.opened
        made.memories = MappingProxyType(dict(answer.memories))
        made.window = answer.memories[WINDOW]
        made._end, made._ranks, made._is_closed = end, ranks, False
        made._deliveries = weakref.WeakKeyDictionary() if end.is_late else None
        made._lock = threading.Lock()
        made._waiters, made._loose, made._turn = [], [], 0
        if end.is_late:  # what it records and writes may be put off
            ranks.serve(made, None, made._incoming, [])
        else:
            ranks.serve(made, made.window, made._incoming, made._outgoing)
        return made

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

    def write(
        self,
        src: Any,
        *,
        at: int = 0,
        memory: str | Buffer | None = None,
        notify: int | None = None,
        stream: Stream | None = None,
        nonblocking: bool = False,
    ) -> None:
        """Write all of ``src`` into the peer's memory.

        Parameters
        ----------
        src : Buffer or host object
            What :func:`as_buffer` takes; kept until it was read.
        at : int
            The first byte there.
        memory : str or Buffer, optional
            The tag of the memory, by default the window; or memory of the peer that this process has opened.
        notify : int, optional
            A notify of the peer's that is recorded once these bytes are there.
        stream : Stream, optional
            Where it is queued.
        nonblocking : bool
            Queue it on the channel itself instead, in no order with anything but a :meth:`fence`; the source must
            not be changed before.

        Raises
        ------
        BadAddress
            ``OUT_OF_BOUNDS``: the bytes do not lie in that memory.
        InvalidValue
            Nothing has this tag, or there is no such notify.
        Closed, AccessDenied
            The channel, an end or the stream is closed; the peer freed the memory or took it back, and on a stream
            this may come at the synchronization; the memory may be read only.  Nothing was written or queued.
        PeerLost
            At the synchronization, where the route to the memory is gone.
        """
        call = "Channel.write"
        target = self.window if memory is None else self._memory("write", memory)
        if nonblocking:
            stream = self._loose_stream(call, stream)
        self._check_open(call)
        checked_stream(call, stream)
        source = buffers.as_buffer(src)
        first = self._checked_at(call, target, at, source.size)
        self._check_outgoing(call, notify)
        if stream is None or self._deliveries is None:
            self._ranks.put(stream, target, first, source)
        else:
            self._delivery(stream).write(stream, target, first, source)
        if notify is not None:
            self.notify(notify, stream=stream)

    def read(
        self,
        dst: Any,
        *,
        at: int = 0,
        memory: str | Buffer | None = None,
        stream: Stream | None = None,
        nonblocking: bool = False,
    ) -> None:
        """Read bytes of the peer's memory into all of ``dst``.

        Parameters and errors are those of :meth:`write`; ``dst`` must be writable.
        """
        call = "Channel.read"
        source = self.window if memory is None else self._memory("read", memory)
        if nonblocking:
            stream = self._loose_stream(call, stream)
        self._check_open(call)
        checked_stream(call, stream)
        target = buffers.as_buffer(dst)
        self._settle(stream)
        self._ranks.get(stream, target, source, self._checked_at(call, source, at, target.size))

    def write_reduce(
        self,
        src: Any,
        *,
        dtype: npt.DTypeLike,
        op: str = "sum",
        at: int = 0,
        memory: str | Buffer | None = None,
        notify: int | None = None,
        stream: Stream | None = None,
    ) -> None:
        """Combine all of ``src`` into the peer's memory, element by element: what is there OP what is in ``src``.

        Nothing is promised of several ranks that combine into the same elements at a time (facts/hcomm 3.15).

        Parameters
        ----------
        src, at, memory, notify, stream
            As :meth:`write`.
        dtype, op
            As :func:`peerlane.reduce`.

        Raises
        ------
        Error
            As :meth:`write` and :func:`peerlane.reduce`.
        """
        call = "Channel.write_reduce"
        target, source = self._ends_of(call, memory, src, at, stream)
        self._check_outgoing(call, notify)
        if stream is None or self._deliveries is None:
            copy.reduce(target, source, dtype=dtype, op=op, stream=stream)
        else:
            self._delivery(stream).reduce(stream, target, source, dtype, op)
        if notify is not None:
            self.notify(notify, stream=stream)

    def read_reduce(
        self,
        dst: Any,
        *,
        dtype: npt.DTypeLike,
        op: str = "sum",
        at: int = 0,
        memory: str | Buffer | None = None,
        stream: Stream | None = None,
    ) -> None:
        """Combine bytes of the peer's memory into all of ``dst``: what is in ``dst`` OP what is there.

        Parameters and errors are those of :meth:`read` and :func:`peerlane.reduce`.
        """
        source, target = self._ends_of("Channel.read_reduce", memory, dst, at, stream)
        self._settle(stream)
        copy.reduce(target, source, dtype=dtype, op=op, stream=stream)

    def write_blocks(
        self,
        src: Any,
        blocks: npt.ArrayLike,
        *,
        memory: str | Buffer | None = None,
        notify: int | None = None,
        stream: Stream | None = None,
    ) -> None:
        """Write many parts of ``src`` to many places of the peer's memory, as one operation.

        Parameters
        ----------
        src : Buffer or host object
            What :func:`as_buffer` takes.
        blocks : array of int, shape (n, 3)
            Of each block its first byte in the peer's memory, its first byte in ``src``, and its size in bytes.  They
            are written in any order, and must not overlap there.
        memory, notify, stream
            As :meth:`write`.

        Raises
        ------
        BadAddress
            ``OUT_OF_BOUNDS``: a block is not inside; the text names it.  Nothing was written or queued.
        InvalidValue, Closed, AccessDenied
            As :meth:`write`; blocks of another shape.
        """
        call = "Channel.write_blocks"
        target, source = self._ends_of(call, memory, src, None, stream)
        self._check_outgoing(call, notify)
        table = _table(call, blocks)
        if stream is None or self._deliveries is None:
            self._ranks.copy_blocks(stream, target, source, table)
        else:
            self._delivery(stream).write_blocks(stream, target, source, table)
        if notify is not None:
            self.notify(notify, stream=stream)

    def read_blocks(
        self,
        dst: Any,
        blocks: npt.ArrayLike,
        *,
        memory: str | Buffer | None = None,
        stream: Stream | None = None,
    ) -> None:
        """Read many parts of the peer's memory into many places of ``dst``, as one operation.

        ``blocks``: of each its first byte in ``dst``, its first byte in the peer's memory, and its size in bytes.
        Otherwise as :meth:`write_blocks`.
        """
        call = "Channel.read_blocks"
        source, target = self._ends_of(call, memory, dst, None, stream)
        self._settle(stream)
        self._ranks.copy_blocks(stream, target, source, _table(call, blocks))

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
            self._ranks.record(line)
        elif self._deliveries is None or line.kind is not NotifyKind.BINARY:  # those may refuse
            self._settle(stream)
            self._ranks.record_on(stream, line)
        else:
            self._delivery(stream).notify(stream, line, operator.index(index))

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
            self._ranks.serve_nothing(self)
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
            ends.callback(self._end.close)
            opened, self._opened = self._opened, []  # the peer is told when the last use of it goes
            for each in opened:
                ends.callback(each.let_go)
            for line in outgoing:
                if self._end.is_own_process:
                    ends.callback(self._ranks.abandon, line)
                else:
                    ends.callback(line.close)
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

    def _is_busy(self) -> bool:
        """Tell whether ``nonblocking`` operations are not over."""
        with self._lock:
            return any(not each.is_done for each in self._loose if not each.is_closed)

    def _ends_of(
        self, call: str, memory: str | Buffer | None, mine: Any, at: int | None, stream: object
    ) -> tuple[Buffer, Buffer]:
        """Return the peer's memory, from ``at`` on as long as this rank's if it is given, and this rank's."""
        self._check_open(call)
        checked_stream(call, stream)
        theirs = self.window if memory is None else self._memory(call.rpartition(".")[2], memory)
        own = buffers.as_buffer(mine)
        if at is None:
            return theirs, own
        first = self._checked_at(call, theirs, at, own.size)
        return theirs[first : first + own.size], own

    def _loose_stream(self, call: str, stream: Stream | None) -> Stream:
        if stream is not None:
            raise InvalidValue(
                f"{call}: nonblocking operations are in no stream; leave one of the two out", call=call
            )
        self._check_open(call)
        with self._lock:
            if not self._loose:
                self._loose = [self.group.device.create_stream() for _ in range(2)]
            self._turn ^= 1
            return self._loose[self._turn]

    def _memory(self, verb: str, tag: object) -> Buffer:
        found = tag if isinstance(tag, Buffer) else self.memories.get(tag) if isinstance(tag, str) else None
        if found is None:
            raise InvalidValue(
                f"Channel.{verb}: rank {self.peer} offered no memory with the tag {tag!r}; it offered "
                f"{', '.join(map(repr, self.memories))}; what is registered later is for later channels",
                call=f"Channel.{verb}",
            )
        return found

    def _checked_at(self, call: str, memory: Buffer, at: object, nbytes: int) -> int:
        first = as_number(call, "at must be a byte", at)
        if not 0 <= first <= memory.size - nbytes:
            raise BadAddress(
                f"{call}: {nbytes:,} bytes at byte {first:,} do not lie in the {memory.size:,} bytes that rank "
                f"{self.peer} offers",
                fault=Fault.OUT_OF_BOUNDS,
                call=call,
                device=self.group.device.name,
            )
        return first

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
                found = self._deliveries[stream] = Delivery(self.group.device, self._end.held)
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


def _table(call: str, blocks: npt.ArrayLike) -> npt.NDArray[np.uint64]:
    """Return a list of blocks as native code reads it."""
    try:
        found = np.asarray(blocks)
    except (ValueError, OverflowError):
        found = np.asarray(blocks, object)  # entries of several lengths
    if found.shape == (0,):
        found = found.reshape(0, 3)
    if found.ndim != 2 or found.shape[1] != 3 or (found.size and found.dtype.kind not in "iu"):
        raise InvalidValue(
            f"{call}: blocks have shape {found.shape} and type {found.dtype}; valid is (n, 3), of integers: first "
            "byte of the destination, first byte of the source, bytes",
            call=call,
        )
    if found.dtype.kind == "i" and found.size and int(found.min()) < 0:
        entry = int(np.argmin(found.min(axis=1)))
        raise InvalidValue(
            f"{call}: block {entry} is {found[entry].tolist()}; no number may be negative", call=call
        )
    return np.ascontiguousarray(found, np.uint64)


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
