"""Physical memory: native blocks."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from peerlane import _core
from peerlane.backend.facts import HandleKind
from peerlane.backends.virtual.handle import VirtualHandle
from peerlane.backends.virtual.native_classes import number_of, show_as
from peerlane.diagnostics import live_objects
from peerlane.diagnostics.log import observers
from peerlane.errors import AccessDenied, BadArgument, Fault, Refused, Unsupported, was_closed
from peerlane.memory.physical import Physical
from peerlane.sharing.handle import Allow, Handle, checked_rights


class VirtualPhysical(Physical):
    __slots__ = ("__weakref__", "_backend", "_block", "_user", "_device", "_id", "_size")
    _backend: Any
    _block: _core.Block
    _user: int  # the native number of the device that it was opened for
    _device: Any
    _id: int
    _size: int

    def _hold(self, backend: Any, block: _core.Block, device: Any, user: Any) -> None:
        self._backend, self._block, self._device = backend, block, device
        self._id, self._size = block.id, block.size
        self._user = block.device if user is device else number_of(user)
        if live_objects.active:
            live_objects.created(self)

    @classmethod
    def _make(cls, backend: Any, block: _core.Block, device: Any) -> VirtualPhysical:
        physical = object.__new__(cls)
        physical._hold(backend, block, device, device)
        return physical

    @classmethod
    def _adopt(cls, backend: Any, offer: _core.Offer, home: Any, device: Any) -> VirtualPhysical:
        physical = object.__new__(cls)
        physical._hold(backend, backend.adopt(offer), home, device or home)
        if observers.active:
            observers.send("import", physical)
        return physical

    def export(self, *, allow: Allow = (), rights: str = "rw") -> Handle:
        block = self._open("Physical.export")
        wanted, backend = checked_rights("Physical.export", rights), self._backend
        _core.check_usable()
        if block.is_imported:
            raise Unsupported(
                f"Physical.export: {self!r} was made by another process, and only that process can export it; "
                "ask it for a handle",
                call="Physical.export",
                device=self.device.name,
                detail=Refused(reason="imported", size=self.size),
            )
        part = (0, self._size)
        return VirtualHandle._make(
            self, allow, lambda pids: backend.offer(HandleKind.PHYSICAL, block, part, wanted, pids)
        )

    def export_fd(self, *, rights: str = "rw") -> int:
        call = "Physical.export_fd"
        block = self._open(call)
        read_only = checked_rights(call, rights) == 1
        _core.check_usable()
        if block.is_read_only and not read_only:
            raise AccessDenied(
                f'{call}: {self!r} was shared with this process read-only; pass rights="r"',
                fault=Fault.READ_ONLY,
                call=call,
                device=self.device.name,
                detail=BadArgument("rights", rights, choices=("r",)),
            )
        fd = block.export_file(read_only)
        if observers.active:
            observers.send("export", self)
        return fd

    @property
    def is_closed(self) -> bool:
        return self._block.is_closed or bool(self._backend.is_closed)

    @property
    def is_imported(self) -> bool:
        return self._open("Physical.is_imported").is_imported

    @property
    def is_read_only(self) -> bool:
        return self._open("Physical.is_read_only").is_read_only

    def close(self) -> None:
        self._block.close()

    def _open(self, call: str) -> _core.Block:
        if self.is_closed:
            raise was_closed(call, self, self.device.name)
        return self._block

    def __enter__(self) -> Physical:
        self._open("Physical")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = " closed" if self.is_closed else " imported" if self._block.is_imported else ""
        return f"<Physical {self.size:,} bytes on {self.device.name}{state}>"


show_as(Physical, VirtualPhysical)
