"""The driver, its functions by name, and devices with their attributes."""

from __future__ import annotations

import functools
import sys
from typing import Any

from peerlane import Device
from peerlane.dialects.cuda.code_texts import texts_of
from peerlane.dialects.cuda.hardware import bus_of, chip_of
from peerlane.dialects.cuda.state import (
    call,
    driver,
    enums,
    gpu,
    invalid,
    machine,
    refuse_flags,
)
from peerlane.dialects.gpu.vendor import Reason
from peerlane.support.libraries import address_of, binding

_MAJOR, _MINOR, *_ = binding("cuda")["version"]
VERSION: int = 1000 * _MAJOR + 10 * _MINOR
_PER_THREAD = 2  # CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
_FLAGS = 3
_SUCCESS, _NO_SYMBOL, _VERSION_TOO_LOW = 0, 1, 2  # CUdriverProcAddressQueryResult
_LARGEST = (1 << 31) - 1
_NAME_LENGTH, _BUS_LENGTH = 1, 13  # the least room for a name, and for a bus id with its NUL

#: What the vendor publishes of an H100 with SXM, for all chips; no behaviour depends on it.
FIGURES: dict[str, int] = {
    "MAX_THREADS_PER_BLOCK": 1024,
    "MAX_BLOCK_DIM_X": 1024,
    "MAX_BLOCK_DIM_Y": 1024,
    "MAX_BLOCK_DIM_Z": 64,
    "MAX_GRID_DIM_X": _LARGEST,
    "MAX_GRID_DIM_Y": 65_535,
    "MAX_GRID_DIM_Z": 65_535,
    "MAX_SHARED_MEMORY_PER_BLOCK": 49_152,
    "TOTAL_CONSTANT_MEMORY": 65_536,
    "WARP_SIZE": 32,
    "MAX_PITCH": _LARGEST,
    "MAX_REGISTERS_PER_BLOCK": 65_536,
    "TEXTURE_ALIGNMENT": 512,
    "GPU_OVERLAP": 1,
    "CAN_MAP_HOST_MEMORY": 1,
    "TEXTURE_PITCH_ALIGNMENT": 32,
    "SURFACE_ALIGNMENT": 512,
    "CONCURRENT_KERNELS": 1,
    "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
    "ASYNC_ENGINE_COUNT": 3,
    "UNIFIED_ADDRESSING": 1,
    "STREAM_PRIORITIES_SUPPORTED": 1,
    "GLOBAL_L1_CACHE_SUPPORTED": 1,
    "LOCAL_L1_CACHE_SUPPORTED": 1,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 233_472,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 65_536,
    "MANAGED_MEMORY": 1,
    "CONCURRENT_MANAGED_ACCESS": 1,
    "COMPUTE_PREEMPTION_SUPPORTED": 1,
    "CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM": 1,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232_448,
    "HOST_REGISTER_SUPPORTED": 1,
    "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED": 1,
    "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED": 1,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 32,
    "READ_ONLY_HOST_REGISTER_SUPPORTED": 1,
    "MEMORY_POOLS_SUPPORTED": 1,
    "MEMPOOL_SUPPORTED_HANDLE_TYPES": 1,
    "CAN_USE_64_BIT_STREAM_MEM_OPS": 1,
    "CAN_USE_STREAM_WAIT_VALUE_NOR": 1,
    "IPC_EVENT_SUPPORTED": 1,
    "MEM_SYNC_DOMAIN_COUNT": 1,
    "NUMA_ID": -1,
    "HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED": 1,
    "HOST_NUMA_MEMORY_POOLS_SUPPORTED": 1,
    "HOST_MEMORY_POOLS_SUPPORTED": 1,
    "HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED": 1,
}
_PREFIX = "CU_DEVICE_ATTRIBUTE_"


