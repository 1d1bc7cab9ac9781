"""Exceptions for native refusals and for failures of streams, those that synchronizations raise included."""

from __future__ import annotations

import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeAlias

from peerlane import _core
from peerlane.backends.virtual.messages import far as far_messages
from peerlane.backends.virtual.messages import memory as memory_messages
from peerlane.backends.virtual.messages import sharing as sharing_messages
from peerlane.diagnostics import call_site
from peerlane.diagnostics.memory import allocations
from peerlane.diagnostics.ranks import collective_calls
from peerlane.diagnostics.waits import progress, stream_waits, wait_texts
from peerlane.errors import (
    Busy,
    Cancelled,
    Closed,
    Deadlock,
    DeviceFault,
    Error,
    Fault,
    InvalidValue,
    LostProcess,
    NotifyRefused,
    Refused,
    SizesDiffer,
    WaitTimeout,
)
from peerlane.streams import callbacks
from peerlane.support import reductions
from peerlane.support.records import dataclass

_REFUSALS = frozenset(
    (
        "misaligned",
        "partly_overlapping",
        "no_whole_elements",
        "stream_closed",
        "cancelled",
        "wait_timeout",
        "callback_failed",
        "calls_differ",
        "bad_descriptor",
        "notify_doubled",
        "notifies_full",
        "notify_order",
        "own_callback",
        "deadlock",
        "no_progress",
    )
)


_NAME_ENTRY = frozenset(("size_mismatch", "bad_descriptor"))  # the texts of these name the entry themselves
_NotedSite: TypeAlias = "call_site.Position | None"
#: (exception, stream, operation, kind, token, cause, device, site, the stream's site, ends), from native code; the
#: ends are (destination, its allocation, source, its allocation, bytes, rows, notify), each 0 if there is none.
Failure: TypeAlias = (
    "tuple[Error, int, int, str, int, Failure | None, int, _NotedSite, _NotedSite, tuple[int, ...]]"
)

_KINDS = {
    "copy_2d": "2D copy",
    "reduce": "reduction",
    "wait_notify": "wait for a notify",
    "wait_value": "wait for a value",
    "descriptor": "descriptor launch",
    "far": "operation on another machine's memory",
}
_FIELDS = {
    1: "its first 8 bytes are {found:#x}, not the magic number of a copy list",
    2: "its version is {found}; this one is 1",
    3: "its entries have {found} bytes; valid is 32",
    4: "it counts {found:,} entries, and the table has room for {most:,}",
    5: "a reserved field is {found:#x}; it must be 0",
    6: "the destination {found:#x} is not device or pinned memory",
    7: "the source {found:#x} is not device or pinned memory",
    8: "{found:#x} is memory of another device; this launch copies within one",
}


def as_error(failure: Failure) -> Error:
    """Return the exception that a synchronization raises for a failed operation."""
    error, stream, operation, kind, token, cause, number, site, stream_site, ends = failure
    work = _core.failed_work(token) if error.fault is Fault.CALLBACK_FAILED else None
    refused = callbacks.refused_operation(token) if error.fault is Fault.CALLBACK_FAILED else None
    if refused is not None:
        kind, error = refused
    elif work is not None:
        kind = work[0]
    failed = FailedOperation(
        operation,
        _KINDS.get(kind, kind),
        stream,
        memory_messages.label(number) if number else None,
        call_site.at(site),
        call_site.at(stream_site),
        _ends(kind, *ends),
        _why(error, token, work),
    )
    if cause is not None:
        first = as_error(cause)
        raised: Error = Cancelled(
            f"{failed} was cancelled, because an earlier one failed: {first}{failed.suffix()}",
            device=error.device,
            detail=Refused(
                reason="failed_before",
                stream=stream,
                operation=operation,
                failed=first.operation,
                why=first.detail,
            ),
        )
        raised.__cause__ = first
    else:
        raised = error.retold(f"{failed}: {failed.why}{failed.suffix()}")
        if work is not None:
            raised.detail = Refused(
                reason="callback_failed", callback=work[0], raised=f"{work[1]}: {work[2]}"
            )
        elif error.fault is Fault.CALLBACK_FAILED:
            raised.__cause__ = callbacks.exception(token)
            raised.detail = Refused(reason="callback_failed", **callbacks.facts(token))
        elif error.fault is Fault.WAIT_TIMEOUT and isinstance(error.detail, Refused):
            notify, address = ends[6], ends[0]
            awaited = {"notify": notify} if notify else {"address": address}
            raised.detail = Refused(**vars(error.detail) | awaited)
    if raised.device is None:
        raised.device = failed.device
    raised.operation = operation
    raised.failed_operation = failed
    return raised


def _why(error: Error, token: int, work: tuple[str, str, str] | None) -> str:
    if work is not None:
        return f"{work[1]}: {work[2]}"
    return callbacks.raised(token) if error.fault is Fault.CALLBACK_FAILED else str(error)


