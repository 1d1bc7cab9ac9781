"""What a device is: its names, its chip, its memory, and the modes that it never leaves."""

from __future__ import annotations

from typing import Any

from peerlane import Device
from peerlane.dialects.cuda.hardware import bus_of, chip_of
from peerlane.dialects.cuda.nvml.state import (
    call,
    constants,
    enums,
    fitting,
    fixed,
    invalid,
    unsupported,
    versioned,
)
from peerlane.dialects.cuda.state import uuid_text

_SERIAL_DIGITS = 13
_PCIE_WIDTH = 16
_CORES = 128  # of a multiprocessor, since Ampere's consumer chips and Hopper
_DISPLAY_CONTROLLER, _3D = 3, 2  # PCI's class and subclass
_SMALL_BAR = 256 << 20  # a device whose memory the host may not touch has a window of this size
_OFF, _ON = 0, 1


def serial_of(device: Device) -> str:
    """Return a device's serial number, made of its UUID."""
    return f"{int.from_bytes(device.uuid, 'big') % 10**_SERIAL_DIGITS:0{_SERIAL_DIGITS}}"


def pci_info(domain: int, bus: int, number: int, pci_id: int, subsystem: int) -> dict[str, Any]:
    """Return the address of something on the PCI bus, in both spellings."""
    address = f"{bus:02X}:{number:02X}.0"
    return {
        "busIdLegacy": f"{domain:04X}:{address}",
        "busId": f"{domain:08X}:{address}",
        "domain": domain,
        "bus": bus,
        "device": number,
        "pciDeviceId": pci_id,
        "pciSubSystemId": subsystem,
    }


def pci_of(device: Device) -> dict[str, Any]:
    """Return a device's address on the PCI bus."""
    chip = chip_of(device)
    return pci_info(*bus_of(device), 0, chip.pci_id, chip.pci_subsystem)


for _name, *_values in (
    ("nvmlDeviceGetDisplayMode", _OFF),
    ("nvmlDeviceGetDisplayActive", _OFF),
    ("nvmlDeviceGetPersistenceMode", _ON),
    ("nvmlDeviceGetMaxPcieLinkWidth", _PCIE_WIDTH),
    ("nvmlDeviceGetCurrPcieLinkWidth", _PCIE_WIDTH),
    ("nvmlDeviceGetNumFans", 0),
    ("nvmlDeviceGetPerformanceState", enums["nvmlPstates_t"]["NVML_PSTATE_0"]),
    ("nvmlDeviceGetPowerState", enums["nvmlPstates_t"]["NVML_PSTATE_0"]),
    ("nvmlDeviceGetComputeMode", enums["nvmlComputeMode_t"]["NVML_COMPUTEMODE_DEFAULT"]),
    ("nvmlDeviceGetMultiGpuBoard", 0),
    ("nvmlDeviceGetBusType", constants["NVML_BUS_TYPE_PCIE"]),
    ("nvmlDeviceGetAccountingMode", _OFF),
    ("nvmlDeviceGetVirtualizationMode", 0),
    ("nvmlDeviceIsMigDeviceHandle", 0),
    ("nvmlDeviceGetMaxMigDeviceCount", 0),
):
    fixed(_name, *_values)


@call
def nvmlDeviceGetName(device: Device, length: int) -> str:
    return fitting(device.info.name, length)


@call
def nvmlDeviceGetUUID(device: Device, length: int) -> str:
    return fitting(uuid_text(device), length)


@call
def nvmlDeviceGetSerial(device: Device, length: int) -> str:
    return fitting(serial_of(device), length)


@call
def nvmlDeviceGetIndex(device: Device) -> int:
    return device.ordinal


@call
def nvmlDeviceGetMinorNumber(device: Device) -> int:
    return device.ordinal


@call
def nvmlDeviceGetModuleId(device: Device) -> int:
    return device.ordinal


@call
def nvmlDeviceGetBoardId(device: Device) -> int:
    domain, bus = bus_of(device)
    return domain << 16 | bus << 8


@call
def nvmlDeviceOnSameBoard(device1: Device, device2: Device) -> int:
    return int(device1 is device2)


@call
def nvmlDeviceGetBrand(device: Device) -> int:
    return enums["nvmlBrandType_t"][f"NVML_BRAND_{chip_of(device).brand}"]


