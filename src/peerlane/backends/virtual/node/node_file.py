"""The file in which the processes of a node say what they hold: one single-writer slot per process, no payload.

Layout (little-endian, 8-byte fields)::

    0      magic, version, devices, slots, shape digest (32 ASCII bytes), length of the text, the text: the shape
           in words, NUL, the shape as a spec; in its last fields the slots and the entries ever used
    4096   slots x { owner, pid namespace, bytes held of each device }
    ...    entries x { block, device and bytes }: what processes share; slots x { a bit an entry, a bit a pair of
           peers }, laid out by ``native/memory/ledger.h``

``owner`` is the pid in the low half and the low half of its start time in the high half, so that a pid
used again is not taken for its predecessor; 0 is a free slot.
"""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from peerlane import _core
from peerlane.backends.virtual.node.config import NodeConfig
from peerlane.errors import OutOfMemory

SLOTS = 1024
SUFFIX = ".node"
MAGIC = b"PLNODE\x00\x03"  # the last byte is the layout's version
HEADER_BYTES = 4096
AGREED_BYTES = 64  # all but the text, which is for people
SLOT = struct.Struct("<QQ")

_HEADER = struct.Struct("<8sQQQ32sQ")
_MARKS_BYTES = 16  # the slots and the entries ever used
_READ_BYTES = 1 << 16


@dataclass(frozen=True)
class Header:
    """What the first page says; nothing of it is checked.

    Attributes
    ----------
    magic, digest : bytes
    devices, slots : int
    shape : str
        The node in words.
    spec : str
        The node's inline form; empty where it did not fit.
    """

    magic: bytes
    devices: int
    slots: int
    digest: bytes
    shape: str
    spec: str


def pack_header(config: NodeConfig) -> bytes:
    """Return the beginning of the file of a node."""
    room = HEADER_BYTES - _HEADER.size - _MARKS_BYTES
    shape = config.describe().encode()
    text = shape + b"\0" + config.spec.encode()
    text = text if len(text) <= room else shape[:room]
    return _HEADER.pack(MAGIC, 1, config.devices, SLOTS, config.digest.encode(), len(text)) + text


def read_header(fd: int) -> Header | None:
    """Read the first page; None when there is less than a header."""
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
    """Return where a slot begins."""
    return HEADER_BYTES + slot * slot_stride(devices)


def owners(fd: int, devices: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield (slot, (owner, pid namespace)) of each slot that is taken."""
    # Read, not mapped: a page that is a hole would be allocated, or be a SIGBUS where the directory is full.
    stride = slot_stride(devices)
    at_once = max(1, _READ_BYTES // stride)
    for first in range(0, SLOTS, at_once):
        raw = os.pread(fd, min(at_once, SLOTS - first) * stride, slot_offset(devices, first))
        words = memoryview(raw)[: len(raw) // 8 * 8].cast("Q")
        whole = (len(raw) - SLOT.size) // stride + 1  # the file may end inside a slot
        taken = words[:: stride // 8].tolist()[: max(0, whole)]
        for place in itertools.compress(itertools.count(), taken):  # nearly always nobody is there
            yield first + place, SLOT.unpack_from(raw, place * stride)


def owner_of(pid: int) -> int:
    """Return what the slot of a process says; 0 when there is no such process.

    Raises
    ------
    OutOfMemory
        ``OUT_OF_RESOURCES``: there is no descriptor to look with.
    """
    started = _core.start_time(pid) if pid < 1 << 31 else 0
    return pid | (started & 0xFFFFFFFF) << 32 if started else 0


def pid_namespace() -> int:
    """Return the number of this process's pid namespace."""
    return Path("/proc/self/ns/pid").stat().st_ino


def is_running(owner: int, namespace: int) -> bool:
    """Whether the process of a slot lives, as far as can be judged from here."""
    # A pid of another namespace cannot be judged from here, so its slot is left alone.
    if owner == 0 or namespace != pid_namespace():
        return owner != 0
    try:
        return owner_of(owner & 0xFFFFFFFF) == owner
    except OutOfMemory:  # no descriptor to look with: a living process must not be taken for a dead one
        return True


def socket_name(name: str, slot: int) -> str:
    """Return the name of the socket on which a slot's process serves handles, beside the node's file."""
    return f"{name}.{slot}.sock"
