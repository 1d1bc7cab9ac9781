"""The exceptions, and the faults that each dialect maps to its vendor's codes.

``docs/errors.md`` says what holds after a raise: one sentence for each fault, each with a test.
This module imports the decorator of records alone: all other parts, the native module included, depend on it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from peerlane.support.records import dataclass


class Fault(enum.Enum):
    """What went wrong, independent of any vendor: the key of every dialect's code table.

    Examples
    --------
    >>> try:
    ...     pl.device(0).allocate(-1)
    ... except pl.Error as error:
    ...     print(error.fault)
    Fault.INVALID_VALUE
    """

    INVALID_VALUE = "invalid value"
    INVALID_DEVICE = "invalid device"
    BAD_CONFIG = "bad configuration"
    OUT_OF_MEMORY = "out of memory"
    OUT_OF_RESOURCES = "out of resources"
    UNSUPPORTED = "unsupported"
    NULL_ADDRESS = "null address"
    UNKNOWN_ADDRESS = "unknown address"
    FREED_ADDRESS = "freed address"
    OUT_OF_BOUNDS = "out of bounds"
    HOST_FAULT = "host memory fault"
    READ_ONLY = "read-only memory"
    WRONG_DEVICE = "wrong device"
    PEER_SELF = "peer access to self"
    PEER_UNREACHABLE = "peer unreachable"
    PEER_NOT_ENABLED = "peer access not enabled"
    NO_ACCESS = "no access to the mapping"
    CLOSED = "closed"
    FORKED = "used after fork"
    PROCESS_ENDING = "used while the process ends"
    BUSY = "busy"
    CANCELLED = "cancelled"
    PEER_LOST = "peer lost"
    WAIT_TIMEOUT = "wait timeout"
    BAD_HANDLE = "bad handle"
    HANDLE_VERSION = "handle of another version"
    STALE_HANDLE = "handle that is over"
    WRONG_KIND = "handle of another kind"
    FALSE_CLAIM = "false claim of another process"
    OWN_HANDLE = "handle of this very process"
    NOT_LISTED = "process not on the allow-list"
    PID_REUSED = "pid of another process than was listed"
    LISTED_EARLY = "pid listed before its process started"
    OTHER_USER = "process of another user"
    FOREIGN_NAMESPACE = "process in another pid namespace"
    NODE_MISMATCH = "node mismatch"
    DEVICE_FAULT = "device fault"
    NOT_RECORDED = "event not recorded"
    NOT_READY = "not ready"
    CALLBACK_FAILED = "callback failed"
    BAD_DESCRIPTOR = "bad copy descriptor"
    NOTIFY_DOUBLED = "notify recorded twice"
    NOTIFY_ORDER = "notify recorded in another order"
    NOTIFY_LEFT = "notify recorded and not consumed"
    DEADLOCK = "deadlock"


@dataclass(frozen=True, slots=True)
class PastOperation:
    """An operation of which the event log has the line.

    Attributes
    ----------
    stream, operation : int
        The stream's id and the operation's number there; 0 and 0 for what the host did.
    kind : str
        What the operation did, as `Operation.kind` of an observer.
    place : str
        The program's line that submitted it, ``"file.py:12"``; empty if it is not known.
    """

    stream: int
    operation: int
    kind: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class StreamWait:
    """What one stream waited for.

    Attributes
    ----------
    stream : int
        The stream's id.
    operation : int
        The number, in the stream, of the operation that waits.
    queued : int
        How many operations were queued, this one included.
    what : str
        What the operation waits for.  ``"record"``: an operation of a stream; ``"notify"``: a record of a notify;
        ``"callback"``: the return of its callback; ``"value"``: another value in memory; ``"group"``: the other
        streams of its group; ``""``: nothing, it could run.
    awaited_stream, awaited_operation : int
        With ``"record"``: the stream and the operation that it waited for; else 0.
    notify : int
        With ``"notify"``: the notify's id; else 0.
    notify_name : str
        The notify's name; empty if it has none.  Notifies of channels have names.
    submitted_at : str
        The program's line that submitted the operation, ``"file.py:12"``; empty if it was not noted.
    before : tuple of PastOperation
        While an event log is written or an observer is set: the last operations that the stream was given before this
        one and while it did not wait, at most 3, oldest first.  Else empty.
    of_awaited : tuple of PastOperation
        The same of what it waits for: the last records of the notify, and waits for it, in this process; or the
        operation that the stream waits for.
    """

    stream: int
    operation: int
    queued: int
    what: str
    awaited_stream: int = 0
    awaited_operation: int = 0
    notify: int = 0
    notify_name: str = ""
    submitted_at: str = ""
    before: tuple[PastOperation, ...] = ()
    of_awaited: tuple[PastOperation, ...] = ()


@dataclass(frozen=True, slots=True)
class ThreadWait:
    """Where a thread of the program waited.

    Attributes
    ----------
    thread : str
        The thread's name.
    place : str
        The program's line, ``"file.py:12"``; empty in a thread that peerlane started.
    stream : int
        The id of the stream that the thread waited for; 0 if it waited for another process.
    call : str
        The call of peerlane in which it waited, ``"Group.barrier"``; empty if it is not known.
    callers : tuple of str
        The program's lines that called, innermost first, at most three.
    """

    thread: str
    place: str
    stream: int = 0
    call: str = ""
    callers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FailedBefore:
    """A failed operation of a stream that was open when a wait ended in vain.

    Attributes
    ----------
    stream, operation : int
        The stream's id, and the number of the operation there.
    kind : str
        What the operation does.
    why : str
        What went wrong.
    submitted_at : str
        The program's line that submitted the operation; empty if it was not noted.
    was_reported : bool
        Whether a synchronization had reported the failure to the program.
    """

    stream: int
    operation: int
    kind: str
    why: str
    submitted_at: str = ""
    was_reported: bool = False


@dataclass(frozen=True, slots=True)
class RankWait:
    """What a rank of a group waits for, by its own report.

    Attributes
    ----------
    rank, pid : int
        The rank that reported, and its process.
    what : str
        The name of the notify, barrier, key or word that it waits for; empty if it waits for a peer's end of a
        channel.
    peer : int
        The rank that should record the notify, make its end, or join the group; -1 if that is not one other rank.
    group : str
        The name of the group that the wait belongs to, if that is another group; empty for the group itself.
    threads : tuple of ThreadWait
        The threads that wait for the stream, or at the rendezvous.
    stream, operation : int
        The stream's id and the operation's number; 0 at the rendezvous.
    submitted_at : str
        The program's line that submitted the wait; empty if it was not noted.
    call : str
        The call that waits at the rendezvous, or that queued the collective on the stream; else empty.
    kind : str
        What is waited for: ``"notify"``, a peer's part of a ``"collective"``, a peer's end of a ``"channel"``, a peer
        that joins a ``"group"``, a ``"barrier"``, a ``"gather"`` or the value of a ``"key"`` of the rendezvous, or
        a ``"word"`` of memory.
    awaited : tuple of int
        Of a barrier or a gather: ranks that have not come; of a key: other ranks, which could put it.
    """

    rank: int
    pid: int
    what: str
    peer: int = -1
    group: str = ""
    threads: tuple[ThreadWait, ...] = ()
    stream: int = 0
    operation: int = 0
    submitted_at: str = ""
    call: str = ""
    kind: str = "notify"
    awaited: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitState:
    """Which streams, threads or ranks waited for what.

    It is the ``detail`` of a `Deadlock`, and of the `WaitTimeout` of a synchronization.

    Attributes
    ----------
    why : str
        ``"timeout"``: the wait took too long; ``"circle"``: the stream waits for itself; ``"callback"``: a callback
        waits for its own stream; ``"never"``: no submitted operation ends the wait, and all threads wait;
        ``"ranks"``: ranks wait for one another.
    stream : int
        The id of the stream that was waited for; 0 if the wait was not for a stream.  In a deadlock of ranks the
        first stream that a thread of this process waits for.
    operation : int
        If the wait was for an event's record: the number of that operation in the stream; else 0.
    seconds : float or None
        With ``"timeout"``: how long the wait lasted; None if it would never have ended.
    streams : tuple of StreamWait
        The streams that were not done: first `stream`, then the one that it waits for, and so on; then the others.
    threads : tuple of ThreadWait
        In a deadlock of all threads of this process: where each of them waits.
    failed : tuple of FailedBefore
        Failures, of this process or of a rank, that may be the cause.
    ranks : tuple of RankWait
        With ``"ranks"``: the report of each rank that waits in vain.
    is_shown : bool
        Whether ``peerlane launch`` shows the reports of all ranks.
    """

    why: str
    stream: int = 0
    operation: int = 0
    seconds: float | None = None
    streams: tuple[StreamWait, ...] = ()
    threads: tuple[ThreadWait, ...] = ()
    failed: tuple[FailedBefore, ...] = ()
    ranks: tuple[RankWait, ...] = ()
    is_shown: bool = False

    def notify_in_the_way(self) -> int:
        """Return the id of the notify that holds up `stream`, directly or through other streams; 0 without one."""
        waits = {each.stream: each for each in self.streams}
        at = waits.pop(self.stream, None)
        while at is not None and at.what == "record":
            at = waits.pop(at.awaited_stream, None)
        return at.notify if at is not None else 0


@dataclass(frozen=True, slots=True)
class MemoryHolder:
    """A process that holds memory of a device.

    Attributes
    ----------
    pid : int
    program : str
        Its command line; empty if it is unknown.
    nbytes : int
        The bytes that it holds.
    """

    pid: int
    program: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class NoRoom:
    """A device's memory is used up.

    Attributes
    ----------
    asked, free, capacity : int
        Bytes: requested, free, and of the whole device.
    cause : str
        The same in words, with the processes that hold memory of the device, and without advice.
    allocations : int
        How many allocations of the device this process holds.
    holders : tuple of MemoryHolder
        Up to three other processes that hold memory of the device, the largest first.
    """

    asked: int
    free: int
    capacity: int
    cause: str
    allocations: int = 0
    holders: tuple[MemoryHolder, ...] = ()


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """A range that ends beyond the memory that it starts in, or that starts in no memory, or in freed memory.

    Attributes
    ----------
    role : str
        The operand: ``"dst"``, ``"src"`` or ``"address"``.
    address, size : int
        The range that was asked for; ``size`` is 0 if the call asked for one address.
    start, extent : int
        Where the allocation that it starts in begins, and how many bytes that has; 0 if there is none.
    allocation : int
        The number of that allocation, live or freed; 0 if there is none.
    """

    role: str
    address: int
    size: int
    start: int
    extent: int
    allocation: int


@dataclass(frozen=True, slots=True)
class SizesDiffer:
    """A copy whose ends have different sizes.

    Attributes
    ----------
    source, destination : int
        Bytes of each.
    pair : int or None
        The pair's number in its batch, from 0; None for a single copy.
    """

    source: int
    destination: int
    pair: int | None


@dataclass(frozen=True, slots=True)
class LostProcess:
    """Another process that this one depends on, and that has ended or does not answer.

    Attributes
    ----------
    pid : int
        0 if it is unknown.
    """

    pid: int


@dataclass(frozen=True, slots=True)
class NotifyRefused:
    """A record or a wait that a notify does not allow.

    Attributes
    ----------
    notify : int
        The notify's id.
    recorded_instead : int or None
        The number, in the notify's queue, of the record that came in its place.
    most : int or None
        If the queue is full: how many records it holds.
    """

    notify: int
    recorded_instead: int | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class VendorModule:
    """A vendor's own module that finds a device: a dialect does not replace it unless told to.

    Attributes
    ----------
    dialect : str
        The dialect's name.
    origin : str
        The module's file.
    """

    dialect: str
    origin: str


@dataclass(frozen=True, slots=True)
class MeetingWait:
    """A wait at a rendezvous that did not end as it should.

    Attributes
    ----------
    kind : str
        ``"barrier"``, ``"gather"``, ``"key"`` for `Rendezvous.get`, or ``"rank"`` for a rank that should join a group
        or make its end of a channel.
    key : str
        The name of the barrier, gather or message, or the key.
    rank, size : int
        The rank that waited, and the number of ranks.
    seconds : float or None
        The time-out of the call; None if it had none.
    awaited : tuple of int
        After a time-out: the ranks that had not come, or that could have put the key.
    lost : int or None
        The rank that was lost.
    """

    kind: str
    key: str
    rank: int
    size: int
    seconds: float | None
    awaited: tuple[int, ...] = ()
    lost: int | None = None


@dataclass(frozen=True, slots=True)
class ChannelWait:
    """A wait of a channel that reached its deadline.

    Attributes
    ----------
    notify : int
        The number of the notify in the channel.
    peer, rank : int
        The rank that should have recorded it, and the rank that waited.
    seconds : float
        The time-out.
    """

    notify: int
    peer: int
    rank: int
    seconds: float


@dataclass(frozen=True, slots=True)
class BadArgument:
    """An argument with an impossible value.

    Attributes
    ----------
    name : str
        The argument.
    given : object
        The value; its ``repr`` if it is neither None, a number, a str, bytes nor a tuple.
    choices : tuple
        The valid values; empty if `least`, `most`, `multiple` or `rule` tells them.
    least, most : int, float or None
        The smallest and the largest valid value; of a text, the number of its characters.
    multiple : int or None
        Valid values are multiples of this.
    rule : str
        What else is valid, in words.
    """

    name: str
    given: Any
    choices: tuple[Any, ...] = ()
    least: float | None = None
    most: float | None = None
    multiple: int | None = None
    rule: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.given, (bool, int, float, str, bytes, tuple, type(None))):
            object.__setattr__(self, "given", repr(self.given))


class Refused(SimpleNamespace):
    """What was refused, with the facts of its reason as attributes; ``vars()`` has them all.

    Attributes
    ----------
    reason : str
        The name of the reason.
    """

    reason: str


class HandleRefused(Refused):
    """A handle that its exporter does not let this process open, or that this process does not accept.

    The numbers of some reasons are further attributes.

    Attributes
    ----------
    reason : str
        The name of the reason, for example ``"not_listed"``.
    maker, asker : int
        Pids of the process that exported it, and of the process that asked.
    status : int
        The number of the reason in the protocol.
    """

    maker: int
    asker: int
    status: int


class Error(Exception):
    """Base of all exceptions that peerlane raises on purpose.

    Attributes
    ----------
    fault : Fault
        What went wrong, independent of the dialect.
    call : str or None
        The call that failed, as the user wrote it (``"Buffer.copy_from"``, ``"acl.rt.memcpy"``).
    code : int or None
        The vendor's code, when a dialect was speaking.
    device : str or None
        The device that it concerns (``"virtual:0"``).
    operation : int or None
        From a synchronization: the number, in its stream, of the operation that failed.
    rank : int or None
        With `PeerLost`: the lost rank of a group or a rendezvous, if it is known.
    failed_operation : FailedOperation or None
        From a synchronization: the failed operation, for dialects that describe it in their own words; None after
        pickling.
    missing_address : int or None
        The first address of the range where no memory is: behind the end of an allocation, or in reserved addresses.
    detail : object
        A record of the facts in the text: one of the classes above, for example a `WaitState`.

    Examples
    --------
    >>> try:
    ...     pl.device(0).allocate(1 << 60)
    ... except pl.Error as error:
    ...     print(type(error).__name__, error.fault.value, error.device)
    OutOfMemory out of memory virtual:0
    """

    default_fault = Fault.DEVICE_FAULT
    operation: int | None = None
    rank: int | None = None
    failed_operation: Any = None
    missing_address: int | None = None

    def __init__(
        self,
        message: str,
        *,
        fault: Fault | None = None,
        call: str | None = None,
        code: int | None = None,
        device: str | None = None,
        detail: Any = None,
    ) -> None:
        super().__init__(message)
        self.fault = self.default_fault if fault is None else fault
        self.call = call
        self.code = code
        self.device = device
        self.detail = detail

    def retold(self, text: str) -> Error:
        """Return the same error with another text."""
        error = _rebuild(type(self), text, *self._facts())
        error.failed_operation = self.failed_operation
        error.__cause__ = self.__cause__
        return error

    def _facts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the options of the class, and the attributes that are set later."""
        return (
            {name: getattr(self, name) for name in ("fault", "call", "code", "device", "detail")},
            {name: getattr(self, name) for name in ("operation", "missing_address", "rank")},
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), *self._facts())


