"""``hip``: peer access (facts/hip 3.1, 3.2, 4)."""

from __future__ import annotations

from typing import Annotated, Any

from peerlane import Device
from peerlane.dialects._shared.call import Check
from peerlane.dialects.hip.binding.checks import Reserved
from peerlane.dialects.hip.binding.convention import invalid, refusal
from peerlane.dialects.hip.state import calls, gpu

USE_PEER_NON_UNIFIED = 1  # a macro of the C header, which the wheel lacks

# By the name of the neutral link: hsa_amd_link_info_type_t, PCIe 2 and XGMI 4.
_LINK_TYPES = {"XGMI": 4, "NV": 4, "HCCS": 4}
_PCIE = 2
_HOPS = {"PIX": 1, "PXB": 2, "PHB": 2, "NODE": 3, "SYS": 4}


machine = gpu.machine
device_of = machine.device_of
DeviceId = Annotated[Device, Check(lambda name: device_of)]


@calls.call("hipDeviceCanAccessPeer")
def hipDeviceCanAccessPeer(deviceId: int, peerDeviceId: int) -> int:
    """Tell whether a device can reach another one's memory; 0 for a device and itself (facts/hip 3.1).

    Equality is tested before validity: 0 also for an invalid id given twice.

    Gives: 1 or 0
    Refuses: hipErrorInvalidDevice
    Basis: S
    """
    if deviceId == peerDeviceId:
        return 0
    device, peer = device_of(deviceId), device_of(peerDeviceId)
    return int(device is not peer and device.can_access(peer))


@calls.call("hipDeviceEnablePeerAccess", first=("flags",))
def hipDeviceEnablePeerAccess(peerDeviceId: DeviceId, flags: Reserved) -> None:
    """Let the current device reach the memory of another, one direction (facts/hip 3.1).

    Looked at in this order: ``flags``, the id, whether they can reach each other, whether it is enabled.

    Refuses: hipErrorInvalidValue flags; hipErrorInvalidDevice the id, itself, out of reach;
        hipErrorPeerAccessAlreadyEnabled
    Basis: S
    """
    gpu.peers.enable(peerDeviceId)


@calls.call("hipDeviceDisablePeerAccess")
def hipDeviceDisablePeerAccess(peerDeviceId: DeviceId) -> None:
    """End what hipDeviceEnablePeerAccess began on the current device (facts/hip 3.1).

    Refuses: hipErrorInvalidDevice the id, itself, out of reach; hipErrorPeerAccessNotEnabled
    Basis: S
    """
    gpu.peers.disable(peerDeviceId)


@calls.call("hipDeviceGetP2PAttribute")
def hipDeviceGetP2PAttribute(attr: Any, srcDevice: DeviceId, dstDevice: DeviceId) -> int:
    """Return an attribute of the link between two devices (facts/hip 3.2).

    The rank is the type of the link; atomics and arrays go where peer access goes.

    Gives: the value
    Refuses: hipErrorInvalidDevice for an id, and for twice the same
    Basis: S; C for atomics
    """
    if srcDevice is dstDevice:
        number = machine.id_of(srcDevice.ordinal)
        raise refusal("hipErrorInvalidDevice", f"both devices are {number}", "pass two different devices")
    if attr.name == "hipDevP2PAttrPerformanceRank":
        return _link_type(srcDevice, dstDevice)
    return int(srcDevice.can_access(dstDevice))


@calls.call("hipExtGetLinkTypeAndHopCount")
def hipExtGetLinkTypeAndHopCount(device1: int, device2: int) -> tuple[int, int]:
    """Return how two devices are joined: the link's type (2 PCIe, 4 XGMI) and its hops (facts/hip 3.2).

    Gives: link type, hop count
    Refuses: hipErrorInvalidValue for a negative id, and for twice the same; hipErrorInvalidDevice for one too large
    Basis: S; C for the hops
    """
    if device1 < 0 or device2 < 0 or device1 == device2:
        raise invalid(
            f"the devices are {device1} and {device2}; they must be two different ones of the node",
            "pass two different devices",
        )
    device, peer = device_of(device1), device_of(device2)
    return _link_type(device, peer), _HOPS.get(device.link(peer), 1)


def _link_type(device: Device, peer: Device) -> int:
    return _LINK_TYPES.get(device.link(peer), _PCIE)


@calls.call("hipCtxEnablePeerAccess")
def hipCtxEnablePeerAccess(peerCtx: int, flags: int) -> None:
    """Do nothing, as the vendor's (facts/hip 3.1).

    Basis: S
    """


@calls.call("hipCtxDisablePeerAccess")
def hipCtxDisablePeerAccess(peerCtx: int) -> None:
    """Do nothing, as the vendor's (facts/hip 3.1).

    Basis: S
    """
