"""``acl.rt``: physical memory, reserved addresses and mappings (facts/acl 2.8, 4.4)."""

from __future__ import annotations

from typing import Any

from peerlane import AddressRange, Device, Handle, Physical
from peerlane.diagnostics.log import event_log
from peerlane.dialects._shared.call import Address, Dict, Int32, Refusal, Word
from peerlane.dialects._shared.machine import Context
from peerlane.dialects._shared.virtual_memory import PhysicalMemory, Reservation
from peerlane.dialects.acl._checks import null, one_of, reserved, reserved_below, zero
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._state import acl, machine
from peerlane.support.records import dataclass

_GIB = 1 << 30
_DEVICE, _HOSTS = 1, (0, 4)
_DDR = frozenset({2, 3, 6, 7})
_HUGE_1G = frozenset({10, 11, 14, 17})
_FOR_PEERS = frozenset({6, 7, 8, 9, 11, 15, 16, 17})
_ATTRIBUTES = range(2, 18)
#: Attributes with one meaning: each with the number that the vendor returns for the memory.
_SAME = {8: 16, 9: 15, 11: 17, 12: 5, 13: 4, 14: 10}
_GRANULE = "pass at least one granule"
_OPTION = one_of("option", (0, 1), "pass 0 (minimum) or 1 (recommended)")
_MAPPED = (
    null("ptr", "handle"),
    zero("size", remedy=_GRANULE),
    reserved("flags"),
    reserved("offset", remedy="pass 0: a handle is mapped as a whole"),
)
_RESERVE_FLAGS = one_of("flags", (0, 1), "pass 0 or 1", code=Code.INVALID_PARAM)


class AclPhysical(PhysicalMemory):
    """Physical memory that this process allocated, or imported from another process."""

    __slots__ = ("attribute", "granularity", "exported_handle", "import_key", "ordinal")

    outlives_handle = True

    def __init__(
        self,
        neutral: Physical,
        ordinal: int,
        *,
        granularity: int,
        attribute: int,
        import_key: tuple[int, int] | None = None,
    ) -> None:
        device = machine.devices()[ordinal]
        # No reset ends this context: it only names the device of the memory.
        super().__init__(Context(device, number=machine.number_of(device)), neutral)
        #: ``ordinal``: the node's number of its device; of imported memory, of the device for which it was imported.
        #: ``granularity``: the bytes of a page.
        self.ordinal, self.granularity = ordinal, granularity
        #: ``attribute``: its ``memAttr``.
        #: ``import_key``: shareable handle and device of an import; None for own memory.
        self.attribute, self.import_key = attribute, import_key
        self.exported_handle: Handle | None = None  #: the handle of its export; None before

    @property
    def for_peers(self) -> bool:
        """Whether peers may access it: its attribute permits that, or it was imported."""
        return self.import_key is not None or self.attribute in _FOR_PEERS


@dataclass(frozen=True, slots=True)
class _Property:
    device: Device
    granularity: int
    attribute: int


@acl.call("acl.rt.malloc_physical", out=1, checks=[zero("size", remedy=_GRANULE), reserved("flags")])
def malloc_physical(size: Word, prop: Dict, flags: Word) -> int:
    """Allocate physical memory, which has no address until it is mapped (facts/acl 2.8).

    ``prop`` has the device and the kind of pages; missing keys are 0.  The last reset of the device does not free the
    memory.

    Gives: handle
    Refuses: 100000 size 0, `flags`, a field of `prop`; 207000 host memory; 107001; 107002; 107000 no multiple
        of the granularity; 207001; `TypeError` no dict
    Basis: S; C for host memory and 107000
    """
    properties = _checked(prop)
    machine.context()
    if size % properties.granularity:
        raise Code.RT_PARAM_INVALID.refusal(
            f"size {size:,} is not a multiple of the granularity of {properties.granularity:,}",
            "round up to what acl.rt.mem_get_allocation_granularity(prop, 0) gives",
        )
    if size > properties.device.total_bytes:
        raise Code.RT_MEMORY_ALLOCATION.refusal(
            f"device {machine.number_of(properties.device)} cannot allocate {size:,} bytes: it has "
            f"{properties.device.total_bytes:,}",
            "pass a smaller size; a negative one wraps round to a large one",
        )
    device, attribute = properties.device, properties.attribute
    neutral = Physical(device, size, peer=attribute in _FOR_PEERS)
    return machine.issue(
        AclPhysical(neutral, device.ordinal, granularity=properties.granularity, attribute=attribute)
    )


