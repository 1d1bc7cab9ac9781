"""Channels: one-sided writes into another rank's memory, with notifies."""

from __future__ import annotations

import contextlib
import operator
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, SupportsIndex

from peerlane.backend.facts import Route
from peerlane.diagnostics.log import event_log
from peerlane.errors import (
    BadAddress,
    BadArgument,
    Busy,
    Cancelled,
    ChannelWait,
    Error,
    Fault,
    InvalidValue,
    Refused,
    WaitTimeout,
    was_closed,
)
from peerlane.memory import buffer as buffers
from peerlane.memory.buffer import Buffer
from peerlane.memory.far_buffer import FarBuffer
from peerlane.ranks.arguments import as_number
from peerlane.ranks.lending import WINDOW
from peerlane.streams.notify import Notify, NotifyKind
from peerlane.streams.stream import Stream, checked_stream
from peerlane.support.own_process import OwnProcess
from peerlane.support.timeouts import checked_timeout, in_nanoseconds

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from peerlane.backend.ranks import Bank, Notifies, Ranks
    from peerlane.memory.buffer_like import BufferLike
    from peerlane.ranks.channel_setup import Answer, End
    from peerlane.ranks.late_delivery import LateDelivery
    from peerlane.ranks.session import Session
    from peerlane.ranks.transport import Transport


