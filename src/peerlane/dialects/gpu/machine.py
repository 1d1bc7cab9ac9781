"""The state of a vendor's dialect: the device of each thread, the objects by number, the records of memory."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from peerlane import Buffer, Device
from peerlane.backend import host, registry
from peerlane.diagnostics.log import event_log
from peerlane.diagnostics.memory.addresses import AddressDescription
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects._shared.machine import Context, Machine, Resource
from peerlane.dialects._shared.registrations import Registration, Registrations
from peerlane.dialects.gpu.vendor import Reason, Vendor
from peerlane.errors import Error
from peerlane.support.records import dataclass

INVALID_DEVICE = -2  # both vendors' number of a device that is hidden, or that ranges do not share
_LOST_KEPT = 1024
_FIRST, _STEP = 1 << 61, 64  # numbers of primary contexts, which no address and no other handle has
_Kind = TypeVar("_Kind", bound=Resource)
_Table = TypeVar("_Table")


class _Ordinal(threading.local):
    """The device that is current in this thread, and whether the program chose it."""

    number: int | None = None
    is_chosen: bool = False


@dataclass(frozen=True, slots=True)
class AllocationRecord:
    """How memory was allocated: with what flags, which device was current, and whether it is managed."""

    flags: int
    ordinal: int
    is_managed: bool = False


class HostMemory(Registration):
    """Host memory that the program registered."""

    __slots__ = ("record", "users")

    record: AllocationRecord
    users: set[int]  #: the devices whose streams write words of it or wait for them, by number

    def __init__(self, start: int, size: int, record: AllocationRecord) -> None:
        super().__init__(start, size)
        object.__setattr__(self, "record", record)
        object.__setattr__(self, "users", set())


class _Flags(dict[int, int]):
    """The flags that the program set, by device number; native code knows those of primary contexts."""

    def __setitem__(self, ordinal: int, flags: int) -> None:
        super().__setitem__(ordinal, flags)
        host.forget_c_threads()

    def drop(self, ordinal: int) -> None:
        """Forget those of a device."""
        if self.pop(ordinal, None) is not None:
            host.forget_c_threads()


class GraphMemory(Protocol):
    """Memory of a graph, which a call outside the graph can free, too."""

    def free(self, stream: Any, call: str) -> None:
        """Free it in the order of a stream, or at once."""


class MemoryOfPool(Protocol):
    """The memory of a pool: in use, or freed and kept."""

    native: Any

    def buffer(self, allocation: int) -> Buffer | None:
        """Return memory of it by its number."""

    def is_in_use(self, buffer: Buffer) -> bool:
        """Tell whether memory of it is in use."""

    def end(self, buffer: Buffer) -> bool:
        """Drop memory in use that goes back to its location; False if another thread has freed it."""

    def remove_closed(self) -> list[Buffer]:
        """Drop memory that ended with a context, and return it."""


class Pooled(Protocol):
    """A pool, as far as its memory goes."""

    @property
    def memory(self) -> MemoryOfPool:
        """Its memory."""


class _Ordinals(dict[int, int]):
    """The node's number of each device by that of native code; -1 for any other number of native code."""

    def __init__(self, machine: GpuMachine) -> None:
        super().__init__()
        self._machine = machine

    def __missing__(self, number: int) -> int:
        for each in self._machine.devices():
            if each.backend.name == registry.DEFAULT:
                self[each.backend.number(each.ordinal)] = each.ordinal
        return self.setdefault(number, -1)


