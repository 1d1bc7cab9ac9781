"""``hip``: devices, their properties, and which one a thread uses (facts/hip 1.4, 3.7)."""

from __future__ import annotations

from typing import Any

from peerlane.dialects.hip.binding import numbers
from peerlane.dialects.hip.binding.checks import Reserved
from peerlane.dialects.hip.binding.convention import INVALID_VALUE, Stopped, invalid
from peerlane.dialects.hip.binding.results import put, struct, text
from peerlane.dialects.hip.devices.peers import DeviceId
from peerlane.dialects.hip.devices.properties import attribute, pci_bus_id, properties
from peerlane.dialects.hip.state import calls, gpu, machine
from peerlane.dialects.hip.visible import hidden_bytes, uuid_of

_SCHEDULE, _SPIN, _YIELD, _BLOCKING, _MAP_HOST, _RESIZE, _VERSION = numbers(
    *(
        f"hipDevice{each}"
        for each in ("ScheduleMask", "ScheduleSpin", "ScheduleYield", "ScheduleBlockingSync")
    ),
    *("hipDeviceMapHost", "hipDeviceLmemResizeToMax", "HIP_VERSION"),
)
_length = len  # a parameter of the calls is called so


@calls.call("hipInit")
def hipInit(flags: Reserved) -> None:
    """Check that there is a device, which the first call does anyway (facts/hip 3.7).

    Refuses: hipErrorInvalidValue flags
    Basis: S
    """


@calls.call("hipGetDeviceCount")
def hipGetDeviceCount() -> int:
    """Return how many devices the node has.

    Gives: the number, 0 also when none is visible
    Refuses: hipErrorNoDevice when none is visible
    Basis: S
    """
    return len(machine.shown())


@calls.call("hipSetDevice")
def hipSetDevice(deviceId: DeviceId) -> None:
    """Make a device current in this thread, which has device 0 before (facts/hip 3.7).

    Refuses: hipErrorInvalidDevice
    Basis: S
    """
    machine.choose(deviceId.ordinal)


@calls.call("hipGetDevice")
def hipGetDevice() -> int:
    """Return this thread's device.

    Gives: its id
    Basis: S
    """
    return machine.id_of(machine.ordinal)


@calls.call("hipDeviceGet")
def hipDeviceGet(ordinal: DeviceId) -> int:
    """Return the handle of a device, which is its id.

    Gives: the handle
    Refuses: hipErrorInvalidDevice
    Basis: S
    """
    return machine.id_of(ordinal.ordinal)


@calls.call("hipDeviceReset")
def hipDeviceReset() -> None:
    """End all that this process has on the current device: memory, streams, events, peer access (facts/hip 3.1, 3.7).

    Queued work is waited for; the flags of hipSetDeviceFlags are 0 again.

    Refuses: what that work failed with; everything has ended nevertheless
    Basis: S
    """
    gpu.reset_device()


@calls.call("hipGetDeviceProperties")
def hipGetDeviceProperties(deviceId: DeviceId) -> object:
    """Return the properties of a device; hip-python 7.2 passed a struct to fill, which is taken too (facts/hip 0.2).

    Gives: hipDeviceProp_t
    Refuses: hipErrorInvalidDevice
    Basis: S; C for the figures of compute units
    """
    return properties(deviceId)


@calls.call("hipDeviceGetAttribute")
def hipDeviceGetAttribute(attr: Any, deviceId: DeviceId) -> int:
    """Return an attribute of a device.

    Gives: the value
    Refuses: hipErrorInvalidDevice; hipErrorInvalidValue for one that virtual devices do not have
    Basis: S
    """
    value = attribute(deviceId, attr.name)
    if value is None:
        raise invalid(f"virtual devices have no attribute {attr.name}", "ask for another, or do without it")
    return value


@calls.call("hipDeviceGetName")
def hipDeviceGetName(len: int, device: DeviceId) -> object:
    """Return the name of a device, at most ``len`` - 1 characters of it.

    Gives: CStr
    Refuses: hipErrorInvalidDevice; hipErrorInvalidValue for no room
    Basis: S
    """
    if len <= 0:
        raise invalid(f"there is room for {len} characters", "pass 64 or more")
    return text(device.info.name[: len - 1])