@acl.call("acl.rt.free_physical")
def free_physical(handle: Address) -> None:
    """Drop a reference; the last one ends the handle (facts/acl 2.8).

    The bytes live as long as they are mapped here, or another process has imported them.

    Refuses: 100000 NULL; 107000 no handle, or freed
    Basis: S; C for 107000
    """
    physical = physical_of(handle)
    with machine.lock:
        if not physical.release():
            return
        if not machine.drop(physical, "acl.rt.free_physical"):
            raise _unknown(handle)
        if physical.import_key is not None:
            machine.imported_memory.forget(physical.import_key)
    physical.let_go()


@acl.call("acl.rt.mem_get_allocation_granularity", out=1, checks=[_OPTION])
def mem_get_allocation_granularity(prop: Dict, option: Int32) -> int:
    """Return the bytes of which sizes must be multiples: 2 MiB, or 1 GiB for pages of 1 GiB (facts/acl 2.8).

    Gives: bytes
    Refuses: 107000 `option`; 100000, 107001 a field of `prop`; 207000 host memory; `TypeError` no dict
    Basis: S; C for `option`
    """
    return _checked(prop).granularity


@acl.call(
    "acl.rt.reserve_mem_address",
    out=1,
    checks=[zero("size", remedy=_GRANULE), _RESERVE_FLAGS, reserved_below("alignment")],
)
def reserve_mem_address(size: Word, alignment: Word, expect_ptr: Address, flags: Word) -> int:
    """Reserve addresses, which take no memory (facts/acl 2.8).

    ``expect_ptr`` is the wanted first address, 0 for any; ``flags`` 0 and 1 mean the same.

    Gives: pointer
    Refuses: 100000 size 0, `flags` beyond 1; 107000 `alignment`, `expect_ptr` not to be had; 107002; 207005 no
        addresses
    Basis: S; C for the last three
    """
    return _reserve(size, expect_ptr)


@acl.call(
    "aclrtReserveMemAddressNoUCMemory",
    out=1,
    checks=[zero("size", remedy=_GRANULE), _RESERVE_FLAGS, reserved_below("alignment")],
)
def reserve_without_uc_memory(size: Word, alignment: Word, expect_ptr: Address, flags: Word) -> int:
    """Reserve addresses, as ``reserve_mem_address``.

    Gives: pointer
    Refuses: as `reserve_mem_address`
    Basis: S; C for the last three
    """
    return _reserve(size, expect_ptr)


def _reserve(size: int, expect_ptr: int) -> int:
    device = machine.context().device
    addresses = AddressRange(device, size, alignment=_GIB if size >= _GIB else 0, address=expect_ptr)
    if expect_ptr and addresses.address != expect_ptr:
        addresses.close()
        raise Code.RT_PARAM_INVALID.refusal(
            f"{size:,} bytes cannot be reserved at {expect_ptr:#x}: the addresses are in use, not of the device "
            f"window, or not a multiple of {device.granularity if size < _GIB else _GIB:,}",
            "pass 0 to have them anywhere",
        )
    with machine.lock:
        return machine.reservations.add(addresses).start


@acl.call("acl.rt.release_mem_address", checks=[null("ptr")])
def release_mem_address(ptr: Address) -> None:
    """Give reserved addresses back; all mappings there must be unmapped first (facts/acl 2.8).

    Refuses: 100000 NULL; 507899 no start of a reservation, mappings left
    Basis: S, X; C for mappings left
    """
    with machine.lock:
        machine.devices()
        reservation = machine.reservations.starting_at(ptr)
        if reservation is None:
            raise Code.RT_DRV_INTERNAL_ERROR.refusal(
                f"no reservation begins at {machine.describe(ptr)}",
                "pass what acl.rt.reserve_mem_address returned, once",
            )
        if reservation.mapped:
            raise Code.RT_DRV_INTERNAL_ERROR.refusal(
                reservation.describe_mappings(), "call acl.rt.unmap_mem for each first"
            )
        machine.reservations.remove(reservation)
    reservation.addresses.close()


