"""Notifies: native signals, each in a cache line that processes may share."""

from __future__ import annotations

from typing import Any

from peerlane import _core
from peerlane.backend.facts import Caps, HandleKind
from peerlane.backends.virtual.handle import VirtualHandle
from peerlane.backends.virtual.native_classes import number_of, show_as
from peerlane.diagnostics import live_objects
from peerlane.diagnostics.log import observers
from peerlane.errors import BadArgument, BadHandle, Fault, was_closed
from peerlane.memory.dispatch import lacks
from peerlane.sharing.handle import Allow, Handle
from peerlane.streams.notify import Notify, NotifyKind


class VirtualNotify(_core.Notify, Notify):
    __slots__ = ("__weakref__", "_is_closed", "_opened", "_device", "_kind")
    _opened: _core.Signal | None  # the signal of a notify that another process exported
    _device: Any
    _kind: NotifyKind

    def __init__(self, *args: object) -> None:
        Notify.__init__(self, *args)

    @classmethod
    def _make(cls, device: Any, kind: NotifyKind, opened: _core.Signal | None = None) -> VirtualNotify:
        notify = cls.__new__(cls)
        notify._begin(device, kind, *(() if opened is None else (opened,)))
        notify._opened = opened
        if opened is not None and observers.active:
            observers.send("import", notify)
        return notify

    @classmethod
    def _adopt(cls, offer: _core.Offer, device: Any) -> VirtualNotify:
        known = {int(each): each for each in NotifyKind}
        if offer.notify_kind not in known:
            raise BadHandle(
                f"the handle stands for a notify of kind {offer.notify_kind}; the kinds are "
                f"{', '.join(map(str, known))}",
                fault=Fault.FALSE_CLAIM,
                detail=BadArgument("notify_kind", offer.notify_kind, choices=tuple(known)),
            )
        return cls._make(device, known[offer.notify_kind], offer.signal(device.backend.ledger))

    @classmethod
    def _line(cls, device: Any, kind: NotifyKind, bank: _core.Signal, index: int) -> VirtualNotify:
        """Return a notify of a channel's end; the channel releases the bank."""
        notify = cls.__new__(cls)
        notify._begin(device, kind, bank, index)
        return notify

    @classmethod
    def _of_channel(
        cls, device: Any, kind: NotifyKind, lines: _core.ChannelLines, index: int
    ) -> VirtualNotify:
        """Return a notify of a channel's end."""
        notify = cls.__new__(cls)
        _core.Notify.__init__(notify, lines, index)
        notify._begun(device, kind)
        return notify

    def _begin(self, device: Any, kind: NotifyKind, *where: Any) -> None:
        _core.Notify.__init__(self, int(kind), number_of(device), *where)
        self._begun(device, kind)

    def _begun(self, device: Any, kind: NotifyKind) -> None:
        self._device, self._kind, self._is_closed, self._opened = device, kind, False, None
        if observers.active:
            observers.created(self)
        if live_objects.active:
            live_objects.created(self)

    def export(self, *, allow: Allow = ()) -> Handle:
        self._check_open("Notify.export")
        backend, ordinal = self.device.backend, self.device.ordinal
        if Caps.SHARE not in backend.caps:
            raise lacks("Notify.export", backend, Caps.SHARE)
        signal = self._share(backend.ledger)
        return VirtualHandle._make(
            self,
            allow,
            lambda pids: backend.offer_signal(
                HandleKind.NOTIFY, signal, ordinal, pids, notify_kind=int(self.kind)
            ),
        )

    @property
    def is_closed(self) -> bool:
        return self._is_closed or self.device.is_closed

    def reset(self) -> None:
        self._check_open("Notify.reset")
        self._reset()
        if observers.active:
            observers.send("reset", self, sequence=self.consumed)

    def record(self) -> None:
        self._check_open("Notify.record")
        self._record()

    def promise(self) -> None:
        self._check_open("Notify.promise")
        self._promise()

    def close(self) -> None:
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
            raise was_closed(call, self, self.device.name)

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"{self.recorded:,} recorded, {self.consumed:,} consumed"
        return f"<Notify {self.id} ({self.kind.name.lower()}) on {self.device.name}: {state}>"


class VirtualNotifies(_core.ChannelLines):
    """The notifies of one direction of a channel."""

    __slots__ = ("_device", "_kind", "_notifies")

    def __init__(self, device: Any, kind: NotifyKind, count: int, bank: _core.Signal | None) -> None:
        if kind is NotifyKind.FIFO and count:  # they are waited for in the order of their records
            super().__init__(_core.Completions(bank), count, number_of(device))
        else:
            super().__init__(int(kind), count, number_of(device), bank)
        self._device, self._kind = device, kind
        self._notifies: dict[int, VirtualNotify] = {}
        if observers.active or live_objects.active:  # these count a channel's notifies from its start on
            for index in range(count):
                self[index]

    def __getitem__(self, index: int) -> Notify:
        notify = self._notifies.get(index)
        if notify is None:
            new = VirtualNotify._of_channel(self._device, self._kind, self, index)
            notify = self._notifies.setdefault(index, new)  # another thread may have been faster
        return notify

    def close(self) -> None:
        notifies, self._notifies = self._notifies, {}
        for each in notifies.values():
            each.close()


show_as(Notify, VirtualNotify)
