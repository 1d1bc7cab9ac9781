"""Contexts: the primary one of each device, those that a program creates, and peer access between devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peerlane import Device
from peerlane.dialects._shared.machine import Context
from peerlane.dialects.cuda.hardware import chip_of
from peerlane.dialects.cuda.state import call, enums, gpu, invalid, machine, refuse_flags
from peerlane.dialects.gpu.streams import HIGHEST, LOWEST
from peerlane.dialects.gpu.vendor import Reason

contexts = gpu.contexts
_FLAGS = enums["CUctx_flags"]["CU_CTX_FLAGS_MASK"]
_API_VERSION = 3020  # of contexts that cuCtxCreate made
_LIMITS = {"STACK_SIZE": 1024, "PRINTF_FIFO_SIZE": 1 << 20, "MALLOC_HEAP_SIZE": 8 << 20}
_PARTITIONS = {"minSmPartitionSize": 8, "smCoscheduledAlignment": 8}  # of compute capability 9


@call
def cuDevicePrimaryCtxRetain(dev: Device) -> int:
    return contexts.retain(dev).handle


@call
def cuDevicePrimaryCtxRelease_v2(dev: Device) -> None:
    """Drop a reference; the last one ends the device's memory, streams and events."""
    if not contexts.release(dev):
        number = machine.id_of(dev.ordinal)
        raise gpu.vendor.refusal(
            Reason.INVALID_CONTEXT,
            f"the primary context of device {number} is not retained",
            "release it as often as cuDevicePrimaryCtxRetain was called",
        )


@call
def cuDevicePrimaryCtxReset_v2(dev: Device) -> None:
    gpu.peers.forget(dev.ordinal)
    contexts.reset(dev)


@call
def cuDevicePrimaryCtxSetFlags_v2(dev: Device, flags: int) -> None:
    refuse_flags(flags, _FLAGS)
    machine.flags[dev.ordinal] = flags


@call
def cuDevicePrimaryCtxGetState(dev: Device) -> tuple[int, int]:
    return machine.flags.get(dev.ordinal, 0), int(machine.has_primary(dev.ordinal))


def _create(flags: int, dev: Device) -> int:
    refuse_flags(flags, _FLAGS)
    return contexts.create(dev, flags).handle


def _refuse_parameters(*parameters: int) -> None:
    if any(parameters):
        raise gpu.vendor.refusal(
            Reason.UNSUPPORTED,
            "virtual devices have no multiprocessors to choose, and no graphics",
            "pass NULL",
        )


@call
def cuCtxCreate_v2(flags: int, dev: Device) -> int:
    return _create(flags, dev)


@call
def cuCtxCreate_v3(paramsArray: int, numParams: int, flags: int, dev: Device) -> int:
    _refuse_parameters(paramsArray, numParams)
    return _create(flags, dev)


@call
def cuCtxCreate_v4(ctxCreateParams: Mapping[str, int], flags: int, dev: Device) -> int:
    _refuse_parameters(*ctxCreateParams.values())
    return _create(flags, dev)


@call
def cuCtxDestroy_v2(ctx: Context) -> None:
    if ctx.is_primary:
        raise gpu.vendor.refusal(
            Reason.INVALID_CONTEXT,
            "it is the primary context of its device",
            "call cuDevicePrimaryCtxRelease",
        )
    contexts.destroy(ctx, "cuCtxDestroy")


@call
def cuCtxPushCurrent_v2(ctx: Context) -> None:
    contexts.push(ctx)


@call
def cuCtxPopCurrent_v2() -> int:
    return contexts.pop()


@call
def cuCtxSetCurrent(ctx: int) -> None:
    contexts.replace(contexts.of(ctx) if ctx else None)


@call
def cuCtxGetCurrent() -> int:
    """Return the current context, also if it has ended; NULL without one."""
    machine.devices()
    newest = machine.pushed.newest()
    return 0 if newest is None else int(newest[0])


@call
def cuCtxGetDevice() -> int:
    return machine.id_of(machine.context().device.ordinal)


@call
def cuCtxGetFlags() -> int:
    return contexts.flags(machine.context())


@call
def cuCtxSetFlags(flags: int) -> None:
    refuse_flags(flags, _FLAGS)
    contexts.set_flags(machine.context(), flags)


@call
def cuCtxGetId(ctx: int) -> int:
    return (contexts.of(ctx) if ctx else machine.context()).handle