@acl.call("acl.rt.map_mem", checks=_MAPPED)
def map_mem(ptr: Address, size: Word, offset: Word, handle: Address, flags: Word) -> None:
    """Map the whole of some physical memory at reserved addresses (facts/acl 2.8, 4.4).

    ``size`` is that of the memory, ``offset`` and ``flags`` are 0.  One handle may be mapped at several addresses.

    Refuses: 100000 NULL, size 0, `offset`, `flags`; 107000 no handle, `size` not that of the handle; 507899 not
        reserved, no room, alignment, something mapped there, a mixture
    Basis: S; C for 107000 and 507899
    """
    _map(ptr, size, handle)


@acl.call("aclrtMemMapNoAccess", checks=_MAPPED)
def map_without_access(ptr: Address, size: Word, offset: Word, handle: Address, flags: Word) -> None:
    """Map as ``map_mem``; no device may read or write it before ``aclrtMemSetAccess``.

    Refuses: as `map_mem`
    Basis: S, D; C for 107000 and 507899
    """
    _map(ptr, size, handle, access="none")


def _map(ptr: int, size: int, handle: int, **how: Any) -> None:
    physical = physical_of(handle)
    if size != physical.neutral.size:
        raise Code.RT_PARAM_INVALID.refusal(
            f"size is {size:,}, and the memory has {physical.neutral.size:,} bytes",
            "pass the size that acl.rt.malloc_physical was given: a handle is mapped as a whole",
        )
    with machine.lock:
        reservation = _with_room(ptr, size, physical)
        _refuse_mixture(reservation, physical)
        reservation.map(physical, ptr, **how)


@acl.call("acl.rt.unmap_mem", checks=[null("ptr")])
def unmap_mem(ptr: Address) -> None:
    """End the mapping that begins at ``ptr``; queued work can use the bytes until it is over (facts/acl 2.8).

    Refuses: 100000 NULL; 507899 no mapping begins there
    Basis: S, X
    """
    with machine.lock, event_log.freed_at_once():
        mapped_at(ptr).unmap(ptr)


@acl.call("aclrtMemRetainAllocationHandle", out=1, checks=[null("vir_ptr")])
def retain_allocation_handle(vir_ptr: Address) -> int:
    """Return the handle of the memory whose mapping begins at ``vir_ptr``, to be freed once more (facts/acl 6).

    After the last free of the handle it is a new handle.

    Gives: handle
    Refuses: 100000 NULL; 507899 no mapping begins there
    Basis: S, D; C for a freed one and 507899
    """
    with machine.lock:
        physical: AclPhysical = mapped_at(vir_ptr).mapped[vir_ptr]
        physical.references += 1
        return physical.handle if physical.references > 1 else machine.issue(physical)


@acl.call("aclrtMemGetAllocationPropertiesFromHandle", out=1, blank=lambda _: (_properties(0, 0, 0),))
def allocation_properties(handle: Address) -> dict[str, Any]:
    """Return the properties of physical memory; attributes of one meaning have one number (facts/acl 6).

    Gives: the dict that `malloc_physical` takes
    Refuses: 100000 NULL; 107000 no handle, or freed
    Basis: S; C for 107000
    """
    physical = physical_of(handle)
    return _properties(
        _SAME.get(physical.attribute, physical.attribute), _DEVICE, machine.number_at(physical.ordinal)
    )


def _properties(attribute: int, kind: int, number: int) -> dict[str, Any]:
    location = {"type": kind, "id": number}
    return {"handleType": 0, "allocationType": 0, "memAttr": attribute, "location": location, "reserve": 0}


def mapped_at(ptr: int) -> Reservation:
    """Return the reservation in which a mapping begins at this address: 507899 if none does."""
    machine.devices()
    reservation = machine.reservations.around(ptr)
    if reservation is None or ptr not in reservation.mapped:
        raise Code.RT_DRV_INTERNAL_ERROR.refusal(
            f"no mapping begins at {machine.describe(ptr)}",
            "pass an address that acl.rt.map_mem was given, once",
        )
    return reservation


