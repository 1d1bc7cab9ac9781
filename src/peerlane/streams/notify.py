"""Notifies: one-shot signals from one stream to another."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from peerlane import _core
from peerlane.backend.facts import HandleKind
from peerlane.diagnostics import live_objects, observers
from peerlane.errors import Closed

if TYPE_CHECKING:
    from peerlane.devices.device import Device
    from peerlane.sharing.handle import Allow, Handle


class NotifyKind(enum.IntEnum):
    """What consuming takes."""

    BINARY = 0  #: all records so far: they count as one
    FIFO = 1  #: one record; the others stay
    STRICT = 2  #: one record; recording again before it was consumed is a failure


class Notify(_core.Notify):
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

    __slots__ = ("__weakref__", "_is_closed", "_opened", "device", "kind")

    _opened: _core.Signal | None  # of another process

    device: Device
    kind: NotifyKind

    def __init__(self, *_: object) -> None:
        raise TypeError("a Notify is made by Device.create_notify")

    @classmethod
    def _make(cls, device: Device, kind: NotifyKind, opened: _core.Signal | None = None) -> Notify:
        made = cls.__new__(cls)
        made._begin(device, kind, *(() if opened is None else (opened,)))
        made._opened = opened
        if opened is not None and observers.active:
            observers.tell("import", made)
        return made

    @classmethod
    def _line(cls, device: Device, kind: NotifyKind, bank: _core.Signal, index: int) -> Notify:
        """Return one of the notifies of a channel's end, whose bank is the channel's to let go of."""
        made = cls.__new__(cls)
        made._begin(device, kind, bank, index)
        return made

    @classmethod
    def _queued(cls, device: Device, queue: _core.Completions, number: int) -> Notify:
        """Return one of the notifies of a channel's end that are waited for in the order of their records."""
        made = cls.__new__(cls)
        _core.Notify.__init__(made, queue, number, device._native_number())
        made._begun(device, NotifyKind.FIFO)
        return made

    def _begin(self, device: Device, kind: NotifyKind, *where: Any) -> None:
        _core.Notify.__init__(self, int(kind), device._native_number(), *where)
        self._begun(device, kind)

    def _begun(self, device: Device, kind: NotifyKind) -> None:
        self.device, self.kind, self._is_closed, self._opened = device, kind, False, None
        if observers.active:
            observers.created(self)
        if live_objects.active:
            live_objects.made(self)

    @classmethod
    def open(
        cls, handle: Handle | bytes | str | int, *, device: Device | None = None, timeout: float | None = 5.0
    ) -> Notify:
        """Have the notify that another process exported: either may record it, either may wait for it.

        A wait for it fails with ``PeerLost`` when all other processes that had it have ended.  Parameters and errors
        are those of :meth:`Physical.open`.
        """
        from peerlane.sharing.handle import open_offer

        offer, home = open_offer("Notify.open", handle, HandleKind.NOTIFY, device, timeout)
        user, kind = device or home, NotifyKind(min(offer.detail, len(NotifyKind) - 1))
        signal = offer.signal(user.backend.ledger)
        return cls._make(user, kind, signal)

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
        from peerlane.sharing.handle import Handle

        self._check_open("Notify.export")
        backend, ordinal = self.device.backend, self.device.ordinal
        signal = self._share(backend.ledger)
        return Handle._make(
            self,
            allow,
            lambda all_: backend.offer_signal(HandleKind.NOTIFY, signal, ordinal, int(self.kind), all_),
        )

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called, or the node was left."""
        return self._is_closed or self.device.is_closed

    def reset(self) -> None:
        """Take all records back that were not consumed; complete on return.

        Raises
        ------
        Closed
        """
        self._check_open("Notify.reset")
        self._reset()
        if observers.active:
            observers.tell("reset", self, sequence=self.consumed)

    def record(self) -> None:
        """Record now, outside of any stream.

        Raises
        ------
        Closed, Busy
            ``NOTIFY_DOUBLED`` for a strict one that was not consumed.
        """
        self._check_open("Notify.record")
        self._record()

    def promise(self) -> None:
        """Say that the program will record it, whatever is cancelled: closing a stream that waits for it waits too.

        Raises
        ------
        Closed
        """
        self._check_open("Notify.promise")
        self._promise()

    def close(self) -> None:
        """End it and its handles, or let go of what was opened; idempotent.  What is queued already goes on.

        Its handles can be opened as long as another process has opened it.
        """
        self._is_closed = True
        self._withdraw()
        if self._opened is not None:
            self._opened.let_go()
        if observers.active:
            observers.closed(self)

    def __enter__(self) -> Notify:
        self._check_open("Notify")
        _core.check_usable()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_open(self, call: str) -> None:
        if self.is_closed:
            raise Closed(f"{call}: {self!r} was closed", call=call, device=self.device.name)

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"{self.recorded:,} recorded, {self.consumed:,} consumed"
        return f"<Notify {self.id} ({self.kind.name.lower()}) on {self.device.name}: {state}>"
