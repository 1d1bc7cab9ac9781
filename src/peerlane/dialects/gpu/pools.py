"""Memory pools, and memory that is allocated and freed in the order of streams."""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from functools import partial
from typing import TypeAlias

from peerlane import Buffer, Device, Host, trim
from peerlane.backend import host
from peerlane.diagnostics.log import event_log
from peerlane.diagnostics.memory import allocations
from peerlane.dialects._shared.machine import Context, Resource
from peerlane.dialects.gpu.machine import AllocationRecord, GpuMachine
from peerlane.dialects.gpu.memory import Memory, host_bytes
from peerlane.dialects.gpu.peers import Peers
from peerlane.dialects.gpu.regions import CPU, Region
from peerlane.dialects.gpu.reuse import THRESHOLD, PoolMemory, Reuse
from peerlane.dialects.gpu.streams import AnyStream
from peerlane.dialects.gpu.vendor import Reason

# Both vendors' numbers: types of allocations, and attributes of pools.
PINNED, MANAGED = 1, 2
_BLOCK = 2 << 20  # memory of this size has no neighbours in its block
_GLOBAL = 1  # the flag of managed memory that every stream reaches
_RESERVED, _RESERVED_HIGH, _USED, _USED_HIGH = range(5, 9)
_NOW, _HIGH = (_RESERVED, _USED), (_RESERVED_HIGH, _USED_HIGH)
_WORD = (1 << 64) - 1

#: Where the memory of a pool lies: on a device, or on a node of the host's memory, `CPU` for any.
Location: TypeAlias = "Device | int"


class Pool(Resource):
    """A memory pool."""

    name = "memory pool"
    has_addresses = True

    def __init__(
        self,
        context: Context,
        reuse: Reuse,
        location: Location,
        *,
        kind: int = PINNED,
        is_default: bool = False,
        is_shareable: bool = False,
        largest: int = 0,
        maker: int = 0,
    ) -> None:
        super().__init__(context)
        #: ``kind``: the type of its allocations.
        #: ``largest``: the most bytes, 0: what the location has.
        #: ``maker``: of an imported pool: the process that created it; else 0.
        self.location, self.kind, self.largest, self.maker = location, kind, largest, maker
        #: ``is_default``: the location's own, which cannot be destroyed.
        #: ``is_shareable``: whether it can be exported.
        self.is_default, self.is_shareable = is_default, is_shareable
        #: The vendor's number of the type of its location, where the program named one.
        self.location_type: int | None = None
        self.access: dict[Device, str] = {}  #: by device: the right that the program set, "none", "r" or "rw"
        self.memory = PoolMemory(reuse, context.device)  #: with the attributes that a program sets
        self._shared: set[int] = set()
        if not self.is_quick:
            self.memory.native.end_quick_calls()

    @property
    def is_permanent(self) -> bool:
        """Whether it is its device's own, which no program destroys."""
        return self.is_default

    @property
    def device(self) -> Device | None:
        """The device that its memory lies on; None for memory of the host, as managed memory is."""
        return self.location if isinstance(self.location, Device) and self.kind != MANAGED else None

    @property
    def is_quick(self) -> bool:
        """Whether native code may allocate from it and free to it: nothing is noted of its memory."""
        return self.device is not None and not self.maker

    @property
    def reserved(self) -> int:
        """Bytes that it holds of its location: those in use and those kept."""
        return self.memory.used + self.memory.kept

    @property
    def most_reserved(self) -> int:
        """The most bytes that it held of its location since that mark was reset."""
        return max(int(self.memory.native.most_reserved), self.reserved)

    def share(self, buffer: Buffer) -> None:
        """Note that other processes can open an allocation, which is then never reused."""
        self._shared.add(buffer.id)
        self.memory.native.end_quick_frees(buffer.id)

    def is_shared(self, buffer: Buffer) -> bool:
        """Tell whether other processes can open memory of it."""
        return buffer.is_imported or buffer.id in self._shared

    def abandon(self) -> None:
        """Give the kept memory back to its location."""
        self.memory.native.end_quick_calls()
        self.memory.drop()

    end = abandon

    def get(self, attribute: int) -> int:
        """Return an attribute."""
        native = self.memory.native
        now = {_USED: "used", _USED_HIGH: "most_used", _RESERVED_HIGH: "most_reserved"}
        if attribute == _RESERVED:
            return self.reserved
        return int(getattr(native, now[attribute]) if attribute in now else native.setting(attribute))

    def set(self, attribute: int, value: int) -> None:
        """Set an attribute that is no mark."""
        self.memory.native.set(attribute, value & _WORD)

    def reset_high(self, attribute: int) -> None:
        """Let a high mark count again from the next allocation."""
        native = self.memory.native
        (native.reset_most_used if attribute == _USED_HIGH else native.reset_most_reserved)()


