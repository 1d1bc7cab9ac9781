"""Events, none of which ever happens on a virtual device."""

from __future__ import annotations

import time
from typing import Any

from peerlane import Device
from peerlane.dialects.cuda.nvml.state import call, event_sets, refusal

_FIRST_HANDLE = 0x6E76_6D6D_0000
_SINGLE_BIT_ECC, _DOUBLE_BIT_ECC, _XID = 1, 2, 8  # nvmlEventType...
_TYPES = _SINGLE_BIT_ECC | _DOUBLE_BIT_ECC | _XID


class _Sets:
    created = 0


@call
def nvmlEventSetCreate() -> int:
    _Sets.created += 1
    handle = _FIRST_HANDLE + _Sets.created
    event_sets.add(handle)
    return handle


@call
def nvmlEventSetFree(set: Any) -> None:
    event_sets.discard(set)


@call
def nvmlDeviceGetSupportedEventTypes(device: Device) -> int:
    return _TYPES


@call
def nvmlDeviceRegisterEvents(device: Device, eventTypes: int, set: Any) -> None:
    if eventTypes & ~_TYPES:
        raise refusal("NOT_SUPPORTED", f"types are {eventTypes:#x}", f"pass bits of {_TYPES:#x}")


def _wait(timeout_ms: int) -> dict[str, int]:
    time.sleep(timeout_ms / 1000)
    raise refusal("TIMEOUT", f"no event came within {timeout_ms} ms", "wait again, or do not wait")


@call
def nvmlEventSetWait(set: Any, timeoutms: int) -> dict[str, int]:
    return _wait(timeoutms)


@call
def nvmlEventSetWait_v2(set: Any, timeoutms: int) -> dict[str, int]:
    return _wait(timeoutms)
