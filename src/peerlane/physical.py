"""Physical memory: bytes of a device without an address, which address ranges map and processes share."""

from __future__ import annotations

from types import TracebackType

from peerlane import _core
from peerlane.device import Device, checked_size
from peerlane.errors import Closed, InvalidValue


class Physical:
    """A block of a device's memory.  It has no address until an :class:`AddressRange` maps it.

    Parameters
    ----------
    device : Device
        Whose memory it is, and whose capacity it takes.
    nbytes : int
        Bytes, a multiple of ``Device.granularity``.

    Attributes
    ----------
    device : Device
        Whose memory it is.
    size : int
        Bytes.

    Raises
    ------
    InvalidValue, OutOfMemory, Closed
        Nothing is allocated then.
    """

    __slots__ = ("__weakref__", "_block", "device", "size")

    _block: _core.Block
    device: Device
    size: int

    def __init__(self, device: Device, nbytes: int) -> None:
        if not isinstance(device, Device):
            raise TypeError(f"Physical: the device must be a Device, not {type(device).__name__}")
        nbytes = checked_size(nbytes, "Physical")
        granularity = device.granularity
        if nbytes % granularity:
            raise InvalidValue(
                f"Physical: {nbytes:,} bytes are not a multiple of the granularity of {granularity:,}; round up to "
                f"{-(-nbytes // granularity) * granularity:,}",
                call="Physical",
                device=device.name,
            )
        self._hold(device.backend.create_physical(device.ordinal, nbytes), device)

    def _hold(self, block: _core.Block, device: Device) -> None:
        self._block, self.device, self.size = block, device, block.size

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called, or the node was left."""
        return self._block.is_closed or self.device.is_closed

    @property
    def is_imported(self) -> bool:
        """Whether another process made it."""
        return self._open("Physical.is_imported").is_imported

    @property
    def is_read_only(self) -> bool:
        """Whether the process that made it lets this one only read it."""
        return self._open("Physical.is_read_only").is_read_only

    def close(self) -> None:
        """Let go; idempotent.  The bytes live while they are mapped, or held by another process."""
        self._block.close()

    def _open(self, call: str) -> _core.Block:
        if self.is_closed:
            raise Closed(f"{call}: {self!r} was closed", call=call, device=self.device.name)
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
