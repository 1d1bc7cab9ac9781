"""The error family and the hub enumeration every dialect maps to its vendor's codes.

What holds after a raise is written down in ``docs/errors.md``, one sentence a fault, each with a test.
This module imports nothing of ours: every other part, the native module included, depends on it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any


class Fault(enum.Enum):
    """What went wrong, independent of any vendor: the key of every dialect's code table."""

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
class StreamWait:
    """What one stream waited for.

    Attributes
    ----------
    stream : int
        Its id.
    operation : int
        The number of the operation that waits, in its stream.
    queued : int
        How many operations were queued, this one included.
    what : str
        ``"record"``: an operation of a stream; ``"notify"``: a record of a notify; ``"callback"``: the return of its
        callback; ``"value"``: another value in memory; ``"group"``: the other streams of its group; ``""``: nothing,
        it could run.
    awaited_stream, awaited_operation : int
        With ``"record"``: what it waited for; else 0.
    notify : int
        With ``"notify"``: its id; else 0.
    notify_name : str
        What the notify is called where it has a name, as those of channels.
    submitted_at : str
        The program's line, ``"file.py:12"``; empty where it was not noted.
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


@dataclass(frozen=True, slots=True)
class ThreadWait:
    """Where a thread of the program waited.

    Attributes
    ----------
    thread : str
        Its name.
    place : str
        The program's line, ``"file.py:12"``.
    stream : int
        The id of the stream that it waited for; 0 when it waited for another process.
    """

    thread: str
    place: str
    stream: int = 0


@dataclass(frozen=True, slots=True)
class FailedBefore:
    """A failure that nobody was told of before a wait came to nothing.

    Attributes
    ----------
    stream, operation : int
        The stream's id, and the number of the operation there.
    kind : str
        What the operation is.
    why : str
        What went wrong.
    submitted_at : str
        The program's line; empty where it was not noted.
    """

    stream: int
    operation: int
    kind: str
    why: str
    submitted_at: str = ""


@dataclass(frozen=True, slots=True)
class RankWait:
    """What a rank of a group said that it waits for.

    Attributes
    ----------
    rank, pid : int
        Who said it.
    what : str
        The name of what it waits for; empty for a peer's end of a channel.
    peer : int
        The rank that should record it, make its end, or join the group; -1 where it is not one other rank.
    group : str
        The name of the other group that this is of; empty for the group itself.
    threads : tuple of ThreadWait
        The threads that wait for the stream, or at the rendezvous.
    stream, operation : int
        The stream's id and the operation's number; 0 at the rendezvous.
    submitted_at : str
        The program's line that submitted the wait; empty where it was not noted.
    call : str
        The call that waits at the rendezvous; else empty.
    kind : str
        What is waited for: ``"notify"``, a peer's end of a ``"channel"``, a peer that joins a ``"group"``, a
        ``"barrier"``, a ``"gather"`` or the value of a ``"key"`` of the rendezvous.
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
    """Who waited for what: ``detail`` of a `Deadlock` and of the `WaitTimeout` of a synchronization.

    Attributes
    ----------
    why : str
        ``"timeout"``: it took too long; ``"circle"``: the stream waits for itself; ``"callback"``: it waits for the
        callback that asks; ``"never"``: nothing that was submitted ends it, and all threads wait; ``"ranks"``: ranks
        wait for one another.
    stream : int
        The id of the stream that was waited for; 0 where it is not one.
    operation : int
        The number of the operation there, where an event's record was waited for; else 0.
    seconds : float or None
        With ``"timeout"``: how long it was waited for; None if it would never have been done.
    streams : tuple of StreamWait
        The streams that were not done: that one, what it waits for, and so on; then the others.
    threads : tuple of ThreadWait
        Of a deadlock of all threads of this process.
    failed : tuple of FailedBefore
        Failures that may be the cause, of this process or of a rank.
    ranks : tuple of RankWait
        With ``"ranks"``: what each of those said that wait in vain.
    """

    why: str
    stream: int = 0
    operation: int = 0
    seconds: float | None = None
    streams: tuple[StreamWait, ...] = ()
    threads: tuple[ThreadWait, ...] = ()
    failed: tuple[FailedBefore, ...] = ()
    ranks: tuple[RankWait, ...] = ()

    def notify_in_the_way(self) -> int:
        """Return the id of the notify that `stream`, or what it waits for, waits for; 0 if there is none."""
        waits = {each.stream: each for each in self.streams}
        at = waits.pop(self.stream, None)
        while at is not None and at.what == "record":
            at = waits.pop(at.awaited_stream, None)
        return at.notify if at is not None else 0


@dataclass(frozen=True, slots=True)
class NoRoom:
    """A device's memory is used up.

    Attributes
    ----------
    asked, free, capacity : int
        Bytes: what was asked for, what is free, what the device has in all.
    cause : str
        That in words, with who holds memory of it, and without advice.
    """

    asked: int
    free: int
    capacity: int
    cause: str


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """A range that ends beyond the memory that it starts in, or starts where nothing is.

    Attributes
    ----------
    role : str
        ``"dst"``, ``"src"`` or ``"address"``.
    address, size : int
        What was asked for.
    start, extent : int
        Where the memory starts, and its bytes; 0 if there is none.
    allocation : int
        Its number; 0 if there is none.
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
        Bytes.
    pair : int or None
        Which one of a batch, from 0.
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
    """

    pid: int


