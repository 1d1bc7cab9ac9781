"""``hip``: memory pools and stream-ordered memory.

A pool counts its bytes; memory that is freed in the order of a stream is kept for reuse, see `gpu/reuse.py`.
"""

from __future__ import annotations

import struct as layout
from typing import Annotated, Any

from peerlane import Buffer, Device, trim
from peerlane.dialects._shared.call import Check
from peerlane.dialects._shared.checks import check
from peerlane.dialects._shared.machine import Context, Thing
from peerlane.dialects.gpu.regions import HostAddress, Region
from peerlane.dialects.gpu.reuse import REUSE, THRESHOLD, Kept
from peerlane.dialects.gpu.streams import AnyStream
from peerlane.dialects.gpu.vendor import Reason
from peerlane.dialects.hip._checks import NotZero, given
from peerlane.dialects.hip._convention import invalid, refusal
from peerlane.dialects.hip._enums import enumeration
from peerlane.dialects.hip._peer import DeviceId
from peerlane.dialects.hip._physical import ON_DEVICE, Location, device_at
from peerlane.dialects.hip._pointers import read, write
from peerlane.dialects.hip._results import handle as handle_of
from peerlane.dialects.hip._state import calls, gpu, machine
from peerlane.dialects.hip._virtual import descriptions

FILE_DESCRIPTOR = 1
_NONE = 0
_PINNED, _MANAGED = 1, 2
_PROPS = layout.Struct("<iiii8xQ")  # hipMemPoolProps: allocType, handleTypes, location, maxSize
_FLAG, _BYTES = layout.Struct("<i"), layout.Struct("<Q")
_RESERVED, _RESERVED_HIGH, _USED, _USED_HIGH = range(5, 9)
_READ_ONLY, _HIGH = (_RESERVED, _USED), (_RESERVED_HIGH, _USED_HIGH)
_RIGHTS = {"none": 0, "r": 1, "rw": 3}


class Pool(Thing):
    """A memory pool of a device.

    Attributes
    ----------
    is_primary : bool
        The device's own, which cannot be destroyed.
    kind, handle_type, largest : int
        hipMemAllocationType; hipMemAllocationHandleType that was asked for; the most bytes, 0: what the device has.
    settings : dict
        By attribute: the value that a program set.
    access : dict
        By device: what hipMemPoolSetAccess gave.
    maker : int
        Of an imported pool: the process that made it; else 0.
    kept : Kept
        Freed memory that the device does not have back yet.
    """

    __slots__ = (
        "_buffers",
        "_high",
        "access",
        "handle_type",
        "is_primary",
        "kept",
        "kind",
        "largest",
        "maker",
        "settings",
    )

    name = "memory pool"
    has_addresses = True

    def __init__(
        self,
        context: Context,
        *,
        kind: int = _PINNED,
        handle_type: int = _NONE,
        largest: int = 0,
        is_primary: bool = False,
        maker: int = 0,
    ) -> None:
        super().__init__(context)
        self.kind, self.handle_type, self.largest = kind, handle_type, largest
        self.is_primary, self.maker = is_primary, maker
        self.settings = {**dict.fromkeys(REUSE, 1), THRESHOLD: 0}
        self.kept = Kept(gpu.reuse, context.device, self.settings)
        self.access: dict[Device, str] = {}
        self._buffers: list[Buffer] = []
        self._high = dict.fromkeys(_HIGH, 0)

    @property
    def device(self) -> Device:
        """Whose memory it gives."""
        return self.context.device

    @property
    def used(self) -> int:
        """Bytes that were allocated and not freed."""
        self._buffers = [each for each in self._buffers if not each.is_closed]
        return sum(each.size for each in self._buffers)

    @property
    def most_reserved(self) -> int:
        """The most bytes that it had of the device, with what it kept, since that mark was reset."""
        return max(self._high[_RESERVED_HIGH], self._now(_RESERVED))

    def note(self, buffer: Buffer) -> None:
        """Count memory that was given out."""
        self._buffers.append(buffer)
        self._high = {attribute: max(high, self._now(attribute)) for attribute, high in self._high.items()}

    def _now(self, attribute: int) -> int:
        reserves = attribute in (_RESERVED, _RESERVED_HIGH)
        return self.used + self.kept.nbytes if reserves else self.used

    def holds(self, buffer: Buffer) -> bool:
        """Tell whether memory was taken of this pool."""
        return any(each is buffer for each in self._buffers)

    def keep(self, buffer: Buffer, stream: AnyStream) -> None:
        """Keep memory that is freed in the order of a stream."""
        if self.kept.nbytes > self.used:
            self.kept.release()
        self._buffers = [each for each in self._buffers if each is not buffer]
        self.kept.add(buffer, stream)

    def abandon(self) -> None:
        """Give the kept memory back to the device."""
        self.kept.drop()

    end = abandon

    def get(self, attribute: int) -> bytes:
        """Return an attribute as C has it."""
        if attribute in REUSE:
            return _FLAG.pack(self.settings[attribute])
        if attribute in _HIGH:
            return _BYTES.pack(self._high[attribute])
        return _BYTES.pack(self._now(attribute) if attribute in _READ_ONLY else self.settings[attribute])

    def set(self, attribute: int, value: int) -> None:
        """Set an attribute: hipErrorInvalidValue for one that is only told, or a high mark other than 0."""
        if attribute in _READ_ONLY or (attribute in _HIGH and value):
            raise invalid(
                f"attribute {attribute} of a pool cannot be set to {value:,}",
                "set a high mark to 0, which resets it; the bytes in use cannot be set",
            )
        if attribute in _HIGH:
            self._high[attribute] = 0
        else:
            self.settings[attribute] = value


