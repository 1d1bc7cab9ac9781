"""What the vendor publishes of its chips, and the PCI addresses of devices; no behaviour depends on the figures."""

from __future__ import annotations

from peerlane import Device
from peerlane.support.records import dataclass

_VENDOR = 0x10DE
_BUSES = 255  # of a domain; bus 0 has the switches


@dataclass(frozen=True, slots=True)
class Chip:
    """A kind of GPU (facts/cuda 7.4)."""

    pci_id: int  #: ``pci_id``, ``pci_subsystem``: both with the vendor's number in the lower half
    pci_subsystem: int
    architecture: str  #: ``architecture``, ``brand``: behind ``NVML_DEVICE_ARCH_`` and ``NVML_BRAND_``
    brand: str
    capability: tuple[int, int]
    multiprocessors: int
    bus_width: int
    clock_mhz: int
    memory_clock_mhz: int
    l2_bytes: int
    pcie_generation: int
    links: int = 0  #: ``links``, ``link_mbps``: how many NVLinks it has, and what one carries in a direction
    link_mbps: int = 0
    link_version: str = "INVALID"  #: behind ``NVML_NVLINK_VERSION_``
    #: ``has_ecc``, ``has_mig``, ``has_c2c``: ECC is on, MIG exists, the CPU is connected by NVLink-C2C.
    has_ecc: bool = True
    has_mig: bool = True
    has_c2c: bool = False


def _pci_id(device: int) -> int:
    return device << 16 | _VENDOR


_H100 = Chip(
    pci_id=_pci_id(0x2330),
    pci_subsystem=_pci_id(0x16C1),
    architecture="HOPPER",
    brand="NVIDIA",
    capability=(9, 0),
    multiprocessors=132,
    bus_width=5120,
    clock_mhz=1980,
    memory_clock_mhz=2619,
    l2_bytes=50 << 20,
    pcie_generation=5,
    links=18,
    link_mbps=26_562,
    link_version="4_0",
)
#: By the names of devices that profiles have; all other devices are shown as an H100.
_CHIPS: dict[str, Chip] = {
    "NVIDIA H200": Chip(
        pci_id=_pci_id(0x2335),
        pci_subsystem=_pci_id(0x18BE),
        architecture="HOPPER",
        brand="NVIDIA",
        capability=(9, 0),
        multiprocessors=132,
        bus_width=6144,
        clock_mhz=1980,
        memory_clock_mhz=3201,
        l2_bytes=60 << 20,
        pcie_generation=5,
        links=18,
        link_mbps=26_562,
        link_version="4_0",
    ),
    "NVIDIA GB200": Chip(
        pci_id=_pci_id(0x2941),
        pci_subsystem=_pci_id(0x2046),
        architecture="BLACKWELL",
        brand="NVIDIA",
        capability=(10, 0),
        multiprocessors=152,
        bus_width=8192,
        clock_mhz=2062,
        memory_clock_mhz=3996,
        l2_bytes=126 << 20,
        pcie_generation=5,
        links=18,
        link_mbps=50_000,
        link_version="5_0",
        has_c2c=True,
    ),
    "NVIDIA GeForce RTX 4090": Chip(
        pci_id=_pci_id(0x2684),
        pci_subsystem=_pci_id(0),
        architecture="ADA",
        brand="GEFORCE",
        capability=(8, 9),
        multiprocessors=128,
        bus_width=384,
        clock_mhz=2520,
        memory_clock_mhz=10_501,
        l2_bytes=72 << 20,
        pcie_generation=4,
        has_ecc=False,
        has_mig=False,
    ),
}


def chip_called(name: str) -> Chip:
    """Return the chip of devices of a name."""
    return _CHIPS.get(name, _H100)


def chip_of(device: Device) -> Chip:
    """Return the chip of a device."""
    return chip_called(device.info.name)


def bus_of(device: Device) -> tuple[int, int]:
    """Return the PCI domain and bus of a device; its number on the bus is 0."""
    return device.ordinal // _BUSES, device.ordinal % _BUSES + 1
