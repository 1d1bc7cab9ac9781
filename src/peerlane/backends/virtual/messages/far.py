"""Exceptions for refusals of a channel's other end on another machine."""

from __future__ import annotations

from typing import Any

from peerlane.diagnostics.ranks import losses
from peerlane.errors import (
    AccessDenied,
    BadAddress,
    BadHandle,
    Busy,
    Cancelled,
    Closed,
    DeviceFault,
    Error,
    Fault,
    InvalidValue,
    NotifyRefused,
    OutOfMemory,
    Refused,
)

_NOTIFY_DOUBLED, _NOTIFIES_FULL, _LOST = 7, 8, 13

#: By native number: the reason, the exception, its fault, and its text.
_REFUSED: dict[int, tuple[str, type[Error], Fault, str]] = {
    1: (
        "outside",
        BadAddress,
        Fault.OUT_OF_BOUNDS,
        "{size:,} bytes at byte {at:,} do not lie in {memory}, or are not whole elements at a multiple of one",
    ),
    2: (
        "taken_back",
        Closed,
        Fault.CLOSED,
        "{memory} may not be used any more: {peer} took it back (it was deregistered, or the group was closed); let "
        "the owner wait for a notify of each peer that is done, before it ends the memory",
    ),
    3: (
        "freed",
        Closed,
        Fault.CLOSED,
        "{memory} may not be used any more: {peer} freed it; let the owner wait for a notify of each peer that is "
        "done, before it ends the memory",
    ),
    4: ("read_only", AccessDenied, Fault.READ_ONLY, "{memory} is read-only"),
    5: ("no_such_memory", BadHandle, Fault.BAD_HANDLE, "{peer} offers no memory with number {number}"),
    6: ("no_such_notify", InvalidValue, Fault.INVALID_VALUE, "{peer} has no such notify"),
    _NOTIFY_DOUBLED: (
        "notify_doubled",
        Busy,
        Fault.NOTIFY_DOUBLED,
        "notify {notify} of {peer} is strict and was recorded again before its last record was consumed",
    ),
    _NOTIFIES_FULL: (
        "notifies_full",
        Busy,
        Fault.BUSY,
        "notify {notify} of {peer} cannot be recorded: the queue of its end is full of records that no wait has "
        "consumed",
    ),
    9: ("fault", DeviceFault, Fault.DEVICE_FAULT, "{peer} could not touch {memory}"),
    10: ("no_room", OutOfMemory, Fault.OUT_OF_MEMORY, "{peer} has no memory for the operation"),
    11: (
        "not_allowed",
        AccessDenied,
        Fault.NO_ACCESS,
        "no device of {peer} has the right to the mapping that {memory} lies in; give it with "
        "AddressRange.set_access there",
    ),
    12: (
        "cancelled",
        Cancelled,
        Fault.CANCELLED,
        "it was cancelled: {peer} refused an earlier operation of its stream",
    ),
}


def explain(facts: Any) -> Error:
    """Return the exception for a refusal; its facts are attributes of ``facts``."""
    if facts.refused == _LOST:
        return losses.far_lost(facts.peer)
    far = losses.far_of(facts.peer)
    peer = "the peer" if far is None else str(far)
    has_name = far is not None and facts.memory < len(far.memories)
    memory = far.memories[facts.memory] if far is not None and has_name else "its memory"
    reason, kind, fault, text = _REFUSED.get(
        facts.refused, ("refused", BadHandle, Fault.BAD_HANDLE, "{peer} refused the operation")
    )
    message = text.format(
        size=facts.size, at=facts.address, memory=memory, number=facts.memory, peer=peer, notify=facts.notify
    )
    if facts.refused in (_NOTIFY_DOUBLED, _NOTIFIES_FULL):
        return kind(message, fault=fault, detail=NotifyRefused(facts.notify))
    rank = None if far is None else far.rank
    return kind(
        message, fault=fault, detail=Refused(reason=reason, rank=rank, memory=memory, size=facts.size)
    )
