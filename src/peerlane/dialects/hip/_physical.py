"""``hip``: physical memory and file descriptors of it (facts/hip 3.6, 0.7)."""

from __future__ import annotations

import contextlib
import os
import struct as layout
from functools import partial
from typing import Annotated, Any

from peerlane import Device, Physical
from peerlane.dialects._shared.call import Check
from peerlane.dialects._shared.checks import check
from peerlane.dialects._shared.virtual_memory import PhysicalMemory
from peerlane.dialects.gpu.regions import HostAddress
from peerlane.dialects.gpu.vendor import Reason
from peerlane.dialects.hip._checks import NotZero, Reserved, refuse_zero
from peerlane.dialects.hip._convention import invalid, refusal
from peerlane.dialects.hip._pointers import read, write
from peerlane.dialects.hip._results import handle as handle_of
from peerlane.dialects.hip._results import struct
from peerlane.dialects.hip._state import calls, gpu, machine
from peerlane.errors import BadHandle
from peerlane.support.records import dataclass

_NONE, _FILE_DESCRIPTOR = 0, 1
_PINNED, _UNCACHED = 1, 0x4000_0000
ON_DEVICE, ON_HOST = 1, 2
# hipMemAllocationProp: its type, requestedHandleType, which hip-python has no property for, and the location.
_PROPERTIES = layout.Struct("<iiii")
_LOCATION = layout.Struct("<ii")
_INT = layout.Struct("<i")
_BEYOND_DESCRIPTORS = 1 << 20  # no descriptor is as large, and no address as small


@dataclass(frozen=True, slots=True)
class Properties:
    """The contents of a hipMemAllocationProp.

    Attributes
    ----------
    kind : int
        hipMemAllocationType.
    handle_type : int
        hipMemAllocationHandleType that was requested; 0 where a program of hip-python could not say it.
    device : Device
    """

    kind: int
    handle_type: int
    device: Device


class HipPhysical(PhysicalMemory):
    """Physical memory, made here or imported; a mapping can give out its handle again.

    Attributes
    ----------
    properties : Properties
    """

    __slots__ = ("properties",)

    outlives_handle = True

    def __init__(self, neutral: Physical, properties: Properties) -> None:
        super().__init__(machine.context_of(properties.device.ordinal), neutral)
        self.properties = properties

    end = PhysicalMemory.abandon


def physical_of(handle: int) -> HipPhysical:
    """Return the memory of a handle: hipErrorInvalidValue for other numbers."""
    return machine.thing(handle, HipPhysical, Reason.INVALID_VALUE)


def location_of(place: Any, what: str) -> Device:
    """Return the device that a hipMemLocation names; hipErrorInvalidValue for NULL, and where there is none."""
    if place is None:
        raise invalid(f"{what} is NULL", "pass a hipMemLocation")
    kind, number = _LOCATION.unpack(place._read(0, 0, _LOCATION.size))
    return device_at(kind, number, what)


def device_at(kind: int, number: int, what: str, code: str = "hipErrorInvalidValue") -> Device:
    """Return the device of a location; hipErrorInvalidValue for another type, ``code`` for no id."""
    devices = machine.shown()
    if kind == ON_DEVICE and 0 <= number < len(devices):
        return devices[number]
    remedy = "pass hipMemLocationTypeDevice, 1, and an id below hipGetDeviceCount()"
    if kind != ON_DEVICE:
        raise invalid(f"location.type of {what} is {kind}", remedy)
    raise refusal(
        code,
        f"the device of {what} is {number}; {len(devices)} are visible, numbered 0 to {len(devices) - 1}",
        remedy,
    )


def checked(prop: Any, code: str = "hipErrorInvalidValue") -> Properties:
    """Return what properties ask for; hipErrorInvalidValue for what cannot be, ``code`` for no device."""
    if prop is None:
        raise invalid("prop is NULL", "pass a hipMemAllocationProp")
    kind, handle_type, place, number = _PROPERTIES.unpack(prop._read(0, 0, _PROPERTIES.size))
    if kind not in (_PINNED, _UNCACHED):
        raise invalid(f"type of prop is {kind}", "pass hipMemAllocationTypePinned, 1")
    return Properties(kind, handle_type, device_at(place, number, "prop", code))