class _Known:
    """The pools of the node."""

    def __init__(self) -> None:
        #: ``defaults``, ``current``: by location and type of allocation.
        self.defaults: dict[tuple[Location, int], Pool] = {}
        self.current: dict[tuple[Location, int], Pool] = {}


class Pools:
    """The memory pools of a vendor's program, by handle; each location has one of its own."""

    def __init__(self, machine: GpuMachine, peers: Peers, reuse: Reuse, memory: Memory) -> None:
        self._machine, self._reuse, self._memory = machine, reuse, memory
        peers.add_grant(self._granted)
        peers.leave_out(self._is_left_out)

    def of(self, handle: int) -> Pool:
        """Return the pool of a handle; ``INVALID_VALUE`` for other numbers."""
        return self._machine.resource(handle, Pool, Reason.INVALID_VALUE)

    def create(self, location: Location, *, kind: int, is_shareable: bool, largest: int) -> Pool:
        """Create a pool; one of the host's memory ends with the reset of this thread's device, or of the first."""
        return self._give(
            Pool(
                self._context(location),
                self._reuse,
                location,
                kind=kind,
                is_shareable=is_shareable,
                largest=largest,
            )
        )

    def create_imported(self, location: Location, maker: int) -> Pool:
        """Create a pool of memory that another process allocates."""
        pool = Pool(self._context(location), self._reuse, location, is_shareable=True, maker=maker)
        return self._give(pool)

    def _give(self, pool: Pool) -> Pool:
        """Issue the handle of a pool; ``DEVICE_RESET``."""
        self._machine.issue(pool)
        return pool

    def destroy(self, pool: Pool, call: str) -> None:
        """Destroy a pool: no call takes memory of it any more; its allocations and the access of devices stay.

        If it was its location's current one, the default one is then.  ``INVALID_VALUE`` for a default one.
        """
        machine = self._machine
        if pool.is_default:
            raise machine.vendor.invalid(
                f"this is the default pool of {self._name(pool.location)}",
                "destroy what {create_pool} returned",
            )
        known = machine.table(_Known)
        with machine.lock:
            machine.drop(pool, call)
            pool.memory.native.end_quick_calls()
            pool.set(THRESHOLD, 0)
            pool.memory.release()
            known.current = {of: each for of, each in known.current.items() if each is not pool}
        host.forget_c_threads()

    def default(self, location: Location, kind: int = PINNED) -> Pool:
        """Return a location's own pool."""
        known = self._machine.table(_Known).defaults
        with self._machine.lock:
            pool = known.get((location, kind))
            if pool is None or not pool.context.is_live:
                context = self._context(location)
                pool = Pool(context, self._reuse, location, kind=kind, is_default=True)
                known[location, kind] = self._give(pool)
        return pool

    def current(self, location: Location, kind: int = PINNED) -> Pool:
        """Return a location's current pool: a device's pinned one is what :meth:`allocate` takes memory of."""
        pool = self._machine.table(_Known).current.get((location, kind))
        return pool if pool is not None and pool.context.is_live else self.default(location, kind)

    def use(self, location: Location, kind: int, pool: Pool, reason: Reason = Reason.INVALID_VALUE) -> None:
        """Make a pool the current one of a location and a type of allocation.

        Raises Refusal: ``INVALID_VALUE`` an imported pool; ``reason`` the pool of another location.
        """
        self.refuse_imported(pool)
        if pool.location != location:
            own, wanted = self._name(pool.location), self._name(location)
            raise self._machine.vendor.refusal(
                reason, f"the pool is of {own}, not of {wanted}", f"create one of {wanted}"
            )
        self._machine.table(_Known).current[location, kind] = pool
        host.forget_c_threads()

    def refuse_imported(self, pool: Pool) -> None:
        """Refuse a pool of another process, of which only that allocates: ``INVALID_VALUE``."""
        if pool.maker:
            raise self._machine.vendor.invalid(
                f"the pool was imported from process {pool.maker}, which alone allocates of it",
                "import pointers of it with {import_pool_pointer}",
            )

    def trim(self, pool: Pool, least: int) -> None:
        """Give kept memory whose free is over back to its location, down to ``least`` bytes."""
        pool.memory.release(least)
        trim()

    def set(self, pool: Pool, attribute: int, value: int) -> None:
        """Set an attribute; ``INVALID_VALUE`` for bytes in use, and for a high mark other than 0."""
        if attribute in _NOW or (attribute in _HIGH and value):
            raise self._machine.vendor.invalid(
                f"attribute {attribute} of a pool cannot be set to {value:,}",
                "set a high mark to 0, which resets it; the bytes in use cannot be set",
            )
        if attribute in _HIGH:
            pool.reset_high(attribute)
        else:
            pool.set(attribute, value)

    def set_access(self, pool: Pool, wanted: Iterable[tuple[Device, str]]) -> None:
        """Note which other devices may use a pool's memory: pairs of a device and "none", "r" or "rw".

        The policy decides whether enabled peer access grants it, too.

        Raises Refusal: ``INVALID_DEVICE`` a device out of reach, "none" for the pool's own; ``UNSUPPORTED`` "r" for
            its own. Nothing was changed.
        """
        machine, home, access = self._machine, pool.device, {}
        for device, rights in wanted:
            is_own = device is home
            why = "" if is_own or home is None else home.why_not(device)
            if is_own and rights != "rw":
                why = "that is its own device"
            if why:
                raise machine.vendor.refusal(
                    Reason.UNSUPPORTED if is_own and rights == "r" else Reason.INVALID_DEVICE,
                    f"{self._name(device)} cannot have {rights!r} of the pool of {self._name(pool.location)}: {why}",
                    "name devices that reach it, and its own one with {read_write} or not at all",
                )
            if not is_own:
                access[device] = rights
        pool.access.update(access)

    @staticmethod
    def access(pool: Pool, location: Location) -> str:
        """Return the access to a pool's memory; the pool's own location has full access."""
        if location == pool.location:
            return "rw"
        return pool.access.get(location, "none") if isinstance(location, Device) else "none"

    def _granted(self, device: Device, address: int, region: Region) -> str:
        pool = self._around(region)
        return "none" if pool is None else pool.access.get(device, "none")

    def _is_left_out(self, region: Region) -> bool:
        return self._machine.vendor.policy.pool_access == "own" and self._around(region) is not None

    def _around(self, region: Region) -> Pool | None:
        buffer = self._machine.owned(region.base, host=not region.is_device)
        return None if buffer is None else self.holding(buffer)

    def holding(self, buffer: Buffer) -> Pool | None:
        """Return the pool that memory was taken of."""
        pool = self._machine.pooled.get(buffer.id)
        return pool if isinstance(pool, Pool) else None

    def allocate(self, nbytes: int, stream: AnyStream, pool: Pool | None = None) -> int:
        """Allocate memory, to be used in the order of a stream, and return its address; NULL for 0 bytes.

        It is memory of the current pool of the stream's device if no pool is named.

        Raises Refusal: ``INVALID_VALUE`` an imported pool; ``OUT_OF_MEMORY`` more than its largest size;
            ``DEVICE_RESET``.
        Raises OutOfMemory: more than its location has left.
        """
        if pool is not None:
            self.refuse_imported(pool)
        if not nbytes:
            return 0
        if pool is None:
            pool = self.current(stream.context.device)
        if stream.capture is not None:
            return stream.capture.memory.capture_allocation(stream, nbytes, pool)
        kept = pool.memory.take(nbytes, stream)
        if kept is not None:
            return self._use_again(kept, pool)
        self._refuse_beyond(pool, nbytes)
        allocation = self._reuse.with_room(pool.context.device, partial(_allocated, pool, nbytes))
        return self.enter(allocation, pool)

    def _refuse_beyond(self, pool: Pool, nbytes: int) -> None:
        counts_past = bool(pool.largest) and self._machine.vendor.policy.pool_size == "high"
        had = pool.most_reserved if counts_past else pool.memory.used
        most = pool.largest or (host_bytes() if pool.device is None else pool.device.total_bytes)
        if had + nbytes > most:
            raise self._machine.vendor.refusal(
                Reason.OUT_OF_MEMORY,
                f"the pool has at most {most:,} bytes; {nbytes:,} are asked for, and {had:,} "
                f"{'were reserved, of which it may have given some back' if counts_past else 'are used'}",
                "free memory of the pool and set {reserved_high} to 0, or create one with a larger maxSize",
            )

    def _use_again(self, buffer: Buffer, pool: Pool) -> int:
        if buffer.is_closed:
            raise self._machine.reset_meanwhile(pool.context.device.ordinal)
        self._reuse.follow_quick_calls()
        allocations.reused(buffer.id, buffer.address, buffer.size, buffer.device.name)
        if pool.device is None:
            event_log.written_unseen(buffer)
        self._note(buffer, pool)
        return buffer.address

    def enter(self, buffer: Buffer, pool: Pool) -> int:
        """Give out new memory of a pool and return its address; ``DEVICE_RESET``."""
        machine = self._machine
        if pool.device is None:
            address: int | None = machine.enter_host(buffer)
        else:
            machine.note_pools()
            address = machine.enter(machine.context_of(pool.device.ordinal), buffer, peer=True)
        if address is None:
            raise machine.reset_meanwhile(pool.context.device.ordinal)
        self._note(buffer, pool)
        pool.memory.enter(buffer)
        machine.pooled[buffer.id] = pool
        return address

    def _note(self, buffer: Buffer, pool: Pool) -> None:
        if pool.kind == MANAGED:
            record = AllocationRecord(_GLOBAL, pool.context.device.ordinal, is_managed=True)
            self._machine.records[buffer.id] = record

    def free(self, address: int, stream: AnyStream, call: str) -> None:
        """Free memory in the order of a stream; NULL does nothing.  ``call`` is the vendor's name of the call.

        The pool keeps it for reuse.  Memory of another process, and what was exported, is not kept.  Memory of no
        pool is freed as :meth:`Memory.free` does.
        """
        if not address:
            return
        machine = self._machine
        if stream.capture is not None:
            stream.capture.memory.capture_free(stream, address)
            return
        if address in machine.of_graphs:
            machine.of_graphs[address].free(stream, call)
            return
        buffer = machine.owned(address, host=False) or machine.owned(address, host=True)
        pool = None if buffer is None else self.holding(buffer)
        if buffer is None or pool is None:
            self._memory.free(address, call)
            return
        self._reuse.follow_quick_calls()
        machine.forget_notes(buffer.id)
        if pool.is_shared(buffer) or self._machine.resources.get(pool.handle) is not pool:
            machine.free(address, host=pool.device is None, call=call, stream=stream.neutral)
        else:
            pool.memory.free(buffer, stream, call)

    def _context(self, location: Location) -> Context:
        machine = self._machine
        if not isinstance(location, Device):
            return machine.context_or_first()
        return machine.context_of(location.ordinal)

    def _name(self, location: Location) -> str:
        if isinstance(location, Device):
            return f"device {self._machine.id_of(location.ordinal)}"
        return "the host" if location == CPU else f"node {location} of the host"


def _allocated(pool: Pool, nbytes: int) -> Buffer:
    if pool.device is not None:
        return pool.device.allocate(nbytes, peer=True)
    if pool.is_shareable and nbytes < _BLOCK:  # it is shared page by page, and stays where it is
        nbytes = max(mmap.PAGESIZE, 1 << (nbytes - 1).bit_length())
    return Host().allocate(nbytes)
