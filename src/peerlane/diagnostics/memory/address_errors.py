"""Errors about addresses and capacity, for every back-end, with the lines of the allocations involved."""

from __future__ import annotations

import heapq
from dataclasses import replace

from peerlane.diagnostics.memory import allocations
from peerlane.diagnostics.memory.allocations import Record, Sort
from peerlane.errors import BadAddress, Error, Fault, MemoryHolder, NoRoom, OutOfMemory, OutOfRange, Refused

_LOOKED_AT, _LARGEST_SHOWN = 4096, 3  # of the live allocations, for the text of an OutOfMemory


def operand(role: str) -> str:
    """Return the words for an operand, ``"dst"`` or ``"src"``, in front of a noun."""
    return {"dst": "destination ", "src": "source "}.get(role, "")


def null(role: str, size: int) -> BadAddress:
    """Return the error for address 0."""
    return BadAddress(
        f"{operand(role)}address is NULL (asked for {size:,} bytes)",
        fault=Fault.NULL_ADDRESS,
        detail=Refused(reason="null_address", role=role, address=0, size=size),
    )


def freed(role: str, address: int, size: int, record: Record) -> BadAddress:
    """Return the error for an address in an allocation that has ended."""
    return BadAddress(
        f"{operand(role)}address {address:#x} is in {record}, which was {record.end}; "
        f"use it before it is {record.sort.ended}, or get new memory",
        fault=Fault.FREED_ADDRESS,
        device=record.device,
        detail=OutOfRange(role, address, size, record.address, record.size, record.id),
    )


def unknown(role: str, address: int, size: int, nearest: str) -> BadAddress:
    """Return the error for a device address outside all allocations; ``nearest`` names the nearest one.

    ``size`` is 0 if the call asked for one address.
    """
    asked = f" (asked for {size:,} bytes)" if size else ""
    return BadAddress(
        f"{operand(role)}address {address:#x}{asked} is a device address where nothing is allocated; {nearest}",
        fault=Fault.UNKNOWN_ADDRESS,
        detail=OutOfRange(role, address, size, 0, 0, 0),
    )


def of_operand(error: BadAddress, role: str, size: int) -> Error:
    """Return an error about an address as that of an operand of a call, which asked for ``size`` bytes there."""
    if not isinstance(error.detail, OutOfRange):
        return error
    asked = "" if error.detail.size else f"; the call asked for {size:,} bytes there"
    renamed = error.retold(f"{operand(role)}{error}{asked}")
    renamed.detail = replace(error.detail, role=role, size=size)
    return renamed


def distance(name: object, above: int, size: int) -> str:
    """Return a text with the nearest allocation, which starts ``above`` bytes above the address (negative: below)."""
    if above > 0:
        return f"the nearest is {name}, {above:,} bytes above"
    return f"the nearest is {name}, whose end is {-above - size:,} bytes below"


def out_of_bounds(
    role: str, address: int, size: int, base: int, extent: int, allocation: int, device: str
) -> BadAddress:
    """Return the error for a range that ends beyond its allocation, the ``extent`` bytes at ``base``."""
    record = allocations.record_of(allocation)
    name = record or f"the range of {extent:,} bytes at {base:#x}"
    left = base + extent - address
    beyond = BadAddress(
        f"{operand(role)}range of {size:,} bytes at {address:#x} ends {size - left:,} bytes beyond {name}: "
        f"it starts at byte {address - base:,}, from where {left:,} bytes are left",
        fault=Fault.OUT_OF_BOUNDS,
        device=record.device if record is not None else device,
        detail=OutOfRange(role, address, size, base, extent, allocation),
    )
    beyond.missing_address = base + extent
    return beyond


def no_room(
    asked: int,
    free: int,
    capacity: int,
    live: int,
    device: str,
    others: str = "",
    holders: tuple[MemoryHolder, ...] = (),
) -> OutOfMemory:
    """Return the error for an allocation beyond the capacity.

    ``live``: the number of this process's allocations on the device.
    ``others``: the other processes that hold memory of the device, as a text.
    ``holders``: the largest of them.
    """
    cause = (
        f"{device} cannot allocate {asked:,} bytes: {free:,} of its {capacity:,} bytes are free; "
        f"{_held(live, device)}{f'; {others}' if others else ''}"
    )
    return OutOfMemory(
        f"{cause}; free buffers, or give the node more memory (memory=... in PEERLANE_NODE)",
        device=device,
        detail=NoRoom(asked, free, capacity, cause, live, holders),
    )


def _held(count: int, device: str) -> str:
    """Return a text with the number of this process's allocations on a device, and the largest."""
    looked_at = allocations.oldest_live(_LOOKED_AT)
    on_device = [each for each in looked_at if each.device == device and each.sort is Sort.ALLOCATION]
    largest = heapq.nlargest(_LARGEST_SHOWN, on_device, key=lambda each: each.size)
    if not largest:
        return f"this process holds {count:,}"
    these = "" if len(looked_at) < _LOOKED_AT else f" of the oldest {_LOOKED_AT:,}"
    named = ", ".join(
        f"{each.size:,} bytes{f' of {each.allocated_at}' if each.allocated_at else ''}" for each in largest
    )
    return f"this process holds {count:,}, the largest{these}: {named}"
