"""Which devices of the node HIP shows a process, by the vendor's environment variables (spec hip 3.2)."""

from __future__ import annotations

import os
from collections.abc import Sequence

from peerlane import Device

# The first is applied before the others; of those the first that is set counts.
_RUNTIME = "ROCR_VISIBLE_DEVICES"
_HIP = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def visible(devices: Sequence[Device]) -> tuple[Device, ...]:
    """Return the devices that are shown, in the order of the variable, numbered anew from 0.

    A list ends before its first entry that is no device; an empty variable shows all.
    """
    shown = _chosen(os.environ.get(_RUNTIME, ""), devices)
    for name in _HIP:
        if os.environ.get(name):
            return _chosen(os.environ[name], shown)
    return shown


def _chosen(text: str, devices: Sequence[Device]) -> tuple[Device, ...]:
    if not text.strip():
        return tuple(devices)
    found: list[Device] = []
    for entry in text.split(","):
        number = entry.strip()
        if not number.isdecimal() or int(number) >= len(devices) or devices[int(number)] in found:
            break
        found.append(devices[int(number)])
    return tuple(found)
