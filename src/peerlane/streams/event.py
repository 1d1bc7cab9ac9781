"""Events: points in a stream's order that other streams and the program can wait for."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from peerlane.backend.facts import HandleKind
from peerlane.node.base import DeviceBase
from peerlane.sharing.open import open_offer
from peerlane.support.declared import kept, owed
from peerlane.support.own_process import OwnProcess, by_handle

if TYPE_CHECKING:
    from peerlane.sharing.handle import Allow, Handle


class Event(OwnProcess):
    """A point in a stream's order: when the event is done, all operations submitted before it are done.

    Made by :meth:`Stream.record`, or without a record by :meth:`Device.create_event`.  A new record replaces the
    last one; waits that were submitted before still wait for the old record.

    Examples
    --------
    >>> one, other = pl.device(0).create_stream(), pl.device(1).create_stream()
    >>> event = one.record()
    >>> other.wait(event)  # what is queued there from now on runs behind the event
    >>> event.sync()
    >>> event.is_done
    True
    """

    __slots__ = ()
    _elsewhere = by_handle("Event", "it")

    @kept
    def device(self) -> Any:
        """The device whose streams record it."""

    @kept
    def id(self) -> int:
        """Unique in the process."""

    def __init__(self, *_: object) -> None:
        raise TypeError("an Event is made by Stream.record or Device.create_event")

    @classmethod
    def open(
        cls,
        handle: Handle | bytes | str | int,
        *,
        device: DeviceBase | None = None,
        timeout: float | None = 5.0,
    ) -> Event:
        """Open an event that another process exported: each process may record it and wait for the other's records.

        Parameters and errors are those of :meth:`Physical.open`, except that ``device`` need not reach the
        exporter's device.
        """
        offer, home = open_offer("Event.open", handle, HandleKind.EVENT, device, timeout, reaches=False)
        event: Event = home.backend.open_event(offer, device or home)
        return event

    @owed
    def export(self, *, allow: Allow = ()) -> Handle:
        """Return a handle with which other processes can open the event, to wait for its records and to record it.

        A record from before the export counts.  A wait for another process's record fails with ``PeerLost`` when all
        other processes that had the event have ended, and with ``Cancelled`` when the record was cancelled.  The
        handle is valid until this event is closed and no process has it open.

        Parameters
        ----------
        allow : iterable of int, or "user"
            As for :meth:`Physical.export`.

        Raises
        ------
        InvalidValue, OutOfMemory, Closed, Unsupported
            No handle was made.  Unsupported: the back-end shares nothing with other processes (``Caps.SHARE``).
        """

    @property
    def is_recorded(self) -> bool:
        """Whether it has been recorded, here or by another process."""
        raise NotImplementedError

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called."""
        raise NotImplementedError

    @property
    def is_done(self) -> bool:
        """Whether the last record is over: by success, failure, cancellation or the end of its process.

        It does not block.

        Raises
        ------
        InvalidValue
            ``NOT_RECORDED``.
        """
        raise NotImplementedError

    @property
    def time_ns(self) -> int:
        """The time at which the last record was over, in nanoseconds of the monotonic clock.

        Raises
        ------
        InvalidValue
            ``NOT_RECORDED``.
        Busy
            ``NOT_READY``: the record is not over.
        Cancelled
            An operation before the record failed or was cancelled.
        PeerLost
            The process that made the record ended before the record was over.
        """
        raise NotImplementedError

    @owed
    def sync(self, timeout: float | None = None) -> None:
        """Wait until the last record is over; run its stream if no other thread does.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits for ever.  Ctrl-C is seen within 0.1 s.

        Raises
        ------
        InvalidValue
            ``NOT_RECORDED``: the wait would never end.
        WaitTimeout
            The record was not over in time.
        Cancelled
            The record was cancelled: an operation before it failed, or its stream was aborted.
        Deadlock
            As :meth:`Stream.sync`.
        """

    @owed
    def __await__(self) -> Generator[Any, Any, None]:
        """Wait in a task of asyncio or trio, as :meth:`sync` does in a thread; the loop runs other tasks meanwhile.

        A loop has one descriptor for all that its tasks wait for, and no thread.  It runs no operations for the
        stream.  A cancelled wait leaves nothing behind; the stream goes on.

        Raises
        ------
        InvalidValue, Cancelled, Deadlock
            As :meth:`sync`.
        RuntimeError
            No event loop runs in this thread.
        """

    @owed
    def fileno(self) -> int:
        """Return a descriptor that is readable once the record is over: for ``select`` and asyncio's ``add_reader``.

        It belongs to the record: do not read or close it, and keep the event.

        Raises
        ------
        InvalidValue
            ``NOT_RECORDED``.
        OutOfMemory
            ``OUT_OF_RESOURCES``: the process has no free descriptor.
        Unsupported
            The last record was made by another process.
        """

    @owed
    def close(self) -> None:
        """Close the event, whether made or opened here, and its handles; idempotent.  Waits for its record go on.

        Its handles stay valid while another process has it open.
        """

    @owed
    def __sub__(self, earlier: Event) -> float:
        """Return the seconds from another event to this one; errors as :attr:`time_ns`."""

    @owed
    def __enter__(self) -> Event:
        raise NotImplementedError

    @owed
    def __exit__(self, *_: object) -> None:
        raise NotImplementedError

    # For channels: the native mark of its last record.
    _recorded: Any
