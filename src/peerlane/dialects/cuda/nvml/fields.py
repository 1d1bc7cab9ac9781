"""Values that a program asks for by the numbers of fields."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from peerlane import Device
from peerlane.dialects.cuda.hardware import chip_of
from peerlane.dialects.cuda.nvml.links import active_links
from peerlane.dialects.cuda.nvml.state import call, code, constants, enums, invalid

_TYPE = enums["nvmlValueType_t"]["NVML_VALUE_TYPE_UNSIGNED_INT"]


def _link_speed(device: Device) -> int | None:
    return chip_of(device).link_mbps if active_links(device) else None


_FIELDS: dict[int, Callable[[Device], int | None]] = {
    constants[f"NVML_FI_DEV_{name}"]: value
    for name, value in {
        "ECC_CURRENT": lambda device: int(chip_of(device).has_ecc),
        "ECC_PENDING": lambda device: int(chip_of(device).has_ecc),
        "NVLINK_LINK_COUNT": active_links,
        "NVLINK_SPEED_MBPS_COMMON": _link_speed,
    }.items()
}


def _value(device: Device, field: int) -> dict[str, Any]:
    """Return the outputs for a field, with a code of its own."""
    read = _FIELDS.get(field)
    value = read(device) if read is not None else None
    if value is None:
        return {"nvmlReturn": code("NOT_SUPPORTED")}
    now = time.time_ns() // 1000
    return {"nvmlReturn": 0, "valueType": _TYPE, "timestamp": now, "value": {"uiVal": value}}


@call
def nvmlDeviceGetFieldValues(device: Device, valuesCount: int, values: Any) -> list[dict[str, Any]]:
    if valuesCount < 1:
        raise invalid(f"valuesCount is {valuesCount}", "pass 1 or more")
    return [
        {"fieldId": each["fieldId"], "scopeId": each["scopeId"], **_value(device, each["fieldId"])}
        for each in values
    ]
