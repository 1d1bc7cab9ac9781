"""Turns native refusals about memory into exceptions.

Native code refuses with numbers; here they become an exception of :mod:`peerlane.errors` whose text says what was
asked, what is valid and what to do.
"""

from __future__ import annotations

import errno
import os
import resource
from errno import EACCES, EIO
from typing import Any

from peerlane import _core
from peerlane.backend import registry
from peerlane.diagnostics.log import trace
from peerlane.diagnostics.memory import address_errors, allocations
from peerlane.diagnostics.memory.address_errors import operand
from peerlane.errors import (
    AccessDenied,
    BadAddress,
    Busy,
    Closed,
    DeviceFault,
    Error,
    Fault,
    InvalidValue,
    MemoryHolder,
    OutOfMemory,
    Refused,
    Unsupported,
)
from peerlane.support.system_limits import address_space, most_threads, of_system

_LEAST_WINDOWS = 2 << 30  # of native code: 1 GiB each


def _nearest_text(address: int) -> str:
    nearest = _core.nearest(address)
    if nearest is None:
        return "there is no live allocation"
    _, base, size, allocation = nearest
    name = allocations.live_record(allocation) or f"an allocation of {size:,} bytes at {base:#x}"
    above = (_core.window_offset(base) or 0) - (_core.window_offset(address) or 0)
    return address_errors.distance(name, above, size)


def explain_address(role: str, address: int, size: int) -> BadAddress:
    """Return the exception for an address in a device window that lies in no allocation."""
    offset = _core.window_offset(address) or 0
    freed = allocations.freed_at(address)
    for record in allocations.spread_records():
        if not record.offset - record.before <= offset < record.offset + record.size + record.behind:
            continue
        if record.sort is allocations.Sort.RANGE:
            return not_mapped(address, record.device, role)
        if record.sort is allocations.Sort.IMPORTED:
            freed = None  # the allocation that was there before is not the cause
    if freed is not None:
        return address_errors.freed(role, address, size, freed)
    return address_errors.unknown(role, address, size, _nearest_text(address))


def not_mapped(address: int, device: str, role: str = "") -> BadAddress:
    """Return the exception for an address in an address range at which there is no mapping, or none begins."""
    hole = BadAddress(
        f"{operand(role)}address {address:#x} is reserved on {device}, but no mapping is there; map a Physical with "
        "AddressRange.map",
        fault=Fault.UNKNOWN_ADDRESS,
        device=device,
        detail=Refused(reason="not_mapped", role=role, address=address, device=device),
    )
    hole.missing_address = address
    return hole


def label(number: int) -> str:
    """Return the name of a device, given by its native number."""
    if not number:
        return "host"
    node = registry.entered_as("virtual")
    return (node.label(number) if node else None) or f"device number {number} of a node that was left"


def explain(reason: str, facts: Any) -> BaseException:
    """Return the exception for a native refusal; its facts are attributes of ``facts``."""
    role, address, size, device = facts.role, facts.address, facts.size, facts.device
    match reason:
        case "unknown_address":
            return explain_address(role, address, size)
        case "out_of_bounds":
            return address_errors.out_of_bounds(
                role, address, size, facts.start, facts.extent, facts.allocation, label(device)
            )
        case "host_fault":
            return _host_fault(role, address, size, facts.fault_address, facts.errno)
        case "out_of_memory":
            return _out_of_memory(device, size, facts.free, facts.capacity)
        case "closed":
            return _closed(facts.allocation) if role else _left(device)
        case "forked":
            return Closed(
                f"process {os.getpid()} was forked after its parent had used devices; their memory and streams do "
                "not survive a fork: start workers with the 'spawn' method, or fork while the program has only asked "
                "which devices there are",
                fault=Fault.FORKED,
            )
        case "read_only":
            return AccessDenied(
                f"the destination of {size:,} bytes at {address:#x} is read-only memory (a bytes object, a "
                "read-only array, or a file that was mapped to be read); copy into a bytearray or a writable array, "
                "or map the file with ACCESS_WRITE or ACCESS_COPY",
                fault=Fault.READ_ONLY,
            )
        case "pitch_overflow":
            return InvalidValue(
                f"{operand(role)}rectangle of {facts.rows:,} rows with a pitch of {facts.pitch:,} bytes is larger "
                "than the 64-bit address space",
                fault=Fault.OUT_OF_BOUNDS,
            )
        case "overflow":
            return InvalidValue(
                f"{operand(role)}range of {size:,} bytes or elements at {address:#x} ends beyond the 64-bit address "
                "space; a negative number wraps round to this",
                fault=Fault.OUT_OF_BOUNDS,
            )
        case "size_mismatch":
            which = f"pair {facts.entry - 1} of the batch: " if facts.entry else ""
            call = role or "copy"
            return InvalidValue(
                f"{call}: {which}the source has {size:,} bytes, the destination {facts.other_size:,}; take equal "
                f"parts, for instance [:{min(size, facts.other_size)}]",
                call="copy_batch" if facts.entry else call,
            )
        case "no_route" | "not_peer_memory":
            return _no_route(reason, device, facts.other_device)
        case "overlap":
            return Busy(
                f"the range of {size:,} bytes at {address:#x} already holds a mapping, or a view or a queued "
                "operation still uses the block that was mapped there; unmap it, drop the view, or synchronize first"
            )
        case _:
            return _system(reason, facts)


