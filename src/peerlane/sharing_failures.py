"""The texts of what goes wrong with mappings, shared memory and handles."""

from __future__ import annotations

from peerlane import memory
from peerlane.errors import (
    AccessDenied,
    Busy,
    Error,
    Fault,
    OutOfMemory,
    Unsupported,
)

REFUSALS = frozenset(("no_access", "not_mapped", "imported", "imported_read_only", "in_use", "shared_blocks"))


def explain(why: str, role: str, address: int, size: int, allocation: int, device: int, other: int) -> Error:
    """Return the exception of a native refusal that has to do with mappings or sharing."""
    where = memory.label(device)
    match why:
        case "no_access":
            doing, needed = ("written", "rw") if role == "dst" else ("read", "r")
            actor = f" or {memory.label(other)}, whose stream it is," if other not in (0, device) else ""
            return AccessDenied(
                f"the mapping of {size:,} bytes at {address:#x} cannot be {doing}: neither {where}, which holds it,"
                f"{actor} nor another device that takes part may do that; give one of them {needed!r} with "
                "AddressRange.set_access",
                fault=Fault.NO_ACCESS,
                device=where,
            )
        case "not_mapped":
            return memory.not_mapped(address, where, role)
        case "imported":
            return Unsupported(
                f"the {size:,} bytes at {address:#x} were made by another process, and only that one gives them to "
                "others; ask it for a handle",
                device=where,
            )
        case "imported_read_only":
            return AccessDenied(
                f"the {size:,} bytes at {address:#x} belong to another process, which lets this one only read them",
                fault=Fault.READ_ONLY,
                device=where,
            )
        case "in_use":
            name = memory.record_of(allocation) or f"the buffer of {size:,} bytes at {address:#x}"
            return Busy(
                f"{name} must move into memory of its own before other processes may have it, and a host view or a "
                "queued operation uses it; delete the view or synchronize first, or allocate 2 MiB or more",
                device=where,
            )
        case _:  # shared_blocks
            return OutOfMemory(
                f"the processes of this node share {size:,} blocks, the most that it counts; close handles and "
                "imported memory",
                fault=Fault.OUT_OF_RESOURCES,
            )
