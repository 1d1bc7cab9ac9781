"""Streams: ordered queues of operations that run in the background."""

from __future__ import annotations

from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any

from peerlane.backend.facts import Caps
from peerlane.node.base import DeviceBase
from peerlane.streams.event import Event
from peerlane.streams.notify import Notify
from peerlane.support.declared import declared, kept, owed
from peerlane.support.late import Late
from peerlane.support.own_process import OwnProcess


class Stream(OwnProcess):
    """A queue of operations that run one after the other, concurrently with the program.

    Made by :meth:`Device.create_stream`.  A call with ``stream=`` queues its operation and returns; the buffers and
    host objects of an operation are kept until it is over.  Failures surface at :meth:`sync`.  Reading memory waits
    for no stream: before a synchronization it shows the present bytes.

    Close it, or use it in a ``with``.  A stream that is dropped runs its queued operations, but a wait that no
    submitted operation would satisfy is cancelled.  Failures that no synchronization reported, such a cancellation
    included, then become a ``ResourceWarning``; a failure that comes later becomes one at a later call of peerlane.

    Examples
    --------
    >>> device = pl.device(0)
    >>> with device.create_stream() as stream, device.allocate(64) as buffer:
    ...     buffer.fill(1, stream=stream)  # queued
    ...     event = stream.record()
    ...     stream.sync()  # over, or its failure is raised
    ...     print(event.is_done, bytes(buffer[:2]))
    True b'\\x01\\x01'
    """

    __slots__ = ()
    _elsewhere = (
        "each process makes streams of its own; share an Event or a Notify, by a handle, for their order"
    )

    @kept
    def device(self) -> Any:
        """The device that it belongs to."""

    @declared
    def id(self) -> int:
        """Unique in the process."""

    @declared
    def submitted(self) -> int:
        """Number of the last submitted operation."""

    @declared
    def completed(self) -> int:
        """Number of the last operation that is over."""

    def __init__(self, *_: object) -> None:
        raise TypeError("a Stream is made by Device.create_stream or StreamGroup.create_stream")

    @property
    def on_error(self) -> str:
        """What happens to the operations behind a failed one: ``"stop"`` cancels them, ``"continue"`` runs them."""
        raise NotImplementedError

    @on_error.setter
    def on_error(self, value: str) -> None:
        raise NotImplementedError

    @property
    def is_closed(self) -> bool:
        """Whether it takes no more operations."""
        raise NotImplementedError

    @property
    def is_done(self) -> bool:
        """Whether all submitted operations are over; does not block and reports no failure."""
        raise NotImplementedError

    @owed
    def record(self, event: Event | None = None) -> Event:
        """Record an event: it is done when all operations submitted so far are done.

        Parameters
        ----------
        event : Event, optional
            An event of the same device; a new one by default.

        Raises
        ------
        Closed, InvalidValue
            ``WRONG_DEVICE``: the event belongs to another device.  Nothing was queued.
        """

    @owed
    def wait(self, other: Event | Stream | Notify, *, timeout: float | None = None) -> None:
        """Queue a wait: later operations of this stream wait on the device; the program does not.

        Parameters
        ----------
        other : Event, Stream or Notify
            Of any device of the node.  Event: its last record so far.  Stream: all operations submitted to it so far.
            Notify: one record, which the wait consumes; it may be submitted later.
        timeout : float, optional
            Seconds from the moment that this stream reaches the wait; None waits for ever.  When they are over, the
            wait fails with ``WaitTimeout``, which the next synchronization raises.

        Raises
        ------
        InvalidValue
            ``NOT_RECORDED``: the event was never recorded, so that the wait would never end.
        Closed
            The stream or ``other`` is closed.  Nothing was queued.
        """

    @owed
    def notify(self, notify: Notify) -> None:
        """Record a notify when all operations submitted so far are done; a cancelled record does not happen.

        Raises
        ------
        Closed
            Nothing was queued.
        """

    @owed
    def launch_callback(self, function: Callable[..., object], /, *args: object) -> None:
        """Call ``function(*args)`` when all operations submitted so far are done; later ones wait for its return.

        One thread makes the calls of all streams in turn.  An exception of the function is a failure of this stream.

        The function may submit to any stream.  It must not wait for an operation that waits for it, nor for a
        callback of another stream that has not returned: the one thread could never make that call (``Busy``,
        ``DEADLOCK``).  Whether the other callback has returned depends on the schedule: under ``lazy`` it has not,
        unless the program waited for it before or the process was idle for 1 s.

        Raises
        ------
        Closed
            Nothing was queued.
        """

    @owed
    def sync(self, timeout: float | None = None) -> None:
        """Wait until all operations submitted so far are over, and report the first failure.

        The calling thread runs the operations if no other thread does.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits for ever.  Ctrl-C is seen within 0.1 s; the operations go on then.

        Raises
        ------
        Error
            The first failure since the last report, with the operation's number: the exception that the synchronous
            call would have raised, ``Cancelled`` for a cancelled operation, ``DeviceFault`` (``CALLBACK_FAILED``) for
            a callback that raised.  The stream can be used again.
        WaitTimeout
            Not all operations were over in time; the text tells which stream waits for what.
        Deadlock
            The stream waits for itself, or a callback waits for its own stream; or no submitted operation records the
            notify that the stream waits for, and every thread of this process waits.
        """

    @owed
    def __await__(self) -> Generator[Any, Any, None]:
        """Wait in a task of asyncio or trio, as :meth:`sync` does in a thread; the loop runs other tasks meanwhile.

        It waits for all operations submitted so far, and reports the first failure.  A loop has one descriptor for
        all that its tasks wait for, and no thread.  It runs no operations for the stream.  A cancelled wait leaves
        nothing behind; the stream goes on.

        Raises
        ------
        Error
            As :meth:`sync`.
        Deadlock
            The stream waits for itself, or a callback waits for its own stream.  That a wait for a notify is in vain
            is not seen: another task may record it.
        RuntimeError
            No event loop runs in this thread.
        """

    @owed
    def abort(self, *, close: bool = False) -> None:
        """Cancel the queued operations; a running copy ends at its next MiB.  Does not block.

        The next :meth:`sync` reports the cancellation; until then the memory of the operations is in use.  Waits of
        other streams for events that this stream had not reached fail with ``Cancelled``.

        Parameters
        ----------
        close : bool
            Also close the stream: it takes no more operations.
        """

    @owed
    def close(self, *, wait: bool = True) -> None:
        """Take no more operations, wait for the queued ones, and report the first failure.  Idempotent.

        A wait that no submitted operation would satisfy is cancelled, with the operations behind it.  A wait for a
        notify that other processes have too goes on while one of them lives.  In a callback of the stream itself,
        closing does not wait.

        Parameters
        ----------
        wait : bool
            False returns at once and reports nothing; :meth:`sync`, or closing once more, still does.

        Raises
        ------
        Error
            As :meth:`sync`; the stream is closed all the same.
        """

    @owed
    def __enter__(self) -> Stream:
        raise NotImplementedError

    @owed
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise NotImplementedError

    # For channels; native code implements these.
    _record_notify: Any
    _wait_notify: Any
    _wait_mark: Any
    _free: Any
    _report: Any


