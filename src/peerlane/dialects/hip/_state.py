"""The machine of this dialect, its table of calls, and the texts of failures."""

from __future__ import annotations

import enum
import reprlib
import sys
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any, TypeVar

from peerlane import Device
from peerlane.device.device import at_end
from peerlane.diagnostics.addresses import AddressDescription
from peerlane.dialects._shared.call import Arguments, Failure, Refusal
from peerlane.dialects._shared.machine import Context, Machine, Thing
from peerlane.dialects._shared.message import Message, Messages
from peerlane.dialects._shared.registrations import Registration, Registrations
from peerlane.dialects.hip._convention import Calls, answers, refusal, remedy_of
from peerlane.dialects.hip._log import log
from peerlane.dialects.hip._policy import policy
from peerlane.dialects.hip._visible import visible
from peerlane.errors import Error

LEGACY_STREAM, PER_THREAD_STREAM = 1, 2
INVALID_DEVICE = -2  # hipInvalidDeviceId
_LOST_KEPT = 1024
_Kind = TypeVar("_Kind", bound=Thing)
_Table = TypeVar("_Table")


class _Ordinal(threading.local):
    """Which device is current in this thread, and whether hipSetDevice made it so."""

    number: int | None = None
    is_chosen: bool = False


@dataclass(frozen=True, slots=True)
class Made:
    """How memory was allocated: with what flags, which device was current, and whether it is managed."""

    flags: int
    ordinal: int
    is_managed: bool = False


@dataclass(frozen=True, slots=True)
class HostMemory(Registration):
    """What hipHostRegister was given.

    Attributes
    ----------
    users : set of int
        The devices whose streams were given words of it to write or to wait for, by number.
    """

    made: Made
    users: set[int] = field(default_factory=set, compare=False)


class HipMachine(Machine):
    """The machine: every thread has a current device from the start, 0 (facts/hip 3.7).

    Attributes
    ----------
    peers : dict
        By device number: those whose access was enabled while it was current.
    flags : dict
        By device number: what hipSetDeviceFlags set.
    advised : dict
        By allocation: the advice of the program for managed memory, piece by piece.
    made : dict
        By allocation: all but plain device memory.
    registrations : Registrations
        The host memory that the program registered.
    synchronous : set
        The allocations with HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS.
    is_shown : bool
        Whether a visible device was found.
    lost_streams : deque of int
        The newest streams that ended with hipDeviceReset, which hipStreamDestroy tells from destroyed ones.
    """

    vendor = "HIP"
    show = staticmethod(visible)

    def __init__(self) -> None:
        # Emptied and never replaced: a caller may have looked it up before the node was entered.
        self.peers: dict[int, set[int]] = {}
        self.flags: dict[int, int] = {}
        self.advised: dict[int, list[Any]] = {}
        self.made: dict[int, Made] = {}
        self.registrations = Registrations[HostMemory]()
        self.synchronous: set[int] = set()
        self.lost_streams: deque[int] = deque(maxlen=_LOST_KEPT)
        self._tables: dict[type, object] = {}
        super().__init__()

    def forget(self) -> None:
        """Drop all that belongs to the node."""
        super().forget()
        self._ordinal = _Ordinal()
        self.is_shown = False
        for kept in (self.peers, self.flags, self.advised, self.made, self.synchronous, self._tables):
            kept.clear()
        self.registrations.clear()
        self.lost_streams.clear()

    def table(self, kind: type[_Table]) -> _Table:
        """Return the state that a module keeps for the node: made at the first use, dropped with the node."""
        self.devices()
        with self.lock:
            found = self._tables.setdefault(kind, kind())
        assert isinstance(found, kind)
        return found

    def shown(self) -> tuple[Device, ...]:
        """Return the visible devices, at least one, and note that: hipErrorNoDevice."""
        found = self.visible()
        self.is_shown = bool(found)
        if not found:
            raise refusal(
                "hipErrorNoDevice",
                f"no device is visible of the {len(self.devices())} that the node has",
                "correct HIP_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES",
            )
        return found

    def id_of(self, ordinal: int) -> int:
        """Return HIP's id of a device by the node's number: -2 for a hidden one; a negative number stays."""
        shown = [device.ordinal for device in self.visible()]
        return ordinal if ordinal < 0 else shown.index(ordinal) if ordinal in shown else INVALID_DEVICE

    def ids(self, *devices: Device) -> tuple[int, ...]:
        """Return HIP's ids of devices, as a program knows them."""
        return tuple(self.id_of(device.ordinal) for device in devices)

    @property
    def ordinal(self) -> int:
        """The number of this thread's device, at first the first one's; hipErrorNoDevice if none is shown."""
        self.devices()
        if self._ordinal.number is None:
            self._ordinal.number = self.shown()[0].ordinal
        return self._ordinal.number

    @property
    def has_chosen_device(self) -> bool:
        """Whether hipSetDevice chose this thread's device."""
        self.devices()
        return self._ordinal.is_chosen

    def choose(self, ordinal: int) -> None:
        """Make a device current in this thread, which hipSetValidDevices does not change any more."""
        self.use(ordinal)
        self._ordinal.is_chosen = True

    def use(self, ordinal: int) -> Device:
        """Make a device current in this thread; ``INVALID_DEVICE`` with the valid ones."""
        device = self._used(ordinal)
        self._ordinal.number = ordinal
        self.here.context = self.context_of(ordinal)
        return device

    def context_of(self, ordinal: int) -> Context:
        """Return the context of the streams and events of a device, until it is reset."""
        self.devices()
        with self.lock:
            found = self._primary.get(ordinal)
            if found is None or not found.is_live:
                found = self._primary[ordinal] = Context(self.device(ordinal))
                found.references = 1
        return found

    def context(self) -> Context:
        """Return the context of this thread's device."""
        found = self.current()
        if found is None:
            found = self.here.context = self.context_of(self.ordinal)
        return found

    def thing(self, handle: int, kind: type[_Kind], code: str) -> _Kind:
        """Return the object of a handle; ``code`` for other numbers."""
        self.devices()
        found = self.things.get(handle)
        if type(found) is kind:
            return found
        cause = self.told_of(handle, kind.name) if handle else f"the {kind.name} is NULL"
        remedy = f"pass what created the {kind.name}, until it is destroyed or its device is reset"
        raise refusal(code, cause, remedy)

    def remove(self, handle: int, kind: type[_Kind], code: str, call: str) -> _Kind:
        """Take back the object of a handle; errors as :meth:`thing`, also if another thread was quicker."""
        found = self.thing(handle, kind, code)
        return found if self.drop(found, call) else self.thing(handle, kind, code)

    def give(self, thing: Thing) -> int:
        """Give a thing out and return its number; hipErrorContextIsDestroyed if its device was reset meanwhile."""
        if not self.keep(thing):
            thing.abandon()
            raise self.reset_meanwhile(thing.context.device.ordinal)
        return thing.handle

    def look(self, address: int) -> AddressDescription:
        """Return what an address points at now, the words for it to be made later."""
        if self.registrations.around(address) is not None:
            return AddressDescription(address, "registered host memory")
        return super().look(address)

    @staticmethod
    def reset_meanwhile(ordinal: int) -> Refusal:
        """Return the refusal of a call during which another thread reset the device."""
        return refusal(
            "hipErrorContextIsDestroyed",
            f"device {ordinal} was reset by another thread during the call",
            "reset a device when no thread uses it any more",
        )