_UNMAPPED = (
    "It is neither device memory of this process nor mapped host memory; check for a freed array or a truncated "
    "pointer"
)
_FAULTS = {
    EIO: "The file that is mapped there has no such page: it was truncated, or its file system is full; "
    "make the file as long as the mapping again, or map it again",
    EACCES: "The mapping there is protected: a source must be readable, a destination writable; map a file that "
    "is written with ACCESS_WRITE or ACCESS_COPY",
}


def _host_fault(role: str, address: int, size: int, fault_address: int, error: int) -> Error:
    if address == 0:
        return address_errors.null(role, size)
    where = f" at {fault_address:#x}, byte {fault_address - address:,} of it" if fault_address else ""
    return BadAddress(
        f"{operand(role)}host range of {size:,} bytes at {address:#x} cannot be touched: the access faulted{where}. "
        + _FAULTS.get(error, _UNMAPPED),
        fault=Fault.HOST_FAULT,
    )


def _out_of_memory(device: int, asked: int, free: int, capacity: int) -> Error:
    where = label(device)
    if where == "host":
        return OutOfMemory(
            f"the host has no address range for {asked:,} bytes of pinned memory", device=where
        )
    live = _core.live_allocations(device)
    return address_errors.no_room(asked, free, capacity, live, where, *_other_holders(device))


def _other_holders(device: int) -> tuple[str, tuple[MemoryHolder, ...]]:
    """Return the other processes that hold memory of a device, as text and records; empty if that is unknown."""
    try:
        node = registry.entered_as("virtual")
        return node.other_holders(device) if node else ("", ())
    except Exception:  # noqa: BLE001 - a bad node file or /proc must not hide the refusal itself
        return "", ()


def _left(device: int) -> Error:
    return Closed(
        f"{label(device)} is closed: its node was left; ask for its devices again with devices()",
        detail=Refused(reason="left", device=label(device)),
    )


def _closed(allocation: int) -> Error:
    record = allocations.record_of(allocation)
    if not allocation:
        return Closed("a buffer on a host object was used after its close(); make another with as_buffer")
    if allocations.live_record(allocation) is not None:
        return Closed(
            f"a part of {record} was used after its own close(); slice the buffer again",
            detail=Refused(reason="part_closed", allocation=allocation),
        )
    if record is None:
        return Closed(f"the buffer of allocation {allocation} was closed (too many frees ago to say where)")
    remedy = "you may have left its `with` block too early"
    if record.freed_by == allocations.LEAVING:
        remedy = (
            "a node's memory ends with the node: ask for devices again with devices(), and allocate again"
        )
    freed = Refused(
        reason="closed", allocation=allocation, freed_by=record.freed_by, freed_at=str(record.freed_at or "")
    )
    return Closed(
        f"{record.sort.closed.format(record, record.end)}; {remedy}", device=record.device, detail=freed
    )