def physical_of(handle: int) -> AclPhysical:
    """Return the memory of a handle; 100000 for 0, 107000 for other numbers."""
    null("handle")(handle)
    machine.devices()
    physical = machine.resources.get(handle)
    if type(physical) is AclPhysical:
        return physical
    raise _unknown(handle)


def _unknown(handle: int) -> Refusal:
    return Code.RT_PARAM_INVALID.refusal(
        machine.describe_unknown(handle, AclPhysical.name),
        "pass what acl.rt.malloc_physical or acl.rt.mem_import_from_shareable_handle returned, until it is freed",
    )


def _number(holder: dict[Any, Any], key: str) -> int:
    """Return a field as the binding reads it: 0 if it is missing, or not an int."""
    value = holder.get(key)
    return value if isinstance(value, int) else 0


def _checked(prop: dict[Any, Any]) -> _Property:
    """Return the properties that a dict has; refuse wrong ones."""
    location = prop.get("location")
    location = location if isinstance(location, dict) else {}
    kind, attribute = _number(location, "type"), _number(prop, "memAttr")
    for key in ("handleType", "allocationType"):
        if _number(prop, key):
            raise _wrong(key, _number(prop, key), "0")
    if kind != _DEVICE and kind not in _HOSTS:
        raise _wrong("location.type", kind, "1 (device)")
    if attribute not in _ATTRIBUTES or (kind == _DEVICE and attribute in _DDR):
        raise _wrong("memAttr", attribute, "4, 5, 8 to 17; 4 (HBM, huge pages) is the usual one")
    if kind in _HOSTS:
        raise Code.RT_FEATURE_NOT_SUPPORT.refusal(
            f"prop['location']['type'] is {kind}, host memory, and only device memory is allocated here; a missing "
            "key counts as 0",
            "pass {'location': {'type': 1, 'id': device}}",
        )
    device = machine.device(_number(location, "id"))
    return _Property(device, _GIB if attribute in _HUGE_1G else device.info.granularity, attribute)


def _wrong(key: str, value: int, valid: str) -> Refusal:
    return Code.INVALID_PARAM.refusal(
        f"{key} of prop is {value}; valid is {valid}", "correct the dict; a key that is missing counts as 0"
    )


def _with_room(ptr: int, size: int, physical: AclPhysical) -> Reservation:
    """Return the reservation around an address, if the memory fits behind it: 507899 otherwise."""
    reservation = machine.reservations.around(ptr)
    if reservation is None:
        cause = f"{machine.describe(ptr)} is not reserved"
    elif ptr + size > reservation.end:
        cause = (
            f"{size:,} bytes at {ptr:#x} end {ptr + size - reservation.end:,} bytes beyond the "
            f"{reservation.addresses.size:,} reserved at {reservation.start:#x}"
        )
    elif ptr % physical.granularity:
        cause = f"{ptr:#x} is not a multiple of the granularity of {physical.granularity:,}"
    else:
        return reservation
    raise Code.RT_DRV_INTERNAL_ERROR.refusal(
        cause, "map inside what acl.rt.reserve_mem_address returned, granule by granule"
    )


def _refuse_mixture(reservation: Reservation, physical: AclPhysical) -> None:
    """Refuse a second device, and own beside imported memory: 507899."""
    other = next(iter(reservation.mapped.values()), None)
    if other is None:
        return
    if other.ordinal != physical.ordinal:
        kinds = (
            f"memory of device {machine.number_at(other.ordinal)}",
            f"of device {machine.number_at(physical.ordinal)}",
        )
    elif (other.import_key is None) != (physical.import_key is None):
        kinds = "own memory", "imported"
        kinds = kinds if other.import_key is None else kinds[::-1]
    else:
        return
    raise Code.RT_DRV_INTERNAL_ERROR.refusal(
        f"the reservation at {reservation.start:#x} holds {kinds[0]}, and this is {kinds[1]}",
        "reserve other addresses for it",
    )
