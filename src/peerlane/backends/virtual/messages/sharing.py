"""Turns native refusals about mappings, shared memory and handles into exceptions."""

from __future__ import annotations

import os
from typing import Any

from peerlane.backend.ranks import Lent
from peerlane.backends.virtual.messages import memory as memory_messages
from peerlane.backends.virtual.node.handles import maker_lost
from peerlane.diagnostics.memory import allocations
from peerlane.diagnostics.ranks import losses
from peerlane.errors import (
    AccessDenied,
    BadHandle,
    Busy,
    Closed,
    Error,
    Fault,
    HandleRefused,
    InvalidValue,
    OutOfMemory,
    Unsupported,
    WaitTimeout,
)

#: The memory that this process borrows, by the number of the lease.
lent: dict[int, Lent] = {}
_TAKEN_BACK, _FREED = 1, 2
#: What every refusal has, and that of a handle does not use.
_COMMON = frozenset(("role", "address", "size", "errno", "entry", "device", "other_device"))

_KINDS = {1: "physical memory", 2: "a buffer", 3: "an event", 4: "a notify", 5: "the notifies of a channel"}

#: By native status: its name, the exception, its fault, and its text, which takes the numbers that come with it.
_REFUSED: dict[int, tuple[str, type[Error], Fault, str]] = {
    1: (
        "malformed",
        BadHandle,
        Fault.FALSE_CLAIM,
        "process {maker} could not read the request: it is not a request of peerlane",
    ),
    2: (
        "version",
        BadHandle,
        Fault.HANDLE_VERSION,
        "process {maker} speaks version {maker_version} of the protocol, this one {own_version}; use "
        "one version of peerlane in all processes",
    ),
    3: (
        "other_node",
        BadHandle,
        Fault.NODE_MISMATCH,
        "process {maker} is in another node than this one; give both the same PEERLANE_NODE",
    ),
    4: (
        "unknown",
        BadHandle,
        Fault.BAD_HANDLE,
        "process {maker} never made this handle; pass on int(handle) or bytes(handle) unchanged",
    ),
    5: (
        "stale",
        BadHandle,
        Fault.STALE_HANDLE,
        "the handle is no longer valid: process {maker} closed it, left the node since, or freed the "
        "exported object before any process had opened it; export again",
    ),
    6: (
        "not_listed",
        AccessDenied,
        Fault.NOT_LISTED,
        "process {maker} does not let process {asker} open the handle: call "
        "handle.allow.add({asker}) there first",
    ),
    7: (
        "pid_reused",
        AccessDenied,
        Fault.PID_REUSED,
        "process {maker} listed pid {asker} when another process had it (start time "
        "{listed}, this one {started}); call handle.allow.add({asker}) again there",
    ),
    8: (
        "listed_early",
        AccessDenied,
        Fault.LISTED_EARLY,
        "process {maker} listed pid {asker} before there was such a process; call "
        "handle.allow.add({asker}) there once this one has started",
    ),
    9: (
        "other_user",
        AccessDenied,
        Fault.OTHER_USER,
        "process {maker} belongs to user {maker_user} and serves only that one; this is user {asker_user}",
    ),
    10: (
        "foreign_namespace",
        AccessDenied,
        Fault.FOREIGN_NAMESPACE,
        "process {maker} and this one are in different pid namespaces, where pids "
        "cannot be compared; run both in one container",
    ),
    11: (
        "own_process",
        AccessDenied,
        Fault.OWN_HANDLE,
        "the handle was made by this very process; use what it was exported from",
    ),
    12: (
        "wrong_kind",
        BadHandle,
        Fault.WRONG_KIND,
        "the handle stands for {exported_kind}, not for {wanted_kind}",
    ),
    13: (
        "too_many",
        OutOfMemory,
        Fault.OUT_OF_RESOURCES,
        "process {maker} serves at most {most:,} connections at a time, and has as many; close some",
    ),
    14: (
        "exhausted",
        OutOfMemory,
        Fault.OUT_OF_RESOURCES,
        "process {maker} has no file descriptor left ({maker_errno}); raise its `ulimit -n`",
    ),
    15: (
        "too_many_of_process",
        OutOfMemory,
        Fault.OUT_OF_RESOURCES,
        "process {maker} serves at most {most:,} connections of one process, and this one has as many; close some",
    ),
    32: (
        "bad_answer",
        BadHandle,
        Fault.FALSE_CLAIM,
        "process {maker} answered with bytes that are not an answer; it may be broken or hostile",
    ),
    33: (
        "false_size",
        BadHandle,
        Fault.FALSE_CLAIM,
        "process {maker} claims {claimed_bytes:,} bytes, and its descriptor has {bytes_there:,}",
    ),
    34: (
        "no_seals",
        BadHandle,
        Fault.FALSE_CLAIM,
        "process {maker} sent memory that it could truncate while it is used (seals {seals:#x})",
    ),
    35: (
        "false_rights",
        BadHandle,
        Fault.FALSE_CLAIM,
        "process {maker} claims other rights ({claimed_rights}) than its descriptor has (mode {mode:#o})",
    ),
    36: (
        "too_many_members",
        OutOfMemory,
        Fault.OUT_OF_RESOURCES,
        "{most:,} processes have the event or notify, the most that can; close it in one of them",
    ),
}