class Pools:
    """The pools that devices have and use.

    Attributes
    ----------
    defaults, current : dict
        By device and hipMemAllocationType.
    """

    def __init__(self) -> None:
        self.defaults: dict[tuple[Device, int], Pool] = {}
        self.current: dict[tuple[Device, int], Pool] = {}
        self._destroyed: list[Pool] = []

    def default(self, device: Device, kind: int = _PINNED) -> Pool:
        """Return a device's own pool."""
        with machine.lock:
            found = self.defaults.get((device, kind))
            if found is None or not found.context.is_live:
                context = machine.context_of(device.ordinal)
                found = self.defaults[device, kind] = Pool(context, kind=kind, is_primary=True)
                machine.give(found)
        return found

    def of(self, device: Device, kind: int = _PINNED) -> Pool:
        """Return a device's current pool: hipMallocAsync takes memory of the pinned one."""
        found = self.current.get((device, kind))
        return found if found is not None and found.context.is_live else self.default(device, kind)

    def destroy(self, pool: Pool) -> None:
        """Destroy a pool: no call takes memory of it any more; its allocations and the access of devices stay."""
        machine.drop(pool, "hipMemPoolDestroy")
        pool.settings[THRESHOLD] = 0
        pool.kept.release()
        self._destroyed = [each for each in (*self._destroyed, pool) if each.used]
        self.current = {of: each for of, each in self.current.items() if each is not pool}

    def holding(self, buffer: Buffer) -> Pool | None:
        """Return the pool that memory was taken of."""
        living = [each for each in machine.things.values() if isinstance(each, Pool)]
        return next((each for each in (*living, *self._destroyed) if each.holds(buffer)), None)


def pool_of(handle: int) -> Pool:
    """Return the pool of a handle: hipErrorInvalidValue for other numbers."""
    return machine.thing(handle, Pool, Reason.INVALID_VALUE)


PoolHandle = Annotated[Pool, Check(lambda name: pool_of)]


def as_handle(pool: Pool) -> Any:
    """Return the handle of a pool."""
    return handle_of("ihipMemPoolHandle_t", pool.handle)


@calls.call("hipMemPoolCreate")
def hipMemPoolCreate(pool_props: Annotated[Any, given("hipMemPoolProps")]) -> Any:
    """Create a memory pool.  Memory of a managed one is the device's too.

    Gives: pool
    ``handleTypes`` are not looked at: a pool with others than a file descriptor is not exported (facts/hip 3.9).

    Refuses: hipErrorInvalidValue NULL, an allocType other than pinned and managed, no device
    Basis: D; C for managed memory
    """
    kind, handle_type, region, number, largest = _PROPS.unpack(pool_props._read(0, 0, _PROPS.size))
    if kind not in (_PINNED, _MANAGED):
        raise invalid(f"allocType is {kind}", "pass hipMemAllocationTypePinned, 1, or Managed, 2")
    device = device_at(region, number, "pool_props")
    pool = Pool(machine.context_of(device.ordinal), kind=kind, handle_type=handle_type, largest=largest)
    machine.give(pool)
    return as_handle(pool)