def _rebuild(
    cls: type[Error], message: str, options: Mapping[str, Any], attributes: Mapping[str, Any]
) -> Error:
    error = cls(message, **options)
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


class InvalidValue(Error, ValueError):
    """An argument has the right type and an impossible value.

    Examples
    --------
    >>> try:
    ...     pl.device(0).create_notify("some")
    ... except pl.InvalidValue as error:
    ...     print(error.fault.value)
    invalid value
    """

    default_fault = Fault.INVALID_VALUE


class OutOfMemory(Error, MemoryError):
    """A device's capacity, or the system's memory, is used up.

    Examples
    --------
    >>> try:
    ...     pl.device(0).allocate(1 << 60)
    ... except pl.OutOfMemory as error:
    ...     print(error.detail.asked > error.detail.free)
    True
    """

    default_fault = Fault.OUT_OF_MEMORY


class Unsupported(Error):
    """The device, profile or build cannot do this; the text names what is missing.

    Examples
    --------
    >>> with pl.Host().allocate(8) as pinned:
    ...     try:
    ...         pinned.export()
    ...     except pl.Unsupported as error:
    ...         print(error.fault.value)
    unsupported
    """

    default_fault = Fault.UNSUPPORTED


class AccessDenied(Error, PermissionError):
    """The memory or the peer exists, and the caller may not use it in this way.

    Examples
    --------
    >>> with pl.device(0).allocate(8) as target, pl.device(1).allocate(8) as source:
    ...     try:
    ...         pl.raw.copy(target.address, source.address, 8, direct=True)
    ...     except pl.AccessDenied as error:
    ...         print(error.fault.value)
    peer access not enabled
    """

    default_fault = Fault.PEER_NOT_ENABLED

    __str__ = Exception.__str__