@calls.call("hipDeviceGetPCIBusId")
def hipDeviceGetPCIBusId(len: int, device: DeviceId) -> object:
    """Return the PCI bus id of a device, ``0000:01:00.0``.

    Gives: CStr, also of a refused `len`: what there is room for
    Refuses: hipErrorInvalidDevice; hipErrorInvalidValue a `len` below 13, the 12 characters and the NUL
    Basis: D
    """
    bus_id = pci_bus_id(device)
    if len <= _length(bus_id):
        raise Stopped(
            INVALID_VALUE,
            f"there is room for {len} bytes, and {bus_id} with its NUL has {_length(bus_id) + 1}",
            "pass 13 or more",
            text(bus_id[: len - 1]) if len > 0 else None,
        )
    return text(bus_id)


@calls.call("hipDeviceGetByPCIBusId")
def hipDeviceGetByPCIBusId(pciBusId: str | None) -> int:
    """Return the device of a PCI bus id.

    Gives: its id
    Refuses: hipErrorInvalidValue NULL, an id without a device
    Basis: D
    """
    if pciBusId is None:
        raise invalid("the place is NULL", "pass what hipDeviceGetPCIBusId gave")
    wanted = pciBusId.lower()
    for number, device in enumerate(machine.visible()):
        if pci_bus_id(device) == wanted:
            return number
    raise invalid(f"no device sits at {wanted!r}", "pass what hipDeviceGetPCIBusId gave")


@calls.call("hipDeviceGetUuid")
def hipDeviceGetUuid(device: DeviceId) -> object:
    """Return 16 bytes that no other device of the node has: text, which HIP_VISIBLE_DEVICES takes behind ``GPU-``.

    Gives: hipUUID_t
    Refuses: hipErrorInvalidDevice
    Basis: S, D for the text
    """
    uuid = struct("hipUUID_t")()
    put(uuid, "bytes", uuid_of(device))
    return uuid


@calls.call("hipDeviceTotalMem")
def hipDeviceTotalMem(device: DeviceId) -> int:
    """Return the memory of a device, in bytes.

    Gives: bytes
    Refuses: hipErrorInvalidDevice
    Basis: S
    """
    return device.total_bytes


@calls.call("hipDeviceComputeCapability")
def hipDeviceComputeCapability(device: DeviceId) -> tuple[int, int]:
    """Return the major and minor number of the architecture.

    Gives: major, minor
    Refuses: hipErrorInvalidDevice
    Basis: S
    """
    major, minor = (
        attribute(device, f"hipDeviceAttributeComputeCapability{part}") for part in ("Major", "Minor")
    )
    assert major is not None
    assert minor is not None
    return major, minor


@calls.call("hipRuntimeGetVersion", needs_device=False)
def hipRuntimeGetVersion() -> int:
    """Return the version of the runtime whose names and rules hold.

    Gives: HIP_VERSION
    Basis: S
    """
    return _VERSION


@calls.call("hipDriverGetVersion", needs_device=False)
def hipDriverGetVersion() -> int:
    """Return what hipRuntimeGetVersion does.

    Gives: HIP_VERSION
    Basis: S
    """
    return _VERSION


@calls.call("hipMemGetInfo")
def hipMemGetInfo() -> tuple[int, int]:
    """Return the free and all memory of the current device, in bytes; other processes of the node count.

    Free memory is less by the MiB of HIP_HIDDEN_FREE_MEM, if more are free.

    Gives: free, total
    Basis: S
    """
    device = machine.context().device
    free, hidden = device.free_bytes, hidden_bytes()
    return free - (hidden if hidden < free else 0), device.total_bytes


@calls.call("hipSetDeviceFlags")
def hipSetDeviceFlags(flags: int) -> None:
    """Set how threads wait for the current device, which is kept and changes nothing.

    Refuses: hipErrorInvalidValue
    Basis: D
    """
    if flags & ~(_SCHEDULE | _MAP_HOST | _RESIZE) or flags & _SCHEDULE not in (0, _SPIN, _YIELD, _BLOCKING):
        raise invalid(f"flags are {flags:#x}", "pass hipDeviceScheduleAuto, 0")
    machine.flags[machine.context().device.ordinal] = flags & _SCHEDULE


@calls.call("hipGetDeviceFlags")
def hipGetDeviceFlags() -> int:
    """Return the flags of the current device, of hipSetDeviceFlags or hipCtxCreate: how threads wait for it.

    Gives: flags
    Basis: D
    """
    return machine.flags.get(machine.context().device.ordinal, 0)