@calls.call("hipMemPoolDestroy")
def hipMemPoolDestroy(mem_pool: PoolHandle) -> None:
    """End a pool; its memory lives until it is freed.  If it was its device's current one, the default one is then.

    Refuses: hipErrorInvalidValue no pool, destroyed, a device's default one
    Basis: D
    """
    if mem_pool.is_primary:
        raise invalid(
            f"this is the default pool of device {machine.id_of(mem_pool.device.ordinal)}",
            "destroy what hipMemPoolCreate returned",
        )
    with machine.lock:
        machine.table(Pools).destroy(mem_pool)


@calls.call("hipMemPoolTrimTo")
def hipMemPoolTrimTo(mem_pool: PoolHandle, min_bytes_to_hold: int) -> None:
    """Give kept memory whose free is over back to the device, down to ``min_bytes_to_hold``.

    Refuses: hipErrorInvalidValue no pool
    Basis: D
    """
    mem_pool.kept.release(min_bytes_to_hold)
    trim()


@calls.call("hipMemPoolSetAttribute")
def hipMemPoolSetAttribute(mem_pool: PoolHandle, attr: Any, value: NotZero) -> None:
    """Set an attribute, of which ``value`` is the address: an int for the reuse flags, else 8 bytes.

    Memory that was freed is the device's again when a program has waited for a stream or an event of the device; as
    many bytes as the threshold says stay.  hipMemPoolReuseAllowInternalDependencies is kept and changes nothing.
    A high mark is 0 after it was reset, also while memory is in use, and counts again from the next allocation.

    Refuses: hipErrorInvalidValue NULL, no pool, an attribute that is only told, a high mark other than 0
    Basis: D
    """
    size = _sized(attr, value)
    mem_pool.set(int(attr), size.unpack(read(value, size.size))[0])


@calls.call("hipMemPoolGetAttribute")
def hipMemPoolGetAttribute(mem_pool: PoolHandle, attr: Any, value: NotZero) -> None:
    """Write an attribute to an address; reserved memory is the memory in use, and freed memory that is kept.

    Refuses: hipErrorInvalidValue NULL, no pool
    Basis: D
    """
    _sized(attr, value)
    write(value, mem_pool.get(int(attr)))


def _sized(attr: Any, value: int) -> layout.Struct:
    size = _FLAG if int(attr) in REUSE else _BYTES
    if isinstance(value, HostAddress) and value.nbytes < size.size:
        raise invalid(
            f"value is a host object of {value.nbytes} bytes, and {attr.name} has {size.size}",
            "pass a ctypes.c_int for the reuse flags, else a ctypes.c_uint64",
        )
    return size


@calls.call("hipMemPoolSetAccess")
def hipMemPoolSetAccess(mem_pool: PoolHandle, desc_list: Any, count: int) -> None:
    """Note which other devices may use a pool's memory; copies do not ask for it, but with ``peer_copies=strict``.

    Refuses: hipErrorInvalidValue NULL, no pool, flags that there are not; hipErrorInvalidDevice a device that there
        is not, more descriptions than devices, none for the pool's own device, a device out of reach;
        hipErrorNotSupported only to read for its own
    Basis: D; C for out of reach
    """
    pool, found = mem_pool, {}
    for device, rights in descriptions(desc_list, count, code="hipErrorInvalidDevice"):
        is_own = device is pool.device
        why = "" if is_own else pool.device.why_not(device)
        if is_own and rights != "rw":
            why = "that is its own device"
        if why:
            its, own = machine.ids(device, pool.device)
            raise refusal(
                "hipErrorNotSupported" if is_own and rights == "r" else "hipErrorInvalidDevice",
                f"device {its} cannot have {rights!r} of the pool of device {own}: {why}",
                "name devices that reach it, and its own one with hipMemAccessFlagsProtReadWrite or not at all",
            )
        if not is_own:
            found[device] = rights
    pool.access.update(found)


def _given(device: Device, address: int, region: Region) -> str:
    buffer = machine.owned(region.base, host=False)
    pool = None if buffer is None else machine.table(Pools).holding(buffer)
    return "none" if pool is None else pool.access.get(device, "none")


