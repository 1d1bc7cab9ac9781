"""The paths between devices, what they allow, and the processors near a device."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from peerlane import Device, devices
from peerlane.dialects.cuda.nvml.state import call, constants, enums, handle_of, invalid, refusal
from peerlane.dialects.cuda.paths import NVLINK, access_state

_LEVELS = {
    "X": "INTERNAL",
    "PIX": "SINGLE",
    "PXB": "MULTIPLE",
    "PHB": "HOSTBRIDGE",
    "NODE": "NODE",
    "SYS": "SYSTEM",
}
_LEVEL_NUMBERS = enums["nvmlGpuTopologyLevel_t"]
_STATUS = enums["nvmlGpuP2PStatus_t"]
_WORD = 64
_ONLY_NODE = 0
_SCOPES = (constants["NVML_AFFINITY_SCOPE_NODE"], constants["NVML_AFFINITY_SCOPE_SOCKET"])


def _level(a: Device, b: Device) -> int:
    """Return the path over PCIe; two devices that something else joins have one within a NUMA node, or across."""
    beside = "NODE" if a.info.switch == b.info.switch else "SYSTEM"
    return _LEVEL_NUMBERS[f"NVML_TOPOLOGY_{_LEVELS.get(a.link(b), beside)}"]


@call
def nvmlDeviceGetTopologyCommonAncestor(device1: Device, device2: Device) -> int:
    return _level(device1, device2)


def _counted(members: Sequence[Device], count: int) -> tuple[int, list[int]]:
    """Return how many there are, and as many handles as there is room for; 0 asks for the number alone."""
    handles = [handle_of(each) for each in members][:count]
    return (len(handles) if count else len(members)), handles


@call
def nvmlDeviceGetTopologyNearestGpus(device: Device, level: int, count: int) -> tuple[int, list[int]]:
    if level not in _LEVEL_NUMBERS.values():
        raise invalid(f"{level} is not a level", "pass a member of nvmlGpuTopologyLevel_t")
    return _counted(
        [each for each in devices() if each is not device and _level(device, each) == level], count
    )


@call
def nvmlSystemGetTopologyGpuSet(cpuNumber: int, count: int) -> tuple[int, list[int]]:
    if cpuNumber not in _processors():
        raise invalid(f"there is no processor {cpuNumber}", "pass a number of this machine")
    return _counted(devices(), count)


@call
def nvmlDeviceGetP2PStatus(device1: Device, device2: Device, p2pIndex: int) -> int:
    """Return whether the first device can do something with the memory of the second one."""
    names = {number: name for name, number in enums["nvmlGpuP2PCapsIndex_t"].items()}
    if p2pIndex not in names:
        raise invalid(f"{p2pIndex} is not an index", "pass a member of nvmlGpuP2PCapsIndex_t")
    if device1 is device2:
        raise invalid("both devices are one", "pass two devices")
    index = names[p2pIndex].removeprefix("NVML_P2P_CAPS_INDEX_")
    if index == "UNKNOWN":
        return _STATUS["NVML_P2P_STATUS_UNKNOWN"]
    is_joined = device1.link(device2) == NVLINK
    status = access_state(
        can_access=device1.can_access(device2), is_beside=device1.info.switch == device2.info.switch
    )
    if status == "OK" and index not in ("READ", "WRITE") and is_joined != (index in ("NVLINK", "ATOMICS")):
        status = "NOT_SUPPORTED"
    return _STATUS[f"NVML_P2P_STATUS_{status}"]


def _processors() -> set[int]:
    return set(range(os.cpu_count() or 1))


def _set(members: Iterable[int], words: int) -> list[int]:
    """Return a set of numbers as bits, if there is room for it."""
    bits = sum(1 << each for each in members)
    if not words:
        raise invalid("there is room for 0 words", "pass 1 or more")
    if bits >> _WORD * words:
        needed = -(-bits.bit_length() // _WORD)
        raise refusal("INSUFFICIENT_SIZE", f"there is room for {words} words", f"pass {needed}")
    return [bits >> _WORD * at & (1 << _WORD) - 1 for at in range(words)]


def _refuse_scope(scope: int) -> None:
    if scope not in _SCOPES:
        raise invalid(f"{scope} is not a scope", f"pass one of {_SCOPES}")


@call
def nvmlDeviceGetCpuAffinity(device: Device, cpuSetSize: int) -> list[int]:
    """Return all processors: those of the machine are near each virtual device."""
    return _set(_processors(), cpuSetSize)


@call
def nvmlDeviceGetCpuAffinityWithinScope(device: Device, cpuSetSize: int, scope: int) -> list[int]:
    _refuse_scope(scope)
    return _set(_processors(), cpuSetSize)


@call
def nvmlDeviceGetMemoryAffinity(device: Device, nodeSetSize: int, scope: int) -> list[int]:
    _refuse_scope(scope)
    return _set([_ONLY_NODE], nodeSetSize)


@call
def nvmlDeviceSetCpuAffinity(device: Device) -> None:
    """Let the calling thread run on the processors near a device, which are all."""
    os.sched_setaffinity(0, _processors())


@call
def nvmlDeviceClearCpuAffinity(device: Device) -> None:
    os.sched_setaffinity(0, _processors())
