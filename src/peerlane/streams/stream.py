"""Streams: ordered queues of operations that run by themselves."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from peerlane.backend.facts import Caps
from peerlane.devices.base import DeviceBase
from peerlane.streams.event import Event
from peerlane.streams.notify import Notify
from peerlane.support.declared import declared


class Stream:
    """Operations that run one after the other, beside the program.

    Made by :meth:`Device.create_stream`.  Whatever takes ``stream=`` is queued and returns; what an operation
    needs (buffers, host objects) is kept until it is over.  Failures surface at :meth:`sync`.  A look at memory waits
    for no stream: before a synchronization it shows what is there.

    Close it, or use it in a ``with``.  One that is dropped takes no more operations and runs what is queued, but a
    wait that nothing submitted so far would satisfy is cancelled.  A failure that nobody was told of, that one too,
    is a ``ResourceWarning`` then; one that comes later is, at a later call of peerlane.

    Attributes
    ----------
    device : Device
    id : int
        Unique in the process.
    submitted, completed : int
        Number of the last operation that was submitted, and of the last that is over.
    """

    __slots__ = ()

    @declared
    def device(self) -> Any:
        """Whose operations it runs."""
        raise NotImplementedError

    @declared
    def id(self) -> int:
        """Unique in the process."""
        raise NotImplementedError

    @declared
    def submitted(self) -> int:
        """Number of the last operation that was submitted."""
        raise NotImplementedError

    @declared
    def completed(self) -> int:
        """Number of the last operation that is over."""
        raise NotImplementedError

    def __init__(self, *_: object) -> None:
        raise TypeError("a Stream is made by Device.create_stream or StreamGroup.create_stream")

    @property
    def on_error(self) -> str:
        """What a failing operation does to those behind it: ``"stop"`` cancels them, ``"continue"`` runs them."""
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
        """Whether everything submitted is over; does not block and reports no failure."""
        raise NotImplementedError

    def record(self, event: Event | None = None) -> Event:
        """Record an event: it is done when everything submitted so far is.

        Parameters
        ----------
        event : Event, optional
            One of the same device to be recorded again; a new one by default.

        Raises
        ------
        Closed, InvalidValue
            ``WRONG_DEVICE``.  Nothing was queued then.
        """
        raise NotImplementedError

    def wait(self, other: Event | Stream | Notify, *, timeout: float | None = None) -> None:
        """Let what is submitted from now on wait, on the device; the program does not.

        Parameters
        ----------
        other : Event, Stream or Notify
            The event's last record so far; everything in the stream so far; a record of the notify, which is
            consumed and may be submitted later.  Of any device of the node.
        timeout : float, optional
            Seconds from when this stream comes to it; None waits for ever.  Beyond it the wait fails with
            ``WaitTimeout``, at the next synchronization.

        Raises
        ------
        InvalidValue
            ``NOT_RECORDED``: the event was never recorded, and the wait would never end.
        Closed
            The stream, or what it should wait for, is closed.  Nothing was queued then.
        """
        raise NotImplementedError

    def notify(self, notify: Notify) -> None:
        """Record a notify when everything submitted so far is done; cancelled operations do not notify.

        Raises
        ------
        Closed
            Nothing was queued then.
        """
        raise NotImplementedError

    def launch_callback(self, function: Callable[..., object], /, *args: object) -> None:
        """Call ``function(*args)`` when everything submitted so far is done; what follows waits for its return.

        It runs on a thread of its own that serves all streams in turn.  What it raises is a failure of this
        stream.  It may submit to any stream, and must not wait for what waits for it, nor for a callback of another
        stream that has not returned: one thread makes all calls (``Busy``, ``DEADLOCK``).  Whether that one has
        returned is up to the schedule: under ``lazy`` it has not unless something asked for it before, or the process
        rested for 1 s.

        Raises
        ------
        Closed
            Nothing was queued then.
        """
        raise NotImplementedError

    def sync(self, timeout: float | None = None) -> None:
        """Wait until everything submitted so far is over, running it if nobody else does; report a failure.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits for ever.  Ctrl-C is seen within 0.1 s; the operations go on then.

        Raises
        ------
        Error
            The first failure since the last report, with the operation's number: what the operation would have
            raised, ``Cancelled`` for what was abandoned, ``DeviceFault`` (``CALLBACK_FAILED``) for a callback
            that raised.  The stream can be used again.
        WaitTimeout
            Not everything was over in time; the text tells who waits for what.
        Deadlock
            The stream waits for itself, or for the callback that asks; or nothing that was submitted records the
            notify that it waits for, and every thread of this process waits.
        """
        raise NotImplementedError

    def abort(self, *, close: bool = False) -> None:
        """Cancel what is queued; a running copy ends at its next MiB.  Does not block; the next sync reports it.

        Waits of other streams for events that were not reached end as ``Cancelled``.

        Parameters
        ----------
        close : bool
            Also take no more operations.
        """
        raise NotImplementedError

    def close(self, *, wait: bool = True) -> None:
        """Take no more operations and wait for what is queued; then report the first failure.  Idempotent.

        A wait that nothing submitted so far would satisfy is cancelled, with what is behind it; for a notify that
        other processes have too it waits as long as one of them lives.  Called by a callback of the stream itself,
        it does not wait.

        Parameters
        ----------
        wait : bool
            False returns at once and reports nothing; :meth:`sync`, or closing once more, still does.

        Raises
        ------
        Error
            As :meth:`sync`; the stream is closed all the same.
        """
        raise NotImplementedError

    def __enter__(self) -> Stream:
        raise NotImplementedError

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise NotImplementedError

    # What channels use of a stream; native code has it.
    _record_notify: Any
    _wait_notify: Any
    _wait_mark: Any
    _free: Any
    _report: Any


class StreamGroup:
    """Streams of a device with a legacy barrier: the rule of vendors' default streams.

    What :attr:`default` is given waits for everything the group's other streams were given before, and what
    they are given afterwards waits for it.  The cost does not depend on the number of streams.

    Parameters
    ----------
    device : Device
    on_error : str
        Of the default stream: ``"stop"`` or ``"continue"``.

    Attributes
    ----------
    device : Device
    default : Stream
    """

    __slots__ = ()

    @declared
    def device(self) -> Any:
        """Whose streams they are."""
        raise NotImplementedError

    @declared
    def default(self) -> Stream:
        """The default stream."""
        raise NotImplementedError

    def __new__(cls, device: DeviceBase, *, on_error: str = "stop") -> StreamGroup:
        if not isinstance(device, DeviceBase):
            raise TypeError(f"StreamGroup: the device must be a Device, not {type(device).__name__}")
        made: StreamGroup = queues_of(device).create_stream_group(device, on_error)
        return made

    def create_stream(self, *, on_error: str = "stop") -> Stream:
        """Return a new stream of the group.

        Raises
        ------
        Closed, InvalidValue
            The group is closed; as :meth:`Device.create_stream`.
        """
        raise NotImplementedError

    @property
    def is_idle(self) -> bool:
        """Whether all that its streams were given is over; does not block, lets nothing run, reports no failure."""
        raise NotImplementedError

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called, or the node was left."""
        raise NotImplementedError

    def close(self, *, wait: bool = True) -> None:
        """Close the default stream and all that were created, as :meth:`Stream.close` does.  Idempotent.

        None of them takes operations any more before the first is waited for.

        Parameters
        ----------
        wait : bool
            False returns at once and reports nothing; closing once more still does.

        Raises
        ------
        Error
            The first failure of one of the streams; all are closed all the same.  What others have to report
            stays for their own :meth:`Stream.sync`, or for closing once more.
        """
        raise NotImplementedError

    def __enter__(self) -> StreamGroup:
        raise NotImplementedError

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise NotImplementedError


def queues_of(device: DeviceBase) -> Any:
    """Return who makes the streams of a device: its back-end, or the host for one that has no queues."""
    return device.backend if Caps.QUEUE in device.caps else host_queues


#: Streams of the host, for devices whose back-end has none; native code makes them.
host_queues: Any = None


def checked_stream(call: str, stream: object) -> Stream | None:
    """Return a stream or None; TypeError for anything else."""
    if stream is None or isinstance(stream, Stream):
        return stream
    raise TypeError(f"{call}: stream must be a Stream or None, not {type(stream).__name__}")
