"""Makes streams, events and notifies: for virtual devices, and for devices whose back-end has no queues."""

from __future__ import annotations

import weakref
from typing import Any

from peerlane.backend import registry
from peerlane.backend.interface import Backend
from peerlane.backends.virtual.event import VirtualEvent
from peerlane.backends.virtual.native_classes import number_of
from peerlane.backends.virtual.notify import VirtualNotify
from peerlane.backends.virtual.stream import VirtualStream, VirtualStreamGroup, sync_device
from peerlane.streams.notify import NotifyKind

#: The streams of devices whose back-end has no queues: they end with that back-end.
_guests: weakref.WeakSet[VirtualStream | VirtualStreamGroup] = weakref.WeakSet()


class Queues:
    """See :class:`~peerlane.backend.interface.Queue` and :class:`~peerlane.backend.interface.Signal`."""

    def create_stream(self, device: Any, on_error: str) -> VirtualStream:
        stream = VirtualStream._make(device, on_error)
        if self is HOST_QUEUES:
            _guests.add(stream)
        return stream

    def create_stream_group(self, device: Any, on_error: str) -> VirtualStreamGroup:
        group = VirtualStreamGroup._make(device, on_error)
        if self is HOST_QUEUES:
            _guests.add(group)
        return group

    def sync_device(self, device: Any, timeout: float | None) -> None:
        sync_device(device, timeout)

    def create_event(self, device: Any) -> VirtualEvent:
        number_of(device)  # raises if its node was left
        return VirtualEvent._make(device)

    def create_notify(self, device: Any, kind: int) -> VirtualNotify:
        return VirtualNotify._make(device, NotifyKind(kind))


HOST_QUEUES = Queues()


def _end_guests(backend: Backend) -> None:
    for guest in list(_guests):
        if guest.device.backend is backend:
            if isinstance(guest, VirtualStream):
                guest.abort(close=True)
            else:
                guest._abort()


registry.before_closing.append(_end_guests)
