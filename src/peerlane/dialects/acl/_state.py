"""The machine of this dialect, its table of calls, and the messages of failures."""

from __future__ import annotations

import os
import re
import reprlib
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from peerlane import Buffer, Device, Handle, Stream
from peerlane.diagnostics import call_site
from peerlane.dialects._shared.call import Convention, Failure, Refusal
from peerlane.dialects._shared.exchange import Exports, Imports
from peerlane.dialects._shared.machine import Context, Machine, Resource
from peerlane.dialects._shared.message import Message, Messages
from peerlane.dialects._shared.registrations import Registration, Registrations
from peerlane.dialects._shared.virtual_memory import Reservations
from peerlane.dialects.acl._codes import FAULTS, NOT_LET_IN, REMEDIES, SUCCESS, Code, in_words, is_runtime
from peerlane.dialects.acl._policy import counts_all_peers
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
_Kind = TypeVar("_Kind", bound=Resource)


def is_key_over(export: tuple[Handle, Buffer]) -> bool:
    """Tell whether the memory of a key was freed, and no process has imported it."""
    handle, buffer = export
    return buffer.is_closed and not handle.importers


@dataclass(frozen=True, slots=True)
class HostMemory(Registration):
    """A range of ``host_register``; ``is_mapped`` tells whether devices have an address for it."""

    is_mapped: bool


class LastError(threading.local):
    """The newest code of the runtime in this thread; 0 before the first, and after the program read it."""

    code = 0

    def forget(self) -> None:
        """Forget this thread's code."""
        self.code = 0


class JustEnded(threading.local):
    """The resource that a failing call has ended: the message shows it as it was before the call."""

    resource: Resource | None = None


def _shown(devices: Sequence[Device]) -> tuple[Device, ...]:
    """Return the visible devices of a node that the program has entered, and let the policy of peers hold there."""
    devices[0].backend.count_all_announcements(counts_all_peers())
    return visible(devices)


