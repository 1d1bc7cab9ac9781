"""HIP's machine, its table of calls, and the texts of failures."""

from __future__ import annotations

import enum
import reprlib
import sys

from peerlane.device.device import at_end
from peerlane.dialects._shared.call import Arguments, Failure
from peerlane.dialects._shared.message import Message, Messages
from peerlane.dialects.gpu.gpu import Gpu
from peerlane.dialects.gpu.vendor import Vendor
from peerlane.dialects.hip._codes import NAMES
from peerlane.dialects.hip._convention import Calls, answers, codes
from peerlane.dialects.hip._log import log
from peerlane.dialects.hip._policy import policy
from peerlane.dialects.hip._visible import visible


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


gpu = Gpu(
    Vendor(
        "HIP",
        codes,
        NAMES,
        policy,
        visible=visible,
        hidden_by="HIP_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES",
    )
)
machine = gpu.machine
messages = Messages(_seen, _layout)
calls = Calls(explain=gpu.vendor.explain, report=_report, trace=_trace, machine=machine)
at_end.append(calls.end)
