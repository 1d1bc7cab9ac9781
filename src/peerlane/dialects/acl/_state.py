"""The machine of this dialect, its table of calls, and the texts of failures."""

from __future__ import annotations

import os
import re
import reprlib
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from peerlane import Buffer, Device, Handle, Stream
from peerlane.diagnostics import call_site
from peerlane.dialects._shared.call import Convention, Failure, Refusal
from peerlane.dialects._shared.exchange import Exports, Imports
from peerlane.dialects._shared.machine import Context, Machine, Thing
from peerlane.dialects._shared.message import Message, Messages
from peerlane.dialects._shared.registrations import Registration, Registrations
from peerlane.dialects._shared.virtual_memory import Reservations
from peerlane.dialects.acl._codes import FAULTS, NOT_LET_IN, REMEDIES, SUCCESS, Code, in_words, is_runtime
from peerlane.dialects.acl._visible import VARIABLE, visible
from peerlane.errors import BadArgument, Error, Fault, HandleRefused, InvalidValue, NoRoom
from peerlane.streams import callbacks
from peerlane.support.sizes import UNITS, format_size

_LIKE_AN_ADDRESS = 1 << 32
# Arguments that are not addresses, though they are parsed as addresses.
_NUMBERS = frozenset(
    ["stream", "event", "notify", "context", "data_buffer", "tensor_desc", "handle", "start", "end", "info"]
)
_UNDOES = re.compile(
    r"acl\.(rt\.(free|destroy|reset|synchronize|unmap|release|unsubscribe)\w*|rt\.(set_device|set_context|ipc_mem_close"
    r"|host_unregister|stream_abort|device_disable_peer_access)|finalize\w*|media\.dvpp_free|destroy_data_buffer|destroy_tensor_desc)"
)
_FREED_KEPT = 65_536
_LARGEST = UNITS["TiB"]  # no device has that much
_Kind = TypeVar("_Kind", bound=Thing)


def is_key_over(given: tuple[Handle, Buffer]) -> bool:
    """Tell whether the memory of a key was freed, and no process has imported it."""
    handle, buffer = given
    return buffer.is_closed and not handle.importers


@dataclass(frozen=True, slots=True)
class HostMemory(Registration):
    """What ``host_register`` was given; ``is_mapped`` tells whether devices have an address for it."""

    is_mapped: bool


class LastError(threading.local):
    """The newest code of the runtime in this thread; 0 if there is none, or it was taken."""

    code = 0

    def forget(self) -> None:
        """Forget this thread's."""
        self.code = 0


class JustEnded(threading.local):
    """The object that a failing call has ended: the message shows it as it was when the call came."""

    thing: Thing | None = None


