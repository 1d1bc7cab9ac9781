"""The type of what copies, writes and collectives take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import Buffer as SupportsBuffer


class SupportsDLPack(Protocol):
    """An object that exports its memory by DLPack, as tensors do."""

    def __dlpack__(self, *args: Any, **options: Any) -> Any:
        """Return a capsule with the memory."""
        ...

    def __dlpack_device__(self) -> tuple[Any, int]:
        """Return the kind and the number of the device that has the memory."""
        ...


#: A :class:`peerlane.Buffer`, an array, a tensor, bytes, or another object of the host that exports its bytes.
BufferLike: TypeAlias = "SupportsBuffer | SupportsDLPack"