@call
def cuCtxSynchronize() -> None:
    gpu.streams.synchronize_context(machine.context())


@call
def cuCtxGetApiVersion(ctx: int) -> int:
    if ctx:
        contexts.of(ctx)
    else:
        machine.context()
    return _API_VERSION


@call
def cuCtxGetStreamPriorityRange() -> tuple[int, int]:
    machine.context()
    return LOWEST - 1, HIGHEST


def _limit(limit: int) -> str:
    machine.context()
    names = {number: name for name, number in enums["CUlimit"].items()}
    name = names.get(limit, "")
    if not name:
        raise gpu.vendor.refusal(
            Reason.UNSUPPORTED_LIMIT, f"{limit} is not a limit", "pass a member of CUlimit"
        )
    return name.removeprefix("CU_LIMIT_")


class _Limits(dict[tuple[int, str], int]):
    """The limits that programs have set, by the handle of the context and the name."""


@call
def cuCtxGetLimit(limit: int) -> int:
    name = _limit(limit)
    return machine.table(_Limits).get((machine.context().handle, name), _LIMITS.get(name, 0))


@call
def cuCtxSetLimit(limit: int, value: int) -> None:
    """Keep a limit of kernels, of which there are none."""
    machine.table(_Limits)[machine.context().handle, _limit(limit)] = value


@call
def cuCtxEnablePeerAccess(peerContext: Context, Flags: int) -> None:
    refuse_flags(Flags)
    gpu.peers.enable(peerContext.device)


def disable_access(peer: Device) -> None:
    """End the access of the current device to another one; what no device can reach was never enabled."""
    device = machine.context().device
    if device is not peer and device.why_not(peer):
        raise gpu.vendor.refusal(
            Reason.PEER_NOT_ENABLED,
            f"device {machine.id_of(device.ordinal)} does not reach device {machine.id_of(peer.ordinal)}",
            "choose devices for which {can_access_peer} gives 1",
        )
    gpu.peers.disable(peer)


@call
def cuCtxDisablePeerAccess(peerContext: Context) -> None:
    disable_access(peerContext.device)


@call
def cuCtxGetDevice_v2(ctx: int) -> int:
    return machine.id_of((contexts.of(ctx) if ctx else machine.context()).device.ordinal)


@call
def cuCtxSynchronize_v2(ctx: int) -> None:
    gpu.streams.synchronize_context(contexts.of(ctx) if ctx else machine.context())


def _refuse_unknown(value: int, enumeration: str) -> None:
    if value not in enums[enumeration].values():
        raise invalid(f"{value} is not a member", f"pass a member of {enumeration}")


@call
def cuCtxGetCacheConfig() -> int:
    machine.context()
    return enums["CUfunc_cache"]["CU_FUNC_CACHE_PREFER_NONE"]


@call
def cuCtxSetCacheConfig(config: int) -> None:
    """Take a wish of kernels, of which there are none."""
    machine.context()
    _refuse_unknown(config, "CUfunc_cache")


@call
def cuCtxGetSharedMemConfig() -> int:
    machine.context()
    return enums["CUsharedconfig"]["CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE"]


@call
def cuCtxSetSharedMemConfig(config: int) -> None:
    """Take a wish of kernels, of which there are none."""
    machine.context()
    _refuse_unknown(config, "CUsharedconfig")


@call
def cuCtxResetPersistingL2Cache() -> None:
    machine.context()


@call
def cuProfilerStart() -> None:
    """Do nothing: there is no profiler."""


@call
def cuProfilerStop() -> None:
    """Do nothing: there is no profiler."""


def _resource(device: Device, kind: int) -> dict[str, Any]:
    """Return the multiprocessors of a device, the only resource that a virtual one has a figure for."""
    if kind != enums["CUdevResourceType"]["CU_DEV_RESOURCE_TYPE_SM"]:
        raise gpu.vendor.refusal(
            Reason.UNSUPPORTED,
            f"virtual devices have no resource of type {kind}",
            "ask for CU_DEV_RESOURCE_TYPE_SM",
        )
    return {"type": kind, "sm": {"smCount": chip_of(device).multiprocessors, **_PARTITIONS}}


@call
def cuDeviceGetDevResource(device: Device, type: int) -> dict[str, Any]:
    return _resource(device, type)


@call
def cuCtxGetDevResource(hCtx: Context, type: int) -> dict[str, Any]:
    return _resource(hCtx.device, type)
