"""``hip``: physical memory and file descriptors of it (facts/hip 3.6, 0.7)."""

from __future__ import annotations

import contextlib
import os
import struct as layout
from functools import partial
from typing import Annotated, Any

from peerlane import Device
from peerlane.dialects._shared.call import Check
from peerlane.dialects._shared.checks import check
from peerlane.dialects.gpu.pools import PINNED
from peerlane.dialects.gpu.regions import HostAddress
from peerlane.dialects.gpu.vendor import Reason
from peerlane.dialects.gpu.virtual_memory import FILE_DESCRIPTOR, GpuPhysical, PhysicalProperties
from peerlane.dialects.hip.binding.checks import NotZero, Reserved, refuse_zero
from peerlane.dialects.hip.binding.convention import invalid
from peerlane.dialects.hip.binding.pointers import read, write
from peerlane.dialects.hip.binding.results import handle as handle_of
from peerlane.dialects.hip.binding.results import struct
from peerlane.dialects.hip.state import calls, gpu

_UNCACHED = 0x4000_0000
# hipMemAllocationProp: its type, requestedHandleType, which hip-python has no property for, and the location.
_PROPERTIES = layout.Struct("<iiii")
_LOCATION = layout.Struct("<ii")
_INT = layout.Struct("<i")
_BEYOND_DESCRIPTORS = 1 << 20  # no descriptor is as large, and no address as small


virtual_memory = gpu.virtual_memory


def location_of(location: Any, what: str) -> Device:
    """Return the device that a hipMemLocation names; hipErrorInvalidValue for NULL, and where there is none."""
    if location is None:
        raise invalid(f"{what} is NULL", "pass a hipMemLocation")
    kind, number = _LOCATION.unpack(location._read(0, 0, _LOCATION.size))
    return gpu.locations.device(kind, number, what)


def checked(prop: Any, reason: Reason = Reason.INVALID_VALUE) -> PhysicalProperties:
    """Return the properties that are asked for; hipErrorInvalidValue for a wrong field, ``reason`` for a device."""
    if prop is None:
        raise invalid("prop is NULL", "pass a hipMemAllocationProp")
    kind, handle_type, location, number = _PROPERTIES.unpack(prop._read(0, 0, _PROPERTIES.size))
    if kind not in (PINNED, _UNCACHED):
        raise invalid(f"type of prop is {kind}", "pass hipMemAllocationTypePinned, 1")
    return PhysicalProperties(gpu.locations.device(location, number, "prop", reason), kind, handle_type)


def _refuse_other_type(_name: str, handle_type: Any) -> Any:
    if int(handle_type) != FILE_DESCRIPTOR:
        raise invalid(
            f"the handle type is {handle_type.name}; memory is shared by file descriptors only",
            "pass hipMemAllocationHandleType.hipMemHandleTypePosixFileDescriptor",
        )
    return handle_type


#: A hipMemAllocationHandleType: file descriptors only.
FileDescriptor = Annotated[Any, check(_refuse_other_type)]
Location = Annotated[Device, Check(lambda name: lambda location: location_of(location, name))]
_Prop = Annotated[PhysicalProperties, Check(lambda name: checked)]
_PropToMake = Annotated[
    PhysicalProperties, Check(lambda name: partial(checked, reason=Reason.INVALID_DEVICE))
]
_Physical = Annotated[GpuPhysical, Check(lambda name: virtual_memory.physical)]


def handle_object(number: int) -> Any:
    """Return hip-python's object of a handle."""
    return handle_of("ihipMemGenericAllocationHandle", number)


@calls.call("hipMemGetAllocationGranularity")
def hipMemGetAllocationGranularity(prop: _Prop, option: Any) -> int:
    """Return of how many bytes sizes must be multiples; the same for both options (facts/hip 3.6).

    Gives: bytes
    Refuses: hipErrorInvalidValue NULL, a wrong field of `prop`
    Basis: S
    """
    return virtual_memory.granularity


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
    return handle_object(virtual_memory.create(size, prop))


@calls.call("hipMemRelease")
def hipMemRelease(handle: int) -> None:
    """Drop a reference; the last one ends the handle.  Mapped memory stays usable (facts/hip 3.6).

    Refuses: hipErrorInvalidValue NULL, no handle, released
    Basis: S
    """
    virtual_memory.release(handle, "hipMemRelease")


@calls.call("hipMemGetAllocationPropertiesFromHandle")
def hipMemGetAllocationPropertiesFromHandle(handle: _Physical) -> Any:
    """Return the properties of physical memory (facts/hip 3.6).

    Of imported memory: pinned, on the device that it is on, to be shared by file descriptor.  hip-python 7.2 passed
    a struct to fill, which is taken too.

    Gives: hipMemAllocationProp
    Refuses: hipErrorInvalidValue NULL, no handle
    Basis: S
    """
    properties, prop = handle.properties, struct("hipMemAllocationProp")()
    number = gpu.locations.id_of(properties.device)
    prop._write(
        0, 0, _PROPERTIES.pack(properties.kind, properties.handle_type, properties.location_type, number)
    )
    return prop


@calls.call("hipMemExportToShareableHandle", first=("shareableHandle", "flags"))
def hipMemExportToShareableHandle(
    shareableHandle: NotZero, handle: _Physical, handleType: FileDescriptor, flags: Reserved
) -> None:
    """Write a new file descriptor of the memory to an address; the program closes it (facts/hip 3.6).

    It keeps the memory also after this process has ended, and travels by SCM_RIGHTS or to children.  Memory without a
    requested handle type is exported too, as hip-python cannot ask for one.

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
    """Return a handle of the memory of a file descriptor, which stays the program's (facts/hip 3.6).

    ``osHandle`` is the descriptor as a pointer, or as older programs have it the address of an int that holds it; 0
    is NULL.  The process that exported is not asked.

    Gives: handle
    Refuses: hipErrorInvalidValue NULL, a type other than file descriptor, not memory of this node
    Basis: S
    """
    return handle_object(virtual_memory.open_descriptor(descriptor_of(osHandle, "osHandle")))


@calls.call("hipMemGetHandleForAddressRange")
def hipMemGetHandleForAddressRange(
    handle: NotZero, dptr: NotZero, size: NotZero, handleType: Any, flags: Reserved
) -> None:
    """Refuse: there are no dma-bufs, and hipDeviceAttributeDmaBufSupported is 0.

    Refuses: hipErrorInvalidValue NULL, size 0, `flags`, not memory of a device, more than lies there;
        hipErrorNotSupported all else
    Basis: S; C for hipErrorNotSupported
    """
    virtual_memory.refuse_dma_buf(dptr, size)
