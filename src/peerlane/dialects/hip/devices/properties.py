"""Properties of virtual devices: the fields of hipDeviceProp_t, and the attributes (facts/hip 1.5).

The figures of compute units and caches are those the vendor publishes of an MI300X; no behaviour depends on them.
"""

from __future__ import annotations

import functools
import struct as packing
from typing import Any

from peerlane import Device
from peerlane.dialects.hip.binding import facts
from peerlane.dialects.hip.binding.results import put, struct
from peerlane.dialects.hip.visible import uuid_of

_ARCHITECTURE = "gfx942:sramecc+:xnack-"
_PREFIX = "hipDeviceAttribute"
_LARGEST = (1 << 31) - 1

_FIGURES: dict[str, Any] = {
    "sharedMemPerBlock": 65_536,
    "regsPerBlock": 65_536,
    "warpSize": 64,
    "memPitch": _LARGEST,
    "maxThreadsPerBlock": 1024,
    "maxThreadsDim": (1024, 1024, 1024),
    "maxGridSize": (_LARGEST, 65_536, 65_536),
    "clockRate": 2_100_000,
    "totalConstMem": _LARGEST,
    "major": 9,
    "minor": 4,
    "textureAlignment": 256,
    "texturePitchAlignment": 256,
    "deviceOverlap": 1,
    "multiProcessorCount": 304,
    "canMapHostMemory": 1,
    "concurrentKernels": 1,
    "ECCEnabled": 1,
    "asyncEngineCount": 2,
    "unifiedAddressing": 1,
    "memoryClockRate": 1_300_000,
    "memoryBusWidth": 8192,
    "l2CacheSize": 4 << 20,
    "maxThreadsPerMultiProcessor": 2048,
    "streamPrioritiesSupported": 1,
    "sharedMemPerMultiprocessor": 65_536,
    "regsPerMultiprocessor": 65_536,
    "managedMemory": 1,
    "concurrentManagedAccess": 1,
    "canUseHostPointerForRegisteredMem": 1,
    "sharedMemPerBlockOptin": 65_536,
    "maxBlocksPerMultiProcessor": 2,
    "hostRegisterSupported": 1,
    "memoryPoolsSupported": 1,
    "memoryPoolSupportedHandleTypes": 1,
    "ipcEventSupported": 1,
    "maxSharedMemoryPerMultiProcessor": 65_536,
    "clockInstructionRate": 100_000,
}

# Attributes that no field of the struct names.
_ATTRIBUTES: dict[str, int] = {
    "CanUseStreamWaitValue": 1,
    "ComputeCapabilityMajor": 9,
    "ComputeCapabilityMinor": 4,
    "FineGrainSupport": 1,
    "MaxBlockDimX": 1024,
    "MaxBlockDimY": 1024,
    "MaxBlockDimZ": 1024,
    "MaxGridDimX": _LARGEST,
    "MaxGridDimY": 65_536,
    "MaxGridDimZ": 65_536,
    "MaxPitch": _LARGEST,
    "MaxRegistersPerBlock": 65_536,
    "MaxRegistersPerMultiprocessor": 65_536,
    "MaxSharedMemoryPerBlock": 65_536,
    "NumberOfXccs": 8,
    "PhysicalMultiProcessorCount": 304,
    "TotalConstantMemory": _LARGEST,
    "VirtualMemoryManagementSupported": 1,
    "WallClockRate": 100_000,
    "DmaBufSupported": 0,
    "GPUDirectRDMAWithHipVMMSupported": 0,
    "HandleTypeFabricSupported": 0,
    "HostNumaId": 0,
    "ImageSupport": 0,
    "KernelExecTimeout": 0,
    "PciChipId": 0x74A1,
    "MaxTexture1DWidth": 0,
    "MaxTexture2DWidth": 0,
    "MaxTexture2DHeight": 0,
    "MaxTexture3DWidth": 0,
    "MaxTexture3DHeight": 0,
    "MaxTexture3DDepth": 0,
    "MaxAvailableVgprsPerThread": 512,
    "ExpertSchedMode": 0,
    "MaxDynDataPrefetchRegions": 0,
}

# hipDeviceArch_t: the vendor's runtime has the same for every device, from hasGlobalInt32Atomics on.
_ARCHITECTURE_FLAGS = 0b0_10010111_11111111


def _bus(device: Device) -> int:
    return device.ordinal % 255 + 1


def pci_bus_id(device: Device) -> str:
    """Return the PCI bus id of a device, ``0000:01:00.0``, which no other device of the node has."""
    return f"{device.ordinal // 255:04x}:{_bus(device):02x}:00.0"


def _values(device: Device) -> dict[str, Any]:
    return {
        **_FIGURES,
        "name": device.info.name,
        "gcnArchName": _ARCHITECTURE,
        "totalGlobalMem": device.total_bytes,
        "pciBusID": _bus(device),
        "pciDomainID": device.ordinal // 255,
        "isLargeBar": int(device.info.is_host_mapped),
        "directManagedMemAccessFromHost": int(device.info.is_host_mapped),
    }


def properties(device: Device) -> Any:
    """Return a new hipDeviceProp_t of a device."""
    described = struct("hipDeviceProp_t")()
    kinds = {field[0]: field[1] for field in facts()["structs"]["hipDeviceProp_t"]["fields"]}
    for name, value in _values(device).items():
        put(described, name, _packed(kinds[name], value))
    put(described, "uuid", uuid_of(device))
    put(described, "arch", _ARCHITECTURE_FLAGS.to_bytes(4, "little"))
    return described


def _packed(kind: str, value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()[:255]
    if isinstance(value, tuple):
        return packing.pack(f"<{len(value)}i", *value)
    return packing.pack({"size_t": "<Q", "unsigned int": "<I"}.get(kind, "<i"), value)


@functools.cache
def _fields() -> dict[str, str]:
    """Return the field of each attribute that has one, whatever the case of its letters.

    An attribute of two names may be known as the one without a field: EccEnabled is CudaCompatibleBegin.
    """
    fields = {field[0].lower(): field[0] for field in facts()["structs"]["hipDeviceProp_t"]["fields"]}
    members = facts()["enums"]["hipDeviceAttribute_t"]["members"]
    shorts = {name: name.removeprefix(_PREFIX) for name in members}
    by_number = {
        members[name]: fields[short.lower()] for name, short in shorts.items() if short.lower() in fields
    }
    return {short: by_number[members[name]] for name, short in shorts.items() if members[name] in by_number}


def attribute(device: Device, name: str) -> int | None:
    """Return an attribute by its member's name; None for one that virtual devices do not have.

    An attribute is a C int: a larger number of bytes becomes the largest int.
    """
    short = name.removeprefix(_PREFIX)
    if short in _ATTRIBUTES:
        return _ATTRIBUTES[short]
    field = _fields().get(short)
    value = None if field is None else _values(device).get(field, 0)
    return min(value, _LARGEST) if isinstance(value, int) else None
