"""Steps that tests of HIP's shared and mapped memory share."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from helpers.peers import Peer, peer

G = 2 << 20

BEGIN = """
import array, ctypes, os, socket
from peerlane.dialects.hip import hip
FD = hip.hipMemAllocationHandleType.hipMemHandleTypePosixFileDescriptor
KIND = hip.hipMemcpyKind.hipMemcpyDefault
def ok(result):
    assert result[0].name == "hipSuccess", result
    return result[1] if len(result) == 2 else result[1:]
def read(pointer, size):
    data = bytearray(size)
    ok(hip.hipMemcpy(data, pointer, size, KIND))
    return bytes(data)
def write(pointer, data):
    ok(hip.hipMemcpy(pointer, bytes(data), len(data), KIND))
"""


def code(result: tuple[Any, ...]) -> str:
    return str(result[0].name)


def ok(result: tuple[Any, ...]) -> Any:
    """Check that a call succeeded, and return its outputs."""
    assert code(result) == "hipSuccess", result
    return result[1] if len(result) == 2 else result[1:]


def read(hip: ModuleType, pointer: Any, nbytes: int) -> bytes:
    """Return bytes of device memory."""
    data = bytearray(nbytes)
    ok(hip.hipMemcpy(data, pointer, nbytes, hip.hipMemcpyKind.hipMemcpyDeviceToHost))
    return bytes(data)


def write(hip: ModuleType, pointer: Any, data: bytes) -> None:
    """Put bytes into device memory."""
    ok(hip.hipMemcpy(pointer, data, len(data), hip.hipMemcpyKind.hipMemcpyHostToDevice))


def location(hip: ModuleType, device: int, kind: str = "Device") -> Any:
    """Return a hipMemLocation."""
    return hip.hipMemLocation(type=hip.hipMemLocationType[f"hipMemLocationType{kind}"], id=device)


def properties(hip: ModuleType, device: int = 0, *, requested: int = 0, kind: str = "Pinned") -> Any:
    """Return a hipMemAllocationProp; the requested handle type is put where C has it."""
    struct = hip.hipMemAllocationProp()
    struct.type = hip.hipMemAllocationType[f"hipMemAllocationType{kind}"]
    struct.location.type = hip.hipMemLocationType.hipMemLocationTypeDevice
    struct.location.id = device
    ctypes.c_int.from_address(int(struct) + 4).value = requested
    return struct


def descriptions(hip: ModuleType, **rights: str) -> tuple[Any, int]:
    """Return an array of hipMemAccessDesc and its length: ``descriptions(hip, d0="ReadWrite")``."""
    struct = hip.hipMemAccessDesc.allocate(len(rights))
    for index, (device, allowed) in enumerate(rights.items()):
        location_slot = struct.get_location(index)
        location_slot.type = hip.hipMemLocationType.hipMemLocationTypeDevice
        location_slot.id = int(device[1:])
        struct.set_flags(index, hip.hipMemAccessFlags[f"hipMemAccessFlagsProt{allowed}"])
    return struct, len(rights)


def mapped(
    hip: ModuleType, *blocks: tuple[int, int], access: dict[str, str] | None = None
) -> tuple[int, int]:
    """Map new memory, (device, bytes) side by side, and return address and bytes."""
    total = sum(nbytes for _, nbytes in blocks)
    address = int(ok(hip.hipMemAddressReserve(total, 0, None, 0)))
    at = address
    for device, nbytes in blocks:
        handle = ok(hip.hipMemCreate(nbytes, properties(hip, device), 0))
        ok(hip.hipMemMap(at, nbytes, 0, handle, 0))
        ok(hip.hipMemRelease(handle))
        at += nbytes
    if access is None:
        access = {f"d{device}": "ReadWrite" for device, _ in blocks}
    if access:
        ok(hip.hipMemSetAccess(address, total, *descriptions(hip, **access)))
    return address, total


def spec(tag: str, rest: str = "devices=2,memory=64MiB") -> str:
    """Return a node that processes share."""
    return f"name=hip-{tag}-{os.getpid()},{rest}"


@contextmanager
def hip_peer(node: str, **env: str) -> Iterator[Peer]:
    """Run another process of the node, with ``hip`` and what is in ``BEGIN``."""
    with peer(node, **env) as other:
        other.run(BEGIN)
        yield other