def _layout(message: Message) -> str:
    return (
        f"{message.call} returned {answers(message.call)(message.code).name} ({message.code}).\n"
        f"    Called with: {message.given}\n"
        f"    Cause: {message.cause}.\n"
        f"    Remedy: {message.remedy}."
    )


def _seen(name: str, value: object, is_address: bool | None) -> object:
    if isinstance(value, enum.IntEnum):
        return f"{value.name} ({int(value)})"
    if not isinstance(value, int):
        return reprlib.repr(value)
    if is_address:
        return machine.look(value)
    if machine.was_given(value):
        thing = machine.things.get(value)
        return f"{value:#x} (ended)" if thing is None else str(thing)
    return int(value)


def _report(failure: Failure) -> None:
    message = messages.tell(failure)
    if log.has_errors:
        sys.stderr.write(f"peerlane: {message}\n")


def warn(text: str) -> None:
    """Say that a call that works may not do what the program means."""
    messages.add(text)
    if log.has_warnings:
        sys.stderr.write(f"peerlane: {text}.\n")


def _trace(call: str, code: int, arguments: Arguments) -> None:
    given = ", ".join(f"{name}={_seen(name, value, is_address)}" for name, value, is_address in arguments)
    sys.stderr.write(f"peerlane: {call}({given}) returned {answers(call)(code).name} ({code}).\n")


def _explain(error: Error) -> tuple[str, str]:
    return str(error), remedy_of(error)


def explain() -> str:
    """Explain the failed calls of this thread, newest first, and forget them.

    Each text has the call with its arguments, the cause with the numbers, and what to do.  It is what
    ``AMD_LOG_LEVEL=1`` writes to stderr at each failure.  A call that works, and may not do what the program means,
    has a text too, which is written from ``AMD_LOG_LEVEL=2`` on.
    """
    return messages.take()


def begin_anew() -> None:
    """Be as a new process finds the dialect."""
    policy.reload()
    log.forget()
    machine.begin_anew()
    messages.forget()
    calls.forget()


machine = HipMachine()
messages = Messages(_seen, _layout)
calls = Calls(explain=_explain, report=_report, trace=_trace, machine=machine)
at_end.append(calls.end)
