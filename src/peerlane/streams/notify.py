"""Notifies: one-shot signals from one stream to another."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from peerlane.backend.facts import HandleKind
from peerlane.node.base import DeviceBase
from peerlane.sharing.open import open_offer
from peerlane.support.declared import declared, kept, owed
from peerlane.support.own_process import OwnProcess, by_handle

if TYPE_CHECKING:
    from peerlane.sharing.handle import Allow, Handle


class NotifyKind(enum.IntEnum):
    """Which records a wait consumes, and whether records may pile up.

    Examples
    --------
    >>> pl.device(0).create_notify("fifo").kind
    <NotifyKind.FIFO: 1>
    """

    BINARY = 0  #: a wait consumes all records so far, as one
    FIFO = 1  #: a wait consumes one record; the others stay
    STRICT = 2  #: a wait consumes one record; a second record before that is a failure


class Notify(OwnProcess):
    """A signal: one stream records it, another one waits for the record and consumes it; waits may come first.

    Made by :meth:`Device.create_notify`.  ``stream.notify(n)`` records it, ``stream.wait(n, timeout=...)``
    waits for it.

    Examples
    --------
    >>> one, other = pl.device(0).create_stream(), pl.device(1).create_stream()
    >>> notify = pl.device(0).create_notify()
    >>> other.wait(notify)  # may be queued before the record
    >>> one.notify(notify)
    >>> other.sync()
    """

    __slots__ = ()
    _elsewhere = by_handle("Notify", "it")

    @kept
    def device(self) -> Any:
        """The device whose streams wait for it."""

    @kept
    def kind(self) -> NotifyKind:
        """Which records a wait consumes."""

    @declared
    def id(self) -> int:
        """Unique in the process."""

    @declared
    def recorded(self) -> int:
        """How often it was recorded so far."""

    @declared
    def consumed(self) -> int:
        """How often it was consumed so far."""

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
        """Open a notify that another process exported: each process may record it and wait for it.

        A wait fails with ``PeerLost`` when all other processes that had the notify have ended.  Parameters and errors
        are those of :meth:`Physical.open`.
        """
        offer, home = open_offer("Notify.open", handle, HandleKind.NOTIFY, device, timeout)
        notify: Notify = home.backend.open_notify(offer, device or home)
        return notify

    @owed
    def export(self, *, allow: Allow = ()) -> Handle:
        """Return a handle with which other processes can open the notify, to record it and to wait for it.

        Records that were not consumed yet are shared too.  The handle is valid until this notify is closed and no
        process has it open.

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
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called, or the node was left."""
        raise NotImplementedError

    @owed
    def reset(self) -> None:
        """Discard all records that were not consumed; complete on return.

        Raises
        ------
        Closed
        """

    @owed
    def record(self) -> None:
        """Record now, outside of any stream.

        Raises
        ------
        Closed, Busy
            ``NOTIFY_DOUBLED``: the notify is strict and its last record was not consumed.
        """

    @owed
    def promise(self) -> None:
        """Promise that the program will record it, whatever is cancelled.

        Closing a stream that waits for it then waits for the record, instead of cancelling the wait.

        Raises
        ------
        Closed
        """

    @owed
    def close(self) -> None:
        """Close the notify, whether made or opened here, and its handles; idempotent.  Queued operations go on.

        Its handles stay valid while another process has it open.
        """

    @owed
    def __enter__(self) -> Notify:
        raise NotImplementedError

    @owed
    def __exit__(self, *_: object) -> None:
        raise NotImplementedError

    # For channels; native code implements it.
    _record: Any