@functools.cache
def _attributes() -> dict[int, str]:
    """Return the short name of each attribute; of several for one number the one with a figure."""
    short = {name.removeprefix(_PREFIX): number for name, number in enums["CUdevice_attribute"].items()}
    return {number: name for name, number in sorted(short.items(), key=lambda each: each[0] in FIGURES)}


def _pci(device: Device) -> str:
    return "{:04x}:{:02x}:00.0".format(*bus_of(device))


def _by_device(device: Device) -> dict[str, int]:
    domain, bus = bus_of(device)
    chip, is_mapped = chip_of(device), int(device.info.is_host_mapped)
    return {
        "CLOCK_RATE": 1000 * chip.clock_mhz,
        "MULTIPROCESSOR_COUNT": chip.multiprocessors,
        "ECC_ENABLED": int(chip.has_ecc),
        "MEMORY_CLOCK_RATE": 1000 * chip.memory_clock_mhz,
        "GLOBAL_MEMORY_BUS_WIDTH": chip.bus_width,
        "L2_CACHE_SIZE": chip.l2_bytes,
        "COMPUTE_CAPABILITY_MAJOR": chip.capability[0],
        "COMPUTE_CAPABILITY_MINOR": chip.capability[1],
        "PCI_DOMAIN_ID": domain,
        "PCI_BUS_ID": bus,
        "MULTI_GPU_BOARD_GROUP_ID": device.ordinal,
        "DIRECT_MANAGED_MEM_ACCESS_FROM_HOST": is_mapped,
    }


@call
def cuInit(Flags: int) -> None:
    """Begin; every other call but those about the driver itself is refused before (facts/cuda 2.1)."""
    refuse_flags(Flags)
    machine.shown()
    driver.begin()


@call
def cuDriverGetVersion() -> int:
    return VERSION


_texts = texts_of(enums)


def _text(function: str, error: int) -> bytes:
    text = _texts[function](error)
    if not text:
        refusal = invalid(f"{error} is not a code", "pass the result of a call")
        refusal.outputs = (0,)  # NULL
        raise refusal
    return text.encode() + b"\0"


@call
def cuGetErrorName(error: int) -> bytes:
    return _text("cuGetErrorName", error)


@call
def cuGetErrorString(error: int) -> bytes:
    """Return words of our own: the name of the code, in small letters."""
    return _text("cuGetErrorString", error)


def look_up(symbol: bytes | None, version: int, flags: int) -> tuple[int, int]:
    """Return the address of the newest function of a name that a version has, and a status (facts/cuda 5)."""
    if not symbol:
        raise invalid("the name is NULL or empty", "pass the name of a function, 'cuMemAlloc'")
    refuse_flags(flags, _FLAGS)
    if version > VERSION:
        raise invalid(f"the version is {version}, and the driver's is {VERSION}", "ask for an earlier one")
    rows = binding("cuda")["symbols"].get(symbol.decode(errors="replace"), ())
    fitting = [row for row in rows if row[0] <= version]
    if not fitting:
        return 0, _VERSION_TOO_LOW if rows else _NO_SYMBOL
    _, own, variant = fitting[-1]
    entry = variant if variant and flags & _PER_THREAD else own
    return address_of("libcuda.so.1", entry), _SUCCESS


@call
def cuGetProcAddress_v2(symbol: Any, cudaVersion: int, flags: int) -> tuple[int, int]:
    return look_up(symbol, cudaVersion, flags)


@call
def cuGetProcAddress(symbol: Any, cudaVersion: int, flags: int) -> int:
    address, status = look_up(symbol, cudaVersion, flags)
    if status:
        raise gpu.vendor.refusal(
            Reason.NO_ALLOCATION, f"the driver has no function {symbol!r}", "correct the name"
        )
    return address


@call
def cuDeviceGetCount() -> int:
    return len(machine.visible())


@call
def cuDeviceGet(ordinal: int) -> int:
    return machine.id_of(machine.device_of(ordinal).ordinal)


