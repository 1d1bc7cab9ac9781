"""NVLink: which links of a device are up, and what is at their other ends.

A node's description says which devices are joined by NVLink, and not by how many links (facts/cuda 7.3).
"""

from __future__ import annotations

from typing import Any

from peerlane import Device, devices
from peerlane.dialects.cuda.hardware import chip_of
from peerlane.dialects.cuda.nvml.devices import pci_info, pci_of
from peerlane.dialects.cuda.nvml.state import call, enums, invalid, unsupported
from peerlane.dialects.cuda.paths import NVLINK, SWITCH, ends_of

_NVSWITCH_ID = 0x22A3_10DE
_TYPES = enums["nvmlIntNvLinkDeviceType_t"]
_CAPABILITIES = enums["nvmlNvLinkCapability_t"]
_BETWEEN_DEVICES = {
    _CAPABILITIES[f"NVML_NVLINK_CAP_{name}"] for name in ("P2P_SUPPORTED", "P2P_ATOMICS", "VALID")
}


def _ends(device: Device) -> list[int | None]:
    present = devices()
    joined = [{each.ordinal for each in present if each.link(other) == NVLINK} for other in present]
    return ends_of(device.ordinal, joined, chip_of(device).links)


def active_links(device: Device) -> int:
    """Return how many links of a device are up."""
    return sum(each is not None for each in _ends(device))


def _end(device: Device, link: int) -> int | None:
    ends = _ends(device)
    if not any(each is not None for each in ends):
        raise unsupported(f"{device.name} has no NVLink")
    if link >= len(ends):
        raise invalid(f"link is {link}, and there are {len(ends)}", "pass a smaller one")
    return ends[link]


def _live_end(device: Device, link: int) -> int:
    end = _end(device, link)
    if end is None:
        raise unsupported(f"link {link} is down")
    return end


@call
def nvmlDeviceGetNvLinkState(device: Device, link: int) -> int:
    return int(_end(device, link) is not None)


@call
def nvmlDeviceGetNvLinkVersion(device: Device, link: int) -> int:
    _live_end(device, link)
    return enums["nvmlNvlinkVersion_t"][f"NVML_NVLINK_VERSION_{chip_of(device).link_version}"]


@call
def nvmlDeviceGetNvLinkCapability(device: Device, link: int, capability: int) -> int:
    if not 0 <= capability < _CAPABILITIES["NVML_NVLINK_CAP_COUNT"]:
        raise invalid(f"{capability} is not a capability", "pass a member of nvmlNvLinkCapability_t")
    return int(_end(device, link) is not None and capability in _BETWEEN_DEVICES)


@call
def nvmlDeviceGetNvLinkErrorCounter(device: Device, link: int, counter: int) -> int:
    _live_end(device, link)
    return 0


@call
def nvmlDeviceGetNvLinkRemoteDeviceType(device: Device, link: int) -> int:
    kind = "SWITCH" if _live_end(device, link) == SWITCH else "GPU"
    return _TYPES[f"NVML_NVLINK_DEVICE_TYPE_{kind}"]


@call
def nvmlDeviceGetNvLinkRemotePciInfo_v2(device: Device, link: int) -> dict[str, Any]:
    """Return the address of the device or the switch at the other end; of each island of devices there is one."""
    end = _live_end(device, link)
    if end == SWITCH:
        return pci_info(device.info.switch // 31, 0, device.info.switch % 31 + 1, _NVSWITCH_ID, 0)
    return pci_of(devices()[end])
