"""Memory as a file: what the name of its file says, and what a descriptor must be to be believed.

The name is ``peerlane:NODE:DEVICE:PEER:BLOCK``: the node's hash, the ordinal of the device, 1 if it was allocated for
access from other devices, and the block's id; hash and id have 16 hexadecimal digits.  It is written once, when the
file is made.  Whoever makes files names them, so it is a claim like any other.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from peerlane.backends.virtual.node.config import NodeConfig
from peerlane.backends.virtual.node.handles import node_hash
from peerlane.errors import BadHandle, Fault, OutOfMemory

# In Linux's fcntl.h; the module has not all of them in every version.
_GET_SEALS = 1034
_SEAL, _SHRINK, _GROW, _WRITE, _FUTURE_WRITE = 1, 2, 4, 8, 16
_NEEDED = _SEAL | _SHRINK | _GROW
_NAME = re.compile(
    r"/memfd:peerlane:([0-9a-f]{16}):([0-9]{1,4}):([01]):([0-9a-f]{16})(?: \(deleted\))?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """A descriptor that is memory of the node, as far as can be seen.

    Attributes
    ----------
    fd : int
        A descriptor of its own, to be closed or handed on.
    device : int
        Ordinal in the node; perhaps there is none such.
    block : int
        Unique in the node.
    size : int
        Bytes that are really there, for good.
    is_read_only : bool
        The descriptor was opened to read.
    for_peers : bool
    """

    fd: int
    device: int
    block: int
    size: int
    is_read_only: bool
    for_peers: bool


def name_of(config: NodeConfig, ordinal: int, for_peers: bool) -> str:
    """Return the name of a file, but for the id of the block."""
    return f"peerlane:{node_hash(config):016x}:{ordinal}:{for_peers:d}:"


def look_at(fd: int, config: NodeConfig) -> MemoryFile:
    """Look at a descriptor of anybody's; total: a :class:`MemoryFile` or one of the errors.

    Raises
    ------
    BadHandle
        ``BAD_HANDLE``: it is closed, or no file of memory; ``FALSE_CLAIM``: somebody could still cut it, or its size
        is impossible; ``NODE_MISMATCH``: it is of another node.
    OutOfMemory
        No descriptor is left.
    """
    try:
        _file_system()
        own = os.dup(fd)  # looked at and kept is one and the same, whatever happens to `fd` meanwhile
    except OSError as error:
        if error.errno != errno.EBADF:
            raise OutOfMemory(
                f"descriptor {fd} cannot be doubled: {error.strerror}; raise `ulimit -n`",
                fault=Fault.OUT_OF_RESOURCES,
            ) from None
        raise BadHandle(
            f"descriptor {fd} is not open in this process; keep it until it is imported"
        ) from None
    try:
        return _look_at(fd, own, config)
    except BaseException:
        os.close(own)
        raise


def _look_at(fd: int, own: int, config: NodeConfig) -> MemoryFile:
    facts = os.fstat(own)
    name = _name_of(own)
    try:
        seals = fcntl.fcntl(own, _GET_SEALS) if stat.S_ISREG(facts.st_mode) else -1
    except OSError:
        seals = -1
    found = _NAME.fullmatch(name)
    if seals < 0 or found is None or facts.st_dev != _file_system():
        raise BadHandle(
            f"descriptor {fd} is no memory of a device: it is {name or 'a file without a name'}; pass on the one "
            "that export_fd gave"
        )
    node, device, peer, block = found.groups()
    if int(node, 16) != node_hash(config):
        raise BadHandle(
            f"descriptor {fd} is memory of another node ({node}); this process is in node {config.name!r} "
            f"({node_hash(config):016x}): give both processes the same PEERLANE_NODE",
            fault=Fault.NODE_MISMATCH,
        )
    mode = fcntl.fcntl(own, fcntl.F_GETFL)
    access = mode & os.O_ACCMODE
    forbidden = _WRITE | _FUTURE_WRITE if access == os.O_RDWR else 0
    granularity = config.profile.granularity
    cause = ""
    if seals & _NEEDED != _NEEDED or seals & forbidden:
        cause = (
            f"its seals are {seals:#x}, and those of memory {_NEEDED:#x}: it could be cut while it is used"
        )
    elif access == os.O_WRONLY or mode & getattr(os, "O_PATH", 0):
        cause = f"it was not opened to read (mode {mode:#o})"
    elif not facts.st_size or facts.st_size % granularity:
        cause = f"it has {facts.st_size:,} bytes, and memory has a multiple of {granularity:,}"
    if cause:
        raise BadHandle(
            f"descriptor {fd} is not what its name says: {cause}; whoever made it is broken or hostile",
            fault=Fault.FALSE_CLAIM,
        )
    return MemoryFile(own, int(device), int(block, 16), facts.st_size, access == os.O_RDONLY, peer == "1")


@cache
def _file_system() -> int:
    """Return where memory files lie: those of huge pages lie elsewhere, and touching one may be a SIGBUS."""
    fd = os.memfd_create("peerlane", os.MFD_CLOEXEC)
    try:
        return os.fstat(fd).st_dev
    finally:
        os.close(fd)


def _name_of(fd: int) -> str:
    try:
        return str(Path(f"/proc/self/fd/{fd}").readlink())
    except OSError:
        return ""
