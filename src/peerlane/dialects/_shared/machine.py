"""The tables of every dialect: the current context of a thread, the resource of a handle, the buffer of an address.

The tables belong to one node: when the process leaves the node and enters another, they are emptied.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, ClassVar, TypeAlias, TypeVar

import peerlane
from peerlane import Buffer, Device, Host, Stream
from peerlane.backend import host, registry
from peerlane.diagnostics import call_site, live_objects
from peerlane.diagnostics.log import event_log
from peerlane.diagnostics.memory import allocations
from peerlane.diagnostics.memory.addresses import AddressDescription, look
from peerlane.errors import BadArgument, Error, Fault, InvalidValue
from peerlane.memory import raw
from peerlane.support.records import dataclass

_ENDED = 4096
_FIRST_HANDLE = 1 << 62
_HANDLE_STEP = 64
_Kind = TypeVar("_Kind", bound="Resource")
_Ended: TypeAlias = "tuple[str, Device | None, call_site.Site | None, str, call_site.Position | None]"


class Resource:
    """An object that a program holds by a handle.  A handle is not an address and is never issued twice."""

    __slots__ = ("context", "handle", "created_at")

    name: ClassVar[str]  #: its kind in messages
    needs_device: ClassVar[bool] = True  #: whether a message names its device
    is_counted: ClassVar[bool] = True  #: whether a device's limit counts it
    is_owned: ClassVar[bool] = True  #: whether the program owns it and has to end it
    #: Whether queued work may use its addresses: then it ends after the streams of its context.
    has_addresses: ClassVar[bool] = False

    def __init__(self, context: Context) -> None:
        self.context = context
        self.handle = 0  #: 0 before it is issued
        self.created_at: call_site.Site | None = None  #: the program's line that got the handle

    def __str__(self) -> str:
        site = f", made at {self.created_at}" if self.created_at else ""
        return f"{self.title}{site}"

    @property
    def title(self) -> str:
        """Its kind and handle, and its device if ``needs_device``."""
        device = f" of device {self.context.number}" if self.needs_device else ""
        return f"{self.name} {self.handle:#x}{device}"

    @property
    def nbytes(self) -> int:
        """How many bytes it stands for."""
        return 0

    @property
    def is_permanent(self) -> bool:
        """Whether it belongs to its device, so that no program ends it."""
        return False

    def end(self) -> None:
        """Wait for its work and end it, with its context; raise the error of failed work."""

    def abandon(self) -> None:
        """End it without waiting."""


class Context(Resource):
    """A use of a device by this process, with its own streams and events; each thread selects one.

    Its handle is issued when a program asks for it.
    """

    __slots__ = ("default_stream", "device", "is_primary", "native", "node", "number")

    name = "context"

    def __init__(self, device: Device, *, is_primary: bool = True, number: int | None = None) -> None:
        #: What native code knows of it: its handle, and how often it was selected and not yet released.
        self.native = host.Context()
        super().__init__(self)
        self.device = device
        self.number = device.ordinal if number is None else number  #: the program's number of the device
        #: Whether selecting the device made it: all threads that select the device share it, and the last release
        #: ends it.
        self.is_primary = is_primary
        #: ``node.is_closed`` is true after the context ended, or the process left the device's node.
        self.node: Any = device.backend  # device.is_closed would cost as much as a small copy
        #: The dialect's default stream of the context; None before its first use.
        self.default_stream: Any = None

    @property
    def handle(self) -> int:
        """The number by which the program knows it; 0 before it is issued."""
        return int(self.native.handle)

    @handle.setter
    def handle(self, handle: int) -> None:
        self.native.handle = handle

    @property
    def is_permanent(self) -> bool:
        """Whether it belongs to its device, so that no program ends it."""
        return self.is_primary

    @property
    def is_live(self) -> bool:
        """Whether the context can be used.  Once false it stays false: a later selection makes another context."""
        return not self.node.is_closed


def with_article(name: str) -> str:
    """Return ``a stream``, ``an event``."""
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


class _ClosedNode:
    __slots__ = ()
    is_closed = True


class _NoContext:
    __slots__ = ()
    node = _ClosedNode()
    default_stream: Any = None


@dataclass(frozen=True, slots=True)
class _Allocation:
    buffer: Buffer
    device: Device | None  # None: the host
    for_peers: bool


class ThreadContext(threading.local):
    """The current context of this thread."""

    context: Context | _NoContext = _NoContext()

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        host.forget_c_thread()


class Machine:
    """A dialect's view of the node: the context of each thread, the resource of each handle, the owner of each
    address.

    ``thread``: the current context of the calling thread; another node gets a new object.
    ``lock``: held while a table changes in more than one step.
    ``resources``: by handle: streams, events and all other objects that a program holds.
    ``allocations``: by address.
    """

    vendor_name: str  #: who issues the handles, in messages
    #: Returns the devices of the node that the program sees.
    show: Callable[[Sequence[Device]], tuple[Device, ...]] = staticmethod(tuple)

    def __init__(self) -> None:
        self._begin_process()
        os.register_at_fork(after_in_child=self._begin_process)
        self._node: tuple[Device, ...] = ()
        self._last_handle = _FIRST_HANDLE
        self.forget()
        live_objects.add_source(self.living)

    def _begin_process(self) -> None:
        # A thread that held the lock during a fork does not exist in the child, which would wait for it for ever.
        self.lock = threading.RLock()
        self._is_checked = False

    def check_fork(self) -> None:
        """Raise Closed (``FORKED``) in a forked child of a process that had used devices; enters no node."""
        if not self._is_checked:
            raw.copy(0, 0, 0)
            self._is_checked = True

    def forget(self) -> None:
        """Empty the tables of the node."""
        if self._node:
            host.forget_c_threads()
        self.thread = ThreadContext()
        self._primary: dict[int, Context] = {}
        self._counts: Counter[tuple[Device, type]] = Counter()
        self.allocations: dict[int, _Allocation] = {}
        self.resources: dict[int, Resource] = {}
        self._ended: OrderedDict[int, _Ended] = OrderedDict()
        self._visible: tuple[Device, ...] | None = None

    def begin_anew(self) -> None:
        """Reset to the state of a new process, which has not asked for devices yet."""
        with self.lock:
            self.forget()
            self._node = ()

    def devices(self) -> tuple[Device, ...]:
        """Return the devices of this process's node; forget the state of another node first."""
        self.check_fork()
        present = peerlane.devices()
        if present is not self._node:
            with self.lock:
                if present is not self._node:
                    self.forget()
                    self._node = present
        return present

    def visible(self) -> tuple[Device, ...]:
        """Return the devices that the program sees; the program numbers them by their positions in this tuple.

        All other methods take the node's numbers of devices.
        """
        devices = self.devices()
        if self._visible is None:
            self._visible = self.show(devices)
        return self._visible

    def device(self, ordinal: int) -> Device:
        """Return a device by number; ``INVALID_DEVICE`` with the valid ones."""
        present = self.devices()
        if not 0 <= ordinal < len(present):
            raise InvalidValue(
                f"there is no device {ordinal}; this node has {len(present)}, numbered 0 to {len(present) - 1}",
                fault=Fault.INVALID_DEVICE,
                detail=BadArgument("device", ordinal, least=0, most=len(present) - 1),
            )
        return present[ordinal]

    def number_of(self, device: Device) -> int:
        """Return the program's number of a device."""
        return device.ordinal

    def _device_to_use(self, ordinal: int) -> Device:
        """Return a device that this process will use; refused in a forked child."""
        device = self.device(ordinal)
        device.backend.number(device.ordinal)
        return device

    def select(self, ordinal: int, *, share: bool = False) -> Context:
        """Make a device's primary context current in this thread, with one more reference (``share``: only if it
        has none).
        """
        device = self._device_to_use(ordinal)
        with self.lock:
            context = self._primary.setdefault(device.ordinal, Context(device, number=self.number_of(device)))
            if not (share and context.native.references):
                context.native.retain()
            self.thread.context = context
        return context

    def create_context(self, ordinal: int) -> Context:
        """Create a context that is not the device's primary one, and make it current in this thread."""
        device = self._device_to_use(ordinal)
        context = Context(device, is_primary=False, number=self.number_of(device))
        self.keep(context)
        self.thread.context = context
        return context

    def release(self, ordinal: int, *, all_references: bool = False) -> bool:
        """Drop one reference to a device's primary context, or all; without any it ends.  False: there was none.

        Raises Error: the first failure of the context's resources; the context has ended all the same.
        """
        device = self.device(ordinal)
        with self.lock:
            context = self._primary.get(device.ordinal)
            if context is None:
                return False
            if all_references:
                context.native.release_all()
            elif context.native.release() > 0:
                return True
        return self.end_context(context, f"the last reset of device {ordinal}")

    def end_context(self, context: Context, by: str) -> bool:
        """End a context with its resources; the end of a device's last context frees the device's allocations.

        False if another thread ended it.  Raises as :meth:`release`.
        """
        device = context.device
        with self.lock:
            if not context.is_live:
                return False
            context.node = _ClosedNode()
            context.native.end()
            host.forget_c_threads()
            if context.is_primary:
                del self._primary[device.ordinal]
            resources = [each for each in self.resources.values() if each.context is context]
            for each in resources:
                self.drop(each, by)
        try:
            _end(resources)
        finally:
            with self.lock:
                addresses = [] if self._is_used(device) else self._allocated_on(device)
                buffers = [self.allocations.pop(address).buffer for address in addresses]
            for buffer in buffers:
                close_for(buffer, f"the last reset of {device.name}")
        return True

    def _is_used(self, device: Device) -> bool:
        return device.ordinal in self._primary or any(
            isinstance(each, Context) and each.device is device for each in self.resources.values()
        )

    def _allocated_on(self, device: Device) -> list[int]:
        return [address for address, allocation in self.allocations.items() if allocation.device is device]

    def keep(self, resource: Resource) -> bool:
        """Issue a handle for a resource; False if its context was released meanwhile."""
        resource.created_at = call_site.call_site()
        with self.lock:
            if not resource.context.is_live:
                return False
            self._last_handle += _HANDLE_STEP
            resource.handle = self._last_handle
            self.resources[resource.handle] = resource
            self._counts[resource.context.device, type(resource)] += resource.is_counted
        return True

    def drop(self, resource: Resource, by: str) -> bool:
        """Take a resource out of the table, and note the call that did; False if another thread has."""
        device = resource.context.device if resource.needs_device else None
        ended = (resource.name, device, resource.created_at, by, call_site.position())
        with self.lock:
            if self.resources.pop(resource.handle, None) is None:
                return False
            self._ended[resource.handle] = ended
            if len(self._ended) > _ENDED:
                self._ended.popitem(last=False)
            self._counts[resource.context.device, type(resource)] -= resource.is_counted
        return True

    def living(self) -> list[live_objects.LiveObject]:
        """Return the resources that the program has to end: no primary contexts and no default streams."""
        with self.lock:
            resources = [] if self._node and self._node[0].is_closed else list(self.resources.values())
        return [
            live_objects.LiveObject(
                each.name,
                each.title + (f", {each.nbytes:,} bytes" if each.nbytes else ""),
                each.nbytes,
                each.context.device.name if each.needs_device else "",
                each.created_at,
            )
            for each in resources
            if each.is_owned and each is not each.context.default_stream and not each.is_permanent
        ]

    def count(self, device: Device, kind: type[Resource]) -> int:
        """Return how many counted resources of a kind this process has on a device."""
        return self._counts[device, kind]

    def resources_on(self, device: Device, kind: type[_Kind]) -> list[_Kind]:
        """Return the resources of a kind in the contexts of a device, oldest first."""
        with self.lock:
            return [
                each
                for each in self.resources.values()
                if each.context.device is device and isinstance(each, kind)
            ]

    def ended(self, handle: int) -> str:
        """Describe a resource that has ended, with the call and line that ended it; empty if that is not known."""
        record = self._ended.get(handle)
        if record is None:
            return ""
        name, device, created_at, by, ended_at = record
        at = call_site.at(ended_at)
        creation = f"made at {created_at} and " if created_at else ""
        of = f" of device {self.number_of(device)}" if device is not None else ""
        return f"{with_article(name)}{of}, {creation}ended by {by}{f' at {at}' if at else ''}"

    def describe_unknown(self, handle: int, name: str) -> str:
        """Describe a number that is not a handle of a ``name``: another kind's, an ended one's, or never issued."""
        resource, ended = self.resources.get(handle), self.ended(handle)
        if resource is not None:
            return f"{handle:#x} is the number of another kind: {resource}, not of {with_article(name)}"
        if ended:
            return f"{handle:#x} was {ended}"
        if self.was_issued(handle):
            return (
                f"{handle:#x} ended with the node that the process was in before, or too long ago to say how"
            )
        return f"{self.vendor_name} gave out no {name} with the number {handle:#x}"

    def was_issued(self, handle: int) -> bool:
        """Tell whether a number is a handle that was issued, now or earlier."""
        return _FIRST_HANDLE < handle <= self._last_handle and not handle % _HANDLE_STEP

    def current(self) -> Context | None:
        """Return the context of this thread, None if it has none or it was released."""
        context = self.thread.context
        if self._is_checked and isinstance(context, Context) and context.is_live:
            return context  # its node is still that of this process
        self.devices()
        context = self.thread.context
        return context if isinstance(context, Context) and context.is_live else None

    @staticmethod
    def is_native(context: Context) -> bool:
        """Tell whether a context is alive, and native code knows the memory and streams of its device."""
        return context.is_live and context.device.backend.name == registry.DEFAULT

    def allocate(self, context: Context, nbytes: int, *, peer: bool) -> int | None:
        """Allocate device memory and return its address; None if the context was released meanwhile."""
        return self.enter(context, context.device.allocate(nbytes, peer=peer), peer=peer)

    def enter(self, context: Context, buffer: Buffer, *, peer: bool) -> int | None:
        """Enter a buffer by its address; None, and it is closed, if the context was released meanwhile."""
        with self.lock:
            if context.is_live:
                self.allocations[buffer.address] = _Allocation(buffer, context.device, peer)
                return buffer.address
        close_for(buffer, f"the last reset of {context.device.name}")
        return None

    def allocate_host(self, nbytes: int) -> int:
        """Allocate pinned host memory and return its address."""
        self.devices()  # or the next call would forget what belongs to another node
        return self.enter_host(Host().allocate(nbytes))

    def enter_host(self, buffer: Buffer) -> int:
        """Enter a buffer of the host by its address."""
        with self.lock:
            self.allocations[buffer.address] = _Allocation(buffer, None, True)
        return buffer.address

    def owned(self, address: int, *, host: bool) -> Buffer | None:
        """Return the buffer that this dialect allocated at exactly this address."""
        self.devices()
        allocation = self.allocations.get(address)
        return allocation.buffer if allocation is not None and host == (allocation.device is None) else None

    def is_for_peers(self, address: int) -> bool:
        """Tell whether the memory at this address was allocated for peers; True if another owner allocated it."""
        allocation = self.allocations.get(address)
        return allocation is None or allocation.for_peers

    def free(self, address: int, *, host: bool, call: str, stream: Stream | None = None) -> bool:
        """Free the allocation at exactly this address, in the order of a stream if there is one.

        Queued work can still use the bytes, and so can a process that opened the memory.  No vendor promises that:
        the checker reports it as a use after the free.  False if this dialect has no allocation at this address.
        """
        buffer = self.take(address, host=host)
        if buffer is not None:
            with event_log.freed_at_once() if event_log.active else nullcontext():
                close_for(buffer, call, stream)
        return buffer is not None

    def take(self, address: int, *, host: bool) -> Buffer | None:
        """Take the allocation at exactly this address out of the table; None if this dialect has none there."""
        with self.lock:
            buffer = self.owned(address, host=host)
            if buffer is not None:
                del self.allocations[address]
            return buffer

    def describe(self, address: int) -> str:
        """Describe an address in words."""
        return str(self.look(address))

    def look(self, address: int) -> AddressDescription:
        """Return what lies at an address now; the description is worded when it is read."""
        try:
            self.check_fork()
        except Error:
            return AddressDescription(address, "" if address else "NULL")
        return look(address)


def _end(resources: Sequence[Resource]) -> None:
    first: Error | None = None
    try:
        for each in sorted(resources, key=lambda each: each.has_addresses):
            try:
                each.end()
            except Error as error:
                first = first or error
    finally:
        for each in resources:  # after Ctrl-C some were not reached
            each.abandon()
    if first is not None:
        raise first


def close_for(buffer: Buffer, freed_by: str, stream: Stream | None = None) -> None:
    """Close a freed buffer, in the order of a stream if there is one, and note what freed it."""
    allocations.forget(buffer.id, freed_by)
    buffer.close(stream=stream)