class Channel(OwnProcess):
    """This rank's end of a channel: the peer's memory, and notifies in both directions.

    Made by :meth:`Group.channel`.  A call with ``stream=``, also a wait, queues its operation and returns; without a
    stream it is complete on return.  These are its promises (facts/hcomm 3):

    * Operations of one stream run in the order in which they were submitted.
    * If a rank waits for a notify, it sees the bytes that were written before the notify on the same channel and
      stream.  The peer has no other way to know that bytes have arrived, and no other promise about them.
    * Later operations of the same stream may change the source of a write, and see the bytes of a read.
    * There is no promise between two channels, between two streams, or about ``nonblocking`` operations before a
      :meth:`fence`.  Under ``schedule=seeded`` such operations are delayed and reordered.
    * A notify is one bit by default: two records before a wait are one (:class:`Group`, ``notifies``).

    Attributes
    ----------
    group : Group
    peer : int
        The rank at the other end.
    memories : mapping of str to Buffer
        The memory that the peer offers, by tag.
    window : Buffer
        ``memories["window"]``.
    notifies, peer_notifies : int
        How many notifies this end can wait for, and how many the other end.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from threading import Barrier
    >>> parts, all_came = {}, Barrier(2)
    >>> def gather(rank, part):  # the ranks are threads here; `peerlane launch` starts processes
    ...     parts[rank] = part
    ...     all_came.wait()
    ...     return [parts[0], parts[1]]
    >>> def program(rank):
    ...     with pl.Group(rank, 2, rendezvous=lambda part: gather(rank, part), window=64) as group:
    ...         channel = group.channel(1 - rank)
    ...         if rank == 0:
    ...             channel.write(b"hello")
    ...             channel.notify(0)
    ...         else:
    ...             channel.wait(0, timeout=20)
    ...             print(group.window.view()[:5].tobytes())
    ...         group.barrier()
    >>> with ThreadPoolExecutor(2) as threads:
    ...     _ = list(threads.map(program, range(2)))
    b'hello'
    """

    _elsewhere = "each rank makes its own, by Group.channel"

    group: Session
    peer: int
    memories: Mapping[str, Buffer]
    window: Buffer
    _ranks: Ranks  # the back-end's verbs for ranks
    _transport: Transport
    _end: End
    _incoming: Notifies | tuple[()]  # empty: the channel is closed
    _outgoing: Notifies | tuple[()]
    _opened: list[Bank]
    _is_closed: bool
    _lock: threading.Lock
    _waiters: list[Stream]  # for waits of the program: one for each thread or task that has waited
    _waiting: set[Stream]  # those in which one waits now
    _loose: list[Stream]  # for nonblocking operations
    _next_loose: int
    _late: LateDelivery | None

    def __init__(self, *_: object) -> None:
        raise TypeError("a Channel is made by Group.channel")

    @classmethod
    def _make(cls, end: End, answer: Answer) -> Channel:
        ranks = end.session.device.backend.ranks
        served = ranks.channel_type(cls)
        channel: Channel = served.__new__(served)
        channel.group, channel.peer = end.session, end.peer
        channel._incoming, channel._outgoing, channel._opened = end.incoming, answer.notifies, answer.opened
        channel.memories = MappingProxyType(dict(answer.memories))
        channel.window = answer.memories[WINDOW]
        channel._end, channel._ranks, channel._transport, channel._is_closed = (
            end,
            ranks,
            end.transport,
            False,
        )
        channel._late = end.late
        channel._lock = threading.Lock()
        channel._waiters, channel._waiting, channel._loose, channel._next_loose = [], set(), [], 0
        incoming = None if end.arriving is not None else end.incoming  # a wait may have to bring bytes
        if end.late is not None or end.is_far:  # its records and writes may arrive late, or go by messages
            ranks.serve(channel, None, incoming, None)
            if end.late is None:
                end.serve_far(channel, channel.window, len(answer.notifies))
        else:
            ranks.serve(channel, channel.window, incoming, answer.notifies)
        if event_log.active:
            outgoing = None if end.is_far else answer.notifies
            ranks.log_channel(channel, end.incoming, outgoing, end.session.rank, end.peer, end.far_bank)
        return channel

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
        """The route from this rank's window to the peer's, with the reason."""
        self._check_open("Channel.route")
        return self._end.route() or self.group.window.route_to(self.window)

    def write(
        self,
        src: BufferLike,
        *,
        at: int = 0,
        memory: str | Buffer | None = None,
        notify: int | None = None,
        stream: Stream | None = None,
        nonblocking: bool = False,
    ) -> None:
        """Write all of ``src`` into the peer's memory; complete on return, or queued on a stream.

        Parameters
        ----------
        src : Buffer or host object
            Anything that :func:`as_buffer` takes; it is kept until it has been read.
        at : int
            The offset of the first byte in the peer's memory.
        memory : str or Buffer, optional
            The tag of the memory, by default the window; or memory of the peer that this process has opened.
        notify : int, optional
            A notify of the peer that is recorded once these bytes have arrived.
        stream : Stream, optional
            The stream to queue it on.
        nonblocking : bool
            Queue it on the channel itself instead, ordered only by a :meth:`fence`; do not change the source before
            that.

        Raises
        ------
        BadAddress
            ``OUT_OF_BOUNDS``: the bytes do not lie in that memory.
        InvalidValue
            No memory has this tag, or there is no such notify.
        Closed, AccessDenied
            The channel, a buffer or the stream is closed; the memory is read-only; or the peer freed the memory or
            took it back.  Nothing was written or queued.  On a stream, the last may also be raised by the
            synchronization.
        PeerLost
            By the synchronization: there is no route to the memory any more.
        """
        call = "Channel.write"
        target = self.window if memory is None else self._memory("write", memory)
        if nonblocking:
            stream = self._loose_stream(call, stream)
        self._check_open(call)
        checked_stream(call, stream)
        source = _own(call, src)
        first = self._checked_at(call, target, at, source.size)
        peer_notify = self._peer_notify(call, notify)
        if self._late is not None and self._late.takes(stream):
            with event_log.channel_access(stream, [target[first : first + source.size]], [source]):
                self._late.write(stream, target, first, source)
            if notify is not None:
                self.notify(notify, stream=stream)
        else:
            self._transport.put(stream, target, first, source, peer_notify)

    def read(
        self,
        dst: BufferLike,
        *,
        at: int = 0,
        memory: str | Buffer | None = None,
        stream: Stream | None = None,
        nonblocking: bool = False,
    ) -> None:
        """Read bytes of the peer's memory into all of ``dst``; complete on return, or queued on a stream.

        Parameters and errors are those of :meth:`write`; ``dst`` must be writable.
        """
        call = "Channel.read"
        source = self.window if memory is None else self._memory("read", memory)
        if nonblocking:
            stream = self._loose_stream(call, stream)
        self._check_open(call)
        checked_stream(call, stream)
        target = _own(call, dst)
        self._settle(stream)
        self._transport.get(stream, target, source, self._checked_at(call, source, at, target.size))

    def write_reduce(
        self,
        src: BufferLike,
        *,
        dtype: npt.DTypeLike,
        op: str = "sum",
        at: int = 0,
        memory: str | Buffer | None = None,
        notify: int | None = None,
        stream: Stream | None = None,
    ) -> None:
        """Combine all of ``src`` into the peer's memory, element by element: ``there[i] = there[i] OP src[i]``.

        If several ranks combine into the same elements at once, the result is unspecified (facts/hcomm 3.15).

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
        peer_notify = self._peer_notify(call, notify)
        if self._late is not None and self._late.takes(stream):
            with event_log.channel_access(stream, [target], [source]):
                self._late.reduce(stream, target, source, dtype, op)
            if notify is not None:
                self.notify(notify, stream=stream)
        else:
            self._transport.reduce(stream, target, source, dtype, op, peer_notify)

    def read_reduce(
        self,
        dst: BufferLike,
        *,
        dtype: npt.DTypeLike,
        op: str = "sum",
        at: int = 0,
        memory: str | Buffer | None = None,
        stream: Stream | None = None,
    ) -> None:
        """Combine bytes of the peer's memory into all of ``dst``: ``dst[i] = dst[i] OP there[i]``.

        Parameters and errors are those of :meth:`read` and :func:`peerlane.reduce`.
        """
        source, target = self._ends_of("Channel.read_reduce", memory, dst, at, stream)
        self._settle(stream)
        self._transport.fetch_reduce(stream, target, source, dtype, op)

    def write_blocks(
        self,
        src: BufferLike,
        blocks: npt.ArrayLike,
        *,
        memory: str | Buffer | None = None,
        notify: int | None = None,
        stream: Stream | None = None,
    ) -> None:
        """Write many parts of ``src`` into the peer's memory, as one operation.

        Parameters
        ----------
        src : Buffer or host object
            Anything that :func:`as_buffer` takes.
        blocks : array of int, shape (n, 3)
            For each block its offset in the peer's memory, its offset in ``src``, and its size in bytes.  Blocks are
            written in any order, and must not overlap in the peer's memory.
        memory, notify, stream
            As :meth:`write`.

        Raises
        ------
        BadAddress
            ``OUT_OF_BOUNDS``: a block does not lie in the memory; the text names it.  Nothing was written or queued.
        InvalidValue, Closed, AccessDenied
            As :meth:`write`; or ``blocks`` has another shape.
        """
        call = "Channel.write_blocks"
        target, source = self._ends_of(call, memory, src, None, stream)
        peer_notify = self._peer_notify(call, notify)
        table = _table(call, blocks)
        if self._late is not None and self._late.takes(stream):
            theirs, own = [], []
            if event_log.active:
                for to_byte, from_byte, size in table.tolist():
                    theirs.append(target[to_byte : to_byte + size])
                    own.append(source[from_byte : from_byte + size])
            with event_log.channel_access(stream, theirs, own):
                self._late.write_blocks(stream, target, source, table)
            if notify is not None:
                self.notify(notify, stream=stream)
        else:
            self._transport.put_blocks(stream, target, source, table, peer_notify)

    def read_blocks(
        self,
        dst: BufferLike,
        blocks: npt.ArrayLike,
        *,
        memory: str | Buffer | None = None,
        stream: Stream | None = None,
    ) -> None:
        """Read many parts of the peer's memory into ``dst``, as one operation.

        ``blocks`` has for each block its offset in ``dst``, its offset in the peer's memory, and its size in bytes.
        Otherwise as :meth:`write_blocks`.
        """
        call = "Channel.read_blocks"
        source, target = self._ends_of(call, memory, dst, None, stream)
        self._settle(stream)
        self._transport.get_blocks(stream, target, source, _table(call, blocks))

    def notify(self, index: int, *, stream: Stream | None = None) -> None:
        """Record a notify of the peer when all operations submitted to the stream before are done.

        Parameters
        ----------
        index : int
            0 to ``peer_notifies`` - 1.
        stream : Stream, optional
            The stream to queue it on; without one it is recorded now.

        Raises
        ------
        InvalidValue
            There is no such notify.
        Busy
            ``NOTIFY_DOUBLED``: the notify is strict, and the peer has not consumed the last record; on a stream, the
            synchronization raises it.
        Closed
            The channel or the stream is closed.
        """
        call = "Channel.notify"
        notify = self._notify_at(call, index, self._outgoing)
        checked_stream(call, stream)
        if self._late is not None and self._late.takes(stream):
            self._late.notify(stream, notify, operator.index(index))
        else:
            self._transport.record(stream, notify)

    def wait(self, index: int, *, stream: Stream | None = None, timeout: float | None = None) -> None:
        """Wait for a notify that the peer records, and consume it.

        On a stream, the synchronization raises ``WaitTimeout``, ``PeerLost`` and ``Busy``, and the operations behind
        the wait are cancelled.

        Parameters
        ----------
        index : int
            0 to ``notifies`` - 1.
        stream : Stream, optional
            Later operations of this stream wait, and the program does not; without one the program waits.
        timeout : float, optional
            Seconds from the moment that the stream reaches the wait; None waits for ever.

        Raises
        ------
        InvalidValue
            There is no such notify.
        WaitTimeout
            It was not recorded in time.
        PeerLost
            The peer died, or closed its end, without recording it.
        Busy
            ``DEADLOCK``: all ranks that this one depends on wait too, and no operation of theirs can run; or only
            this process can record the notify, and no submitted operation does.
        Closed
            The channel or the stream is closed.
        """
        call = "Channel.wait"
        notify = self._notify_at(call, index, self._incoming)
        checked_stream(call, stream)
        if stream is not None:
            try:
                stream.wait(notify, timeout=timeout)
            except (InvalidValue, TypeError):
                checked_timeout(call, timeout)  # raises in the name of this call
                raise
            return
        with self._waiter(call, index, timeout) as waiter:
            waiter.wait(notify, timeout=timeout)
            waiter.sync()

    async def notified(self, index: int, *, timeout: float | None = None) -> None:
        """Wait for a notify and consume it, in a task of asyncio or trio: :meth:`wait` that lets other tasks run.

        A cancelled wait consumes nothing: the record is there for the next wait.  Of several tasks that wait for one
        notify, each consumes a record of its own.

        Parameters
        ----------
        index : int
            0 to ``notifies`` - 1.
        timeout : float, optional
            Seconds; None waits for ever.

        Raises
        ------
        InvalidValue, WaitTimeout, PeerLost, Closed
            As :meth:`wait`.  That all ranks wait for one another is not seen: an event loop may go on.
        """
        call = "Channel.notified"
        notify = self._notify_at(call, index, self._incoming)
        span = in_nanoseconds(call, timeout)
        until = time.monotonic_ns() + span
        with self._waiter(call, index, timeout) as waiter:
            while True:
                waiter._wait_notify(notify, span and max(until - time.monotonic_ns(), 1), consumes=False)
                await waiter
                waiter.wait(notify, timeout=1e-9)
                with contextlib.suppress(WaitTimeout):  # another wait of this rank has consumed the record
                    waiter.sync()
                    return

    def fence(self, *, stream: Stream | None = None) -> None:
        """Order the later operations of this channel behind all earlier ones.

        Only ``nonblocking`` operations need it.  After it their sources may be changed, and the bytes that they read
        have arrived.

        Parameters
        ----------
        stream : Stream, optional
            Later operations of this stream wait for them; without one the program waits.

        Raises
        ------
        Error
            Without a stream: the first failure of a ``nonblocking`` operation.
        """
        self._check_open("Channel.fence")
        checked_stream("Channel.fence", stream)
        with self._lock:
            loose = list(self._loose)
        late = self._late
        if stream is None:
            _sync_all([*loose, *(late.streams() if late is not None else ())], None)
        else:
            events = [each.record() for each in loose]
            for event in events:
                stream.wait(event)
                for each in loose:
                    each.wait(event)
        if late is not None:
            late.fence(stream)

    def drain(self, *, stream: Stream | None = None, timeout: float | None = None) -> None:
        """Wait until all operations that this rank submitted to the channel are over; report the first failure.

        Parameters
        ----------
        stream : Stream, optional
            The stream that they were queued on; ``nonblocking`` operations are waited for in any case.
        timeout : float, optional
            Seconds for each stream that is waited for.

        Raises
        ------
        WaitTimeout, Error
        """
        self._check_open("Channel.drain")
        checked_timeout("Channel.drain", timeout)
        with self._lock:
            awaited = list(self._loose)
        if stream is not None:
            checked_stream("Channel.drain", stream)
            if self._late is not None:
                self._late.fence(stream)
            awaited.append(stream)
        _sync_all(awaited, timeout)
        if self._late is not None and stream is None:
            self._late.fence(None)

    def close(self) -> None:
        """Close this end; idempotent.  Queued operations go on; the peer's other waits fail with ``PeerLost``.

        A :meth:`wait` of another thread, or :meth:`notified` of another task, ends with ``Closed``.

        Raises
        ------
        Busy
            ``NOTIFY_LEFT``: the peer recorded strict notifies that were not consumed; the end is closed anyway.
        """
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._ranks.serve_nothing(self)
            streams = [*self._waiters, *self._loose]
            for waiter in self._waiting:
                waiter.abort()
            late, self._late = self._late, None
            incoming, self._incoming = self._incoming, ()
            outgoing, self._outgoing = self._outgoing, ()
        left = incoming.unconsumed() if incoming and self._end.kind is NotifyKind.STRICT else []
        with contextlib.ExitStack() as ends:
            ends.callback(self.group._forget, self)
            ends.callback(self._end.close)
            opened, self._opened = self._opened, []  # the peer learns of it when the last use of them ends
            for each in opened:
                ends.callback(each.let_go)
            if outgoing:
                ends.callback(outgoing.abandon if self._end.is_own_process else outgoing.close)
            if late is not None:
                streams += late.close()
            if self._end.arriving is not None:
                ends.callback(self._end.arriving.deliver_all)
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
                detail=Refused(reason="notify_left", peer=self.peer, notifies=tuple(left)),
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
        with contextlib.suppress(Error):  # the exception of the block matters more
            self.close()

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"{self.notifies} notifies in, {self.peer_notifies} out"
        return f"<Channel of rank {self.group.rank} to rank {self.peer}: {state}>"

    def _ends_of(
        self, call: str, memory: str | Buffer | None, mine: Any, at: int | None, stream: object
    ) -> tuple[Buffer, Buffer]:
        """Return the peer's memory and this rank's; with ``at``, the peer's part of the same size from there on."""
        self._check_open(call)
        checked_stream(call, stream)
        theirs = self.window if memory is None else self._memory(call.rpartition(".")[2], memory)
        own = _own(call, mine)
        if at is None:
            return theirs, own
        first = self._checked_at(call, theirs, at, own.size)
        return theirs[first : first + own.size], own

    def _loose_stream(self, call: str, stream: Stream | None) -> Stream:
        if stream is not None:
            raise InvalidValue(
                f"{call}: nonblocking operations are in no stream; leave one of the two out",
                call=call,
                detail=Refused(reason="nonblocking_on_stream"),
            )
        self._check_open(call)
        with self._lock:
            if not self._loose:
                self._loose = [self.group.device.create_stream() for _ in range(2)]
            self._next_loose ^= 1
            return self._loose[self._next_loose]

    def _memory(self, verb: str, tag: object) -> Buffer:
        memory = tag if isinstance(tag, Buffer) else self.memories.get(tag) if isinstance(tag, str) else None
        if memory is None:
            raise InvalidValue(
                f"Channel.{verb}: rank {self.peer} offered no memory with the tag {tag!r}; it offered "
                f"{', '.join(map(repr, self.memories))}; memory that is registered later is for later channels",
                call=f"Channel.{verb}",
                detail=BadArgument("tag", tag, choices=tuple(self.memories)),
            )
        return memory

    def _checked_at(self, call: str, memory: Buffer, at: object, nbytes: int) -> int:
        first = as_number(call, "at must be a byte", at)
        if not 0 <= first <= memory.size - nbytes:
            raise BadAddress(
                f"{call}: {nbytes:,} bytes at byte {first:,} do not lie in the {memory.size:,} bytes that rank "
                f"{self.peer} offers",
                fault=Fault.OUT_OF_BOUNDS,
                call=call,
                device=self.group.device.name,
                detail=Refused(
                    reason="outside", rank=self.peer, first=first, nbytes=nbytes, size=memory.size
                ),
            )
        return first

    def _of_wait(self, call: str, index: int, error: Error) -> Error:
        """Return a failure in terms of the program's call, which has no stream."""
        failed = error.failed_operation
        notify = f"notify {index} from rank {self.peer} to rank {self.group.rank}"
        site = f"; called at {failed.site}" if failed.site is not None else ""
        renamed = error.retold(f"{call}: {failed.why} [{notify}{site}]")
        renamed.call = call
        if isinstance(renamed, WaitTimeout):
            renamed.detail = ChannelWait(index, self.peer, self.group.rank, renamed.detail.seconds)
        return renamed

    @contextlib.contextmanager
    def _waiter(self, call: str, index: SupportsIndex, timeout: float | None) -> Iterator[Stream]:
        """Lend a thread or a task a stream for its wait; errors of the stream are raised as those of the call."""
        with self._lock:
            waiter = self._waiters.pop() if self._waiters else None
        waiter = waiter or self.group.device.create_stream()
        try:
            with self._lock:
                self._check_open(call)
                self._waiting.add(waiter)
            yield waiter
        except BaseException as error:
            with self._lock:
                self._waiting.discard(waiter)
            waiter.abort(close=True)  # interrupted: the stream still waits, and would consume a record
            if isinstance(error, Cancelled) and self.is_closed:
                self._check_open(call)
            if isinstance(error, Error) and error.failed_operation is not None:
                raise self._of_wait(call, operator.index(index), error) from error.__cause__
            if isinstance(error, (InvalidValue, TypeError)):
                checked_timeout(call, timeout)  # raises in the name of this call
            raise
        with self._lock:
            self._waiting.discard(waiter)
            if not self._is_closed:
                self._waiters.append(waiter)
                return
        waiter.close()

    def _peer_notify(self, call: str, index: int | None) -> Notify | None:
        return None if index is None else self._notify_at(call, index, self._outgoing)

    def _notify_at(self, call: str, index: object, notifies: Notifies | tuple[()]) -> Notify:
        """Return one of the notifies of an end."""
        if type(index) is int and 0 <= index < len(notifies):
            notify: Notify = notifies[index]
            return notify
        self._check_open(call)
        if isinstance(index, bool) or not isinstance(index, SupportsIndex):
            raise TypeError(f"{call}: a notify is an int, not {type(index).__name__}")
        number = operator.index(index)
        if 0 <= number < len(notifies):
            return self._notify_at(call, number, notifies)
        whose = "this end" if notifies is self._incoming else f"the end of rank {self.peer}"
        known = f"valid are 0 to {len(notifies) - 1}" if notifies else "it has none"
        raise InvalidValue(
            f"{call}: {number} is not a notify of {whose}; {known}",
            call=call,
            detail=BadArgument("notify", number, least=0, most=len(notifies) - 1),
        )

    def _settle(self, stream: Stream | None) -> None:
        """Make a stream, or the caller, wait until its late writes to the channel have arrived."""
        if self._late is not None:
            self._late.settle(stream)

    def _check_open(self, call: str) -> None:
        self.group._check_open(call)
        if self._is_closed:
            raise was_closed(call, self, self.group.device.name)