@dataclass(frozen=True, slots=True)
class FailedOperation:
    """The facts of an operation that failed; docs/design/figures.md has the cost of noting lines."""

    number: int  #: the operation's number in its stream
    kind: str  #: what it does, in words
    stream: int  #: the stream's id
    device: str | None  #: the stream's device
    #: ``site``, ``stream_site``: the program's line that submitted it, if it was noted, and the one that created the
    #: stream.
    site: call_site.Site | None
    stream_site: call_site.Site | None
    ends: str  #: the memory that it uses: addresses, sizes and allocations; empty if there is none
    why: str  #: what went wrong

    def __str__(self) -> str:
        return f"operation {self.number} ({self.kind}) of stream {self.stream}"

    def suffix(self, stream: str | None = None) -> str:
        """Return the end of a text: the memory and the program's lines; ``stream`` replaces the stream's part."""
        parts = [self.ends] if self.ends else []
        if self.site is not None:
            parts.append(f"submitted at {self.site}")
        if stream is None:
            origin = f", made at {self.stream_site}" if self.stream_site else ""
            stream = f"stream {self.stream} on {self.device}{origin}" if self.device else ""
        if stream:
            parts.append(stream)
        return f" [{'; '.join(parts)}]" if parts else ""


def _in_brackets(*texts: str) -> str:
    joined = ", ".join(filter(None, texts))
    return f" ({joined})" if joined else ""


def _ends(kind: str, dst: int, to: int, src: int, source: int, size: int, rows: int, notify: int) -> str:
    if notify:
        return _notify(notify) if stream_waits.notify_name(notify) else ""
    if not dst:
        return ""
    target = _end(dst, to)
    what = f"{rows:,} rows of {size:,} bytes" if rows else f"{size:,} bytes"
    match kind:
        case "copy" | "copy_2d":
            return f"{what} from {_end(src, source)} to {target}"
        case "reduce":
            return f"{what} of {_end(src, source)} into {target}"
        case "wait_value":
            return f"the word at {target}"
        case "descriptor":
            return f"the copy list at {target}"
    return f"{what} at {target}"


def _notify(number: int) -> str:
    return wait_texts.NEUTRAL.notify(number, stream_waits.notify_name(number))


def _end(address: int, allocation: int) -> str:
    if not allocation:
        return f"{address:#x} in host memory"
    record = allocations.record_at(address, allocation)
    if record is None:
        return f"{address:#x}"
    offset = address - record.address
    start = f"byte {offset:,}" if offset else "start"
    ended = f", which was {record.end}" if record.ended else ""
    return f"{address:#x} ({start} of {record}{ended})"


def warn_of_lost(failure: Failure) -> None:
    """Warn of a failure whose stream was dropped; a hook of the native module."""
    error = as_error(failure)
    first = (str(error).splitlines() or [""])[0]
    warnings.warn(
        f"stream {failure[1]}{f' on {error.device}' if error.device else ''} was dropped before its failure "
        f"was reported: {first}; sync() or close() it, or use it in a `with`",
        ResourceWarning,
        stacklevel=2,
    )


def explain(reason: str, **named: Any) -> BaseException:
    """Return the exception for a native refusal, with its facts as ``detail``; a hook of the native module."""
    facts = SimpleNamespace(**named)
    error = _explained(reason, facts)
    if not isinstance(error, Error):
        return error
    if facts.entry and reason not in _NAME_ENTRY:
        error = error.retold(f"entry {facts.entry - 1}: {error}")
    if error.detail is None:
        error.detail = _detail(reason, facts)
    if facts.entry and isinstance(error.detail, Refused):
        error.detail.entry = facts.entry - 1
    return error


#: By reason: the facts that its `Refused` has, under native code's names.
_FACTS: dict[str, tuple[str, ...]] = {
    "host_fault": ("role", "address", "size", "fault_address", "errno"),
    "device_fault": ("size",),
    "out_of_memory": ("size",),
    "system_memory": ("size", "errno"),
    "descriptors": ("role", "size", "errno"),
    "handles_full": ("most",),
    "address_space": ("size", "errno"),
    "overflow": ("role", "address", "size"),
    "pitch_overflow": ("role", "rows", "pitch"),
    "closed": ("allocation",),
    "read_only": ("role", "address", "size"),
    "overlap": ("address", "size"),
    "no_route": ("other_device",),
    "not_peer_memory": ("other_device",),
    "node_file": ("errno",),
    "stream_closed": ("stream", "made", "closed"),
    "bad_descriptor": ("field", "found", "most"),
    "no_access": ("role", "address", "size", "other_device"),
    "imported": ("address", "size"),
    "imported_read_only": ("address", "size"),
    "no_block": ("address", "size"),
    "seam": ("address", "size"),
    "in_use": ("allocation", "address", "size"),
    "shared_blocks": ("most",),
    "lease_ended": ("lease", "end"),
}


