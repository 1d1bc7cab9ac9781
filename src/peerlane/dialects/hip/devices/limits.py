"""``hip``: limits and settings of a device for kernels, which are kept and have no effect."""

from __future__ import annotations

from typing import Any

from peerlane import Device
from peerlane.dialects.hip.binding.convention import invalid, refusal
from peerlane.dialects.hip.binding.enums import enumeration
from peerlane.dialects.hip.state import calls, machine

_STACK_MOST = (8 << 20) // 64 - 16  # of a thread: of the 8 MiB of a wave of 64
_STACK_STEP = 16
_SCRATCH_MOST = 32 << 30  # 4 GiB for each of the 8 dies of an MI300X


class _Limits:
    """What hipDeviceSetLimit set, of one device, in bytes."""

    stack = 1024
    heap = 8 << 20
    scratch = 24 << 30


class _Devices(dict[int, _Limits]):
    """The limits by device number."""


def _limits(device: Device) -> _Limits:
    limits = machine.table(_Devices)
    with machine.lock:
        return limits.setdefault(device.ordinal, _Limits())


def _refuse_range(limit: Any) -> None:
    if limit.name == "hipLimitRange":
        raise invalid("hipLimitRange is the end of the limits, not one of them", "pass hipLimitStackSize")


def _unsupported(limit: Any, does: str) -> Exception:
    return refusal(
        "hipErrorUnsupportedLimit", f"a device does not {does} {limit.name}", "do without this limit"
    )


@calls.call("hipDeviceGetLimit")
def hipDeviceGetLimit(limit: Any) -> int:
    """Return a limit of the current device: of its stack, heap or scratch memory.

    Gives: bytes
    Refuses: hipErrorInvalidValue hipLimitRange; hipErrorUnsupportedLimit other limits
    Basis: D
    """
    _refuse_range(limit)
    of = _limits(machine.context().device)
    values = {
        "hipLimitStackSize": of.stack,
        "hipLimitMallocHeapSize": of.heap,
        "hipExtLimitScratchMin": 0,
        "hipExtLimitScratchMax": _SCRATCH_MOST,
        "hipExtLimitScratchCurrent": of.scratch,
    }
    if limit.name not in values:
        raise _unsupported(limit, "have")
    return values[limit.name]


@calls.call("hipDeviceSetLimit")
def hipDeviceSetLimit(limit: Any, value: int) -> None:
    """Set a limit of the current device; nothing depends on it.  The stack becomes a multiple of 16 bytes.

    Refuses: hipErrorInvalidValue hipLimitRange, more than there may be; hipErrorUnsupportedLimit other limits
    Basis: D
    """
    _refuse_range(limit)
    of = _limits(machine.context().device)
    if limit.name == "hipLimitStackSize":
        _refuse_more(limit, value, _STACK_MOST)
        of.stack = -(-value // _STACK_STEP) * _STACK_STEP
    elif limit.name == "hipLimitMallocHeapSize":
        of.heap = value
    elif limit.name == "hipExtLimitScratchCurrent":
        _refuse_more(limit, value, _SCRATCH_MOST)
        of.scratch = value
    else:
        raise _unsupported(limit, "set")


def _refuse_more(limit: Any, value: int, most: int) -> None:
    if value > most:
        raise invalid(f"{limit.name} is {value:,}; the most is {most:,}", "pass fewer bytes")


@calls.call("hipDeviceSetCacheConfig")
def hipDeviceSetCacheConfig(cacheConfig: Any) -> None:
    """Do nothing, as the vendor's: the caches of a device cannot be set.

    Basis: D
    """


@calls.call("hipDeviceGetCacheConfig")
def hipDeviceGetCacheConfig() -> Any:
    """Return how the current device's caches are set.

    Gives: hipFuncCachePreferNone
    Basis: D
    """
    return enumeration("hipFuncCache_t")["hipFuncCachePreferNone"]


@calls.call("hipDeviceSetSharedMemConfig")
def hipDeviceSetSharedMemConfig(config: Any) -> None:
    """Do nothing, as the vendor's: the banks of shared memory cannot be set.

    Basis: D
    """


@calls.call("hipDeviceGetSharedMemConfig")
def hipDeviceGetSharedMemConfig() -> Any:
    """Return how wide the banks of the current device's shared memory are.

    Gives: hipSharedMemBankSizeFourByte
    Basis: D
    """
    return enumeration("hipSharedMemConfig")["hipSharedMemBankSizeFourByte"]


calls.declare_alias("hipCtxGetSharedMemConfig", "hipDeviceGetSharedMemConfig")