class AclMachine(Machine):
    """The machine, with the peer references of each direction (facts/acl 4.3).

    ``peer_references``: by device and peer, the node's numbers: how often access was enabled and not yet disabled.
    ``allocators``: by the number of a stream: the description of the allocator that is registered for it, and its
        fields then.
    ``freed``: by address: the id of the allocation that the program freed there, the oldest first.  Addresses that
        ``malloc`` returned again are left out.
    ``exported_keys``, ``imported_keys``: memory of ``malloc``, by the text of its key: the neutral handle with the
        memory; the imports.
    ``exported_memory``, ``imported_memory``: physical memory: exports by shareable handle, imports by (shareable
        handle, device).
    ``far``: by the text of the key: memory that was imported while another device was current, and the memory's
        device.
    ``op_wait_timeout``: seconds that a stream waits for an event; None is for ever.
    ``registrations``: the host memory that the program registered.
    ``reports``: by thread: the callbacks that it has to run.
    ``reservations``: the reserved addresses.
    """

    vendor_name = "acl.rt"
    show = staticmethod(_shown)
    default_device: int | None = None  # from the configuration file, so it outlives the node

    def forget(self) -> None:
        """Empty the tables of the node."""
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
            lambda each: each.is_over and not each.exported_handle.importers
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
            f"there is no device {ordinal}; {self.describe_visible()}",
            fault=Fault.INVALID_DEVICE,
            detail=BadArgument("device", ordinal, least=0, most=len(self.visible()) - 1),
        )

    def describe_visible(self) -> str:
        """Describe how many devices the program sees, and why it sees no others."""
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
        """Enter a buffer by its address, which no longer counts as freed."""
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
        """Return the context of resources that no device's reset ends."""
        with self.lock:
            if self._process is None:
                self._process = Context(self.devices()[0])
            return self._process

    def resource(self, handle: int, kind: type[_Kind]) -> _Kind:
        """Return the resource of a handle; 100000 for 0, 107000 for other numbers."""
        resource = self.resources.get(handle)
        if type(resource) is kind:
            return resource
        raise self.unknown(handle, kind.name)

    def unknown(self, handle: int, name: str) -> Refusal:
        """Return the refusal of a number that is not the handle of a ``name``."""
        remedy = f"pass what acl.rt.create_{name} returned, until it is destroyed or its device is reset"
        if not handle:
            return Code.INVALID_PARAM.refusal(f"the {name} is NULL (0)", remedy)
        return Code.RT_PARAM_INVALID.refusal(self.describe_unknown(handle, name), remedy)

    def deviceless(self, handle: int, kind: type[_Kind], maker: str) -> _Kind:
        """Return the resource of a handle whose kind needs no device; 100000 for other numbers."""
        self.devices()
        resource = self.resources.get(handle)
        if isinstance(resource, kind):
            return resource
        wrong = "NULL (0)" if not handle else f"{handle:#x}, which is no {kind.name} or was destroyed"
        raise Code.INVALID_PARAM.refusal(
            f"the {kind.name} is {wrong}", f"pass what {maker} returned, until it is destroyed"
        )

    def end_deviceless(self, handle: int, kind: type[_Kind], maker: str, call: str) -> None:
        """End such a resource; 100000 also if another thread was quicker."""
        if not self.drop(self.deviceless(handle, kind, maker), call):
            self.deviceless(handle, kind, maker)

    def remedy_beyond(self, end: int) -> str:
        """Return the remedy for a request beyond the end of memory."""
        if self.reservations.is_hole(end):
            return "map memory behind it with acl.rt.map_mem, or pass a smaller count"
        return REMEDIES[Fault.OUT_OF_BOUNDS]

    @staticmethod
    def refuse_foreign(resource: Resource, context: Context, remedy: str) -> None:
        """Refuse a resource of another context: 107003; ``remedy`` is for a resource of another device."""
        own = resource.context
        if own.device is context.device:
            # A primary context has no handle before a program asks for it.
            call = f"set_context({own.handle:#x})" if own.handle else f"set_device({own.number})"
            remedy = f"call acl.rt.{call} first, which makes its context current in this thread"
        if own is not context:
            site = f", made at {resource.created_at}," if resource.created_at else ""
            raise Code.RT_STREAM_CONTEXT.refusal(
                f"{resource.name} {resource.handle:#x}{site} belongs to {_named(own)}, and {_named(context)} is "
                "current in this thread",
                remedy,
            )

    def issue(self, resource: Resource) -> int:
        """Return the handle that a resource gets; 107002 if its device was reset meanwhile."""
        if not self.keep(resource):
            resource.abandon()
            raise self.reset_meanwhile(resource.context)
        return resource.handle

    @staticmethod
    def reset_meanwhile(context: Context) -> Refusal:
        """Return the refusal of a call during which another thread reset the device."""
        ended = "reset" if context.is_primary else "destroyed"
        return Code.RT_CONTEXT_NULL.refusal(
            f"{_named(context)} was {ended} by another thread during the call",
            "end it when no thread uses it any more",
        )

    def remove(self, handle: int, kind: type[_Kind], call: str) -> _Kind:
        """Take the resource of a handle out of the table; errors as :meth:`resource`."""
        self.context()
        resource = self.resource(handle, kind)
        if not self.drop(resource, call):
            raise self.unknown(handle, kind.name)
        return resource

    def context(self) -> Context:
        """Return the context of this thread, or refuse with 107002 (facts/acl 3)."""
        context = self.current()
        if context is not None:
            return context
        if self.default_device is not None:
            return self.select(self.default_device, share=True)
        raise Code.RT_CONTEXT_NULL.refusal(
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
    messages.record(failure)
    just_ended.resource = None


def _layout(message: Message) -> str:
    """Return the text in the vendor's layout: a code line, then indented lines (facts/acl 4.8)."""
    kind = "EE1001" if message.code < Code.API_NOT_SUPPORT else "E19999"
    if message.code == Code.RT_MEMORY_ALLOCATION:
        kind = "EL0004"
    head = f"{kind}: {message.call} returned {in_words(message.code)}"
    return laid_out(head, message.cause, message.remedy, arguments=message.arguments)


def laid_out(head: str, cause: str, remedy: str, *, arguments: str = "") -> str:
    """Return a text with indented lines behind the first: the arguments, the cause, and what to do."""
    called = f"        Called with: {arguments}\n" if arguments else ""
    return f"{head}.\n{called}        Possible Cause: {cause}.\n        Solution: {remedy}."


def _argument_text(name: str, value: object, is_address: bool | None) -> object:
    """Return the text of an argument, or an object with that ``str``, whatever happens to the argument afterwards."""
    if not isinstance(value, int):
        return reprlib.repr(value)
    if is_address and name in _NUMBERS:
        return _number(value)
    if is_address:
        return machine.look(value)
    return hex(value) if is_address is None and abs(value) >= _LIKE_AN_ADDRESS else int(value)


def _number(handle: int) -> str:
    resource, ended = machine.resources.get(handle), just_ended.resource
    if resource is None and ended is not None and ended.handle == handle:
        resource = ended
    if resource is not None:
        return str(resource).removeprefix(f"{resource.name} ")
    return f"{handle:#x} (over)" if machine.was_issued(handle) else f"{handle:#x}" if handle else "0"


def _late(call: str) -> int:
    """Return the code of a call while the process is ending: 0 for calls that end or await something, as in
    destructors.
    """
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
    """Return the remedy for memory that is used up, with a node that would have enough."""
    size, free, total = lacking.asked, lacking.free, lacking.capacity
    if size > _LARGEST:
        return f"pass a smaller size: the device has {total:,} bytes in all"
    wanted = total + size - (free if size > free else 0)
    step = UNITS["GiB"] if wanted > UNITS["GiB"] else UNITS["MiB"] * 2
    node = format_size(-(-wanted // step) * step).replace(" ", "")
    return f"{REMEDIES[Fault.OUT_OF_MEMORY]}, or give the devices more: `peerlane run --node memory={node}`"


def swallow(raised: BaseException, what: str, cause: str, remedy: str) -> None:
    """Add a message about an exception of a callback, also SystemExit; only Ctrl-C is raised again."""
    is_main = threading.current_thread() is threading.main_thread()  # only there it can be Ctrl-C
    if isinstance(raised, KeyboardInterrupt) and is_main:
        raise raised
    head = f"E19999: {what} raised {callbacks.described(raised)}{_raised_at(raised)}"
    messages.add(laid_out(head, cause, remedy))


def _raised_at(raised: BaseException) -> str:
    """Return the program's line that raised, and the callback's line that led to it."""
    sites = [
        str(call_site.Site(each.tb_frame.f_code, each.tb_lasti))
        for each in _frames(raised.__traceback__)
        if not call_site.is_own(each.tb_frame)
    ]
    if not sites:
        return ""
    return f", at {sites[-1]}" + (f", called at {sites[0]}" if sites[0] != sites[-1] else "")


def _frames(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


machine = AclMachine()
messages = Messages("acl", _argument_text, _layout)
last_error = LastError()
just_ended = JustEnded()
os.register_at_fork(after_in_child=last_error.forget)  # the failures are the parent's
acl = Convention(success=SUCCESS, codes=FAULTS, explain=explain, report=_report, late=_late)
