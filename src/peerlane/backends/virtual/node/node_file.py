"""The file in which the processes of a node count the memory that they hold: one slot for each, written only by it.

Layout (little-endian, 8-byte fields)::

    0      magic, version, devices, slots, shape digest (32 ASCII bytes), length of the text, the text: the shape
           in words, NUL, the shape as a spec; in its last fields the slots and the entries ever used
    4096   slots x { owner, pid namespace, bytes held of each device }
    ...    entries x { block, device and bytes }: what processes share; slots x { a bit an entry, a bit a pair of
           peers }, laid out by ``native/memory/ledger.h``

``owner`` has the pid in its low half and the low half of its start time in its high half, so that a later process
with the same pid is not taken for the owner; 0 is a free slot.
"""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from peerlane import _core
from peerlane.backends.virtual.node.config import NodeConfig
from peerlane.errors import OutOfMemory, Refused, Unsupported
from peerlane.support.records import dataclass

SLOTS = 1024
SUFFIX = ".node"
MAGIC = b"PLNODE\x00\x03"  # the last byte is the layout's version
HEADER_BYTES = 4096
AGREED_BYTES = 64  # all but the text, which is only shown
SLOT = struct.Struct("<QQ")

_HEADER = struct.Struct("<8sQQQ32sQ")
_MARKS_BYTES = 16  # the slots and the entries ever used
_READ_BYTES = 1 << 16
_OWN_NAMESPACE = Path("/proc/self/ns/pid")


@dataclass(frozen=True, slots=True)
class Header:
    """The fields of the first page, unchecked."""

    magic: bytes
    devices: int
    slots: int
    digest: bytes
    shape: str  #: the node in words
    spec: str  #: the node's inline form; empty if it did not fit


def pack_header(config: NodeConfig) -> bytes:
    """Return the beginning of the file of a node."""
    room = HEADER_BYTES - _HEADER.size - _MARKS_BYTES
    shape = config.describe().encode()
    text = shape + b"\0" + config.spec.encode()
    text = text if len(text) <= room else shape[:room]
    return _HEADER.pack(MAGIC, 1, config.devices, SLOTS, config.digest.encode(), len(text)) + text


def read_header(fd: int) -> Header | None:
    """Read the first page; None if the file is shorter than a header."""
    raw = os.pread(fd, HEADER_BYTES, 0)
    if len(raw) < _HEADER.size:
        return None
    magic, _, devices, slots, digest, length = _HEADER.unpack_from(raw)
    text = raw[_HEADER.size : HEADER_BYTES - _MARKS_BYTES][: min(length, HEADER_BYTES)]
    shape, _, spec = text.decode(errors="replace").partition("\0")
    return Header(magic, devices, slots, digest, shape, spec)


def slot_stride(devices: int) -> int:
    """Return the bytes of a slot."""
    return SLOT.size + 8 * devices


def slot_offset(devices: int, slot: int) -> int:
    """Return the offset of a slot."""
    return HEADER_BYTES + slot * slot_stride(devices)


def owners(fd: int, devices: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield (slot, (owner, pid namespace)) of each slot that is taken."""
    # Read, not mapped: touching a hole would allocate a page, or be a SIGBUS if the directory is full.
    stride = slot_stride(devices)
    at_once = max(1, _READ_BYTES // stride)
    for first in range(0, SLOTS, at_once):
        raw = os.pread(fd, min(at_once, SLOTS - first) * stride, slot_offset(devices, first))
        words = memoryview(raw)[: len(raw) // 8 * 8].cast("Q")
        whole = (len(raw) - SLOT.size) // stride + 1  # the file may end inside a slot
        taken = words[:: stride // 8].tolist()[: max(0, whole)]
        for index in itertools.compress(itertools.count(), taken):  # most slots are free
            yield first + index, SLOT.unpack_from(raw, index * stride)


def owner_of(pid: int) -> int:
    """Return the owner field for a process; 0 if there is no such process.

    Raises OutOfMemory: ``OUT_OF_RESOURCES``: the process has no free descriptor.
    """
    started = _core.start_time(pid) if pid < 1 << 31 else 0
    return pid | (started & 0xFFFFFFFF) << 32 if started else 0


def pid_namespace() -> int:
    """Return the number of this process's pid namespace.

    Raises Unsupported: /proc is not mounted.
    """
    try:
        return _OWN_NAMESPACE.stat().st_ino
    except FileNotFoundError:
        raise Unsupported(
            "/proc is not mounted, by which the processes of a node are told apart: mount it (`mount -t proc proc "
            "/proc`)",
            detail=Refused(reason="no_proc", path="/proc/self/ns/pid"),
        ) from None


def is_running(owner: int, namespace: int) -> bool:
    """Tell whether the process of a slot lives; True if that is unknown."""
    # Processes of another pid namespace cannot be seen from here: their slots must stay.
    if owner == 0 or namespace != pid_namespace():
        return owner != 0
    try:
        return owner_of(owner & 0xFFFFFFFF) == owner
    except OutOfMemory:  # without a free descriptor it is unknown, and a live process must keep its slot
        return True


def socket_name(name: str, slot: int) -> str:
    """Return the name of the socket, beside the node's file, on which a slot's process serves handles."""
    return f"{name}.{slot}.sock"
