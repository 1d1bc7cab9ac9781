"""Memory that graphs allocate and free: its address is known when the node is added, and never changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType

from peerlane import Buffer, Device, Event, Host
from peerlane.diagnostics.log import event_log
from peerlane.diagnostics.memory import allocations
from peerlane.dialects._shared.machine import Context, Resource, close_for
from peerlane.dialects.gpu.graphs.graph import Graph, Node
from peerlane.dialects.gpu.machine import GpuMachine
from peerlane.dialects.gpu.peers import Peers
from peerlane.dialects.gpu.pools import Location, Pool
from peerlane.dialects.gpu.regions import Region
from peerlane.dialects.gpu.streams import AnyStream

# Both vendors' numbers of the attributes.
USED, USED_HIGH, RESERVED, RESERVED_HIGH = range(4)


class OwnedMemory(Resource):
    """The memory of an allocation node."""

    __slots__ = (
        "_freed",
        "_memory",
        "access",
        "buffer",
        "device",
        "graph",
        "is_allocated",
        "is_freed_by",
        "is_used",
        "location",
        "users",
    )

    name = "memory of a graph"
    is_counted = False
    is_owned = False
    has_addresses = True

    def __init__(
        self,
        memory: MemoryOfGraphs,
        graph: Graph,
        context: Context,
        location: Location,
        nbytes: int,
        access: Mapping[Device, str],
    ) -> None:
        super().__init__(context)
        self.access = dict(access)  #: by device: the right that it was given, "none", "r" or "rw"
        #: ``graph``: whose node allocates it.
        self._memory, self.graph, self.location = memory, graph, location
        self.device = location if isinstance(location, Device) else None
        if self.device is None:
            self.buffer: Buffer = Host().allocate(nbytes)
        else:
            self.buffer = self.device.allocate(nbytes, peer=True)
        #: ``is_allocated``: whether a launch allocated it, and nothing freed it since.
        #: ``is_used``: whether a launch allocated it, and nothing trimmed it since.
        self.is_allocated = self.is_used = False
        self.is_freed_by: Graph | None = None  #: the graph with a node that frees it
        self.users = 1  #: the graphs and executable graphs that can allocate it again
        self._freed: Event | None = None

    @property
    def machine(self) -> GpuMachine:
        """The machine that has it."""
        return self._memory.machine

    @property
    def address(self) -> int:
        """Where it lies."""
        return self.buffer.address

    def allocate(self, stream: AnyStream) -> None:
        """Give it to the program, behind its newest free."""
        machine, buffer = self._memory.machine, self.buffer
        if self._freed is not None:
            stream.neutral.wait(self._freed)
            allocations.reused(buffer.id, buffer.address, buffer.size, buffer.device.name)
        if self.device is None:
            machine.enter_host(buffer)
        else:
            machine.enter(machine.context_of(self.device.ordinal), buffer, peer=True)
        self.is_allocated = self.is_used = True
        machine.of_graphs[buffer.address] = self
        self._memory.count()

    def free(self, stream: AnyStream | None, call: str) -> None:
        """Free it in the order of a stream, or at once."""
        machine, buffer = self._memory.machine, self.buffer
        if machine.take(buffer.address, host=self.device is None) is None:
            return
        machine.of_graphs.pop(buffer.address, None)
        self.is_allocated, self._freed = False, None
        if not self.users:
            self._memory.keep_counted(self)
            close_for(buffer, call, None if stream is None else stream.neutral)
            return
        allocations.forget(buffer.id, call)
        if stream is not None:
            with event_log.freed_for_reuse(buffer, stream.neutral):
                self._freed = stream.neutral.record()

    def trim(self) -> None:
        """Let it count as unused, if it is free and no launch runs that uses it."""
        self.is_used = self.is_allocated or (self._freed is not None and not self._freed.is_done)

    def release(self) -> None:
        """Count one user less; without users it ends with its free."""
        self.users -= 1
        if not self.users:
            self._memory.machine.drop(self, "the end of its graph")
            self.end()

    def end(self) -> None:
        """Give the memory back to its device, unless the program has it."""
        if self.buffer.is_closed:
            return
        if not self.context.is_live:
            self._memory.machine.of_graphs.pop(self.address, None)
        if not self.is_allocated or not self.context.is_live:
            self._memory.forget(self)
        if not self.is_allocated:
            close_for(self.buffer, "the end of its graph")

    abandon = end


class Allocation:
    """The allocation of memory, as an operation."""

    __slots__ = ("nbytes", "owned")

    kind = "MEM_ALLOC"

    def __init__(self, owned: OwnedMemory, nbytes: int) -> None:
        self.owned, self.nbytes = owned, nbytes

    def prepared(self, _: Device) -> Callable[[AnyStream], None]:
        """Return what allocates it."""
        return self.owned.allocate


class Free:
    """The free of memory that a graph allocates, as an operation."""

    __slots__ = ("owned",)

    kind = "MEM_FREE"

    def __init__(self, owned: OwnedMemory) -> None:
        self.owned = owned

    def prepared(self, _: Device) -> Callable[[AnyStream], None]:
        """Return what frees it."""
        return partial(self.owned.free, call="the launch of a graph")


class MemoryOfGraphs:
    """The memory that graphs of a vendor's program have."""

    def __init__(self, machine: GpuMachine, peers: Peers) -> None:
        self.machine = machine
        peers.add_grant(self._granted)
        peers.leave_out(self._is_left_out)

    def _granted(self, device: Device, _: int, region: Region) -> str:
        owned = self._all.get(region.base)
        return "none" if owned is None else owned.access.get(device, "none")

    def _is_left_out(self, region: Region) -> bool:
        return self.machine.vendor.policy.pool_access == "own" and region.base in self._all

    @property
    def _all(self) -> dict[int, OwnedMemory]:
        """By address; the reset of a device ends memory that the program had."""
        owned = self.machine.table(_Table).owned
        for address in [at for at, each in owned.items() if each.buffer.is_closed]:
            del owned[address]
        return owned

    def add_allocation(
        self,
        graph: Graph,
        dependencies: Iterable[Node],
        nbytes: int,
        location: Location,
        access: Mapping[Device, str] = MappingProxyType({}),
    ) -> tuple[Node, int]:
        """Add a node that allocates; return it and the address.

        ``access`` has the rights of other devices, "none", "r" or "rw".
        """
        owned = self._reserve(graph, nbytes, location, access)
        try:
            node = graph.add(Allocation(owned, nbytes), tuple(dependencies), owned.context)
        except BaseException:
            owned.release()
            raise
        return node, owned.address

    def _reserve(
        self, graph: Graph, nbytes: int, location: Location, access: Mapping[Device, str]
    ) -> OwnedMemory:
        machine = self.machine
        context = machine.context_of(location.ordinal) if isinstance(location, Device) else machine.context()
        owned = OwnedMemory(self, graph, context, location, nbytes, access)
        machine.issue(owned)
        machine.note_pools()
        freed, key = machine.table(_Table).freed, (context, owned.device)
        freed[key] = max(freed.get(key, 0) - nbytes, 0)
        self._all[owned.address] = owned
        self.count()
        return owned

    def add_free(self, graph: Graph, dependencies: Iterable[Node], address: int) -> Node:
        """Add a node that frees what a node of a graph allocates.

        ``INVALID_VALUE`` for another address, and for memory that a graph frees already.
        """
        owned = self._freeable(graph, address)
        node = graph.add(Free(owned), tuple(dependencies), owned.graph.context)
        owned.is_freed_by = graph
        return node

    def capture_allocation(self, stream: AnyStream, nbytes: int, pool: Pool) -> int:
        """Capture an allocation on a stream, with the location and the access of a pool; return the address."""
        capture = stream.capture
        assert capture is not None
        capture.refuse_invalidated()
        owned = self._reserve(capture.graph, nbytes, pool.location, pool.access)
        capture.add(stream, Allocation(owned, nbytes))
        return owned.address

    def capture_free(self, stream: AnyStream, address: int) -> None:
        """Capture a free on a stream."""
        capture = stream.capture
        assert capture is not None
        owned = self._freeable(capture.graph, address)
        capture.add(stream, Free(owned))
        owned.is_freed_by = capture.graph

    def _freeable(self, graph: Graph, address: int) -> OwnedMemory:
        owned, vendor = self._all.get(address), self.machine.vendor
        if owned is None:
            raise vendor.invalid(
                f"no node allocates it: {self.machine.describe(address)}",
                "pass the address of an allocation node, or of one that was captured",
            )
        if owned.is_freed_by is not None:
            raise vendor.invalid(
                f"a node of graph {owned.is_freed_by.handle:#x} frees {address:#x} already",
                "free each allocation once",
            )
        return owned

    def forget(self, owned: OwnedMemory) -> None:
        """Forget memory that neither a graph nor the program has any more."""
        self._all.pop(owned.address, None)

    def keep_counted(self, owned: OwnedMemory) -> None:
        """Forget memory whose graph has ended and that was freed, but count its bytes until a trim or their reuse."""
        self.forget(owned)
        freed, key = self.machine.table(_Table).freed, (owned.context, owned.device)
        freed[key] = freed.get(key, 0) + owned.buffer.size

    def count(self) -> None:
        """Raise the high marks of the devices."""
        table = self.machine.table(_Table)
        for device in {each.device for each in self._all.values()}:
            used, reserved = self._now(device)
            for mark, now in ((USED_HIGH, used), (RESERVED_HIGH, reserved)):
                table.high[device, mark] = max(table.high.get((device, mark), 0), now)

    def attribute(self, device: Device, number: int) -> int:
        """Return an attribute of the memory that a device has for graphs: ``INVALID_VALUE`` for another number."""
        used, reserved = self._now(device)
        high = self.machine.table(_Table).high
        values = {
            USED: used,
            USED_HIGH: high.get((device, USED_HIGH), 0),
            RESERVED: reserved,
            RESERVED_HIGH: high.get((device, RESERVED_HIGH), 0),
        }
        if number not in values:
            raise self.machine.vendor.invalid(f"there is no attribute {number}", "pass 0 to 3")
        return values[number]

    def reset_high(self, device: Device, number: int, value: int) -> None:
        """Reset a high mark: ``INVALID_VALUE`` for another attribute, and for a value other than 0."""
        if number not in (USED_HIGH, RESERVED_HIGH) or value:
            raise self.machine.vendor.invalid(
                f"attribute {number} cannot be set to {value}", "set a high mark to 0, which resets it"
            )
        self.machine.table(_Table).high.pop((device, number), None)

    def trim(self, device: Device) -> None:
        """Let memory that no launch uses count as unused; its graph keeps it, because its address may not change."""
        for each in self._of(device):
            each.trim()
        freed = self.machine.table(_Table).freed
        for key in [key for key in freed if key[1] is device]:
            del freed[key]

    def _now(self, device: Device | None) -> tuple[int, int]:
        mine, freed = self._of(device), self.machine.table(_Table).freed
        kept = sum(size for (context, of), size in freed.items() if of is device and context.is_live)
        used = sum(each.buffer.size for each in mine if each.is_used)
        return used + kept, sum(each.buffer.size for each in mine) + kept

    def _of(self, device: Device | None) -> list[OwnedMemory]:
        return [each for each in self._all.values() if each.device is device]


class _Table:
    """The memory of graphs by address, the high marks by device and attribute, and what is freed and not trimmed."""

    def __init__(self) -> None:
        self.owned: dict[int, OwnedMemory] = {}
        self.high: dict[tuple[Device | None, int], int] = {}
        #: By context and device: bytes that outlived their graph and were freed since.
        self.freed: dict[tuple[Context, Device | None], int] = {}
