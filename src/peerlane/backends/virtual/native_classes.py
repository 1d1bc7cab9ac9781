"""What all classes over native ones need: the native numbers of devices, and the names that programs see."""

from __future__ import annotations

from peerlane.errors import Closed, Refused
from peerlane.node.base import DeviceBase, HostBase

#: The native number of the host, where streams of devices without queues of their own run.
HOST = 0


def number_of(device: DeviceBase | HostBase) -> int:
    """Return the native number of a device or the host; ``Closed`` if the device's node was left."""
    if isinstance(device, HostBase):
        return HOST
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


def show_as(neutral: type, *kinds: type) -> None:
    """Give classes the name of the neutral class that they implement, the one that programs know."""
    for kind in kinds:
        kind.__name__, kind.__qualname__ = neutral.__name__, neutral.__qualname__
