"""Memory of a process on another machine: it has a size and parts, and no address here."""

from __future__ import annotations

from typing import Any, NoReturn

from peerlane.backend.facts import Route
from peerlane.errors import Refused, Unsupported
from peerlane.memory.buffer import Buffer, checked_part
from peerlane.sharing.handle import Allow, Handle
from peerlane.streams.stream import Stream


class FarBuffer(Buffer):
    """Memory that a peer on another machine offers over a channel, or a part of it.

    Only the operations of that channel reach it.  Whatever needs an address, a view or a handle raises Unsupported.

    Attributes
    ----------
    end : object
        The end of the channel.
    number, first : int
        The memory's number there, and the offset of the first byte.
    name : str
        What it is, for texts.
    """

    _is_elsewhere = True
    __slots__ = ("__weakref__", "_size", "_device", "end", "first", "name", "number")

    _size: int
    _device: Any
    end: Any
    first: int
    name: str
    number: int

    @classmethod
    def _make(cls, end: object, device: Any, number: int, first: int, size: int, name: str) -> FarBuffer:
        buffer = cls.__new__(cls)
        buffer.end, buffer._device, buffer.name = end, device, name
        buffer.number, buffer.first, buffer._size = number, first, size
        return buffer

    @property
    def blocks(self) -> list[tuple[int, int, int]]:
        """Where it lies, for event logs: blocks, offsets and sizes; empty if the peer has no event log."""
        blocks: list[tuple[int, int, int]] = self.end.blocks(self.number, self.first, self._size)
        return blocks

    def refuse(self, what: str) -> NoReturn:
        """Raise Unsupported for a call that needs an address."""
        raise Unsupported(
            f"{what}: {self.name} is on another machine, where this process has no address for it; use the channel's "
            "write, read, write_reduce, write_blocks and their kin, or copy the bytes here with read",
            call=what,
            detail=Refused(reason="far_memory", memory=self.name, size=self._size),
        )

    @property
    def address(self) -> int:
        self.refuse("Buffer.address")

    @property
    def writable_address(self) -> int:
        self.refuse("Buffer.writable_address")

    @property
    def last_address(self) -> int:
        return 0

    @property
    def size(self) -> int:
        return self._size

    @property
    def id(self) -> int:
        return 0

    @property
    def is_closed(self) -> bool:
        return False

    @property
    def is_imported(self) -> bool:
        return True

    def close(self, *, stream: Stream | None = None) -> None:
        """Do nothing: the memory is the peer's."""

    def export(self, *, allow: Allow = (), rights: str = "rw") -> Handle:
        self.refuse("Buffer.export")

    def fill(self, value: int | bytes, *, stream: Stream | None = None) -> None:
        self.refuse("Buffer.fill")

    def route_to(self, dst: Buffer) -> Route:
        return Route("far", f"{self.name} is on another machine")

    def _bytes(self) -> memoryview:
        self.refuse("Buffer.view")

    def __getitem__(self, index: slice) -> FarBuffer:
        first, last = checked_part("Buffer", index, self._size, self.device)
        return FarBuffer._make(
            self.end, self.device, self.number, self.first + first, last - first, self.name
        )

    def __enter__(self) -> FarBuffer:
        return self

    def __repr__(self) -> str:
        return f"<Buffer {self._size:,} bytes of {self.name} on another machine>"