def _fitting(text: str, room: int, least: int) -> str:
    if room < least:
        raise invalid(f"there is room for {room} characters", f"pass {least} or more")
    return text[: room - 1]


@call
def cuDeviceGetName(len: int, dev: Device) -> str:
    return _fitting(dev.info.name, len, _NAME_LENGTH)


def uuid_of(dev: Device) -> dict[str, list[int]]:
    """Return a device's UUID as the fields of CUuuid."""
    return {"bytes": list(dev.uuid[:16])}


@call
def cuDeviceGetUuid(dev: Device) -> dict[str, list[int]]:
    return uuid_of(dev)


@call
def cuDeviceGetUuid_v2(dev: Device) -> dict[str, list[int]]:
    return uuid_of(dev)


@call
def cuDeviceTotalMem_v2(dev: Device) -> int:
    return dev.total_bytes


@call
def cuDeviceComputeCapability(dev: Device) -> tuple[int, int]:
    return chip_of(dev).capability


def attribute(number: int, device: Device) -> int:
    """Return an attribute of a device; 0 of those that no virtual device has a figure for."""
    name = _attributes().get(number)
    if name is None or name == "MAX":
        raise invalid(f"{number} is not an attribute", "pass a member of CUdevice_attribute")
    return _by_device(device).get(name, FIGURES.get(name, 0))


@call
def cuDeviceGetAttribute(attrib: int, dev: Device) -> int:
    return attribute(attrib, dev)


@call
def cuDeviceGetPCIBusId(len: int, dev: Device) -> str:
    return _fitting(_pci(dev), len, _BUS_LENGTH)


@call
def cuDeviceGetByPCIBusId(pciBusId: Any) -> int:
    wanted = bytes(pciBusId or b"").decode(errors="replace").lower()
    for number, device in enumerate(machine.visible()):
        domain, bus = bus_of(device)
        if wanted in (_pci(device), f"{domain:08x}:{bus:02x}:00.0", f"{bus:02x}:00.0"):
            return number
    raise gpu.vendor.refusal(
        Reason.INVALID_DEVICE, f"no device sits at {wanted!r}", "pass what cuDeviceGetPCIBusId gave"
    )


@call
def cuDeviceCanAccessPeer(dev: Device, peerDev: Device) -> int:
    return int(dev is not peerDev and not dev.why_not(peerDev))


@call
def cuDeviceGetP2PAttribute(attrib: int, srcDevice: Device, dstDevice: Device) -> int:
    """Return the rank of the link between two devices, or whether one can do something with the other."""
    if srcDevice is dstDevice:
        raise gpu.vendor.refusal(Reason.INVALID_DEVICE, "both devices are one", "pass two devices")
    names = {number: name for name, number in enums["CUdevice_P2PAttribute"].items()}
    if attrib not in names:
        raise invalid(f"{attrib} is not an attribute", "pass a member of CUdevice_P2PAttribute")
    name = names[attrib].removeprefix("CU_DEVICE_P2P_ATTRIBUTE_")
    return int(name == "ACCESS_SUPPORTED" and not srcDevice.why_not(dstDevice))


@call
def cuDeviceGetExecAffinitySupport(type: int, dev: Device) -> int:
    return 0


@call
def cuFlushGPUDirectRDMAWrites(target: int, scope: int) -> None:
    """Do nothing: what another process wrote is there when it says so."""
    machine.context()


_reported: list[str] = []


@call
def cuGetExportTable(ppExportTable: int, pExportTableId: Any) -> None:
    """Refuse the private tables of a static runtime; stderr gets what to do, once."""
    text = (
        "this program has CUDA's runtime linked in statically, which needs private tables of the real driver; "
        "link it to libcudart.so (nvcc -cudart shared)"
    )
    if not _reported:
        _reported.append(text)
        print(f"peerlane: {text}", file=sys.stderr, flush=True)
    raise gpu.vendor.refusal(Reason.UNSUPPORTED, text, "link the runtime dynamically")
