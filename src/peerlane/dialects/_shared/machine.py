"""The tables of every dialect: the current device of a thread, the object of a handle, the buffer of an address.

All state here belongs to one node: when the process leaves it and enters another, a dialect starts afresh.
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
_Kind = TypeVar("_Kind", bound="Thing")
_Ended: TypeAlias = "tuple[str, Device | None, call_site.Site | None, str, call_site.Position | None]"


class Thing:
    """An object that a program holds by a number; the number is not an address and is never given twice.

    Attributes
    ----------
    name : str
        Its name in messages.
    needs_device : bool
        Whether a message names its device.
    is_counted : bool
        Whether a device's limit counts it.
    is_given : bool
        Whether the program was given it and has to give it back.
    has_addresses : bool
        Whether queued work may use its addresses: then it ends after the streams of its context.
    made_at : Site or None
        Where the program got its number.
    """

    __slots__ = ("context", "handle", "made_at")

    name: ClassVar[str]
    needs_device: ClassVar[bool] = True
    is_counted: ClassVar[bool] = True
    is_given: ClassVar[bool] = True
    has_addresses: ClassVar[bool] = False

    def __init__(self, context: Context) -> None:
        self.context = context
        self.handle = 0
        self.made_at: call_site.Site | None = None

    def __str__(self) -> str:
        made = f", made at {self.made_at}" if self.made_at else ""
        return f"{self.title}{made}"

    @property
    def title(self) -> str:
        """Its name and number, with its device if it needs one."""
        device = f" of device {self.context.number}" if self.needs_device else ""
        return f"{self.name} {self.handle:#x}{device}"

    @property
    def nbytes(self) -> int:
        """How many bytes it stands for."""
        return 0

    @property
    def is_permanent(self) -> bool:
        """Whether its device has it, so that no program gives it back."""
        return False

    def end(self) -> None:
        """Wait for its work and end it, with its context; raise the error of failed work."""

    def abandon(self) -> None:
        """End it without waiting."""


class Context(Thing):
    """A use of a device by this process, with streams and events of its own; threads select one.

    Its number is given out when a program asks for it.

    Attributes
    ----------
    device : Device
    number : int
        The program's number of the device.
    is_primary : bool
        Made by selecting the device, and shared by all threads that do; it ends with the last reference.
    references : int
        How often it was selected and not yet released.
    node : object
        ``node.is_closed``: it has ended, or the process left the device's node.
    default_stream : object
        The dialect's stream for it; None before it is needed.
    """

    __slots__ = ("default_stream", "device", "is_primary", "node", "number", "references")

    name = "context"

    def __init__(self, device: Device, *, is_primary: bool = True, number: int | None = None) -> None:
        super().__init__(self)
        self.device = device
        self.number = device.ordinal if number is None else number
        self.is_primary = is_primary
        self.node: Any = device.backend  # asked directly: device.is_closed costs as much as a small copy
        self.references = 0
        self.default_stream: Any = None

    @property
    def is_permanent(self) -> bool:
        """Whether its device has it, so that no program gives it back."""
        return self.is_primary

    @property
    def is_live(self) -> bool:
        """Never true again once it was false: a later selection makes another context."""
        return not self.node.is_closed


def with_article(name: str) -> str:
    """Return ``a stream``, ``an event``."""
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


class _Left:
    __slots__ = ()
    is_closed = True


class _NoContext:
    __slots__ = ()
    node = _Left()
    default_stream: Any = None


@dataclass(frozen=True, slots=True)
class _Allocation:
    buffer: Buffer
    device: Device | None  # None: the host
    for_peers: bool


class Here(threading.local):
    """The current context of this thread."""

    context: Context | _NoContext = _NoContext()

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        host.forget_c_thread()


class Machine:
    """A dialect's view of the node: the device of each thread, and the owner of each address.

    Attributes
    ----------
    here : Here
        The current context of the calling thread; replaced as a whole when the node is.
    lock : RLock
        Held while a table changes in more than one step.
    things : dict
        By number: streams, events and all other objects that a dialect gives out.
    allocations : dict
        By address.
    vendor_name : str
        Who gives out the numbers, in messages.
    show : callable
        Returns the devices of the node that the program sees.
    """

    vendor_name: str
    show: Callable[[Sequence[Device]], tuple[Device, ...]] = staticmethod(tuple)

    def __init__(self) -> None:
        self._begin_process()
        os.register_at_fork(after_in_child=self._begin_process)
        self._node: tuple[Device, ...] = ()
        self._last_handle = _FIRST_HANDLE
        self.forget()
        live_objects.add_source(self.living)

    def _begin_process(self) -> None:
        # A thread that held the lock during a fork does not exist in the child: a wait for it would be for ever.
        self.lock = threading.RLock()
        self._is_checked = False

    def check_fork(self) -> None:
        """Raise Closed (``FORKED``) in a forked child of a process that had used devices; enters no node."""
        if not self._is_checked:
            raw.copy(0, 0, 0)
            self._is_checked = True

    def forget(self) -> None:
        """Drop all that belongs to the node."""
        if self._node:
            host.forget_c_threads()
        self.here = Here()
        self._primary: dict[int, Context] = {}
        self._counts: Counter[tuple[Device, type]] = Counter()
        self.allocations: dict[int, _Allocation] = {}
        self.things: dict[int, Thing] = {}
        self._ended: OrderedDict[int, _Ended] = OrderedDict()
        self._visible: tuple[Device, ...] | None = None

    def begin_anew(self) -> None:
        """Be as in a new process, which has not asked for devices yet."""
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
        """Return the devices that the program sees: its numbers are their places here.

        Everything else goes by the numbers that the node gives its devices.
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

    def _used(self, ordinal: int) -> Device:
        """Return a device that this process is about to use: refused in a forked child."""
        device = self.device(ordinal)
        device.backend.number(device.ordinal)
        return device

    def select(self, ordinal: int, *, share: bool = False) -> Context:
        """Make a device's primary context current in this thread, with one more reference (``share``: only if it
        has none).
        """
        device = self._used(ordinal)
        with self.lock:
            made = Context(device, number=self.number_of(device))
            context = self._primary.setdefault(device.ordinal, made)
            if not (share and context.references):
                context.references += 1
            self.here.context = context
        return context

    def create_context(self, ordinal: int) -> Context:
        """Make a context of its own on a device, and make it current in this thread."""
        device = self._used(ordinal)
        context = Context(device, is_primary=False, number=self.number_of(device))
        self.keep(context)
        self.here.context = context
        return context

    def release(self, ordinal: int, *, all_references: bool = False) -> bool:
        """Drop one reference to a device's primary context, or all; without any it ends.  False: there was none.

        Raises
        ------
        Error
            The first failure of its things; the context has ended all the same.
        """
        device = self.device(ordinal)
        with self.lock:
            context = self._primary.get(device.ordinal)
            if context is None:
                return False
            context.references = 0 if all_references else context.references - 1
            if context.references:
                return True
        return self.end_context(context, f"the last reset of device {ordinal}")

    def end_context(self, context: Context, by: str) -> bool:
        """End a context with its things, and with the last one of a device free the memory there.

        False if another thread ended it.  Raises as :meth:`release`.
        """
        device = context.device
        with self.lock:
            if not context.is_live:
                return False
            context.node = _Left()
            host.forget_c_threads()
            if context.is_primary:
                del self._primary[device.ordinal]
            things = [thing for thing in self.things.values() if thing.context is context]
            for thing in things:
                self.drop(thing, by)
        try:
            _end(things)
        finally:
            with self.lock:
                lost = [] if self._is_used(device) else self._allocated_on(device)
                buffers = [self.allocations.pop(address).buffer for address in lost]
            for buffer in buffers:
                close_for(buffer, f"the last reset of {device.name}")
        return True

    def _is_used(self, device: Device) -> bool:
        return device.ordinal in self._primary or any(
            isinstance(thing, Context) and thing.device is device for thing in self.things.values()
        )

    def _allocated_on(self, device: Device) -> list[int]:
        return [address for address, made in self.allocations.items() if made.device is device]

    def keep(self, thing: Thing) -> bool:
        """Give a thing out by its number; False if its context was released meanwhile."""
        thing.made_at = call_site.call_site()
        with self.lock:
            if not thing.context.is_live:
                return False
            self._last_handle += _HANDLE_STEP
            thing.handle = self._last_handle
            self.things[thing.handle] = thing
            self._counts[thing.context.device, type(thing)] += thing.is_counted
        return True

    def drop(self, thing: Thing, by: str) -> bool:
        """Take a thing out of the table, and note the call that did; False if another thread has."""
        device = thing.context.device if thing.needs_device else None
        ended = (thing.name, device, thing.made_at, by, call_site.place())
        with self.lock:
            if self.things.pop(thing.handle, None) is None:
                return False
            self._ended[thing.handle] = ended
            if len(self._ended) > _ENDED:
                self._ended.popitem(last=False)
            self._counts[thing.context.device, type(thing)] -= thing.is_counted
        return True

    def living(self) -> list[live_objects.LiveObject]:
        """Return the objects that a program has to give back: no primary contexts and no default streams."""
        with self.lock:
            held = [] if self._node and self._node[0].is_closed else list(self.things.values())
        return [
            live_objects.LiveObject(
                thing.name,
                thing.title + (f", {thing.nbytes:,} bytes" if thing.nbytes else ""),
                thing.nbytes,
                thing.context.device.name if thing.needs_device else "",
                thing.made_at,
            )
            for thing in held
            if thing.is_given and thing is not thing.context.default_stream and not thing.is_permanent
        ]

    def count(self, device: Device, kind: type[Thing]) -> int:
        """Return how many counted things of a kind this process has on a device."""
        return self._counts[device, kind]

    def things_on(self, device: Device, kind: type[_Kind]) -> list[_Kind]:
        """Return the things of a kind in the contexts of a device, oldest first."""
        with self.lock:
            return [
                each
                for each in self.things.values()
                if each.context.device is device and isinstance(each, kind)
            ]

    def ended(self, handle: int) -> str:
        """Describe an object that has ended, with the call and line that ended it; empty if that is not known."""
        found = self._ended.get(handle)
        if found is None:
            return ""
        name, device, made_at, by, place = found
        at = call_site.at(place)
        made = f"made at {made_at} and " if made_at else ""
        of = f" of device {self.number_of(device)}" if device is not None else ""
        return f"{with_article(name)}{of}, {made}ended by {by}{f' at {at}' if at else ''}"

    def told_of(self, handle: int, name: str) -> str:
        """Say why a number is not a ``name``: it is another kind, it has ended, or it was never given out."""
        found, ended = self.things.get(handle), self.ended(handle)
        if found is not None:
            return f"{handle:#x} is the number of another kind: {found}, not of {with_article(name)}"
        if ended:
            return f"{handle:#x} was {ended}"
        if self.was_given(handle):
            return (
                f"{handle:#x} ended with the node that the process was in before, or too long ago to say how"
            )
        return f"{self.vendor_name} gave out no {name} with the number {handle:#x}"

    def was_given(self, handle: int) -> bool:
        """Tell whether a number was given out, now or earlier."""
        return _FIRST_HANDLE < handle <= self._last_handle and not handle % _HANDLE_STEP

    def current(self) -> Context | None:
        """Return the context of this thread, None if it has none or it was released."""
        context = self.here.context
        if self._is_checked and isinstance(context, Context) and context.is_live:
            return context  # its node is still that of this process
        self.devices()
        context = self.here.context
        return context if isinstance(context, Context) and context.is_live else None

    @staticmethod
    def is_native(context: Context) -> bool:
        """Tell whether a context is alive, and native code knows the memory and streams of its device."""
        return context.is_live and context.device.backend.name == registry.DEFAULT

    def allocate(self, context: Context, nbytes: int, *, peer: bool) -> int | None:
        """Allocate device memory and return its address; None if the context was released meanwhile."""
        return self.enter(context, context.device.allocate(nbytes, peer=peer), peer=peer)

    def enter(self, context: Context, buffer: Buffer, *, peer: bool) -> int | None:
        """Give out a buffer by its address; None, and it is closed, if the context was released meanwhile."""
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
        """Give out a buffer of the host by its address."""
        with self.lock:
            self.allocations[buffer.address] = _Allocation(buffer, None, True)
        return buffer.address

    def owned(self, address: int, *, host: bool) -> Buffer | None:
        """Return the buffer that this dialect allocated at exactly this address."""
        self.devices()
        made = self.allocations.get(address)
        return made.buffer if made is not None and host == (made.device is None) else None

    def is_for_peers(self, address: int) -> bool:
        """Tell whether the memory that starts here was allocated for peers; True if another owner allocated it."""
        made = self.allocations.get(address)
        return made is None or made.for_peers

    def free(self, address: int, *, host: bool, call: str, stream: Stream | None = None) -> bool:
        """Free the allocation at exactly this address, in the order of a stream if there is one.

        What is queued finds the bytes still, and so does a process that opened the memory.  No vendor promises that:
        the checker takes it for a use after the free.  False if this dialect allocated nothing there.
        """
        buffer = self.take(address, host=host)
        if buffer is not None:
            with event_log.freed_at_once() if event_log.active else nullcontext():
                close_for(buffer, call, stream)
        return buffer is not None

    def take(self, address: int, *, host: bool) -> Buffer | None:
        """Take the allocation at exactly this address out of the table; None if this dialect has none there."""
        with self.lock:
            found = self.owned(address, host=host)
            if found is not None:
                del self.allocations[address]
            return found

    def describe(self, address: int) -> str:
        """Describe an address in words."""
        return str(self.look(address))

    def look(self, address: int) -> AddressDescription:
        """Look at an address now; the words are made later."""
        try:
            self.check_fork()
        except Error:
            return AddressDescription(address, "" if address else "NULL")
        return look(address)


def _end(things: Sequence[Thing]) -> None:
    first: Error | None = None
    try:
        for thing in sorted(things, key=lambda each: each.has_addresses):
            try:
                thing.end()
            except Error as error:
                first = first or error
    finally:
        for thing in things:  # after Ctrl-C some were not reached
            thing.abandon()
    if first is not None:
        raise first


def close_for(buffer: Buffer, freed_by: str, stream: Stream | None = None) -> None:
    """Close a freed buffer, in the order of a stream if there is one, and note what freed it."""
    allocations.forget(buffer.id, freed_by)
    buffer.close(stream=stream)
