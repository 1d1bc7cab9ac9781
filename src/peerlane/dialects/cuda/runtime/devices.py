"""Devices of the runtime: how many, which is current, what they are, and which reach one another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peerlane import Device
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.cuda.contexts import disable_access
from peerlane.dialects.cuda.devices import FIGURES, attribute, uuid_of
from peerlane.dialects.cuda.runtime.table import call, current, of_version_12, same_as_driver
from peerlane.dialects.cuda.state import enums, gpu, machine, refuse_flags
from peerlane.dialects.gpu.vendor import Reason

_FLAGS = enums["CUctx_flags"]["CU_CTX_FLAGS_MASK"]
_ATTRIBUTES = {
    name.removeprefix("CU_DEVICE_ATTRIBUTE_"): number for name, number in enums["CUdevice_attribute"].items()
}

same_as_driver(
    cudaDeviceSynchronize="cuCtxSynchronize",
    cudaThreadSynchronize="cuCtxSynchronize",
    cudaDeviceSetLimit="cuCtxSetLimit",
    cudaDeviceGetLimit="cuCtxGetLimit",
    cudaDeviceGetCacheConfig="cuCtxGetCacheConfig",
    cudaDeviceSetCacheConfig="cuCtxSetCacheConfig",
    cudaDeviceGetSharedMemConfig="cuCtxGetSharedMemConfig",
    cudaDeviceSetSharedMemConfig="cuCtxSetSharedMemConfig",
    cudaCtxResetPersistingL2Cache="cuCtxResetPersistingL2Cache",
    cudaDeviceGetStreamPriorityRange="cuCtxGetStreamPriorityRange",
    cudaDeviceGetByPCIBusId="cuDeviceGetByPCIBusId",
    cudaDeviceGetPCIBusId="cuDeviceGetPCIBusId",
    cudaDeviceGetAttribute="cuDeviceGetAttribute",
    cudaDeviceGetP2PAttribute="cuDeviceGetP2PAttribute",
    cudaDeviceCanAccessPeer="cuDeviceCanAccessPeer",
    cudaDeviceFlushGPUDirectRDMAWrites="cuFlushGPUDirectRDMAWrites",
    cudaDriverGetVersion="cuDriverGetVersion",
    cudaProfilerStart="cuProfilerStart",
    cudaProfilerStop="cuProfilerStop",
)


@call
def cudaGetDeviceCount() -> int:
    return len(machine.shown())


@call
def cudaSetDevice(device: Device) -> None:
    current.choose(device)


@call
def cudaGetDevice() -> int:
    return machine.id_of(current.device().ordinal)


@call
def cudaInitDevice(device: Device, deviceFlags: int, flags: int) -> None:
    """Make the primary context of a device, and leave this thread's as it is."""
    refuse_flags(flags, 1)
    if flags:
        _set_flags(device, deviceFlags)
    current.retain(device)


def _set_flags(device: Device, flags: int) -> None:
    refuse_flags(flags, _FLAGS)
    machine.flags[device.ordinal] = flags


@call
def cudaSetDeviceFlags(flags: int) -> None:
    _set_flags(current.device(), flags)


@call
def cudaGetDeviceFlags() -> int:
    return machine.flags.get(current.device().ordinal, 0)


@call
def cudaChooseDevice(prop: Any) -> int:
    """Return the first device: all are alike."""
    return machine.id_of(machine.shown()[0].ordinal)


@call
def cudaSetValidDevices(device_arr: Any, len: int) -> None:
    """Refuse numbers that no device has; the order of a list changes nothing."""
    for each in device_arr or ():
        machine.device_of(each)


@call
def cudaDeviceReset() -> None:
    """End all that the process has on the current device; the next call starts it anew."""
    device = current.device()
    machine.flags.drop(device.ordinal)
    gpu.peers.forget(device.ordinal)
    machine.release(device.ordinal, all_references=True)


@call
def cudaThreadExit() -> None:
    cudaDeviceReset()


def _unreachable(cause: str) -> Refusal:
    return gpu.vendor.refusal(
        Reason.INVALID_DEVICE, cause, "pass a device for which {can_access_peer} gives 1"
    )


@call
def cudaDeviceEnablePeerAccess(peerDevice: Device, flags: int) -> None:
    """Let the current device reach memory of another one; what no device can reach is INVALID_DEVICE (facts 4.4)."""
    refuse_flags(flags)
    device = machine.context().device
    if device is peerDevice:
        raise _unreachable("the peer is the current device")
    if device.why_not(peerDevice):
        raise _unreachable(f"device {machine.id_of(device.ordinal)} does not reach it")
    gpu.peers.enable(peerDevice)


