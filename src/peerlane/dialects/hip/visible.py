"""What HIP shows a process of the node, by the vendor's environment variables: devices (facts/hip 3.2), free memory.

Two parts of the vendor's runtime read the lists of devices, each by rules of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from peerlane import Device
from peerlane.dialects._shared.environment import positions

_RUNTIME = "ROCR_VISIBLE_DEVICES"  # applied before the others
_HIP = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")  # the first that is not empty counts
_HIDDEN = "HIP_HIDDEN_FREE_MEM"  # MiB
_PREFIX = "GPU-"
_SHORTEST, _LONGEST = 5, 20  # characters of a UUID that the lower part of the runtime takes


def uuid_of(device: Device) -> bytes:
    """Return a device's UUID as the vendor takes it: 16 hexadecimal digits, as text."""
    return device.uuid[:8].hex().encode()


def hidden_bytes() -> int:
    """Return how many free bytes hipMemGetInfo leaves out; a text that is not a number means 0."""
    hidden = os.environ.get(_HIDDEN, "")
    return int(hidden) << 20 if hidden.isdecimal() else 0


def visible(devices: Sequence[Device]) -> tuple[Device, ...]:
    """Return the devices that are shown, in the order of the variable, numbered anew from 0.

    A list has numbers and UUIDs, ``GPU-`` and hexadecimal digits, which may be cut; it ends before its first entry
    that is not a device.
    """
    lower, shown = os.environ.get(_RUNTIME), tuple(devices)
    if lower is not None:
        shown = _listed(lower, shown, _runtime_entry, ends_at_second=True)
    upper = next(filter(None, map(os.environ.get, _HIP)), None)
    return shown if upper is None else _listed(upper, shown, _hip_entry)


def _listed(
    text: str,
    devices: tuple[Device, ...],
    position_of: Callable[[str, tuple[Device, ...]], int | None],
    *,
    ends_at_second: bool = False,
) -> tuple[Device, ...]:
    """Return the devices of a list; a device named twice is skipped, or ends the list."""
    shown: dict[Device, None] = {}
    for position in positions(text, len(devices), lambda entry: position_of(entry, devices)):
        if ends_at_second and devices[position] in shown:
            break
        shown[devices[position]] = None
    return tuple(shown)


def _runtime_entry(entry: str, devices: tuple[Device, ...]) -> int | None:
    """Return the position of a number, hexadecimal too, or of the one UUID that begins so, in capitals or not."""
    entry = entry.strip()
    if entry[:1] in ("G", "g"):
        if not _SHORTEST <= len(entry) <= _LONGEST:
            return None
        alike = _beginning(entry.lower(), devices, _PREFIX.lower())
        return alike[0] if len(alike) == 1 else None
    try:
        return int(entry, 0)
    except ValueError:
        return None


def _hip_entry(entry: str, devices: tuple[Device, ...]) -> int | None:
    """Return the position of a plain number, or of the first UUID that begins so."""
    if entry.startswith(_PREFIX):
        return next(iter(_beginning(entry, devices, _PREFIX)), None)
    return int(entry) if entry.isdecimal() and str(int(entry)) == entry else None


def _beginning(entry: str, devices: tuple[Device, ...], prefix: str) -> list[int]:
    uuids = [prefix + uuid_of(device).decode() for device in devices]
    return [index for index, uuid in enumerate(uuids) if uuid.startswith(entry)]