@call
def nvmlDeviceGetArchitecture(device: Device) -> int:
    return constants[f"NVML_DEVICE_ARCH_{chip_of(device).architecture}"]


@call
def nvmlDeviceGetCudaComputeCapability(device: Device) -> tuple[int, int]:
    return chip_of(device).capability


@call
def nvmlDeviceGetNumGpuCores(device: Device) -> int:
    return chip_of(device).multiprocessors * _CORES


@call
def nvmlDeviceGetMemoryBusWidth(device: Device) -> int:
    return chip_of(device).bus_width


@call
def nvmlDeviceGetMaxClockInfo(device: Device, type: int) -> int:
    clocks = {
        "NVML_CLOCK_GRAPHICS": chip_of(device).clock_mhz,
        "NVML_CLOCK_SM": chip_of(device).clock_mhz,
        "NVML_CLOCK_MEM": chip_of(device).memory_clock_mhz,
    }
    names = {number: name for name, number in enums["nvmlClockType_t"].items()}
    name = names.get(type, "NVML_CLOCK_COUNT")
    if name == "NVML_CLOCK_COUNT":
        raise invalid(f"{type} is not a clock", "pass a member of nvmlClockType_t")
    if name not in clocks:
        raise unsupported("virtual devices have no clock for video")
    return clocks[name]


@call
def nvmlDeviceGetMaxPcieLinkGeneration(device: Device) -> int:
    return chip_of(device).pcie_generation


@call
def nvmlDeviceGetGpuMaxPcieLinkGeneration(device: Device) -> int:
    return chip_of(device).pcie_generation


@call
def nvmlDeviceGetCurrPcieLinkGeneration(device: Device) -> int:
    return chip_of(device).pcie_generation


@call
def nvmlDeviceGetPciInfo_v3(device: Device) -> dict[str, Any]:
    return pci_of(device)


@call
def nvmlDeviceGetPciInfoExt(device: Device, pci: Any) -> dict[str, Any]:
    own = pci_of(device)
    del own["busIdLegacy"]
    return versioned("nvmlPciInfoExt_t", pci, 1, **own, baseClass=_DISPLAY_CONTROLLER, subClass=_3D)


def _memory(device: Device) -> dict[str, int]:
    total, free = device.total_bytes, device.free_bytes
    return {"total": total, "free": free, "used": total - free}


@call
def nvmlDeviceGetMemoryInfo(device: Device) -> dict[str, int]:
    """Return what all processes of the node use of the device's memory."""
    return _memory(device)


@call
def nvmlDeviceGetMemoryInfo_v2(device: Device, memory: Any) -> dict[str, Any]:
    return versioned("nvmlMemory_v2_t", memory, 2, **_memory(device))


@call
def nvmlDeviceGetBAR1MemoryInfo(device: Device) -> dict[str, int]:
    """Return a window as large as the memory, up to a power of two, if the host may touch it."""
    total = 1 << (device.total_bytes - 1).bit_length() if device.info.is_host_mapped else _SMALL_BAR
    return {"bar1Total": total, "bar1Free": total, "bar1Used": 0}


@call
def nvmlDeviceGetUtilizationRates(device: Device) -> dict[str, int]:
    """Return 0 percent: no kernel runs on a virtual device."""
    return {"gpu": 0, "memory": 0}


@call
def nvmlDeviceGetEccMode(device: Device) -> tuple[int, int]:
    return (int(chip_of(device).has_ecc),) * 2


@call
def nvmlDeviceGetDefaultEccMode(device: Device) -> int:
    return int(chip_of(device).has_ecc)


@call
def nvmlDeviceGetTotalEccErrors(device: Device, errorType: int, counterType: int) -> int:
    if not chip_of(device).has_ecc:
        raise unsupported("ECC is off")
    return 0


@call
def nvmlDeviceGetMigMode(device: Device) -> tuple[int, int]:
    if not chip_of(device).has_mig:
        raise unsupported("this chip has no MIG")
    return _OFF, _OFF


@call
def nvmlDeviceGetC2cModeInfoV(device: Device) -> dict[str, int]:
    if not chip_of(device).has_c2c:
        raise unsupported("this chip has no NVLink to its CPU")
    return {"isC2cEnabled": _ON}