class Closed(Error, ValueError):
    """The program closed the object, left its node, or forked.

    Examples
    --------
    >>> buffer = pl.device(0).allocate(8)
    >>> buffer.close()
    >>> try:
    ...     buffer.fill(0)
    ... except pl.Closed as error:
    ...     print(error.fault.value)
    closed
    """

    default_fault = Fault.CLOSED


class PeerLost(Error, ConnectionError):
    """Another process that this one depends on has died or has left the group; ``rank`` tells which.

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
    ...     with pl.Group(rank, 2, rendezvous=lambda part: gather(rank, part)) as group:
    ...         if rank == 1:
    ...             return  # it leaves the group, and rank 0 waits for it
    ...         try:
    ...             group.barrier()
    ...         except pl.PeerLost as error:
    ...             print(error.rank)
    >>> with ThreadPoolExecutor(2) as threads:
    ...     _ = list(threads.map(program, range(2)))
    1
    """

    default_fault = Fault.PEER_LOST

    __str__ = Exception.__str__


class WaitTimeout(Error, TimeoutError):
    """A wait reached its deadline; the text gives the wanted and the seen state.

    Examples
    --------
    >>> device = pl.device(0)
    >>> with device.create_stream() as stream, device.create_stream() as other:
    ...     notify = device.create_notify()
    ...     stream.wait(notify)
    ...     try:
    ...         stream.sync(timeout=0.01)
    ...     except pl.WaitTimeout as error:
    ...         print(error.detail.streams[0].what)
    ...     other.notify(notify)
    ...     stream.sync()
    notify
    """

    default_fault = Fault.WAIT_TIMEOUT

    __str__ = Exception.__str__