class GpuMachine(Machine):
    """The state of one vendor's dialect.

    A device has one primary context, in which its streams and events live until it is reset.  A thread has the first
    device from the start, or none before it makes a context current: the policy decides.

    ``is_shown``: whether a visible device was found.
    ``has_pools``: whether memory of a device may have an access of its own.
    """

    def __init__(self, vendor: Vendor) -> None:
        self.vendor, self.vendor_name, self.show = vendor, vendor.name, vendor.visible
        # Emptied and never replaced: a caller may have looked it up before the node was entered.
        self.flags = _Flags()  #: by device number: the flags that the program set
        #: By allocation: the advice of the program for managed memory, piece by piece.
        self.advised: dict[int, list[Any]] = {}
        self.records: dict[int, AllocationRecord] = {}  #: by allocation: all but plain device memory
        self.registrations = Registrations[HostMemory]()  #: the host memory that the program registered
        self.synchronous: set[int] = set()  #: the allocations whose copies and fills are over on return
        self.of_graphs: dict[int, GraphMemory] = {}  #: by address: the memory of graphs that is allocated now
        self.pooled: dict[int, Pooled] = {}  #: by allocation: the pool that has it, in use or kept
        self.unusable: dict[Context, str] = {}  #: by context: why no call can use it any more
        #: By context that the program made: the memory that was allocated in it, of its device or the host, by
        #: address.
        self.of_contexts: dict[Context, dict[int, Buffer]] = {}
        #: The newest streams that ended with the reset of their device.
        self.lost_streams: deque[int] = deque(maxlen=_LOST_KEPT)
        #: The node's number of each device by that of native code, -1 for the host's.
        self.ordinals = _Ordinals(self)
        self._tables: dict[type, object] = {}
        super().__init__()

    def forget(self) -> None:
        """Drop all that belongs to the node."""
        super().forget()
        self._ordinal = _Ordinal()
        self.is_shown = self.has_pools = False
        self._pushed: Any = None
        for kept in (
            self.flags,
            self.advised,
            self.records,
            self.synchronous,
            self.ordinals,
            self._tables,
            self.of_graphs,
            self.pooled,
            self.unusable,
            self.of_contexts,
        ):
            kept.clear()
        self.registrations.clear()
        self.lost_streams.clear()

    def forget_notes(self, allocation: int) -> None:
        """Drop what was noted of an allocation that is freed."""
        self.records.pop(allocation, None)
        self.advised.pop(allocation, None)
        self.synchronous.discard(allocation)

    def note_pools(self) -> None:
        """Note that memory of a device may have an access of its own, which copies between devices must ask for."""
        if not self.has_pools:
            self.has_pools = True
            host.forget_c_threads()

    def table(self, kind: type[_Table], make: Callable[[], _Table] | None = None) -> _Table:
        """Return the state of a kind for the node: created at the first use, dropped with the node."""
        self.devices()
        with self.lock:
            state = self._tables.get(kind)
            if state is None:
                state = self._tables[kind] = (make or kind)()
        assert isinstance(state, kind)
        return state

    def shown(self) -> tuple[Device, ...]:
        """Return the visible devices, at least one, and note that; ``NO_DEVICE`` if there is none."""
        shown = self.visible()
        self.is_shown = bool(shown)
        if not shown:
            raise self.vendor.refusal(
                Reason.NO_DEVICE,
                f"no device is visible of the {len(self.devices())} that the node has",
                f"correct {self.vendor.hidden_by}",
            )
        return shown

    def enter_host(self, buffer: Buffer) -> int:
        """Enter a buffer of the host by its address, by which the program writes it."""
        event_log.written_unseen(buffer)
        return super().enter_host(buffer)

    def device_of(self, device_id: int) -> Device:
        """Return a device by the program's number; ``INVALID_DEVICE`` with the valid ones."""
        devices = self.shown()
        if not 0 <= device_id < len(devices):
            raise self.vendor.refusal(
                Reason.INVALID_DEVICE,
                f"there is no device {device_id}; {len(devices)} are visible, numbered 0 to {len(devices) - 1}",
                "pass an id below {device_count}(), or start the program with `peerlane run --devices N`",
            )
        return devices[device_id]

    def id_of(self, ordinal: int) -> int:
        """Return the program's number of a device by the node's: -2 for a hidden one; a negative number stays."""
        shown = [device.ordinal for device in self.visible()]
        return ordinal if ordinal < 0 else shown.index(ordinal) if ordinal in shown else INVALID_DEVICE

    def ids(self, *devices: Device) -> tuple[int, ...]:
        """Return the program's numbers of devices."""
        return tuple(self.id_of(device.ordinal) for device in devices)

    @property
    def pushed(self) -> Any:
        """The contexts that this thread pushed, for native code and Python alike."""
        if self._pushed is None:
            with self.lock:
                self._pushed = self._pushed or host.ContextStack()
        return self._pushed

    @property
    def ordinal(self) -> int:
        """The number of this thread's device; refused as :meth:`context` if it has none."""
        self.devices()
        if self.vendor.policy.needs_context:
            return self.context().device.ordinal
        if self._ordinal.number is None:
            self._ordinal.number = self.shown()[0].ordinal
        return self._ordinal.number

    @property
    def has_chosen_device(self) -> bool:
        """Whether the program chose this thread's device."""
        self.devices()
        return self._ordinal.is_chosen

    def choose(self, ordinal: int) -> None:
        """Make a device current in this thread, as the program's choice."""
        self.use(ordinal)
        self._ordinal.is_chosen = True

    def use(self, ordinal: int) -> Device:
        """Make a device current in this thread; ``INVALID_DEVICE`` with the valid ones."""
        device = self._device_to_use(ordinal)
        self.enter_context(self.context_of(ordinal))
        return device

    def enter_context(self, context: Context) -> None:
        """Make a context current in this thread.

        Where a thread needs a context, the current one is the newest that it pushed: this replaces it.
        """
        self._device_to_use(context.device.ordinal)
        if self.vendor.policy.needs_context:
            self.pushed.pop()
            self.pushed.push(context.native)
        else:
            self._ordinal.number = context.device.ordinal
            self.thread.context = context

    def current(self) -> Context | None:
        """Return the context of this thread, None if it has none or it was released."""
        if not self.vendor.policy.needs_context:
            return super().current()
        self.check_fork()
        context = self._newest()
        if context is None:
            self.devices()  # the node may be another one, where the thread pushed none
            context = self._newest()
        return context

    def _newest(self) -> Context | None:
        newest = self.pushed.newest()
        if newest is None or not newest[1]:
            return None
        context = self.context_with(newest[0])
        return context if context is not None and context.is_live else None

    def context_with(self, handle: int) -> Context | None:
        """Return the context of a handle; None if it has ended, or there is none."""
        context = self.resources.get(handle)
        if context is None:
            ordinal, rest = divmod(handle - _FIRST, _STEP)
            return None if rest else self._primary.get(ordinal)
        return context if isinstance(context, Context) else None

    def primary_ordinal(self, handle: int) -> int | None:
        """Return the number of the device whose primary context has a handle; None if none has."""
        ordinal, rest = divmod(handle - _FIRST, _STEP)
        return None if rest or not 0 <= ordinal < len(self.devices()) else ordinal

    def context_of(self, ordinal: int) -> Context:
        """Return the context of the streams and events of a device, until it is reset."""
        self.devices()
        context = self._primary.get(ordinal)
        if context is not None and not context.node.is_closed:
            return context
        with self.lock:
            context = self._primary.get(ordinal)
            if context is None or not context.is_live:
                context = Context(self.device(ordinal))
                context.handle = _FIRST + _STEP * ordinal
                context.native.retain()
                self._primary[ordinal] = context
        return context

    def has_primary(self, ordinal: int) -> bool:
        """Tell whether the primary context of a device is alive."""
        context = self._primary.get(ordinal)
        return context is not None and context.is_live

    def context(self) -> Context:
        """Return the context of this thread's device.

        Raises Refusal: ``NO_DEVICE`` if none is visible; where the vendor needs a context, ``NO_CONTEXT`` without one
            and ``DEVICE_RESET`` if it has ended.
        """
        context = self.current()
        if context is None:
            if self.vendor.policy.needs_context:
                raise self._no_context()
            context = self.thread.context = self.context_of(self.ordinal)
        return context

    def _no_context(self) -> Refusal:
        if self.pushed.newest() is not None:
            return self.vendor.refusal(
                Reason.DEVICE_RESET,
                "the context of this thread has ended",
                "make one current that is alive, with {set_device}",
            )
        return self.vendor.refusal(
            Reason.NO_CONTEXT, "this thread has no current context", "call {set_device} in this thread first"
        )

    def resource(self, handle: int, kind: type[_Kind], reason: Reason) -> _Kind:
        """Return the object of a handle; refuse other numbers for a reason."""
        self.devices()
        resource = self.resources.get(handle)
        if isinstance(resource, kind):
            if self.unusable:
                self.refuse_unusable(resource.context)
            return resource
        cause = self.describe_unknown(handle, kind.name) if handle else f"the {kind.name} is NULL"
        remedy = f"pass what created the {kind.name}, until it is destroyed or its device is reset"
        raise self.vendor.refusal(reason, cause, remedy)

    def refuse_unusable(self, context: Context | None) -> None:
        """Refuse a context whose work has failed so that no call can use it any more: ``ILLEGAL_ADDRESS``."""
        why = self.unusable.get(context) if context is not None else None
        if why is not None:
            raise self.vendor.refusal(
                Reason.ILLEGAL_ADDRESS,
                f"earlier work of this context has failed, and nothing can use the context any more: {why}",
                "mend that work; {reset} makes the device usable again, without its memory and streams",
            )

    def enter(self, context: Context, buffer: Buffer, *, peer: bool) -> int | None:
        """Enter a buffer as `Machine.enter` does; it ends with a context that the program made."""
        with self.lock:
            address = super().enter(context, buffer, peer=peer)
            if address is not None and not context.is_primary:
                self.of_contexts.setdefault(context, {})[address] = buffer
        return address

    def context_of_memory(self, address: int, ordinal: int) -> Context:
        """Return the context in which memory of a device was allocated, by its first address."""
        with self.lock:
            for context, memory in self.of_contexts.items():
                if address in memory:
                    return context
        return self.context_of(ordinal)

    def context_or_first(self) -> Context:
        """Return this thread's context, or the primary one of the first device where it has none."""
        return self.current() or self.context_of(self.shown()[0].ordinal)

    def allocate_pinned(self, context: Context, nbytes: int) -> int:
        """Allocate pinned memory of the host, which ends with a context that the program made; return its address.

        Raises Refusal: ``DEVICE_RESET`` the context has ended.
        """
        address = self.allocate_host(nbytes)
        if context.is_primary:
            return address
        with self.lock:
            if context.is_live:
                self.of_contexts.setdefault(context, {})[address] = self.allocations[address].buffer
                return address
        self.free(address, host=True, call="the end of its context")
        raise self.reset_meanwhile(context.device.ordinal)

    def owned(self, address: int, *, host: bool) -> Buffer | None:
        """Return the allocation at exactly this address, as `Machine.owned` does; None for what a pool keeps."""
        buffer = super().owned(address, host=host)
        pool = None if buffer is None else self.pooled.get(buffer.id)
        return buffer if buffer is None or pool is None or pool.memory.is_in_use(buffer) else None

    def drop_pooled(self, buffer: Buffer) -> None:
        """Take memory of a pool out of the tables, which its location gets back."""
        with self.lock:
            self.pooled.pop(buffer.id, None)
            self.allocations.pop(buffer.address, None)

    def end_quick_frees(self, allocation: int) -> None:
        """Let no call of C without Python free an allocation: something was noted of it."""
        pool = self.pooled.get(allocation)
        if pool is not None:
            pool.memory.native.end_quick_frees(allocation)

    def take(self, address: int, *, host: bool) -> Buffer | None:
        """Take the allocation at an address out of the tables, as `Machine.take` does."""
        with self.lock:
            buffer = self.owned(address, host=host)
            pool = None if buffer is None else self.pooled.get(buffer.id)
            if buffer is not None and pool is not None:
                if not pool.memory.end(buffer):
                    return None
                del self.pooled[buffer.id]
            buffer = super().take(address, host=host)
            for each in self.of_contexts.values() if buffer is not None else ():
                each.pop(address, None)
        return buffer

    def end_context(self, context: Context, by: str) -> bool:
        """End a context as `Machine.end_context` does, with its memory; what made it unusable was reported."""
        buffers = self.of_contexts.pop(context, {})
        reported = (
            contextlib.suppress(Error) if self.unusable.pop(context, None) else contextlib.nullcontext()
        )
        has_ended = True
        try:
            with reported:
                has_ended = super().end_context(context, by)
        finally:
            for address, buffer in buffers.items():
                for host_memory in (False, True):
                    if self.owned(address, host=host_memory) is buffer:
                        self.forget_notes(buffer.id)
                        self.free(address, host=host_memory, call=by)
            for pool in set(self.pooled.values()):
                for buffer in pool.memory.remove_closed():
                    self.pooled.pop(buffer.id, None)
        return has_ended

    def remove(self, handle: int, kind: type[_Kind], reason: Reason, call: str) -> _Kind:
        """Take back the object of a handle; errors as :meth:`resource`, also if another thread was quicker."""
        resource = self.resource(handle, kind, reason)
        return resource if self.drop(resource, call) else self.resource(handle, kind, reason)

    def issue(self, resource: Resource) -> int:
        """Return the handle that a resource gets; ``DEVICE_RESET`` if its device was reset meanwhile."""
        if not self.keep(resource):
            resource.abandon()
            raise self.reset_meanwhile(resource.context.device.ordinal)
        return resource.handle

    def look(self, address: int) -> AddressDescription:
        """Return what an address points at now; the text is written later."""
        if self.registrations.around(address) is not None:
            return AddressDescription(address, "registered host memory")
        return super().look(address)

    def reset_meanwhile(self, ordinal: int) -> Refusal:
        """Return the refusal of a call during which another thread reset the device."""
        return self.vendor.refusal(
            Reason.DEVICE_RESET,
            f"device {ordinal} was reset by another thread during the call",
            "reset a device when no thread uses it any more",
        )