gpu.peers.add_grant(_given)


@calls.call("hipMemPoolGetAccess")
def hipMemPoolGetAccess(mem_pool: PoolHandle, location: Location) -> Any:
    """Return the access of a device to a pool's memory; the pool's own device has full access.

    Gives: hipMemAccessFlags
    Refuses: hipErrorInvalidValue NULL, no pool, no device
    Basis: D
    """
    rights = "rw" if location is mem_pool.device else mem_pool.access.get(location, "none")
    return enumeration("hipMemAccessFlags")(_RIGHTS[rights])


@calls.call("hipDeviceGetDefaultMemPool")
def hipDeviceGetDefaultMemPool(device: DeviceId) -> Any:
    """Return a device's own pool.

    Gives: pool
    Refuses: hipErrorInvalidDevice
    Basis: D
    """
    return as_handle(machine.table(Pools).default(device))


_Device = Annotated[Device, Check(lambda name: lambda number: device_at(ON_DEVICE, number, "the call"))]


@calls.call("hipDeviceGetMemPool")
def hipDeviceGetMemPool(device: _Device) -> Any:
    """Return the pool that hipMallocAsync takes memory of.

    Gives: pool
    Refuses: hipErrorInvalidValue for an id
    Basis: D
    """
    return as_handle(machine.table(Pools).of(device))


@calls.call("hipDeviceSetMemPool")
def hipDeviceSetMemPool(device: _Device, mem_pool: PoolHandle) -> None:
    """Let hipMallocAsync take memory of a pool.

    Refuses: hipErrorInvalidValue an id, no pool, an imported one; hipErrorInvalidDevice the pool of another device
    Basis: D; S for imported pools
    """
    _use(device, _PINNED, mem_pool, "hipErrorInvalidDevice")


def _use(device: Device, kind: int, pool: Pool, code: str) -> None:
    refuse_imported(pool)
    if pool.device is not device:
        own, wanted = machine.ids(pool.device, device)
        raise refusal(
            code,
            f"the pool is of device {own}, not of device {wanted}",
            f"create one with location.id {wanted}",
        )
    machine.table(Pools).current[device, kind] = pool


def refuse_imported(pool: Pool) -> None:
    """Refuse a pool of another process, of which only that allocates: hipErrorInvalidValue."""
    if pool.maker:
        raise invalid(
            f"the pool was imported from process {pool.maker}, which alone allocates of it",
            "import pointers of it with hipMemPoolImportPointer",
        )


def _kind(name: str, kind: Any) -> int:
    if int(kind) not in (_PINNED, _MANAGED):
        raise invalid(
            f"{name} is {kind.name}", "pass hipMemAllocationTypePinned or hipMemAllocationTypeManaged"
        )
    return int(kind)


_Kind = Annotated[int, check(_kind)]


@calls.call("hipMemGetDefaultMemPool", first=("type",))
def hipMemGetDefaultMemPool(location: Location, type: _Kind) -> Any:
    """Return a device's own pool of an allocation type.

    Gives: pool
    Refuses: hipErrorInvalidValue NULL, no device, a type other than pinned and managed
    Basis: D
    """
    return as_handle(machine.table(Pools).default(location, type))


@calls.call("hipMemGetMemPool", first=("type",))
def hipMemGetMemPool(location: Location, type: _Kind) -> Any:
    """Return a device's current pool of an allocation type: hipMallocAsync takes memory of the pinned one.

    Gives: pool
    Refuses: as `hipMemGetDefaultMemPool`
    Basis: S
    """
    return as_handle(machine.table(Pools).of(location, type))


@calls.call("hipMemSetMemPool", first=("type",))
def hipMemSetMemPool(location: Location, type: _Kind, pool: PoolHandle) -> None:
    """Make a pool a device's current one of its allocation type.

    Refuses: as `hipMemGetDefaultMemPool`; hipErrorInvalidValue also no pool, one of another device or type, an
        imported one
    Basis: S
    """
    if pool.kind != type:
        raise invalid(
            f"the pool was created with allocType {pool.kind}, and type is {type}",
            "pass the allocType of the pool",
        )
    _use(location, type, pool, "hipErrorInvalidValue")
