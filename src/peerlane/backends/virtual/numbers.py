"""The numbers by which native code knows devices."""

from __future__ import annotations

from peerlane.device.base import DeviceBase
from peerlane.errors import Closed, Refused

#: The host; streams of devices whose back-end has no queues run there.
HOST = 0


def number_of(device: DeviceBase) -> int:
    """Return the native number of a device; ``Closed`` if its node was left."""
    backend = device.backend
    if backend.name == "virtual":
        return int(backend.number(device.ordinal))
    backend.ready()
    if backend.is_closed:
        raise Closed(
            f"{device.name} is closed: its node was left; ask for its devices again with devices()",
            device=device.name,
            detail=Refused(reason="left", backend=backend.name),
        )
    return HOST
