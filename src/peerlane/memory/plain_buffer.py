"""Buffers of back-ends whose memory has only an address, a size and ``close``, as the interface asks."""

from __future__ import annotations

import contextlib
import threading
from typing import Any
from weakref import WeakValueDictionary

from peerlane.backend.facts import Caps
from peerlane.backend.interface import Backend, Memory, VisibleMemory
from peerlane.diagnostics import live_objects
from peerlane.diagnostics.memory import allocations
from peerlane.errors import Closed, Refused, Unsupported
from peerlane.memory.buffer import Buffer
from peerlane.node.base import HostBase
from peerlane.sharing.handle import Allow, Handle
from peerlane.streams.stream import Stream, checked_stream


class _Allocation:
    """Memory that a buffer, its parts and queued operations share; it is freed once, after the last use."""

    __slots__ = ("__weakref__", "_lock", "_uses", "backend", "id", "is_closed", "memory")

    def __init__(self, backend: Backend, memory: Memory) -> None:
        self.backend, self.memory, self.is_closed = backend, memory, False
        self.id = backend.locate(memory.address).allocation
        self._uses = 1  # the use by the buffer itself
        self._lock = threading.Lock()
        _allocations[self.id] = self

    def hold(self) -> bool:
        """Keep the bytes until ``let_go``; False, and nothing is kept, if the program has closed it."""
        with self._lock:
            if not self.is_closed:
                self._uses += 1
            return not self.is_closed

    def let_go(self) -> None:
        with self._lock:
            self._uses -= 1
            is_last = self._uses == 0
        if is_last:
            self.memory.close()

    def close(self) -> bool:
        """Mark it closed; False if it was closed before."""
        with self._lock:
            was_closed, self.is_closed = self.is_closed, True
        return not was_closed


_allocations: WeakValueDictionary[int, _Allocation] = WeakValueDictionary()  # by the number of the allocation


def allocation_of(number: int) -> _Allocation | None:
    """Return the shared state of an allocation; None for memory that no plain buffer owns."""
    return _allocations.get(number)


class PlainBuffer(Buffer):
    """Memory that only its back-end's verbs can reach."""

    __slots__ = ("__weakref__", "_allocation", "_first", "_is_closed", "_owns", "_size", "_stream", "_device")

    _allocation: _Allocation
    _first: int
    _is_closed: bool
    _owns: bool
    _size: int
    _stream: Stream | None
    _device: Any

    @classmethod
    def _make(cls, allocation: _Allocation, device: Any, first: int, size: int, *, owns: bool) -> PlainBuffer:
        buffer = cls.__new__(cls)
        buffer._allocation, buffer._device, buffer._first, buffer._size = allocation, device, first, size
        buffer._owns, buffer._is_closed, buffer._stream = owns, False, None
        return buffer

    @property
    def backend(self) -> Backend:
        """The back-end whose verbs reach the bytes."""
        return self._allocation.backend

    @property
    def address(self) -> int:
        if self.is_closed:
            raise self._closed()
        return self.last_address

    @property
    def writable_address(self) -> int:
        return self.address

    @property
    def last_address(self) -> int:
        return self._allocation.memory.address + self._first

    @property
    def size(self) -> int:
        return self._size

    @property
    def id(self) -> int:
        return self._allocation.id

    @property
    def is_closed(self) -> bool:
        return self._is_closed or self._allocation.is_closed or self.backend.is_closed

    @property
    def is_imported(self) -> bool:
        return False

    def close(self, *, stream: Stream | None = None) -> None:
        if stream is not None:
            self._stream = checked_stream("Buffer.close", stream)
        self._is_closed = True
        self._free("Buffer.close()")

    def _free(self, freed_by: str) -> None:
        if not (self._owns and self._allocation.close()):
            return
        allocations.forget(self.id, freed_by)
        stream, self._stream = self._stream, None
        if stream is not None and not stream.is_closed:
            with contextlib.suppress(Closed):  # closed by another thread meanwhile
                stream.launch_callback(self._allocation.let_go)
                return
        self._allocation.let_go()

    def hold(self) -> _Allocation:
        """Keep the bytes until ``let_go`` of the returned object; raise ``Closed`` if they are gone."""
        if self.is_closed or not self._allocation.hold():
            raise self._closed()
        return self._allocation

    def export(self, *, allow: Allow = (), rights: str = "rw") -> Handle:
        raise Unsupported(
            f"Buffer.export: {self!r} cannot be shared: back-end {self.backend.name} has no handles "
            f"({Caps.SHARE.name})",
            call="Buffer.export",
            device=self.device.name,
            detail=Refused(reason="lacks", backend=self.backend.name, capability=Caps.SHARE.name),
        )

    def _bytes(self) -> memoryview:
        self.address  # noqa: B018 - raises if it is closed
        memory = self._allocation.memory
        is_seen = isinstance(self.device, HostBase) or Caps.HOST_VIEW in self.backend.caps
        if not (is_seen and isinstance(memory, VisibleMemory)):
            raise Unsupported(
                f"Buffer.view: the host cannot look at {self!r}: back-end {self.backend.name} has no views "
                f"({Caps.HOST_VIEW.name}); copy it to the host",
                call="Buffer.view",
                device=self.device.name,
                detail=Refused(reason="lacks", backend=self.backend.name, capability=Caps.HOST_VIEW.name),
            )
        return memory.host_view()[self._first : self._first + self._size]

    def _part(self, first: int, nbytes: int) -> PlainBuffer:
        return PlainBuffer._make(self._allocation, self.device, self._first + first, nbytes, owns=False)

    def _closed(self) -> Closed:
        if self.backend.is_closed:
            return Closed(
                f"{self.device.name} is closed: its node was left; ask for its devices again with devices()",
                device=self.device.name,
                detail=Refused(reason="left", backend=self.backend.name),
            )
        record = allocations.record_of(self.id)
        if record is None or not record.freed_by:
            return Closed(
                f"a part of {record} was used after its own close(); slice the buffer again",
                detail=Refused(reason="part_closed", allocation=self.id),
            )
        return Closed(
            f"the buffer of {record} was {record.end}; you may have left its `with` block too early",
            device=record.device,
            detail=Refused(
                reason="closed",
                allocation=record.id,
                freed_by=record.freed_by,
                freed_at=str(record.freed_at or ""),
            ),
        )

    def __del__(self) -> None:
        if getattr(self, "_owns", False) and allocations is not None:
            self._free("garbage collection")


PlainBuffer.__name__ = PlainBuffer.__qualname__ = Buffer.__name__  # texts name it Buffer


def plain_buffer(backend: Backend, memory: Memory, device: Any, stream: Stream | None) -> PlainBuffer:
    """Return the buffer that owns the memory that a back-end allocated for a device, or for the host."""
    buffer = PlainBuffer._make(_Allocation(backend, memory), device, 0, memory.size, owns=True)
    buffer._stream = stream
    allocations.remember(buffer, device.name)
    if live_objects.active:
        live_objects.buffer_created(buffer)
    return buffer