class AclMachine(Machine):
    """The machine, with the peer references of each direction (facts/acl 4.3).

    Attributes
    ----------
    allocators : dict
        By the number of a stream: the description that was registered for it, and what it had then.
    freed : dict
        By address: the allocation that the program freed there, the oldest first; without the addresses that
        ``malloc`` gave out again.
    exported_keys, imported_keys : Exports, Imports
        Memory of ``malloc``, by the text of its key: the neutral handle with the memory; the imports.
    exported_memory, imported_memory : Exports, Imports
        Physical memory, by its shareable handle; by (shareable handle, device).
    far : dict
        By the text of the key: memory that was imported with another device set than its own, and its own.
    op_wait_timeout : float or None
        Seconds that a stream waits for an event; None is for ever.
    registrations : Registrations
        The host memory that the program registered.
    reports : dict
        By thread: the callbacks that it has to run.
    reservations : Reservations
        The reserved addresses.
    """

    vendor_name = "acl.rt"
    show = staticmethod(visible)
    default_device: int | None = None  # of the configuration file: not the node's, so it outlives one

    def forget(self) -> None:
        """Drop all that belongs to the node."""
        super().forget()
        self.peer_references: dict[tuple[int, int], int] = {}
        self.allocators: dict[int, tuple[int, dict[str, object]]] = {}
        self.freed: OrderedDict[int, int] = OrderedDict()
        self.op_wait_timeout: float | None = None
        self.registrations = Registrations[HostMemory]()
        self.reports: dict[int, Any] = {}
        self.reservations = Reservations()
        self.exported_keys = Exports[str, tuple[Handle, Buffer]](is_key_over)
        self.imported_keys = Imports[str, Any](self)
        self.exported_memory = Exports[int, Any](
            lambda each: each.is_over and not each.handle_given.importers
        )
        self.imported_memory = Imports[tuple[int, int], Any](self)
        self.far: dict[str, tuple[Buffer, Device]] = {}
        self._process: Context | None = None

    def device(self, ordinal: int) -> Device:
        """Return a device by the program's number; ``INVALID_DEVICE`` with the valid ones."""
        shown = self.visible()
        if 0 <= ordinal < len(shown):
            return shown[ordinal]
        if len(shown) == len(self.devices()):
            return super().device(ordinal)
        raise InvalidValue(
            f"there is no device {ordinal}; {self.told_visible()}",
            fault=Fault.INVALID_DEVICE,
            detail=BadArgument("device", ordinal, least=0, most=len(self.visible()) - 1),
        )

    def told_visible(self) -> str:
        """Say how many devices the program sees, and why not more."""
        shown, everyone = len(self.visible()), len(self.devices())
        value = os.environ.get(VARIABLE)
        if shown:
            return f"{VARIABLE}={value!r} shows {shown} of the node's {everyone}, numbered 0 to {shown - 1}"
        return (
            f"{VARIABLE}={value!r} shows none of the node's {everyone}: it must list numbers below {everyone} in "
            "ascending order, each once, with nothing but commas between them"
        )

    def number_of(self, device: Device) -> int:
        """Return the program's number of a device, -1 for one that it does not see."""
        shown = self.visible()
        return shown.index(device) if device in shown else -1

    def number_at(self, ordinal: int) -> int:
        """Return the program's number of the device with a number of the node."""
        return self.number_of(self.devices()[ordinal])

    def enter(self, context: Context, buffer: Buffer, *, peer: bool) -> int | None:
        """Give out a buffer by its address; the address does not count as freed any more."""
        self.freed.pop(buffer.address, None)
        return super().enter(context, buffer, peer=peer)

    def free(self, address: int, *, host: bool, call: str, stream: Stream | None = None) -> bool:
        """Free the allocation at exactly this address; device memory is noted as freed before it is freed."""
        with self.lock:
            buffer = None if host else self.owned(address, host=False)
            if buffer is not None:
                self.freed[address] = buffer.id
                if len(self.freed) > _FREED_KEPT:
                    self.freed.popitem(last=False)
        return super().free(address, host=host, call=call, stream=stream)

    def is_set(self, device: Device) -> bool:
        """Tell whether the device's own context is alive."""
        return device.ordinal in self._primary

    def process(self) -> Context:
        """Return what things belong to that the last reset of a device does not end."""
        with self.lock:
            if self._process is None:
                self._process = Context(self.devices()[0])
            return self._process

    def thing(self, handle: int, kind: type[_Kind]) -> _Kind:
        """Return the object of a handle; 100000 for 0, 107000 for other numbers."""
        found = self.things.get(handle)
        if type(found) is kind:
            return found
        raise self.unknown(handle, kind.name)

    def unknown(self, handle: int, name: str) -> Refusal:
        """Return the refusal of a number that means no ``name``."""
        remedy = f"pass what acl.rt.create_{name} returned, until it is destroyed or its device is reset"
        if not handle:
            return Refusal(Code.INVALID_PARAM, f"the {name} is NULL (0)", remedy)
        return Refusal(Code.RT_PARAM_INVALID, self.told_of(handle, name), remedy)

    def described(self, number: int, kind: type[_Kind], maker: str) -> _Kind:
        """Return the object of a handle that needs no device; 100000 for other numbers."""
        self.devices()
        found = self.things.get(number)
        if isinstance(found, kind):
            return found
        told = "NULL (0)" if not number else f"{number:#x}, which is no {kind.name} or was destroyed"
        raise Refusal(
            Code.INVALID_PARAM,
            f"the {kind.name} is {told}",
            f"pass what {maker} returned, until it is destroyed",
        )

    def end_described(self, number: int, kind: type[_Kind], maker: str, call: str) -> None:
        """Take such a thing back; 100000 also if another thread was quicker."""
        if not self.drop(self.described(number, kind, maker), call):
            self.described(number, kind, maker)

    def remedy_beyond(self, end: int) -> str:
        """Return what to do when memory ends at ``end``, and more was asked for."""
        if self.reservations.is_hole(end):
            return "map memory behind it with acl.rt.map_mem, or pass a smaller count"
        return REMEDIES[Fault.OUT_OF_BOUNDS]

    @staticmethod
    def refuse_foreign(thing: Thing, context: Context, remedy: str) -> None:
        """Refuse a thing of another context: 107003; ``remedy`` is for one of another device."""
        own = thing.context
        if own.device is context.device:
            # A device's own context has no number before a program asks for it.
            call = f"set_context({own.handle:#x})" if own.handle else f"set_device({own.number})"
            remedy = f"call acl.rt.{call} first, which makes its context current in this thread"
        if own is not context:
            made = f", made at {thing.made_at}," if thing.made_at else ""
            raise Refusal(
                Code.RT_STREAM_CONTEXT,
                f"{thing.name} {thing.handle:#x}{made} belongs to {_named(own)}, and {_named(context)} is current in "
                "this thread",
                remedy,
            )

    def give(self, thing: Thing) -> int:
        """Give a thing out and return its number; 107002 if its device was reset meanwhile."""
        if not self.keep(thing):
            thing.abandon()
            raise self.reset_meanwhile(thing.context)
        return thing.handle

    @staticmethod
    def reset_meanwhile(context: Context) -> Refusal:
        """Return the refusal of a call during which another thread reset the device."""
        ended = "reset" if context.is_primary else "destroyed"
        return Refusal(
            Code.RT_CONTEXT_NULL,
            f"{_named(context)} was {ended} by another thread during the call",
            "end it when no thread uses it any more",
        )

    def remove(self, handle: int, kind: type[_Kind], call: str) -> _Kind:
        """Take the object of a handle out of the table; errors as :meth:`thing`."""
        self.context()
        found = self.thing(handle, kind)
        if not self.drop(found, call):
            raise self.unknown(handle, kind.name)
        return found

    def context(self) -> Context:
        """Return the context of this thread, or refuse with 107002 (facts/acl 3)."""
        found = self.current()
        if found is not None:
            return found
        if self.default_device is not None:
            return self.select(self.default_device, share=True)
        raise Refusal(
            Code.RT_CONTEXT_NULL,
            "this thread has no current context: none was set in it, it was destroyed, the last reference to its "
            "device was reset, or the process has entered another node",
            f"call acl.rt.set_device(id) in this thread first, id 0 to {len(self.visible()) - 1}, or "
            "acl.rt.set_context",
        )