def _no_route(reason: str, device: int, other: int) -> Error:
    a, b = label(device), label(other)
    if reason == "no_route":
        return AccessDenied(
            f"{a} and {b} have no peer access to each other; enable it before copying between them",
            fault=Fault.PEER_NOT_ENABLED,
            device=a,
        )
    return AccessDenied(
        f"memory on {a} or {b} was not allocated for peer access, which this profile requires; allocate both "
        "with peer=True (acl: a P2P policy)",
        fault=Fault.PEER_NOT_ENABLED,
        device=a,
    )


# By the role of the refusal: what needs a file descriptor, and what else holds some.
_DESCRIPTORS = {
    "event": "an event: each whose fileno() was asked for holds one",
    "waits": "an event loop in which tasks wait for streams: it holds one",
    "signals": "signals: 63 notifies hold one, and so do all streams together",
    "handle": "handles: serving them holds some, and so does each process with which some are opened",
    "": "{size:,} bytes of device memory: every allocation of 2 MiB or more holds one",
}


def _system(reason: str, facts: Any) -> Error:
    errno_text = f" ({os.strerror(facts.errno)})" if facts.errno else ""
    role, size = facts.role, facts.size
    match reason:
        case "handles_full":
            return OutOfMemory(
                f"this process has {facts.most:,} open handles, the most that are allowed; close some",
                fault=Fault.OUT_OF_RESOURCES,
            )
        case "descriptors":
            what = _DESCRIPTORS.get(role, _DESCRIPTORS[""]).format(size=size)
            most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            return OutOfMemory(
                f"no file descriptor is left for {what}{errno_text}; this process may have {most:,}: raise `ulimit "
                "-n`, or close what is not used any more",
                fault=Fault.OUT_OF_RESOURCES,
            )
        case "address_space":
            limited = _limited_addresses()
            return OutOfMemory(
                f"no room for {size:,} bytes in the address windows{errno_text}; "
                + (limited or "raise window_bytes in the node configuration"),
                fault=Fault.OUT_OF_RESOURCES,
            )
        case "system_memory" if facts.errno == errno.EAGAIN:
            return OutOfMemory(
                f"the system starts no thread for this process{errno_text}; {most_threads()}",
                fault=Fault.OUT_OF_RESOURCES,
            )
        case "system_memory" if facts.errno in (errno.ENOSPC, errno.EDQUOT):
            _, remedy = of_system(OSError(facts.errno, ""))
            return OutOfMemory(
                f"the runtime directory is full{errno_text}: {remedy}", fault=Fault.OUT_OF_RESOURCES
            )
        case "system_memory":
            limited = _limited_addresses() if facts.errno == errno.ENOMEM else ""
            if facts.errno == errno.EFBIG:
                _, limited = of_system(OSError(facts.errno, ""))
            many = "free memory, or raise vm.max_map_count if this process holds tens of thousands of large buffers"
            return OutOfMemory(
                f"the system refused {size:,} bytes{errno_text}; {limited or many}",
                fault=Fault.OUT_OF_RESOURCES,
            )
        case "node_file":
            return OutOfMemory(
                "the file in which processes of this node count memory cannot get a page: the runtime directory "
                "is full, or the file was truncated; make room, or set PEERLANE_RUNTIME_DIR",
                fault=Fault.OUT_OF_RESOURCES,
            )
        case "device_fault":
            return DeviceFault(
                f"device memory could not be touched while {size:,} bytes were copied: the system has no free page "
                "(memory or cgroup limit reached)",
                device=label(facts.device),
            )
    return Unsupported(f"native code refused: {reason}")


def _limited_addresses() -> str:
    """Return what limits the addresses of this process, and what to do; empty if nothing does."""
    limit = address_space()
    if limit is None:
        return ""
    most, present = limit
    reserved = _core.reserved_bytes()
    what = f"reserves {reserved:,}" if reserved else f"reserves {_LEAST_WINDOWS:,} or more"
    return (
        f"`ulimit -v` lets this process have {most:,} bytes of addresses (RLIMIT_AS), it has {present:,}, and "
        f"peerlane {what} for device memory; raise the limit, or remove it with `ulimit -v unlimited`"
    )


trace.label_of = label
