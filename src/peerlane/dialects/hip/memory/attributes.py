"""``hip``: attributes of pointers (facts/hip 3.4)."""

from __future__ import annotations

import contextlib
import struct as packing
from collections.abc import Callable
from typing import Any

from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.gpu.attributes import MemoryPointer, MemoryType
from peerlane.dialects.gpu.machine import INVALID_DEVICE
from peerlane.dialects.gpu.regions import Region
from peerlane.dialects.hip.binding.checks import NotNone, NotNull, refuse_none, refuse_null
from peerlane.dialects.hip.binding.convention import invalid, refusal
from peerlane.dialects.hip.binding.enums import enumeration
from peerlane.dialects.hip.binding.pointers import read, write
from peerlane.dialects.hip.binding.results import pointer as void_pointer
from peerlane.dialects.hip.binding.results import struct
from peerlane.dialects.hip.binding.types import Pointer
from peerlane.dialects.hip.state import calls, gpu, machine
from peerlane.errors import Error

attributes = gpu.attributes
_PREFIX = "HIP_POINTER_ATTRIBUTE_"
_UINT = 1 << 32
_WORD, _INT, _BOOL = "<Q", "<I", "<B"
_TYPES = {each: f"hipMemoryType{each.name.title()}" for each in MemoryType}
#: Of each attribute the layout of its value in the program's memory, and the value.
_ATTRIBUTES: dict[str, tuple[str, Callable[[MemoryPointer], int | None]]] = {
    "MEMORY_TYPE": (_INT, lambda pointer: int(type_of(pointer.region))),
    "DEVICE_POINTER": (_WORD, lambda pointer: pointer.address),
    "HOST_POINTER": (_WORD, lambda pointer: pointer.host_address),
    "SYNC_MEMOPS": (_BOOL, lambda pointer: pointer.is_synchronous),
    "BUFFER_ID": (_INT, lambda pointer: pointer.region.allocation % _UINT),
    "IS_MANAGED": (_BOOL, lambda pointer: pointer.region.is_managed),
    "DEVICE_ORDINAL": ("<i", lambda pointer: pointer.device),
    "RANGE_START_ADDR": (_WORD, lambda pointer: pointer.region.base),
    "RANGE_SIZE": (_INT, lambda pointer: pointer.region.size % _UINT),
    "MAPPED": (_BOOL, lambda pointer: True),
    "ACCESS_FLAGS": (_INT, lambda pointer: pointer.region.flags),
}
_WITHOUT = {"DEVICE_ORDINAL": INVALID_DEVICE}  # of memory that HIP does not know; others 0


@calls.call("hipMemGetAddressRange")
def hipMemGetAddressRange(dptr: int) -> tuple[Pointer | None, int]:
    """Return where the allocation around an address begins, and its bytes (facts/hip 3.4, 4).

    Of memory of devices and of the host; the size is the one asked for, of pitched memory pitch times height.  Of
    mapped memory it is the one mapping around the address, not the reserved range.

    Gives: base Pointer, size
    Refuses: hipErrorNotFound NULL, addresses where nothing is, reserved or not, ordinary memory of the host
    Basis: S; D for mapped memory; C for registered memory, whose range is the registration
    """
    region = attributes.allocation(dptr)
    return void_pointer(region.base), region.size


@calls.call("hipMemPtrGetInfo")
def hipMemPtrGetInfo(ptr: int) -> int:
    """Return the bytes of the allocation around an address; 0 for NULL.

    Gives: bytes
    Refuses: hipErrorInvalidValue memory that HIP does not know
    Basis: D
    """
    return gpu.regions.required_at("ptr", ptr).size if ptr else 0


@calls.call("hipPointerGetAttributes")
def hipPointerGetAttributes(ptr: NotNull) -> object:
    """Return the attributes of an address (facts/hip 3.4).

    Memory of a device has no hostPointer; memory of the host has, and its device is the one that was current when it
    was made.  Ordinary memory of the host is of the type unregistered, device -2, pointers NULL.

    Gives: hipPointerAttribute_t
    Refuses: hipErrorInvalidValue NULL, addresses of devices where nothing is
    Basis: S
    """
    pointer = attributes.at(ptr)
    described = struct("hipPointerAttribute_t")()
    if pointer is None:
        described.device = INVALID_DEVICE
        return described
    region = pointer.region
    described.type = type_of(region)
    described.device, described.devicePointer = pointer.device, ptr
    described.isManaged, described.allocationFlags = int(region.is_managed), region.flags
    if not region.is_device:
        described.hostPointer = ptr
    return described