def _detail(reason: str, facts: Any) -> Any:
    match reason:
        case "size_mismatch":
            return SizesDiffer(facts.size, facts.other_size, facts.entry - 1 if facts.entry else None)
        case "peer_lost" | "waits_for_lost" | "handle_timeout":
            return LostProcess(facts.pid)
        case "notify_doubled":
            return NotifyRefused(facts.notify)
        case "notifies_full":
            return NotifyRefused(facts.notify, most=facts.most)
        case "notify_order":
            return NotifyRefused(facts.notify, facts.other)
        case "wait_timeout":
            return Refused(reason=reason, seconds=_seconds(facts))
    detail = Refused(reason=reason, **{name: getattr(facts, name) for name in _FACTS.get(reason, ())})
    if facts.device:
        detail.device = memory_messages.label(facts.device)
    if "other_device" in vars(detail):
        detail.other_device = memory_messages.label(facts.other_device)
    for name in ("made", "closed"):
        if name in vars(detail):
            setattr(detail, name, str(call_site.at(getattr(facts, name)) or ""))
    return detail


def _seconds(facts: Any) -> float:
    # Native code has 1 ns for 0 s: 0 means no deadline.
    return 0.0 if facts.timeout_ns == 1 else facts.timeout_ns / 1e9


def _explained(reason: str, facts: Any) -> BaseException:
    if reason in sharing_messages.REFUSALS:
        return sharing_messages.explain(reason, facts)
    if reason == "far":
        return far_messages.explain(facts)
    if reason not in _REFUSALS:
        return memory_messages.explain(reason, facts)
    where = memory_messages.label(facts.device)
    match reason:
        case "misaligned":
            return reductions.misaligned(facts.role, facts.address, facts.width)
        case "partly_overlapping":
            return reductions.partly_overlapping(facts.address, facts.source, facts.size)
        case "no_whole_elements":
            return reductions.no_whole_elements(facts.size, facts.width)
        case "stream_closed":
            origin, ended = (
                f"{word} at {call_site.at(site)}" if site else ""
                for word, site in (("made", facts.made), ("closed", facts.closed))
            )
            return Closed(
                f"stream {facts.stream} on {where} was closed{_in_brackets(origin, ended)}; it takes no more "
                "operations",
                device=where,
            )
        case "cancelled":
            return Cancelled(
                "it was cancelled: the stream was aborted, or closed while no submitted operation would end its "
                "wait",
                device=where,
            )
        case "wait_timeout":
            return WaitTimeout(
                f"the record or value that it waits for did not come within {_seconds(facts):g} s",
                device=where,
            )
        case "callback_failed":
            return DeviceFault("a callback raised", fault=Fault.CALLBACK_FAILED, device=where)
        case "calls_differ":
            return collective_calls.differing(facts.number, facts.rank, facts.did, facts.peer, facts.peer_did)
        case "bad_descriptor":
            wrong = _FIELDS[facts.field].format(found=facts.found, most=facts.most)
            at = f"entry {facts.entry - 1} of the copy list" if facts.entry else "the copy list"
            return InvalidValue(f"{at} cannot be run: {wrong}", fault=Fault.BAD_DESCRIPTOR)
        case "notify_doubled":
            return Busy(
                f"{_notify(facts.notify)} is strict and was recorded again before its last record was consumed",
                fault=Fault.NOTIFY_DOUBLED,
                device=where,
            )
        case "notifies_full":
            return Busy(
                f"{_notify(facts.notify)} cannot be recorded: the queue of its end is full, with {facts.most:,} "
                "records that no wait has consumed",
                device=where,
            )
        case "notify_order":
            return Busy(
                f"{_notify(facts.notify)} was waited for, and the next record is of notify {facts.other} of that "
                "end, which is consumed now: waits must come in the order of the records",
                fault=Fault.NOTIFY_ORDER,
                device=where,
            )
        case "own_callback":
            state = stream_waits.of_stream("callback", facts.stream)
            return Deadlock(wait_texts.reason("", state), device=where, detail=state)
        case "deadlock":
            state = replace(stream_waits.of_stream("circle", facts.stream), failed=progress.failed_before())
            return Deadlock(wait_texts.reason("", state), device=where, detail=state)
        case _:  # no_progress
            text, deadlock = progress.deadlocks.get(facts.occasion, (_NO_WORDS, None))
            return Deadlock(text, device=where, detail=deadlock)


_NO_WORDS = "a deadlock: everything waits, and nothing can run"


def _of_callback(token: int) -> tuple[str, object]:
    return callbacks.refused_operation(token) or ("callback", callbacks.raised(token))


progress.of_callback = _of_callback
_core.set_refusal_hook(explain)
