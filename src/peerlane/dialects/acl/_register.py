"""``acl.rt``: host memory that a program registers, and the memory of an address (facts/acl 2.7)."""

from __future__ import annotations

from typing import Any

from peerlane import Kind
from peerlane.diagnostics.memory.addresses import is_mapped, rights
from peerlane.dialects._shared.call import Address, Int32, Refusal, UInt32, Word
from peerlane.dialects.acl._checks import null, reserved_below, zero
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._state import HostMemory, acl, machine
from peerlane.memory import raw

_PAGE = 4096
_IO_MEMORY, _READ_ONLY = 0x4, 0x8
_MAPPED, _PINNED = 0x2, 0x1000_0000
_END = 1 << 64
HOST, DEVICE = 0, 1  # types of a location
_UNREGISTERED = 2
_RANGE = (null("ptr"), zero("size"))


@acl.call("acl.rt.host_register", out=1, checks=_RANGE)
def host_register(ptr: Address, size: Word, type: Int32) -> int:
    """Let devices use memory of the host; streams queue copies of it (facts/acl 2.7).

    The pointer is the host's own.  The vendor's documentation forbids copies with it (facts/acl 2.7).

    Gives: pointer
    Refuses: 100000 NULL, size 0; 207000 type not 0; 107002; 107000 not all host memory; 507899 no multiple of 4 KiB,
        a mapping that is only to be read; 507910 registered already
    Basis: S, R; C for 107000 and the pointer
    """
    if type:
        raise _not_for_io("type", type, "0, ACL_HOST_REGISTER_MAPPED")
    _register(ptr, size, is_mapped=True)
    return ptr


@acl.call("acl.rt.host_register_v2", checks=_RANGE)
def host_register_v2(ptr: Address, size: Word, flag: UInt32) -> None:
    """Register as ``host_register``: flag MAPPED 2, PINNED 0x10000000, or both (facts/acl 2.7).

    Refuses: as `host_register`; 107000 flag; 207000 flags 4, 8
    Basis: S
    """
    known = _MAPPED | _PINNED | _IO_MEMORY | _READ_ONLY
    if not flag or flag & ~known:
        raise Code.RT_PARAM_INVALID.refusal(
            f"flag is {flag:#x}",
            f"pass {_MAPPED} to have an address for devices, {_PINNED:#x} to pin, or both",
        )
    if flag & (_IO_MEMORY | _READ_ONLY):
        raise _not_for_io("flag", flag, f"{_MAPPED}, {_PINNED:#x} or both")
    _register(ptr, size, is_mapped=bool(flag & _MAPPED))


@acl.call("acl.rt.host_unregister", checks=[null("ptr")])
def host_unregister(ptr: Address) -> None:
    """End a registration: the memory is ordinary host memory again (facts/acl 2.7).

    Refuses: 100000 NULL; 107002; 507911 no start of a registration
    Basis: S
    """
    machine.context()
    with machine.lock:
        registration = machine.registrations.remove(ptr)
    if registration is None:
        raise _not_registered(ptr, "pass each pointer that was registered once, unchanged")


@acl.call("acl.rt.host_get_device_pointer", out=1, checks=[null("ptr"), reserved_below("flag")])
def host_get_device_pointer(ptr: Address, flag: UInt32) -> int:
    """Return a device's address for registered memory, which is the host's own address (facts/acl 2.7).

    Gives: pointer
    Refuses: 100000 NULL; 107000 flag; 107002; 507911 not registered, or not as MAPPED
    Basis: S; C for 507911 and the pointer
    """
    machine.context()
    registration = machine.registrations.around(ptr)
    if registration is None or not registration.is_mapped:
        raise _not_registered(ptr, f"register it first: acl.rt.host_register_v2(ptr, size, {_MAPPED})")
    return ptr


@acl.call(
    "acl.rt.pointer_get_attributes", out=1, blank=lambda ptr: (_attributes(0, 0, 0),), checks=[null("ptr")]
)
def pointer_get_attributes(ptr: Address) -> dict[str, Any]:
    """Return the location of an address (facts/acl 2.7).

    Location types: 0 host (of ``malloc_host``, or registered), 1 device, 2 other host memory.

    Gives: `{'location': {'id', 'type'}, 'page_size', 'rsv'}`
    Refuses: 100000 NULL; 107000 a device address where nothing lives
    Basis: S; C for 107000 and the page size
    """
    present = machine.devices()
    location = raw.locate(ptr)
    if location.kind is Kind.DEVICE:
        return _attributes(DEVICE, machine.number_at(location.ordinal), present[location.ordinal].granularity)
    is_known = location.kind is Kind.PINNED or machine.registrations.around(ptr) is not None
    return _attributes(HOST if is_known else _UNREGISTERED, 0, _PAGE)


