"""Opening: turns a handle or a descriptor into an offer of the back-end, and checks it."""

from __future__ import annotations

from typing import Any

from peerlane.backend import registry
from peerlane.backend.facts import HOST_ORDINAL, Caps, HandleKind
from peerlane.errors import AccessDenied, BadArgument, BadHandle, Fault, Refused, Unsupported
from peerlane.node.base import DeviceBase, devices_of
from peerlane.sharing.handle import Handle
from peerlane.support.timeouts import checked_timeout


def open_offer(
    call: str,
    handle: object,
    kind: HandleKind,
    device: DeviceBase | None,
    timeout: float | None,
    *,
    reaches: bool = True,
) -> tuple[Any, Any]:
    """Ask the exporter of a handle for the exported object; return the offer, and the device whose memory it is.

    The device is None for physical memory of the host.

    ``reaches``: ``device`` must reach that device.
    """
    if device is not None and not isinstance(device, DeviceBase):
        raise TypeError(f"{call}: the device must be a Device, not {type(device).__name__}")
    if isinstance(handle, Handle):
        handle = bytes(handle)
    if isinstance(handle, bool) or not isinstance(handle, (int, bytes, str)):
        raise TypeError(f"{call}: a handle is a Handle, bytes, str or int, not {type(handle).__name__}")
    seconds = checked_timeout(call, timeout)
    present = _sharing(call)
    offer = present[0].backend.open_handle(kind, handle, seconds)
    return _checked_offer(
        call, offer, device if reaches else None, present, is_physical=kind is HandleKind.PHYSICAL
    )


def open_file(call: str, fd: object, device: DeviceBase | None) -> tuple[Any, Any]:
    """Inspect the descriptor of a block's file; return the offer and the device of its memory, None: the host."""
    if device is not None and not isinstance(device, DeviceBase):
        raise TypeError(f"{call}: the device must be a Device, not {type(device).__name__}")
    if isinstance(fd, bool) or not isinstance(fd, int):
        raise TypeError(f"{call}: a descriptor is an int, not {type(fd).__name__}")
    if not 0 <= fd < 1 << 31:
        raise BadHandle(
            f"{call}: {fd} is not a descriptor; valid are 0 to {(1 << 31) - 1:,}",
            call=call,
            detail=BadArgument("fd", fd, least=0, most=(1 << 31) - 1),
        )
    present = _sharing(call)
    return _checked_offer(call, present[0].backend.open_file(fd), device, present, is_physical=True)


def _sharing(call: str) -> tuple[Any, ...]:
    """Return the devices of the process's node; Unsupported if its back-end cannot share memory."""
    backend = registry.current()
    if Caps.SHARE not in backend.caps:
        raise Unsupported(
            f"{call}: needs {Caps.SHARE.name}, which back-end {backend.name} lacks",
            call=call,
            detail=Refused(reason="lacks", backend=backend.name, capability=Caps.SHARE.name),
        )
    present: tuple[Any, ...] = devices_of(backend)
    return present


def _checked_offer(
    call: str, offer: Any, device: DeviceBase | None, present: tuple[Any, ...], *, is_physical: bool
) -> tuple[Any, Any]:
    try:
        number, size = offer.device, offer.size
        if is_physical and number == HOST_ORDINAL and size:
            return offer, None
        return offer, _home(call, number, size, device, present)
    except BaseException:
        offer.close()
        raise


def _home(call: str, number: int, size: int, device: DeviceBase | None, present: tuple[Any, ...]) -> Any:
    if number >= len(present):
        raise BadHandle(
            f"{call}: the process that made the handle claims device {number}, which this node lacks",
            fault=Fault.FALSE_CLAIM,
            call=call,
            detail=Refused(reason="false_claim", device=number),
        )
    home = present[number]
    if not size:
        raise BadHandle(
            f"{call}: the process that made the handle claims memory of 0 bytes",
            fault=Fault.FALSE_CLAIM,
            call=call,
            detail=Refused(reason="false_claim", size=0),
        )
    if size > home.total_bytes:  # a false size would use up the device's capacity
        raise BadHandle(
            f"{call}: the process that made the handle claims {size:,} bytes on {home.name}, which has "
            f"{home.total_bytes:,}",
            fault=Fault.FALSE_CLAIM,
            call=call,
            detail=Refused(reason="false_claim", size=size, capacity=home.total_bytes, device=home.name),
        )
    if device is not None and device is not home and not device.can_access(home):
        raise AccessDenied(
            f"{call}: the memory is on {home.name}, which {device.name} cannot reach: {device.why_not(home)}",
            fault=Fault.PEER_UNREACHABLE,
            call=call,
            device=device.name,
            detail=Refused(
                reason="unreachable", device=device.name, peer=home.name, why=device.why_not(home)
            ),
        )
    return home
