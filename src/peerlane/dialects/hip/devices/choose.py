"""``hip``: the device of a program that does not name one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from peerlane.dialects.hip.binding.checks import required
from peerlane.dialects.hip.binding.convention import invalid
from peerlane.dialects.hip.devices.peers import device_of
from peerlane.dialects.hip.devices.properties import properties
from peerlane.dialects.hip.state import calls, machine

_count = len  # a parameter of a call is called so
#: The fields that hipChooseDevice compares; 0 asks for nothing.
_COMPARED = (
    "major",
    "minor",
    "totalGlobalMem",
    "sharedMemPerBlock",
    "maxThreadsPerBlock",
    "totalConstMem",
    "multiProcessorCount",
    "maxThreadsPerMultiProcessor",
    "memoryClockRate",
    "memoryBusWidth",
    "l2CacheSize",
    "regsPerBlock",
    "maxSharedMemoryPerMultiProcessor",
    "warpSize",
)


@calls.call("hipChooseDevice")
def hipChooseDevice(prop: Annotated[Any, required("hipDeviceProp_t")]) -> int:
    """Return the first device that has at least what some fields ask for; device 0 if none has.

    The fields are those of size: versions, memory, threads, clocks.  0 asks for nothing.

    Gives: its id
    Refuses: hipErrorInvalidValue NULL
    Basis: D
    """
    asked = {name: getattr(prop, name) for name in _COMPARED if getattr(prop, name)}
    for number, device in enumerate(machine.shown()):
        offered = properties(device)
        if all(getattr(offered, name) >= least for name, least in asked.items()):
            return number
    return 0


@calls.call("hipSetValidDevices")
def hipSetValidDevices(len: int) -> int:
    """Name the devices that this thread may use, of which the first becomes current unless hipSetDevice chose one.

    The vendor's binding has no list to pass, so the one that works is an empty one; a list before ``len`` is taken.

    Gives: 0
    Refuses: hipErrorInvalidValue no list, more than there are devices, a negative `len`; hipErrorInvalidDevice an id
    Basis: D
    """
    _name_devices(None, len)
    return 0


@calls.declare_overload("hipSetValidDevices", "C")
def _name_devices(device_arr: Sequence[int] | None, len: int) -> None:
    if not len:
        return
    count = _count(machine.shown())
    if device_arr is None or not 0 < len <= count:
        passed = "no list" if device_arr is None else f"a list of {len}"
        raise invalid(f"{passed} is given, and there are {count} devices", "pass the ids of some devices")
    first, *_ = [device_of(each) for each in device_arr[:len]]
    if not machine.has_chosen_device:
        machine.use(first.ordinal)