def _refuse_other_type(_name: str, handle_type: Any) -> Any:
    if int(handle_type) != _FILE_DESCRIPTOR:
        raise invalid(
            f"the handle type is {handle_type.name}; memory is shared by file descriptors only",
            "pass hipMemAllocationHandleType.hipMemHandleTypePosixFileDescriptor",
        )
    return handle_type


#: A hipMemAllocationHandleType: file descriptors only.
FileDescriptor = Annotated[Any, check(_refuse_other_type)]
Location = Annotated[Device, Check(lambda name: lambda place: location_of(place, name))]
_Prop = Annotated[Properties, Check(lambda name: checked)]
_PropToMake = Annotated[Properties, Check(lambda name: partial(checked, code="hipErrorInvalidDevice"))]
_Physical = Annotated[HipPhysical, Check(lambda name: physical_of)]


@calls.call("hipMemGetAllocationGranularity")
def hipMemGetAllocationGranularity(prop: _Prop, option: Any) -> int:
    """Return of how many bytes sizes must be multiples; the same for both options (facts/hip 3.6).

    Gives: bytes
    Refuses: hipErrorInvalidValue NULL, a wrong field of `prop`
    Basis: S
    """
    return prop.device.granularity


@calls.call("hipMemCreate", first=("size", "flags"))
def hipMemCreate(size: NotZero, prop: _PropToMake, flags: Reserved) -> Any:
    """Allocate physical memory, which has no address until it is mapped (facts/hip 3.6).

    The reset of its device releases it.

    Gives: handle
    Refuses: hipErrorInvalidValue size 0 or not a multiple of the granularity, `flags`, a field of `prop`;
        hipErrorInvalidDevice its device; hipErrorNotSupported a requested handle type other than none and file
        descriptor; hipErrorOutOfMemory
    Basis: S; C for the reset
    """
    device = prop.device
    if prop.handle_type not in (_NONE, _FILE_DESCRIPTOR):
        raise refusal(
            "hipErrorNotSupported",
            f"requestedHandleType of prop is {prop.handle_type}; memory is shared by file descriptors only",
            "ask for hipMemHandleTypePosixFileDescriptor, 1, or none, 0",
        )
    if size % device.granularity:
        raise invalid(
            f"size {size:,} is not a multiple of the granularity of {device.granularity:,}",
            "round up to what hipMemGetAllocationGranularity gives",
        )
    if size > device.total_bytes:
        raise refusal(
            "hipErrorOutOfMemory",
            f"{size:,} bytes are more than device {machine.id_of(device.ordinal)} has, {device.total_bytes:,}",
            "ask for less",
        )
    return _give(gpu.reuse.with_room(device, lambda: Physical(device, size, peer=True)), prop)


def _give(made: Physical, properties: Properties) -> Any:
    try:
        return handle_of("ihipMemGenericAllocationHandle", machine.give(HipPhysical(made, properties)))
    except BaseException:
        made.close()
        raise


@calls.call("hipMemRelease")
def hipMemRelease(handle: int) -> None:
    """Drop a reference; the last one ends the handle.  Mapped memory stays usable (facts/hip 3.6).

    Refuses: hipErrorInvalidValue NULL, no handle, released
    Basis: S
    """
    with machine.lock:
        found = physical_of(handle)
        if found.release():
            machine.drop(found, "hipMemRelease")
            found.let_go()


def retained(found: HipPhysical) -> Any:
    """Return the handle of mapped memory, with one more reference; a new one if it was released."""
    with machine.lock:
        found.references += 1
        number = found.handle if found.references > 1 else machine.give(found)
    return handle_of("ihipMemGenericAllocationHandle", number)


