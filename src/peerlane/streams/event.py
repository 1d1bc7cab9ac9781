"""Events: places in a stream that others wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peerlane.backend.facts import HandleKind
from peerlane.devices.base import DeviceBase
from peerlane.sharing.open import open_offer
from peerlane.support.declared import declared

if TYPE_CHECKING:
    from peerlane.sharing.handle import Allow, Handle


class Event:
    """A place in a stream's order: what was submitted before it is done when the event is.

    Made by :meth:`Stream.record`, or empty by :meth:`Device.create_event`.  Recorded again it means the new
    place; who waited for the old one goes on waiting for that.

    Attributes
    ----------
    device : Device
        Whose streams record it.
    id : int
        Unique in the process.
    """

    __slots__ = ()

    @declared
    def device(self) -> Any:
        """Whose streams record it."""
        raise NotImplementedError

    @declared
    def id(self) -> int:
        """Unique in the process."""
        raise NotImplementedError

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
        """Have the event that another process exported: either may record it, and wait for the other's records.

        Parameters and errors are those of :meth:`Physical.open`, but that the device need not reach the other's: an
        event is no memory.
        """
        offer, home = open_offer("Event.open", handle, HandleKind.EVENT, device, timeout, reaches=False)
        made: Event = home.backend.open_event(offer, device or home)
        return made

    def export(self, *, allow: Allow = ()) -> Handle:
        """Return a handle by which other processes can wait for its records, and record it themselves.

        A record that was made before counts.  Waiting for a record of another process fails with ``PeerLost`` when
        all others that had the event have ended, and as ``Cancelled`` when the record was.  The handle lives as long
        as this event, or a process that has opened it.

        Parameters
        ----------
        allow : iterable of int, or "user"
            As for :meth:`Physical.export`.

        Raises
        ------
        InvalidValue, OutOfMemory, Closed
            No handle was made.
        """
        raise NotImplementedError

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
        """Whether the record is over, by success, failure, cancellation or the end of its process; does not block.

        Raises
        ------
        InvalidValue
            ``NOT_RECORDED``.
        """
        raise NotImplementedError

    @property
    def time_ns(self) -> int:
        """When the record was over, in nanoseconds of the monotonic clock.

        Raises
        ------
        InvalidValue, Busy, Cancelled
            ``NOT_RECORDED``, ``NOT_READY``; what was before it failed or was cancelled.
        PeerLost
            The process whose record it is has ended before it was over.
        """
        raise NotImplementedError

    def sync(self, timeout: float | None = None) -> None:
        """Wait until the record is over, running its stream if nobody else does.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits for ever.  Ctrl-C is seen within 0.1 s.

        Raises
        ------
        InvalidValue
            ``NOT_RECORDED``: it would never be done.
        WaitTimeout
            It was not over in time.
        Cancelled
            The record was cancelled, because something before it failed, or its stream was aborted.
        Deadlock
            As :meth:`Stream.sync`.
        """
        raise NotImplementedError

    def fileno(self) -> int:
        """Return a descriptor that is readable once the record is over: for ``select`` and asyncio's ``add_reader``.

        It belongs to the record: do not read or close it, and keep the event.

        Raises
        ------
        InvalidValue
            ``NOT_RECORDED``.
        OutOfMemory
            ``OUT_OF_RESOURCES``: no descriptor is left.
        Unsupported
            Its newest record is another process's.
        """
        raise NotImplementedError

    def close(self) -> None:
        """End it and its handles, or let go of what was opened; idempotent.  Waits for its record go on.

        Its handles can be opened as long as another process has opened it.
        """
        raise NotImplementedError

    def __sub__(self, earlier: Event) -> float:
        """Return the seconds from another event to this one; errors as :attr:`time_ns`."""
        raise NotImplementedError

    def __enter__(self) -> Event:
        raise NotImplementedError

    def __exit__(self, *_: object) -> None:
        raise NotImplementedError

    # What channels use of an event: the native mark of its last record.
    _recorded: Any