@call
def cudaDeviceDisablePeerAccess(peerDevice: Device) -> None:
    if machine.context().device is peerDevice:
        raise _unreachable("the peer is the current device")
    disable_access(peerDevice)


#: The fields of cudaDeviceProp that have another name than their attribute in small letters without underscores.
_FIELDS = {
    "asyncEngineCount": "ASYNC_ENGINE_COUNT",
    "canUseHostPointerForRegisteredMem": "CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM",
    "clockRate": "CLOCK_RATE",
    "deviceNumaId": "NUMA_ID",
    "hostNumaId": "HOST_NUMA_ID",
    "computePreemptionSupported": "COMPUTE_PREEMPTION_SUPPORTED",
    "deviceOverlap": "GPU_OVERLAP",
    "directManagedMemAccessFromHost": "DIRECT_MANAGED_MEM_ACCESS_FROM_HOST",
    "hostRegisterReadOnlySupported": "READ_ONLY_HOST_REGISTER_SUPPORTED",
    "major": "COMPUTE_CAPABILITY_MAJOR",
    "managedMemory": "MANAGED_MEMORY",
    "maxBlocksPerMultiProcessor": "MAX_BLOCKS_PER_MULTIPROCESSOR",
    "maxThreadsPerBlock": "MAX_THREADS_PER_BLOCK",
    "maxThreadsPerMultiProcessor": "MAX_THREADS_PER_MULTIPROCESSOR",
    "memPitch": "MAX_PITCH",
    "memoryBusWidth": "GLOBAL_MEMORY_BUS_WIDTH",
    "memoryClockRate": "MEMORY_CLOCK_RATE",
    "memoryPoolSupportedHandleTypes": "MEMPOOL_SUPPORTED_HANDLE_TYPES",
    "minor": "COMPUTE_CAPABILITY_MINOR",
    "multiGpuBoardGroupID": "MULTI_GPU_BOARD_GROUP_ID",
    "multiProcessorCount": "MULTIPROCESSOR_COUNT",
    "pciBusID": "PCI_BUS_ID",
    "pciDeviceID": "PCI_DEVICE_ID",
    "pciDomainID": "PCI_DOMAIN_ID",
    "regsPerBlock": "MAX_REGISTERS_PER_BLOCK",
    "regsPerMultiprocessor": "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "sharedMemPerBlock": "MAX_SHARED_MEMORY_PER_BLOCK",
    "sharedMemPerBlockOptin": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "sharedMemPerMultiprocessor": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "totalConstMem": "TOTAL_CONSTANT_MEMORY",
}
_SAME = (
    "canMapHostMemory",
    "concurrentKernels",
    "concurrentManagedAccess",
    "globalL1CacheSupported",
    "hostRegisterSupported",
    "ipcEventSupported",
    "l2CacheSize",
    "localL1CacheSupported",
    "memoryPoolsSupported",
    "streamPrioritiesSupported",
    "surfaceAlignment",
    "textureAlignment",
    "texturePitchAlignment",
    "unifiedAddressing",
    "warpSize",
)
_GRID = ("X", "Y", "Z")


def _properties() -> Mapping[str, str]:
    """Return the attribute of each field that has one."""
    plain = {name.replace("_", "").lower(): name for name in _ATTRIBUTES}
    plain["eccenabled"] = "ECC_ENABLED"
    return {**_FIELDS, "ECCEnabled": "ECC_ENABLED", **{each: plain[each.lower()] for each in _SAME}}


@call
def cudaGetDeviceProperties(device: Device) -> dict[str, Any]:
    """Return the properties of a device; those that no virtual device has a figure for are 0."""
    values: dict[str, Any] = {
        field: attribute(_ATTRIBUTES[name], device) for field, name in _properties().items()
    }
    for field, name in (("maxThreadsDim", "MAX_BLOCK_DIM"), ("maxGridSize", "MAX_GRID_DIM")):
        values[field] = [FIGURES[f"{name}_{each}"] for each in _GRID]
    values["name"], values["uuid"] = device.info.name, uuid_of(device)
    values["totalGlobalMem"] = device.total_bytes
    return values


of_version_12["cudaGetDeviceProperties_v2"] = cudaGetDeviceProperties  # headers of 12 call it by that name