def notifies_of(channel: Channel) -> tuple[Notifies, Notifies]:
    """Return the notifies of both directions, for a back-end that uses them directly."""
    incoming, outgoing = channel._incoming, channel._outgoing
    if incoming and outgoing:
        return incoming, outgoing
    raise was_closed("Group", channel, channel.group.device.name)


def is_busy(channel: Channel) -> bool:
    """Tell whether ``nonblocking`` operations of a channel are still running."""
    with channel._lock:
        return any(not each.is_done for each in channel._loose if not each.is_closed)


def _table(call: str, blocks: npt.ArrayLike) -> npt.NDArray[np.uint64]:
    """Return a list of blocks as the array that native code reads."""
    import numpy as np

    try:
        table = np.asarray(blocks)
    except (ValueError, OverflowError):
        table = np.asarray(blocks, object)  # its entries have different lengths
    if table.shape == (0,):
        table = table.reshape(0, 3)
    if table.ndim != 2 or table.shape[1] != 3 or (table.size and table.dtype.kind not in "iu"):
        raise InvalidValue(
            f"{call}: blocks have shape {table.shape} and type {table.dtype}; valid is (n, 3), of integers: first "
            "byte of the destination, first byte of the source, bytes",
            call=call,
            detail=BadArgument("blocks", tuple(table.shape), rule="shape (n, 3), of integers"),
        )
    if table.dtype.kind == "i" and table.size and int(table.min()) < 0:
        entry = int(np.argmin(table.min(axis=1)))
        raise InvalidValue(
            f"{call}: block {entry} is {table[entry].tolist()}; no number may be negative",
            call=call,
            detail=Refused(reason="negative", entry=int(entry), block=tuple(table[entry].tolist())),
        )
    return np.ascontiguousarray(table, np.uint64)


def _own(call: str, memory: Any) -> Buffer:
    """Return the memory of this rank that an operation uses."""
    own = buffers.as_buffer(memory)
    if isinstance(own, FarBuffer):
        own.refuse(call)
    return own


def _sync_all(streams: Sequence[Stream], timeout: float | None) -> None:
    """Wait for all streams; then raise the first exception."""
    failed: list[Error] = []
    for stream in streams:
        try:
            stream.sync(timeout)
        except Error as error:
            failed.append(error)
    if failed:
        raise failed[0]
