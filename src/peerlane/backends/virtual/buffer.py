"""Buffers of virtual devices and of the host: native objects, which native code copies without Python calls."""

from __future__ import annotations

import contextlib
from typing import Any

from peerlane import _core
from peerlane.backend.facts import HandleKind, Route
from peerlane.backend.interface import Memory
from peerlane.backends.virtual.handle import VirtualHandle
from peerlane.backends.virtual.native_classes import HOST, number_of, show_as
from peerlane.diagnostics import live_objects
from peerlane.diagnostics.log import observers
from peerlane.diagnostics.memory import allocations
from peerlane.errors import Busy, Closed, Refused, Unsupported
from peerlane.memory.buffer import Buffer, route_between
from peerlane.node.base import DeviceBase, devices_of
from peerlane.node.device import Host
from peerlane.sharing.handle import Allow, Handle, checked_rights
from peerlane.streams.stream import Stream, checked_stream

_HOST = Host()
_READ_AND_WRITE = 3
_SLOWER = ("local", "peer", "staged")


class VirtualBuffer(_core.Memory, Buffer):
    __slots__ = ("_imported", "_owner", "_owns", "_stream", "_device", "__weakref__")

    _imported: Any  # the address range of an imported buffer, or its reservation on the host
    _owner: object
    _owns: bool
    _stream: Stream | None
    _device: Any

    def __init__(self, *args: object) -> None:
        Buffer.__init__(self, *args)

    @classmethod
    def _make(cls, owner: object, device: Any, *memory: Any, owns: bool = False) -> VirtualBuffer:
        buffer = cls.__new__(cls)
        _core.Memory.__init__(buffer, *memory)
        buffer._owner, buffer._owns, buffer._device = owner, owns, device
        buffer._stream = buffer._imported = None
        return buffer

    @staticmethod
    def _own(block: Memory, device: Any, stream: Stream | None = None) -> VirtualBuffer:
        buffer = _Owner._make(block, device, block, 0, block.size, owns=True)
        buffer._stream = stream
        if observers.active:
            observers.send("create", buffer)
        allocations.remember(buffer, device.name)
        if live_objects.active:
            live_objects.buffer_created(buffer)
        return buffer

    def close(self, *, stream: Stream | None = None) -> None:
        owner, owns = self._owner, self._owns
        if stream is not None:
            self._stream = checked_stream("Buffer.close", stream)
        if owns and observers.active:
            observers.send("destroy", self)
        _core.Memory.close(self)
        if self._imported is not None:
            allocations.forget(self.id, "Buffer.close()")
            self._imported.close()
        self._owns = False
        if owns:
            assert isinstance(owner, _core.Memory)
            allocations.forget(self.id, "Buffer.close()")
            self._free(owner, by_line=True)

    def _free(self, owner: _core.Memory, *, by_line: bool) -> None:
        stream, self._stream = self._stream, None
        if stream is not None and not stream.is_closed:
            with contextlib.suppress(Closed):  # closed by another thread meanwhile
                stream._free(owner, by_line)
        owner.close()

    @property
    def is_closed(self) -> bool:
        return not self.is_live

    @property
    def is_imported(self) -> bool:
        return self._imported is not None

    def export(self, *, allow: Allow = (), rights: str = "rw") -> Handle:
        call = "Buffer.export"
        if isinstance(self.device, Host):
            raise Unsupported(
                f"{call}: {self!r} is host memory, and only device memory can be shared; copy it to a device",
                call=call,
                detail=Refused(reason="host_memory", address=self.address, size=self.size),
            )
        return self._export(self.device.backend, allow, checked_rights(call, rights))

    def _export(self, backend: Any, allow: Allow, rights: int) -> Handle:
        try:
            block, start = _core.share(self)
        except Busy:
            _core.drain()  # queued operations may use it
            block, start = _core.share(self)
        with contextlib.closing(block):
            part = (start, self.size)
            return VirtualHandle._make(
                self, allow, lambda pids: backend.offer(HandleKind.BUFFER, block, part, rights, pids)
            )

    def _route_within(self, dst: Buffer) -> Route:
        assert isinstance(dst, VirtualBuffer)
        routes = {
            route_between(device, other, is_peer and other_is_peer)
            for device, is_peer in self._homes()
            for other, other_is_peer in dst._homes()
        }
        return max(routes, key=lambda route: (_SLOWER.index(route.kind), route.reason))

    def _homes(self) -> list[tuple[DeviceBase, bool]]:
        """Return, for each block that the bytes lie in, its device and whether it has ``peer=True``."""
        if not self.size:
            return [(self.device, True)]
        numbered = {number_of(device): device for device in devices_of(self.device.backend)}
        return [(numbered[number], is_peer) for number, is_peer in self.homes]

    def _bytes(self) -> memoryview:
        return memoryview(self)

    def _part(self, first: int, nbytes: int) -> VirtualBuffer:
        return VirtualBuffer._make(self, self.device, self, first, nbytes)


class _Owner(VirtualBuffer):
    """A buffer that frees its memory.  Others have no ``__del__``, because Python loses a Ctrl-C during one."""

    __slots__ = ()

    def __del__(self) -> None:
        # The native owner frees the memory; this only corrects the list of live allocations.
        if getattr(self, "_owns", False) and allocations is not None:
            if observers.active:
                observers.send("destroy", self)
            allocations.forget(self.id, "garbage collection")
            if self._stream is not None and isinstance(self._owner, _core.Memory):
                self._free(self._owner, by_line=False)


def export_from_host(buffer: VirtualBuffer, backend: Any) -> Handle:
    """Return a handle of host memory that this process allocated, for all processes of the user."""
    return buffer._export(backend, "user", _READ_AND_WRITE)


def open_on_host(block: _core.Block, start: int, nbytes: int) -> VirtualBuffer:
    """Return a buffer of host memory that another process allocated."""
    reservation = _core.Reservation(HOST, block.size, 0, 0)
    try:
        reservation.map(0, block, _READ_AND_WRITE, [], max(start + nbytes, 1))
        buffer = VirtualBuffer._make(reservation, _HOST, reservation, start, nbytes)
    except BaseException:
        reservation.close()
        raise
    buffer._imported = reservation
    allocations.remember_import(buffer, reservation, _HOST.name)
    return buffer


def wrap(kept: object, address: int, size: int, read_only: bool) -> VirtualBuffer:
    """Return a buffer on a host object."""
    return VirtualBuffer._make(kept, _HOST, address, size, read_only, True)


show_as(Buffer, VirtualBuffer, _Owner)