class BadHandle(Error, ValueError):
    """A handle is forged, stale, of another node or of another version.

    Examples
    --------
    >>> try:
    ...     pl.Buffer.open(bytes(64))
    ... except pl.BadHandle as error:
    ...     print(error.fault.value)
    bad handle
    """

    default_fault = Fault.BAD_HANDLE


class BadAddress(Error):
    """An address or range is not, or is no longer, memory that may be touched.

    Examples
    --------
    >>> try:
    ...     pl.raw.fill(0, 7, count=8)
    ... except pl.BadAddress as error:
    ...     print(error.fault.value)
    null address
    """

    default_fault = Fault.UNKNOWN_ADDRESS


class Busy(Error):
    """The object is in use in a way that excludes the request.

    Examples
    --------
    >>> device = pl.device(0)
    >>> size = device.granularity
    >>> with pl.Physical(device, size) as block, pl.AddressRange(device, size) as addresses:
    ...     addresses.map(block)
    ...     try:
    ...         addresses.map(block)  # something is mapped there already
    ...     except pl.Busy as error:
    ...         print(error.fault.value)
    busy
    """

    default_fault = Fault.BUSY


class Deadlock(Busy):
    """A wait that nothing will ever end; ``detail`` tells which streams, threads or ranks wait for what.

    Examples
    --------
    >>> device = pl.device(0)
    >>> with device.create_stream() as stream, device.create_stream() as other:
    ...     notify = device.create_notify()
    ...     stream.wait(notify)  # nothing that is submitted records it
    ...     try:
    ...         stream.sync()
    ...     except pl.Deadlock as error:
    ...         print(error.detail.why)
    ...     other.notify(notify)
    ...     stream.sync()
    never
    """

    default_fault = Fault.DEADLOCK


class Cancelled(Error):
    """An operation was cancelled: an operation before it failed, or its stream was aborted or closed.

    Examples
    --------
    >>> device = pl.device(0)
    >>> stream = device.create_stream()
    >>> stream.wait(device.create_notify())
    >>> _ = stream.abort()
    >>> try:
    ...     stream.sync()
    ... except pl.Cancelled as error:
    ...     print(error.operation)
    1
    """

    default_fault = Fault.CANCELLED


class DeviceFault(Error):
    """The (virtual) device failed while executing.

    Examples
    --------
    >>> def fails(_):
    ...     raise RuntimeError("no disk")
    >>> with pl.device(0).create_stream() as stream:
    ...     stream.launch_callback(fails)
    ...     try:
    ...         stream.sync()
    ...     except pl.DeviceFault as error:
    ...         print(error.fault.value)
    callback failed
    """

    default_fault = Fault.DEVICE_FAULT


def was_closed(call: str, what: object, device: str) -> Closed:
    """Return the error of a call with an object that the program has closed."""
    return Closed(
        f"{call}: {what!r} was closed",
        call=call,
        device=device,
        detail=Refused(reason="closed", what=repr(what)),
    )