@dataclass(frozen=True, slots=True)
class HandleRefused:
    """A handle that the process which made it does not let this one open.

    Attributes
    ----------
    maker, asker : int
        Pids: of who made it, and of who asked.
    status : int
        The reason's number in the protocol.
    """

    maker: int
    asker: int
    status: int


@dataclass(frozen=True, slots=True)
class NotifyRefused:
    """A record or a wait that a notify does not allow.

    Attributes
    ----------
    notify : int
        Its id.
    recorded_instead : int or None
        The number, among those of its queue, of what was recorded in its place.
    """

    notify: int
    recorded_instead: int | None = None


@dataclass(frozen=True, slots=True)
class VendorModule:
    """A vendor's own module that finds a device, so that a dialect is not put in its place unasked.

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
class Refused:
    """What native code refused, for a reason that has no facts of its own.

    Attributes
    ----------
    reason : str
        Native code's word for it.
    role : str
        Which operand: ``"dst"``, ``"src"``, ``"address"``; empty where that says nothing.
    address, size : int
        What was asked for; 0 where that says nothing.
    entry : int or None
        Which one of a list, from 0.
    errno : int
        The system's; 0 where it did not refuse.
    """

    reason: str
    role: str
    address: int
    size: int
    entry: int | None
    errno: int


class Error(Exception):
    """Base of everything peerlane raises on purpose.

    Attributes
    ----------
    fault : Fault
        What went wrong, independent of the dialect.
    call : str or None
        The call that failed, as the user wrote it (``"Buffer.copy_from"``, ``"acl.rt.memcpy"``).
    code : int or None
        The vendor's code, when a dialect was speaking.
    device : str or None
        The device it concerns (``"virtual:0"``).
    operation : int or None
        At a synchronization: the number, in its stream, of the operation that failed.
    rank : int or None
        The rank of a group or a rendezvous that was lost (`PeerLost`), where that is known.
    failed_operation : FailedOperation or None
        At a synchronization: what failed, for dialects that tell it in their own words; None once it was pickled.
    missing_address : int or None
        The first address where nothing is: after an end, or in reserved addresses.
    detail : object
        The facts that the text tells, by name: `WaitState` for one; None where the text says nothing that the
        attributes above do not.
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
        made = type(self)(
            text, fault=self.fault, call=self.call, code=self.code, device=self.device, detail=self.detail
        )
        made.operation, made.failed_operation, made.missing_address = (
            self.operation,
            self.failed_operation,
            self.missing_address,
        )
        made.rank = self.rank
        made.__cause__ = self.__cause__
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (
            type(self),
            str(self),
            self.fault.name,
            self.call,
            self.code,
            self.device,
            self.operation,
            self.rank,
            self.detail,
        )


def _rebuild(
    cls: type[Error],
    message: str,
    fault: str,
    call: str | None,
    code: int | None,
    device: str | None,
    operation: int | None,
    rank: int | None,
    detail: Any,
) -> Error:
    made = cls(message, fault=Fault[fault], call=call, code=code, device=device, detail=detail)
    made.operation, made.rank = operation, rank
    return made


class InvalidValue(Error, ValueError):
    """An argument has the right type and an impossible value."""

    default_fault = Fault.INVALID_VALUE


class OutOfMemory(Error, MemoryError):
    """A device's capacity, or the system's memory, is used up."""

    default_fault = Fault.OUT_OF_MEMORY


class Unsupported(Error):
    """The device, profile or build cannot do this; the text names what is missing."""

    default_fault = Fault.UNSUPPORTED


class AccessDenied(Error, PermissionError):
    """The memory or the peer exists, and the caller may not use it so."""

    default_fault = Fault.PEER_NOT_ENABLED

    __str__ = Exception.__str__


class Closed(Error, ValueError):
    """The object was closed by its owner, its node was left, or the process forked."""

    default_fault = Fault.CLOSED


class PeerLost(Error, ConnectionError):
    """Another process that this one depends on has died, or has left what they share; ``rank`` tells which."""

    default_fault = Fault.PEER_LOST

    __str__ = Exception.__str__


class WaitTimeout(Error, TimeoutError):
    """A wait reached its deadline; the text gives what was wanted and what was seen."""

    default_fault = Fault.WAIT_TIMEOUT

    __str__ = Exception.__str__


class BadHandle(Error, ValueError):
    """A handle is forged, stale, of another node or of an older version."""

    default_fault = Fault.BAD_HANDLE


class BadAddress(Error):
    """An address or range is not (or no longer) memory that may be touched."""

    default_fault = Fault.UNKNOWN_ADDRESS


class Busy(Error):
    """The object is in use in a way that excludes the request."""

    default_fault = Fault.BUSY


class Deadlock(Busy):
    """A wait that nothing will ever end; ``detail`` tells who waits for what."""

    default_fault = Fault.DEADLOCK


class Cancelled(Error):
    """An operation was abandoned because something before it failed or its stream was closed."""

    default_fault = Fault.CANCELLED


class DeviceFault(Error):
    """The (virtual) device failed while executing."""

    default_fault = Fault.DEVICE_FAULT
