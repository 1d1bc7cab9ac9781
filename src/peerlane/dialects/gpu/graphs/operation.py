"""What a node of a graph does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from peerlane import Device


class Operation(Protocol):
    """What a node of a graph does.

    ``kind``: the type of the node, as ``"WAIT_EVENT"``.
    """

    @property
    def kind(self) -> str: ...

    def prepared(self, device: Device) -> Callable[[Any], object]:
        """Check the arguments as the call does that queues it; return what queues it on a stream of the device."""
        ...
