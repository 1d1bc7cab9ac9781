"""The processes that hold memory of a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peerlane import Device
from peerlane.dialects.cuda.nvml.state import calls, refusal

_NO_INSTANCE = (1 << 32) - 1
_Body = Callable[..., "tuple[int, list[dict[str, int]]]"]


def _running(device: Device, room: int, infos: list[dict[str, int]]) -> tuple[int, list[dict[str, int]]]:
    """Return how many there are and what each holds, if there is room for all (facts/cuda 7.2)."""
    if len(infos) > room:
        cause = f"there are {len(infos)} processes, and there is room for {room}"
        raise refusal("INSUFFICIENT_SIZE", cause, "pass room for as many", len(infos), None)
    return len(infos), infos


def _compute(**more: int) -> _Body:
    def body(device: Device, infoCount: int) -> tuple[int, list[dict[str, int]]]:
        holders: Any = device.backend.memory_holders(device.ordinal)
        infos = [{"pid": each.pid, "usedGpuMemory": each.nbytes, **more} for each in holders]
        return _running(device, infoCount, infos)

    return body


def _none(device: Device, infoCount: int) -> tuple[int, list[dict[str, int]]]:
    return 0, []


_IN_NO_INSTANCE = {"gpuInstanceId": _NO_INSTANCE, "computeInstanceId": _NO_INSTANCE}
for _version, _more in (("", {}), ("_v2", _IN_NO_INSTANCE), ("_v3", _IN_NO_INSTANCE)):
    calls.define(f"nvmlDeviceGetComputeRunningProcesses{_version}", _compute(**_more))
    calls.define(f"nvmlDeviceGetGraphicsRunningProcesses{_version}", _none)
    calls.define(f"nvmlDeviceGetMPSComputeRunningProcesses{_version}", _none)
