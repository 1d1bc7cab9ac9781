"""The texts of what goes wrong on streams, and of failures that surface at a synchronization."""

from __future__ import annotations

import warnings
from typing import Any, TypeAlias

from peerlane import _core, callbacks, memory, sharing_failures
from peerlane.errors import (
    Busy,
    Cancelled,
    Closed,
    DeviceFault,
    Error,
    Fault,
    InvalidValue,
    WaitTimeout,
)

_REFUSALS = frozenset(
    (
        "stream_closed",
        "cancelled",
        "wait_timeout",
        "callback_failed",
        "bad_descriptor",
        "notify_doubled",
        "own_callback",
        "deadlock",
        "pending_writes",
    )
)


#: (exception, stream, operation, kind, token, cause), as native code gives it.
Failure: TypeAlias = "tuple[Error, int, int, str, int, Failure | None]"

_MOST_SHOWN = 16  # streams that a text names
_KINDS = {
    "copy_2d": "2D copy",
    "wait_notify": "wait for a notify",
    "wait_value": "wait for a value",
    "descriptor": "descriptor launch",
}
_FIELDS = {
    1: "its first 8 bytes are {found:#x}, not the magic number of a copy list",
    2: "its version is {found}; this one is 1",
    3: "its entries have {found} bytes; valid is 32",
    4: "it counts {found:,} entries, and the table has room for {most:,}",
    5: "a reserved field is {found:#x}; it must be 0",
    6: "the destination {found:#x} is no device or pinned memory",
    7: "the source {found:#x} is no device or pinned memory",
    8: "{found:#x} is memory of another device; this launch copies within one",
}


def as_error(failure: Failure) -> Error:
    """Return the exception that a synchronization raises for a failed operation."""
    made = _made(failure)
    made.operation = failure[2]
    return made


def _made(failure: Failure) -> Error:
    error, stream, operation, kind, token, cause = failure
    what = f"operation {operation} ({_KINDS.get(kind, kind)}) of stream {stream}"
    if cause is not None:
        first = as_error(cause)
        made: Error = Cancelled(
            f"{what} was cancelled, because an earlier one failed: {first}", device=error.device
        )
        made.__cause__ = first
        return made
    if error.fault is Fault.CALLBACK_FAILED:
        return callbacks.failed(token, what, error.device)
    return type(error)(f"{what}: {error}", fault=error.fault, call=error.call, device=error.device)


def warn_of_lost(failure: Failure) -> None:
    """Warn of a failure whose stream was dropped: hook of the native module."""
    error = as_error(failure)
    first = (str(error).splitlines() or [""])[0]
    warnings.warn(
        f"stream {failure[1]}{f' on {error.device}' if error.device else ''} was dropped, and nobody was told what "
        f"failed there: {first}; sync() or close() it, or use it in a `with`",
        ResourceWarning,
        stacklevel=2,
    )


def waits(stream: int) -> str:
    """Say in words what a stream waits for, and what that waits for; then the others, as far as there is room."""
    waiting = {entry[0]: entry for entry in _core.waiting()}
    total = len(waiting)
    shown: list[str] = []
    following: int | None = stream
    while waiting and len(shown) < _MOST_SHOWN:
        entry = waiting.pop(following, None) if following is not None else None
        entry = entry or waiting.pop(next(iter(waiting)))
        following = entry[4] if entry[3] == "record" else None
        shown.append(_wait(*entry))
    if total > len(shown):
        shown.append(f"and {total - len(shown):,} more streams")
    return "; ".join(shown) or "no stream has anything queued"


def _wait(
    stream: int, operation: int, submitted: int, park: str, what: int, record: int, _device: int
) -> str:
    queued = f"{submitted - operation + 1:,} queued"
    match park:
        case "record":
            reason = f"waits for operation {record} of stream {what}"
        case "notify":
            reason = f"waits for notify {what}"
        case "callback":
            reason = "waits for its callback to return"
        case "value":
            reason = "waits for a word of memory to change"
        case "group":
            reason = "waits for the other streams of its group"
        case _:
            reason = "is running or can run"
    return f"stream {stream} at operation {operation} {reason} ({queued})"


def explain(why: str, *numbers: Any) -> BaseException:
    """Return the exception of a native refusal: hook of the native module."""
    role, address, size, _, _, allocation, _, error, entry, device, other = numbers
    if why in ("handle", "peer_lost") or (why == "wait_timeout" and role == "handle"):
        return sharing_failures.explain_handle(why, *numbers)
    if why in sharing_failures.REFUSALS:
        return _in_list(entry, sharing_failures.explain(why, role, address, size, allocation, device, other))
    if why not in _REFUSALS:
        return _in_list(entry, memory.explain(why, *numbers))
    where = memory.label(device)
    match why:
        case "stream_closed":
            return Closed(
                f"stream {allocation} on {where} was closed; it takes no more operations", device=where
            )
        case "cancelled":
            return Cancelled(
                "it was cancelled: the stream was aborted, or closed while it waited for what nothing submitted "
                "would bring",
                device=where,
            )
        case "wait_timeout":
            return WaitTimeout(f"what it waits for did not come within {size / 1e9:g} s", device=where)
        case "callback_failed":
            return DeviceFault("a callback raised", fault=Fault.CALLBACK_FAILED, device=where)
        case "bad_descriptor":
            wrong = _FIELDS[error].format(found=address, most=size)
            at = f"entry {entry - 1} of the copy list" if entry else "the copy list"
            return InvalidValue(f"{at} cannot be run: {wrong}", fault=Fault.BAD_DESCRIPTOR, device=where)
        case "notify_doubled":
            return Busy(
                f"notify {allocation} is strict and was recorded again before the record before was consumed",
                fault=Fault.NOTIFY_DOUBLED,
                device=where,
            )
        case "own_callback":
            return Busy(
                f"a callback would wait for itself: stream {allocation} goes on only when it has returned",
                fault=Fault.DEADLOCK,
                device=where,
            )
        case "deadlock":
            return Busy(
                f"stream {allocation} waits for itself, and nothing that was submitted ends that: "
                f"{waits(allocation)}",
                fault=Fault.DEADLOCK,
                device=where,
            )
        case _:  # pending_writes
            return Busy(
                f"operation {size} of stream {allocation} writes this memory and waits for what nothing submitted "
                f"would bring; synchronize before looking ({waits(allocation)})",
                fault=Fault.BUSY,
                device=where,
            )


def _in_list(entry: int, found: BaseException) -> BaseException:
    if not entry or not isinstance(found, Error) or f" {entry - 1} " in str(found):
        return found
    return type(found)(f"entry {entry - 1}: {found}", fault=found.fault, call=found.call, device=found.device)


_core.set_refusal_hook(explain)