REFUSALS = frozenset(
    (
        "handle",
        "handle_timeout",
        "peer_lost",
        "waits_for_lost",
        "no_access",
        "not_mapped",
        "imported",
        "imported_read_only",
        "lease_ended",
        "no_block",
        "seam",
        "in_use",
        "shared_blocks",
    )
)


def explain(reason: str, facts: Any) -> Error:
    """Return the exception for a native refusal about mappings, sharing or handles, from its facts."""
    where = memory_messages.label(facts.device)
    role, address, size = facts.role, facts.address, facts.size
    match reason:
        case "handle":
            return _handle(facts)
        case "handle_timeout":
            return WaitTimeout(
                f"process {facts.pid}, which made the handle, did not answer in time; is it stopped? Resume it, or "
                "give a longer timeout"
            )
        case "peer_lost":
            errno_text = f" ({os.strerror(facts.errno)})" if facts.errno else ""
            return losses.lost(facts.pid, str(maker_lost(facts.pid, errno_text)))
        case "waits_for_lost":
            return losses.recorder_lost(facts.pid, where)
        case "no_access":
            doing, needed = ("written", "rw") if role == "dst" else ("read", "r")
            actor = (
                f" or {memory_messages.label(facts.other_device)}, the stream's device,"
                if facts.other_device not in (0, facts.device)
                else ""
            )
            return AccessDenied(
                f"the mapping of {size:,} bytes at {address:#x} cannot be {doing}: neither {where}, which holds it,"
                f"{actor} nor another device that takes part may do that; give one of them {needed!r} with "
                "AddressRange.set_access",
                fault=Fault.NO_ACCESS,
                device=where,
            )
        case "not_mapped":
            return memory_messages.not_mapped(address, where, role)
        case "imported":
            return Unsupported(
                f"the {size:,} bytes at {address:#x} were allocated by another process, and only that process can "
                "export them; ask it for a handle",
                device=where,
            )
        case "imported_read_only":
            return AccessDenied(
                f"the {size:,} bytes at {address:#x} belong to another process, which lets this one only read them",
                fault=Fault.READ_ONLY,
                device=where,
            )
        case "lease_ended":
            return _lease_ended(facts.lease, facts.end, where)
        case "no_block":
            return InvalidValue(
                f"the {size:,} bytes at {address:#x} lie in no block that can be exported; export device "
                "memory, and at least a byte of an address range"
            )
        case "seam":
            return Unsupported(
                f"the {size:,} bytes at {address:#x} lie in several blocks, and a handle is for one block; export "
                "each Physical",
                device=where,
            )
        case "in_use":
            name = allocations.record_of(facts.allocation) or f"the buffer of {size:,} bytes at {address:#x}"
            return Busy(
                f"{name} must move into a block of its own before it can be shared, and a host view or a "
                "queued operation uses it; delete the view or synchronize first, or allocate 2 MiB or more",
                device=where,
            )
        case _:  # shared_blocks
            return OutOfMemory(
                f"the processes of this node share {facts.most:,} blocks, the most that a node can; close handles "
                "and imported memory",
                fault=Fault.OUT_OF_RESOURCES,
            )


def _handle(facts: Any) -> Error:
    name, kind, fault, text = _REFUSED.get(
        facts.status, ("refused", BadHandle, Fault.BAD_HANDLE, "process {maker} refused it ({status})")
    )
    asker = facts.asker or os.getpid()  # unknown if the exporter has not answered
    refused = {name: value for name, value in vars(facts).items() if name not in _COMMON}
    if fault is not Fault.PID_REUSED:
        del refused["started"], refused["listed"]
    detail = HandleRefused(reason=name, **refused | {"asker": asker})
    words = {**vars(facts), "asker": asker}
    for each in ("exported_kind", "wanted_kind"):
        if each in words:
            words[each] = _KINDS.get(words[each], f"something else ({words[each]})")
    if "maker_errno" in words:
        words["maker_errno"] = os.strerror(facts.maker_errno)
    return kind(text.format_map(words), fault=fault, detail=detail)


def _lease_ended(number: int, end: int, device: str) -> Closed:
    memory = lent.get(number, Lent("its owner", "memory", "a call of its owner"))
    ended = {_TAKEN_BACK: f"took it back ({memory.how})", _FREED: "freed it"}.get(end, "ended its lease")
    return Closed(
        f"{memory.what} of {memory.whose} on {device} may not be used any more: {memory.whose} "
        f"{ended}; let the owner wait for a notify of each peer that is done, before it ends the memory",
        device=device,
    )