@calls.call("hipMemGetAllocationPropertiesFromHandle")
def hipMemGetAllocationPropertiesFromHandle(handle: _Physical) -> Any:
    """Return the properties that memory was made with (facts/hip 3.6).

    Of imported memory: pinned, on the device that it is on, to be shared by file descriptor.  hip-python 7.2 passed
    a struct to fill, which is taken too.

    Gives: hipMemAllocationProp
    Refuses: hipErrorInvalidValue NULL, no handle
    Basis: S
    """
    found = handle.properties
    made = struct("hipMemAllocationProp")()
    made._write(
        0, 0, _PROPERTIES.pack(found.kind, found.handle_type, ON_DEVICE, machine.id_of(found.device.ordinal))
    )
    return made


@calls.call("hipMemExportToShareableHandle", first=("shareableHandle", "flags"))
def hipMemExportToShareableHandle(
    shareableHandle: NotZero, handle: _Physical, handleType: FileDescriptor, flags: Reserved
) -> None:
    """Write a new file descriptor of the memory to an address; the program closes it (facts/hip 3.6).

    It keeps the memory, whatever becomes of this process, and travels by SCM_RIGHTS or to children.  Memory that was
    made with no requested handle type is exported too, as hip-python cannot ask for one.

    Refuses: hipErrorInvalidValue NULL, no handle, `flags`, a type other than file descriptor
    Basis: S; C for no requested type
    """
    write_descriptor(shareableHandle, handle.neutral.export_fd(), "shareableHandle")


def write_descriptor(address: int, fd: int, name: str) -> None:
    """Write a descriptor where the program wants it; it is closed if that cannot be."""
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, fd)
        if isinstance(address, HostAddress) and address.nbytes < _INT.size:
            raise invalid(
                f"{name} is a host object of {address.nbytes} bytes, and a file descriptor has {_INT.size}",
                "pass a ctypes.c_int, or its address",
            )
        write(address, _INT.pack(fd))
        undo.pop_all()


def descriptor_of(value: int, name: str) -> int:
    """Return the descriptor that a pointer argument means: its number, or an int at an address (facts/hip 3.6)."""
    refuse_zero(name, value)
    if not isinstance(value, HostAddress) and value < _BEYOND_DESCRIPTORS:
        return value
    if isinstance(value, HostAddress) and value.nbytes < _INT.size:
        raise invalid(
            f"{name} is a host object of {value.nbytes} bytes, and a file descriptor has {_INT.size}",
            "pass the file descriptor itself",
        )
    fd: int = _INT.unpack(read(value, _INT.size))[0]
    return fd


@calls.call("hipMemImportFromShareableHandle", first=("shHandleType",))
def hipMemImportFromShareableHandle(osHandle: int, shHandleType: FileDescriptor) -> Any:
    """Have the memory of a file descriptor, which stays the program's (facts/hip 3.6).

    ``osHandle`` is the descriptor as a pointer, or as older programs have it the address of an int that holds it; 0
    is NULL.  The process that exported is not asked.

    Gives: handle
    Refuses: hipErrorInvalidValue NULL, a type other than file descriptor, not memory of this node
    Basis: S
    """
    fd = descriptor_of(osHandle, "osHandle")
    machine.devices()
    try:
        made = Physical.open_fd(fd)
    except BadHandle as error:
        raise invalid(str(error), "pass a descriptor that hipMemExportToShareableHandle wrote") from None
    return _give(made, Properties(_PINNED, _FILE_DESCRIPTOR, made.device))


@calls.call("hipMemGetHandleForAddressRange")
def hipMemGetHandleForAddressRange(
    handle: NotZero, dptr: NotZero, size: NotZero, handleType: Any, flags: Reserved
) -> None:
    """Refuse: there are no dma-bufs, and hipDeviceAttributeDmaBufSupported is 0.

    Refuses: hipErrorInvalidValue NULL, size 0, `flags`, not memory of a device, more than lies there;
        hipErrorNotSupported all else
    Basis: S; C for hipErrorNotSupported
    """
    if not gpu.regions.known("dptr", dptr).is_device:
        raise invalid(f"dptr is memory of the host: {machine.describe(dptr)}", "pass memory of a device")
    gpu.regions.inside("dptr", dptr, size)
    raise refusal(
        "hipErrorNotSupported",
        "virtual devices have no dma-bufs, and hipDeviceAttributeDmaBufSupported is 0",
        "share memory of hipMemCreate with hipMemExportToShareableHandle",
    )