def _named(context: Context) -> str:
    number = f"context {context.handle:#x} of " if not context.is_primary else ""
    return f"{number}device {context.number}"


def _report(failure: Failure) -> None:
    if is_runtime(failure.code):
        last_error.code = failure.code
    messages.tell(failure)
    just_ended.thing = None


def _layout(message: Message) -> str:
    """Return the text in the vendor's layout: a code line, then indented lines (facts/acl 4.8)."""
    kind = "EE1001" if message.code < Code.API_NOT_SUPPORT else "E19999"
    if message.code == Code.RT_MEMORY_ALLOCATION:
        kind = "EL0004"
    head = f"{kind}: {message.call} returned {in_words(message.code)}"
    return laid_out(head, message.cause, message.remedy, given=message.given)


def laid_out(head: str, cause: str, remedy: str, *, given: str = "") -> str:
    """Return a text whose lines after the first are indented: the arguments, the cause, and what to do."""
    called = f"        Called with: {given}\n" if given else ""
    return f"{head}.\n{called}        Possible Cause: {cause}.\n        Solution: {remedy}."


def _seen(name: str, value: object, is_address: bool | None) -> object:
    """Return what to show of an argument: its words, or what they can be made of whatever happens to it."""
    if not isinstance(value, int):
        return reprlib.repr(value)
    if is_address and name in _NUMBERS:
        return _number(value)
    if is_address:
        return machine.look(value)
    return hex(value) if is_address is None and abs(value) >= _LIKE_AN_ADDRESS else int(value)


