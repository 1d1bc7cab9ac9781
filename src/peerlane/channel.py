"""Channels: one-sided writes into another rank's memory, with notifies."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator, Mapping
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from peerlane import _core, failures
from peerlane import buffer as buffers
from peerlane.backend.interface import HandleKind
from peerlane.buffer import Buffer, Route
from peerlane.delivery import Delivery
from peerlane.errors import BadAddress, BadHandle, Busy, Closed, Fault, InvalidValue
from peerlane.handshake import Invitation, Shared
from peerlane.node import schedule
from peerlane.notify import Notify, NotifyKind
from peerlane.sharing import Handle, open_offer
from peerlane.stream import Stream, checked_stream

if TYPE_CHECKING:
    from peerlane.group import Group

WINDOW = "window"  #: the tag of a rank's window

_SPIN_NS = 50_000  # a futex takes 18 to 31 us to wake somebody
_put = _core.put


class Channel:
    """This rank's end of a pair: the peer's memory, and notifies in both directions.

    Made by :meth:`Group.channel`.  Whatever takes ``stream=`` is queued there and returns, waits included; without a
    stream it is complete on return.  What is promised (``spec`` hcomm 3):

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
        cls, ends: Ends, memories: Mapping[str, Buffer], outgoing: list[Notify], opened: _core.Signal | None
    ) -> Channel:
        made = cls.__new__(cls)
        made.group, made.peer = ends.group, ends.peer
        made._incoming, made._outgoing = ends.lines, outgoing
        made.memories = MappingProxyType(dict(memories))
        made.window = memories[WINDOW]
        made._ends, made._opened = ends, opened
        made._valid_in, made._valid_out = range(len(ends.lines)), range(len(outgoing))
        made._is_closed = False
        made._deliveries = weakref.WeakKeyDictionary() if schedule.present().startswith("seeded") else None
        made._is_slow = made._deliveries is not None
        made._lock = threading.Lock()
        made._waiters, made._loose, made._turn = [], [], 0
        return made

    group: Group
    peer: int
    memories: Mapping[str, Buffer]
    window: Buffer
    _incoming: list[Notify]
    _outgoing: list[Notify]
    _ends: Ends
    _opened: _core.Signal | None
    _valid_in: range
    _valid_out: range
    _is_closed: bool
    _is_slow: bool
    _deliveries: weakref.WeakKeyDictionary[Stream, Delivery] | None
    _lock: threading.Lock
    _waiters: list[Stream]  # on which the program waits: one a thread at a time
    _loose: list[Stream]  # of nonblocking operations
    _turn: int

    @property
    def notifies(self) -> int:
        """How many notifies this end can wait for."""
        return len(self._valid_in)

    @property
    def peer_notifies(self) -> int:
        """How many notifies the other end can wait for."""
        return len(self._valid_out)

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called, or the group was closed."""
        return self._is_closed or self.group.is_closed

    @property
    def route(self) -> Route:
        """How bytes go from this rank's window to the peer's, and why."""
        return self.group.window.route_to(self.window)

    def write(
        self,
        src: Any,
        *,
        at: int = 0,
        memory: str | None = None,
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
        memory : str, optional
            The tag of the memory, by default the window.
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
            The channel, an end or the stream is closed; the memory may be read only.  Nothing was written or queued.
        PeerLost
            At the synchronization, where the route to the memory is gone.
        """
        target = self.window if memory is None else self._memory("write", memory)
        if nonblocking:
            stream = self._loose_stream("Channel.write", stream)
        try:
            line = None if notify is None else self._outgoing[self._valid_out[notify]]
            is_written = not self._is_slow and _put(stream, target, at, src, line)
        except (TypeError, IndexError, BadAddress):
            is_written = False
        if not is_written:
            self._write_slowly(target, at, src, notify, stream)

    def read(
        self,
        dst: Any,
        *,
        at: int = 0,
        memory: str | None = None,
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
        _core.get(stream, target, source, self._checked_at(call, source, at, target.size))

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
        line = self._outgoing[index] if index in self._valid_out else self._no_line(call, index, self._valid_out)
        if stream is None:
            line._record()
        elif not self._is_slow or line.kind is NotifyKind.STRICT:
            self._settle(stream)
            stream._record_notify(line)
        else:
            self._delivery(stream).notify(stream, line)

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
            ``DEADLOCK``: this process itself would have to record it, and nothing submitted does.
        Closed
            The channel or the stream is closed.
        """
        line = self._incoming[index] if index in self._valid_in else self._no_line("Channel.wait", index, self._valid_in)
        if stream is not None:
            stream.wait(line, timeout=timeout)
        elif not line._consume(_SPIN_NS):
            self._wait_slowly(line, timeout)

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
            for each in [*loose, *(delivery.stream for delivery in delivered)]:
                each.sync()
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
        with self._lock:
            awaited = list(self._loose)
        if stream is not None:
            self._settle(checked_stream("Channel.drain", stream))
            awaited.append(stream)
        for each in awaited:
            each.sync(timeout)

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
            self._is_closed = self._is_slow = True
            streams = [*self._waiters, *self._loose]
            streams += [each.stream for each in self._deliveries.values()] if self._deliveries else []
            incoming, self._incoming = self._incoming, []
            outgoing, self._outgoing = self._outgoing, []
            self._valid_in = self._valid_out = range(0)
        left = [
            index
            for index, line in enumerate(incoming)
            if line.kind is NotifyKind.STRICT and line.recorded > line.consumed
        ]
        with contextlib.ExitStack() as ends:
            ends.callback(self._ends.close)
            if self._opened is not None:
                ends.callback(self._opened.let_go)
            if not self._ends.is_own_process:
                for line in outgoing:
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
        with contextlib.suppress(Busy):  # what is left over is no news then
            self.close()

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"{self.notifies} notifies in, {self.peer_notifies} out"
        return f"<Channel of rank {self.group.rank} to rank {self.peer}: {state}>"

    def _write_slowly(
        self, target: Buffer, at: int, src: Any, notify: int | None, stream: Stream | None
    ) -> None:
        call = "Channel.write"
        self._check_open(call)
        checked_stream(call, stream)
        source = buffers.as_buffer(src)
        first = self._checked_at(call, target, at, source.size)
        if notify is not None and notify not in self._valid_out:
            self._no_line(call, notify, self._valid_out)
        if stream is None or self._deliveries is None:
            _put(stream, target, first, source, None if notify is None else self._outgoing[notify])
            return
        self._delivery(stream).write(stream, target, first, source)
        if notify is not None:
            self.notify(notify, stream=stream)

    def _delivery(self, stream: Stream) -> Delivery:
        with self._lock:
            assert self._deliveries is not None
            found = self._deliveries.get(stream)
            if found is None:
                found = self._deliveries[stream] = Delivery(self.group.device)
            return found

    def _settle(self, stream: Stream | None) -> None:
        """Let a stream wait for what it gave to the channel, where that may be late."""
        found = self._deliveries.get(stream) if self._deliveries and stream is not None else None
        if found is not None and stream is not None:
            found.settle(stream)

    def _wait_slowly(self, line: Notify, timeout: float | None) -> None:
        with self._waiter() as stream:
            stream.wait(line, timeout=timeout)
            stream.sync()

    @contextlib.contextmanager
    def _waiter(self) -> Iterator[Stream]:
        """Lend a stream to the thread that waits."""
        with self._lock:
            stream = self._waiters.pop() if self._waiters else None
        if stream is None:
            stream = self.group.device.create_stream()
        try:
            yield stream
        except BaseException:
            stream.abort(close=True)  # interrupted: it waits still, and would take a record
            raise
        with self._lock:
            self._waiters.append(stream)

    def _loose_stream(self, call: str, stream: Stream | None) -> Stream:
        if stream is not None:
            raise InvalidValue(f"{call}: nonblocking operations are in no stream; leave one of the two out", call=call)
        self._check_open(call)
        with self._lock:
            if not self._loose:
                self._loose = [self.group.device.create_stream() for _ in range(2)]
            self._turn ^= 1
            return self._loose[self._turn]

    def _memory(self, verb: str, tag: object) -> Buffer:
        found = self.memories.get(tag) if isinstance(tag, str) else None
        if found is None:
            raise InvalidValue(
                f"Channel.{verb}: rank {self.peer} offered no memory with the tag {tag!r}; it offered "
                f"{', '.join(map(repr, self.memories))}; what is registered later is for later channels",
                call=f"Channel.{verb}",
            )
        return found

    def _checked_at(self, call: str, memory: Buffer, at: object, nbytes: int) -> int:
        if isinstance(at, bool) or not isinstance(at, int):
            raise TypeError(f"{call}: at must be an int, not {type(at).__name__}")
        if not 0 <= at <= memory.size - nbytes:
            raise BadAddress(
                f"{call}: {nbytes:,} bytes at byte {at:,} do not lie in the {memory.size:,} bytes that rank "
                f"{self.peer} offers",
                fault=Fault.OUT_OF_BOUNDS,
                call=call,
                device=self.group.device.name,
            )
        return at

    def _no_line(self, call: str, index: object, valid: range) -> NoReturn:
        self._check_open(call)
        if not isinstance(index, int):
            raise TypeError(f"{call}: a notify is an int, not {type(index).__name__}")
        whose = "this end" if valid is self._valid_in else f"the end of rank {self.peer}"
        known = f"valid are 0 to {len(valid) - 1}" if valid else "it has none"
        raise InvalidValue(f"{call}: {index} is no notify of {whose}; {known}", call=call)

    def _check_open(self, call: str) -> None:
        self.group._check_open(call)
        if self._is_closed:
            raise Closed(f"{call}: {self!r} was closed", call=call, device=self.group.device.name)


class Ends:
    """What one end of a channel holds before it is answered: its notifies, and their handle for the peer.

    Parameters
    ----------
    group : Group
    peer : int
    notifies : int
    """

    #: Both ends in one process: objects by token, until the other end takes them.
    _here: dict[int, tuple[list[Notify], dict[str, Buffer]]] = {}
    _tokens = 0

    def __init__(self, group: Group, peer: int, notifies: int) -> None:
        self.group, self.peer = group, peer
        self.is_own_process = group.members[peer].pid == group._pid
        self._bank: _core.Signal | None = None
        self._handle: Handle | None = None
        self._token = 0
        device, kind = group.device, group._kind
        if self.is_own_process:
            self.lines = [device.create_notify(kind) for _ in range(notifies)]
        elif notifies:
            bank = self._bank = _core.Signal(device.backend.ledger, notifies)
            self.lines = [Notify._line(device, kind, bank, index) for index in range(notifies)]
        else:
            self.lines = []
        for index, line in enumerate(self.lines):
            failures.notify_names[line.id] = f"notify {index} from rank {peer} to rank {group.rank}"

    def invitation(self, offered: Mapping[str, Buffer | Handle]) -> Invitation:
        """Return what the other end needs, made of what this rank offers it."""
        count = len(self.lines)
        if self.is_own_process:
            here = {tag: each for tag, each in offered.items() if isinstance(each, Buffer)}
            with self.group._lock:
                Ends._tokens += 1
                self._token = Ends._tokens
                Ends._here[self._token] = (self.lines, here)
            return Invitation(count, "", {}, self._token)
        memories = {
            tag: Shared(bytes(each).decode(), each._fields.size or 0)
            for tag, each in offered.items()
            if isinstance(each, Handle)
        }
        return Invitation(count, self._offer_bank(), memories)

    def _offer_bank(self) -> str:
        if self._bank is None:
            return ""
        bank, device, pid = self._bank, self.group.device, self.group.members[self.peer].pid
        detail = len(self.lines)

        def offer(everyone: bool) -> Any:
            return device.backend.offer_signal(HandleKind.NOTIFIES, bank, device.ordinal, detail, everyone)

        self._handle = Handle._make(self, [pid], offer)
        return bytes(self._handle).decode()

    def accept(self, call: str, answer: bytes, seconds: float) -> Channel:
        """Open what the other end offers, and return the channel."""
        said = Invitation.decode(call, self.peer, answer)
        if self.is_own_process:
            lines, memories = self._taken(call, said)
            return Channel._make(self, memories, lines, None)
        if WINDOW not in said.memories:
            raise self._false(call, "it offers no window")
        memories = {
            tag: self.group._import(self.peer, each.handle, seconds) for tag, each in said.memories.items()
        }
        opened = self._open_bank(call, said, seconds) if said.notifies else None
        device, kind = self.group.device, self.group._kind
        outgoing = []
        for index in range(said.notifies):
            assert opened is not None
            line = Notify._line(device, kind, opened, index)
            failures.notify_names[line.id] = f"notify {index} from rank {self.group.rank} to rank {self.peer}"
            outgoing.append(line)
        return Channel._make(self, memories, outgoing, opened)

    def _taken(self, call: str, said: Invitation) -> tuple[list[Notify], dict[str, Buffer]]:
        found = Ends._here.get(said.token)
        if found is None:
            raise self._false(call, "it names objects of this process that are not there")
        return found

    def _open_bank(self, call: str, said: Invitation, seconds: float) -> _core.Signal:
        offer, _ = open_offer(call, said.bank, HandleKind.NOTIFIES, None, seconds, reaches=False)
        with contextlib.closing(offer):
            if offer.detail != said.notifies:
                raise self._false(call, f"it says {said.notifies} notifies, and offers {offer.detail}")
            return offer.signal(self.group.device.backend.ledger, said.notifies)

    def _false(self, call: str, why: str) -> BadHandle:
        return BadHandle(
            f"{call}: what rank {self.peer} said cannot be: {why}", fault=Fault.FALSE_CLAIM, call=call
        )

    def close(self) -> None:
        """Let go of everything; idempotent."""
        Ends._here.pop(self._token, None)
        for line in self.lines:
            failures.notify_names.pop(line.id, None)
            line.close()
        if self._handle is not None:
            self._handle.close()
        if self._bank is not None:
            self._bank.let_go()
