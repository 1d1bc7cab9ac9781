"""The parameters of nodes as fields of structs, which both vendors name and number alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from peerlane.dialects.gpu.callbacks import HostCall
from peerlane.dialects.gpu.copies import Copy
from peerlane.dialects.gpu.graphs.memory import Allocation
from peerlane.dialects.gpu.memory import Fill
from peerlane.streams.callbacks import CFunction

#: Numbers by the names of fields; those of a struct within a struct are a mapping.
Fields: TypeAlias = Mapping[str, Any]

_HOST, _DEVICE = 1, 2  # kinds of memory
_AT_DEVICE, _AT_HOST = 1, 2  # kinds of locations
_PINNED = 1  # the kind of allocations
_DEFAULT = 4  # the direction that addresses say


def of_box(copy: Copy) -> Fields:
    """Return a copy as a struct with the kind of memory at each end."""
    width, height, depth = copy.extent
    fields = {"WidthInBytes": width, "Height": height, "Depth": depth}
    for end, side, region in (("dst", copy.dst, copy.ends[0]), ("src", copy.src, copy.ends[1])):
        is_device = region is not None and region.is_device
        fields |= {
            f"{end}MemoryType": _DEVICE if is_device else _HOST,
            f"{end}Device" if is_device else f"{end}Host": side.address,
            f"{end}Pitch": side.pitch or width,
            f"{end}Height": side.rows or height,
            f"{end}XInBytes": side.x,
            f"{end}Y": side.y,
            f"{end}Z": side.z,
        }
    return fields


def of_pitched(copy: Copy) -> Fields:
    """Return a copy as a struct of pitched pointers, positions and an extent."""
    width, height, depth = copy.extent
    fields: dict[str, Any] = {"extent": {"width": width, "height": height, "depth": depth}, "kind": _DEFAULT}
    for end, side in (("dst", copy.dst), ("src", copy.src)):
        pitch, rows = side.pitch or width, side.rows or height
        fields[f"{end}Ptr"] = {"ptr": side.address, "pitch": pitch, "xsize": width, "ysize": rows}
        fields[f"{end}Pos"] = {"x": side.x, "y": side.y, "z": side.z}
    return fields


def of_fill(fill: Fill) -> Fields:
    """Return a fill as a struct."""
    (row, height, _), (element, pitch, _) = fill.extent, fill.layout
    return {
        "dst": fill.dst,
        "pitch": pitch,
        "value": fill.value & (1 << 32) - 1,
        "elementSize": element,
        "width": row // element,
        "height": height,
    }


def of_host_call(call: HostCall) -> Fields:
    """Return a call of a function of the host as a struct."""
    code = call.function.code if isinstance(call.function, CFunction) else 0
    return {"fn": code, "userData": call.words[0]}


def of_allocation(allocation: Allocation) -> Fields:
    """Return an allocation as a struct, with the address."""
    owned = allocation.owned
    device = owned.device
    where = {
        "type": _AT_HOST if device is None else _AT_DEVICE,
        "id": 0 if device is None else owned.machine.id_of(device.ordinal),
    }
    return {
        "poolProps": {"allocType": _PINNED, "location": where},
        "bytesize": allocation.nbytes,
        "dptr": owned.address,
    }