def _number(handle: int) -> str:
    thing, ended = machine.things.get(handle), just_ended.thing
    if thing is None and ended is not None and ended.handle == handle:
        thing = ended
    if thing is not None:
        return str(thing).removeprefix(f"{thing.name} ")
    return f"{handle:#x} (over)" if machine.was_given(handle) else f"{handle:#x}" if handle else "0"


def _late(call: str) -> int:
    """Return 0 for what undoes or waits, as destructors do: everything has ended."""
    return SUCCESS if _UNDOES.fullmatch(call) else int(Code.RT_DEV_SETUP_ERROR)


def explain(error: Error) -> tuple[str, str]:
    """Return the cause of an error and what to do about it, in acl's terms."""
    if isinstance(error.detail, NoRoom):
        return error.detail.cause, _more_memory(error.detail)
    if isinstance(error.detail, HandleRefused) and error.fault in NOT_LET_IN:
        return NOT_LET_IN[error.fault].format_map(vars(error.detail)), REMEDIES[error.fault]
    if error.fault is Fault.INVALID_DEVICE and len(machine.visible()) < len(machine.devices()):
        return str(error), f"pass an id below acl.rt.get_device_count(), or correct {VARIABLE}, or unset it"
    missing = error.missing_address
    if missing is None or not machine.reservations.is_hole(missing):
        return str(error), REMEDIES[error.fault]
    hole = f"{missing:#x} is reserved, and nothing is mapped there"
    if error.fault is Fault.OUT_OF_BOUNDS or error.failed_operation is not None:
        return f"{error}; {hole}", "map memory there with acl.rt.map_mem, or end before it"
    return hole, "map memory there with acl.rt.map_mem"


def _more_memory(lacking: NoRoom) -> str:
    """Return what to do when memory is used up, with a node that would have enough."""
    size, free, total = lacking.asked, lacking.free, lacking.capacity
    if size > _LARGEST:
        return f"pass a smaller size: the device has {total:,} bytes in all"
    wanted = total + size - (free if size > free else 0)
    step = UNITS["GiB"] if wanted > UNITS["GiB"] else UNITS["MiB"] * 2
    node = format_size(-(-wanted // step) * step).replace(" ", "")
    return f"{REMEDIES[Fault.OUT_OF_MEMORY]}, or give the devices more: `peerlane run --node memory={node}`"


def swallow(raised: BaseException, what: str, cause: str, remedy: str) -> None:
    """Make a message of an error that a callback raised, SystemExit too; only Ctrl-C is raised again."""
    is_main = threading.current_thread() is threading.main_thread()  # only there it can be Ctrl-C
    if isinstance(raised, KeyboardInterrupt) and is_main:
        raise raised
    head = f"E19999: {what} raised {callbacks.described(raised)}{_raised_at(raised)}"
    messages.add(laid_out(head, cause, remedy))


def _raised_at(raised: BaseException) -> str:
    """Say which line of the program raised, and which one of the callback led there."""
    found = [
        str(call_site.Site(each.tb_frame.f_code, each.tb_lasti))
        for each in _frames(raised.__traceback__)
        if not call_site.is_own(each.tb_frame)
    ]
    if not found:
        return ""
    return f", at {found[-1]}" + (f", called at {found[0]}" if found[0] != found[-1] else "")


def _frames(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


machine = AclMachine()
messages = Messages(_seen, _layout)
last_error = LastError()
just_ended = JustEnded()
os.register_at_fork(after_in_child=last_error.forget)  # the failures are the parent's
acl = Convention(success=SUCCESS, codes=FAULTS, explain=explain, report=_report, late=_late)