class StreamGroup(OwnProcess):
    """Streams of a device with a default stream that is a barrier, as the vendors' legacy default streams are.

    An operation of :attr:`default` waits for all operations submitted before to the group's other streams, and their
    later operations wait for it.  The cost does not depend on the number of streams.

    Parameters
    ----------
    device : Device
    on_error : str
        As :attr:`Stream.on_error`, for the default stream: ``"stop"`` or ``"continue"``.

    Examples
    --------
    >>> with pl.StreamGroup(pl.device(0)) as group, pl.device(0).allocate(4) as buffer:
    ...     stream = group.create_stream()
    ...     buffer.fill(1, stream=stream)
    ...     buffer[:2].fill(2, stream=group.default)  # waits for the other streams of the group
    ...     group.default.sync()
    ...     print(bytes(buffer))
    b'\\x02\\x02\\x01\\x01'
    """

    __slots__ = ()
    _elsewhere = "each process makes streams of its own"

    @kept
    def device(self) -> Any:
        """The device that the streams belong to."""

    @kept
    def default(self) -> Stream:
        """The default stream."""

    def __new__(cls, device: DeviceBase, *, on_error: str = "stop") -> StreamGroup:
        if not isinstance(device, DeviceBase):
            raise TypeError(f"StreamGroup: the device must be a Device, not {type(device).__name__}")
        group: StreamGroup = queues_of(device).create_stream_group(device, on_error)
        return group

    @owed
    def create_stream(self, *, on_error: str = "stop") -> Stream:
        """Return a new stream of the group.

        Raises
        ------
        Closed, InvalidValue
            The group is closed; or as for :meth:`Device.create_stream`.
        """

    @property
    def is_idle(self) -> bool:
        """Whether all operations of its streams are over; does not block, runs nothing and reports no failure."""
        raise NotImplementedError

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called, or the node was left."""
        raise NotImplementedError

    @owed
    def close(self, *, wait: bool = True) -> None:
        """Close all streams of the group, as :meth:`Stream.close` does.  Idempotent.

        All streams refuse new operations before the first of them is waited for.

        Parameters
        ----------
        wait : bool
            False returns at once and reports nothing; closing once more still does.

        Raises
        ------
        Error
            The first failure of one of the streams; all are closed all the same.  The failures of the others are
            reported by their own :meth:`Stream.sync`, or by closing once more.
        """

    @owed
    def __enter__(self) -> StreamGroup:
        raise NotImplementedError

    @owed
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise NotImplementedError


def queues_of(device: DeviceBase) -> Any:
    """Return the object that makes the streams of a device: its back-end, or the host if that has no queues."""
    return device.backend if Caps.QUEUE in device.caps else _native.HOST_QUEUES


#: Makes native streams of the host, for devices whose back-end has no queues.
_native = Late("peerlane.backends.virtual.queues")


def checked_stream(call: str, stream: object) -> Stream | None:
    """Return a stream or None; TypeError for anything else."""
    if stream is None or isinstance(stream, Stream):
        return stream
    raise TypeError(f"{call}: stream must be a Stream or None, not {type(stream).__name__}")