@acl.call("aclrtMemGetAddressRange", out=2, checks=[null("ptr")])
def get_address_range(ptr: Address) -> tuple[int, int]:
    """Return the first address and the bytes of the memory that contains an address (facts/acl 6).

    That is memory of ``malloc`` and ``malloc_host``, mapped and imported memory, and registered host memory.

    Gives: base, bytes
    Refuses: 100000 NULL; 107000 other host memory, an address where nothing lives
    Basis: S, D; C for 107000 and registered memory
    """
    machine.devices()
    location = raw.locate(ptr)
    if location.kind is not Kind.PAGEABLE:
        return location.base, location.size
    registered = machine.registrations.around(ptr)
    if registered is not None:
        return registered.start, registered.size
    raise Code.RT_PARAM_INVALID.refusal(
        f"{machine.describe(ptr)} is not memory of acl.rt",
        "pass an address inside what acl.rt.malloc, acl.rt.malloc_host or acl.rt.map_mem gave",
    )


def location_of(ptr: int) -> tuple[int, int]:
    """Return the type of the location of an address, DEVICE or HOST, and the program's number of the device."""
    location = raw.locate(ptr)
    return (DEVICE, machine.number_at(location.ordinal)) if location.kind is Kind.DEVICE else (HOST, 0)


def _attributes(kind: int, ordinal: int, page: int) -> dict[str, Any]:
    return {"location": {"id": ordinal, "type": kind}, "page_size": page, "rsv": [0] * 4}


def _register(ptr: int, size: int, *, is_mapped: bool) -> None:
    machine.context()
    if ptr % _PAGE:
        raise Code.RT_DRV_INTERNAL_ERROR.refusal(
            f"ptr {ptr:#x} is not a multiple of {_PAGE:,}",
            f"register whole pages: allocate with mmap, or round ptr down and its end up to {_PAGE:,} bytes",
        )
    _refuse_no_host(ptr, size)
    _refuse_read_only(ptr, size)
    with machine.lock:
        other = machine.registrations.overlapping(ptr, size)
        if other is not None:
            raise Code.RT_HOST_MEMORY_ALREADY_REGISTERED.refusal(
                f"the {other.size:,} bytes at {other.start:#x} are registered already",
                "end that with acl.rt.host_unregister first; ranges do not overlap",
            )
        machine.registrations.add(HostMemory(ptr, size, is_mapped))


def _refuse_no_host(ptr: int, size: int) -> None:
    last = ptr + size - 1
    if last < _END:
        ends = ptr, last
        if all(raw.locate(end).kind is not Kind.DEVICE and is_mapped(end) for end in ends):
            return
        cause = f"{machine.describe(ptr)} to {machine.describe(last)} is not all memory of the host"
    else:
        cause = f"{size:,} bytes from {ptr:#x} on reach beyond the address space"
    raise Code.RT_PARAM_INVALID.refusal(cause, "pass host memory that lives, and its size")


def _refuse_read_only(ptr: int, size: int) -> None:
    closed = next((each for each in rights(ptr, size) if "w" not in each), None)
    if closed is not None:
        raise Code.RT_DRV_INTERNAL_ERROR.refusal(
            f"not all of the {size:,} bytes at {ptr:#x} may be written: the system maps them with rights {closed}",
            "register memory that may be read and written; map a file with ACCESS_WRITE or ACCESS_COPY",
        )


def _not_for_io(name: str, value: int, valid: str) -> Refusal:
    return Code.RT_FEATURE_NOT_SUPPORT.refusal(
        f"{name} is {value:#x}; memory of other devices (4) and read-only memory (8) are not registered",
        f"pass {valid}",
    )


def _not_registered(ptr: int, remedy: str) -> Refusal:
    around = machine.registrations.around(ptr)
    inside = f"; it is inside the {around.size:,} bytes registered at {around.start:#x}" if around else ""
    return Code.RT_HOST_MEMORY_NOT_REGISTERED.refusal(
        f"{ptr:#x} is not registered in that way{inside}", remedy
    )