def type_of(region: Region) -> Any:
    """Return the hipMemoryType of memory."""
    return enumeration("hipMemoryType")[_TYPES[MemoryType.of(region)]]


@calls.call("hipPointerGetAttribute", first=("ptr",))
def hipPointerGetAttribute(data: NotNull, attribute: Any, ptr: NotNull) -> None:
    """Write one attribute of an address to ``data``, with as many bytes as the attribute has.

    Pointers and the start are 8 bytes, ordinal, type, ids and flags 4, yes or no 1.  BUFFER_ID and
    RANGE_SIZE keep the lower 32 bits, as the vendor's runtime does.  MEMORY_TYPE of ordinary memory of the host is
    unregistered, 0.

    Refuses: hipErrorInvalidValue NULL, what memory does not have, and then writes 0 (DEVICE_ORDINAL -2);
        hipErrorNotSupported CONTEXT, P2P_TOKENS, ALLOWED_HANDLE_TYPES, IS_GPU_DIRECT_RDMA_CAPABLE,
        IS_LEGACY_HIP_IPC_CAPABLE, MEMPOOL_HANDLE
    Basis: D
    """
    _write_attribute(data, attribute, ptr)


@calls.call("hipDrvPointerGetAttributes", first=("ptr",))
def hipDrvPointerGetAttributes(numAttributes: NotNone, ptr: NotNull) -> tuple[Any, Pointer | None]:
    """Write many attributes of an address; those that it does not have are 0 (DEVICE_ORDINAL -2).

    hip-python makes outputs of ``attributes`` and ``data``, which the C function reads, so that nothing can be asked
    for; C's arguments are taken as well: ``(numAttributes, attributes, data, ptr)``, a list of members and a list of
    where each value goes.

    Refuses: hipErrorInvalidValue NULL, no attributes, NULL among ``data``; hipErrorNotSupported hip-python's
        arguments
    Basis: D; C for the arguments
    """
    raise refusal(
        "hipErrorNotSupported",
        "hip-python makes outputs of `attributes` and `data`, which the C function reads",
        "pass (numAttributes, attributes, data, ptr), or call hipPointerGetAttribute for each",
    )


@calls.declare_overload("hipDrvPointerGetAttributes", "C")
def _pointer_get_attributes(numAttributes: int, attributes: Any, data: Any, ptr: NotNull) -> None:
    refuse_none("numAttributes", numAttributes)
    for number in range(numAttributes):
        target = int(data[number])
        refuse_null(f"data[{number}]", target)
        with contextlib.suppress(Refusal):  # the value is written nevertheless
            _write_attribute(target, enumeration("hipPointer_attribute")(attributes[number]), ptr)


def _write_attribute(data: int, attribute: Any, ptr: int) -> None:
    name = attribute.name.removeprefix(_PREFIX)
    if name not in _ATTRIBUTES:
        raise refusal(
            "hipErrorNotSupported",
            f"{attribute.name} is not known here, nor in the vendor's runtime",
            f"ask for one of {', '.join(_ATTRIBUTES)}",
        )
    layout, value_of = _ATTRIBUTES[name]
    try:
        pointer = attributes.at(ptr)
    except Error:
        pointer, has_default = None, name == "ACCESS_FLAGS"
    else:
        has_default = name in ("ACCESS_FLAGS", "MEMORY_TYPE")
    value = None if pointer is None else value_of(pointer)
    write(data, packing.pack(layout, _WITHOUT.get(name, 0) if value is None else value))
    if value is None and not has_default:
        raise invalid(
            f"there is no {attribute.name} of {machine.describe(ptr)}",
            "pass memory of hipMalloc, or of hipHostMalloc where it is about the host",
        )


@calls.call("hipPointerSetAttribute", first=("ptr",))
def hipPointerSetAttribute(value: NotNull, attribute: Any, ptr: NotNull) -> None:
    """Set SYNC_MEMOPS, the only one that can be set: copies within a device and memset wait then.

    ``value`` is the address of an unsigned int, 0 or 1.  A copy waits where both ends have it.

    Refuses: hipErrorInvalidValue NULL, another attribute or value; hipErrorInvalidDevicePointer memory that HIP does
        not know
    Basis: D; C: a memset waits, where the vendor's runtime does the opposite
    """
    if attribute.name != f"{_PREFIX}SYNC_MEMOPS":
        raise invalid(f"{attribute.name} cannot be set", f"pass {_PREFIX}SYNC_MEMOPS")
    (wanted,) = packing.unpack("<I", read(value, 4))
    if wanted > 1:
        raise invalid(f"the value is {wanted}", "pass the address of 0 or 1")
    attributes.set_synchronous(ptr, is_set=bool(wanted))
