"""Notifies: one-shot signals from one stream to another."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from peerlane.backend.facts import HandleKind
from peerlane.devices.base import DeviceBase
from peerlane.sharing.open import open_offer
from peerlane.support.declared import declared

if TYPE_CHECKING:
    from peerlane.sharing.handle import Allow, Handle


class NotifyKind(enum.IntEnum):
    """What consuming takes."""

    BINARY = 0  #: all records so far: they count as one
    FIFO = 1  #: one record; the others stay
    STRICT = 2  #: one record; recording again before it was consumed is a failure


class Notify:
    """A signal that one stream records and another one waits for and consumes; waits may come first.

    Made by :meth:`Device.create_notify`.  ``stream.notify(n)`` records it, ``stream.wait(n, timeout=...)``
    waits for it.

    Attributes
    ----------
    device : Device
    kind : NotifyKind
    id : int
        Unique in the process.
    recorded, consumed : int
        How often, by now.
    """

    __slots__ = ()

    @declared
    def device(self) -> Any:
        """Whose streams wait for it."""
        raise NotImplementedError

    @declared
    def kind(self) -> NotifyKind:
        """What consuming takes."""
        raise NotImplementedError

    @declared
    def id(self) -> int:
        """Unique in the process."""
        raise NotImplementedError

    @declared
    def recorded(self) -> int:
        """How often it was recorded, by now."""
        raise NotImplementedError

    @declared
    def consumed(self) -> int:
        """How often it was consumed, by now."""
        raise NotImplementedError

    def __init__(self, *_: object) -> None:
        raise TypeError("a Notify is made by Device.create_notify")

    @classmethod
    def open(
        cls,
        handle: Handle | bytes | str | int,
        *,
        device: DeviceBase | None = None,
        timeout: float | None = 5.0,
    ) -> Notify:
        """Have the notify that another process exported: either may record it, either may wait for it.

        A wait for it fails with ``PeerLost`` when all other processes that had it have ended.  Parameters and errors
        are those of :meth:`Physical.open`.
        """
        offer, home = open_offer("Notify.open", handle, HandleKind.NOTIFY, device, timeout)
        made: Notify = home.backend.open_notify(offer, device or home)
        return made

    def export(self, *, allow: Allow = ()) -> Handle:
        """Return a handle by which other processes can record it and wait for it, as this one can.

        What is recorded and not consumed goes with it.  The handle lives as long as this notify, or a process that
        has opened it.

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
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called, or the node was left."""
        raise NotImplementedError

    def reset(self) -> None:
        """Take all records back that were not consumed; complete on return.

        Raises
        ------
        Closed
        """
        raise NotImplementedError

    def record(self) -> None:
        """Record now, outside of any stream.

        Raises
        ------
        Closed, Busy
            ``NOTIFY_DOUBLED`` for a strict one that was not consumed.
        """
        raise NotImplementedError

    def promise(self) -> None:
        """Say that the program will record it, whatever is cancelled: closing a stream that waits for it waits too.

        Raises
        ------
        Closed
        """
        raise NotImplementedError

    def close(self) -> None:
        """End it and its handles, or let go of what was opened; idempotent.  What is queued already goes on.

        Its handles can be opened as long as another process has opened it.
        """
        raise NotImplementedError

    def __enter__(self) -> Notify:
        raise NotImplementedError

    def __exit__(self, *_: object) -> None:
        raise NotImplementedError

    # What channels use of a notify; native code has it.
    _record: Any
    _abandon: Any
