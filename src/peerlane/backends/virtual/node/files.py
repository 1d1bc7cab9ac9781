"""The file of a memory block: its name, and the checks of a descriptor before its memory is used.

The name is ``peerlane:NODE:DEVICE:PEER:BLOCK``: the node's home, the ordinal of the device or ``host``, 1 if it was
allocated for access from other devices, and the block's id; home and id have 16 hexadecimal digits.  It is written
once, when the file is made.  Any process can make a file with such a name, so that the name is a claim to be checked.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from functools import cache
from pathlib import Path

from peerlane.backend.facts import HOST_ORDINAL
from peerlane.backends.virtual.node.config import NodeConfig
from peerlane.backends.virtual.node.handles import Home, is_elsewhere, other_machine
from peerlane.errors import BadHandle, Fault, OutOfMemory, Refused
from peerlane.support.records import dataclass

# From Linux's fcntl.h; Python's module lacks some of them in some versions.
_GET_SEALS = 1034
_SEAL, _SHRINK, _GROW, _WRITE, _FUTURE_WRITE = 1, 2, 4, 8, 16
_NEEDED = _SEAL | _SHRINK | _GROW
_HOST = "host"
_NAME = re.compile(
    r"/memfd:peerlane:([0-9a-f]{16}):([0-9]{1,4}|host):([01]):([0-9a-f]{16})(?: \(deleted\))?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """A descriptor that has passed the checks for memory of the node."""

    fd: int  #: a duplicate, which the owner of this object closes or passes on
    device: int  #: the claimed ordinal, which the node may not have; `HOST_ORDINAL` for memory of the host
    block: int  #: the block's id, unique in the node
    size: int  #: the file's bytes, which its seals keep
    is_read_only: bool  #: whether the descriptor was opened read-only
    for_peers: bool


def name_of(home: Home, ordinal: int, for_peers: bool) -> str:
    """Return the name of a block's file, without the block's id."""
    device = _HOST if ordinal == HOST_ORDINAL else ordinal
    return f"peerlane:{home.number:016x}:{device}:{for_peers:d}:"


def look_at(fd: int, config: NodeConfig, home: Home) -> MemoryFile:
    """Check a descriptor of unknown origin; for any of them the result is a :class:`MemoryFile` or an error below.

    Raises BadHandle: ``BAD_HANDLE``: it is closed, or is not a file of device memory; ``FALSE_CLAIM``: a process
        could still truncate it, or its size is impossible; ``NODE_MISMATCH``: it belongs to another node.
    Raises OutOfMemory: the process has no free descriptor.
    """
    try:
        _file_system()
        own = os.dup(fd)  # so that the checked file is the kept one, even if `fd` is replaced meanwhile
    except OSError as error:
        if error.errno != errno.EBADF:
            raise OutOfMemory(
                f"descriptor {fd} cannot be duplicated: {error.strerror}; raise `ulimit -n`",
                fault=Fault.OUT_OF_RESOURCES,
                detail=Refused(reason="descriptors", descriptor=fd, errno=error.errno),
            ) from None
        raise BadHandle(
            f"descriptor {fd} is not open in this process; keep it until it is imported",
            detail=Refused(reason="not_open", descriptor=fd),
        ) from None
    try:
        return _look_at(fd, own, config, home.number)
    except BaseException:
        os.close(own)
        raise


def _look_at(fd: int, own: int, config: NodeConfig, ours: int) -> MemoryFile:
    facts = os.fstat(own)
    name = _name_of(own)
    try:
        seals = fcntl.fcntl(own, _GET_SEALS) if stat.S_ISREG(facts.st_mode) else -1
    except OSError:
        seals = -1
    match = _NAME.fullmatch(name)
    if seals < 0 or match is None or facts.st_dev != _file_system():
        raise BadHandle(
            f"descriptor {fd} is not device memory: it is {name or 'a file without a name'}; pass the descriptor "
            "that export_fd returned",
            detail=Refused(reason="not_device_memory", descriptor=fd, name=name),
        )
    node, device, peer, block = match.groups()
    home = int(node, 16)
    if is_elsewhere(home, ours):
        raise other_machine(f"descriptor {fd}", home, ours)
    if home != ours:
        raise BadHandle(
            f"descriptor {fd} is memory of another node ({node}); this process is in node {config.name!r} "
            f"({ours:016x}): give both processes the same PEERLANE_NODE",
            fault=Fault.NODE_MISMATCH,
            detail=Refused(reason="other_node", descriptor=fd, node=home, own_node=ours),
        )
    mode = fcntl.fcntl(own, fcntl.F_GETFL)
    access = mode & os.O_ACCMODE
    forbidden = _WRITE | _FUTURE_WRITE if access == os.O_RDWR else 0
    granularity = config.profile.granularity
    cause = ""
    if seals & _NEEDED != _NEEDED or seals & forbidden:
        cause = f"its seals are {seals:#x}, not {_NEEDED:#x}: it could be truncated while it is used"
    elif access == os.O_WRONLY or mode & getattr(os, "O_PATH", 0):
        cause = f"it was not opened for reading (mode {mode:#o})"
    elif not facts.st_size or facts.st_size % granularity:
        cause = f"it has {facts.st_size:,} bytes, which is not a multiple of {granularity:,}"
    if cause:
        raise BadHandle(
            f"descriptor {fd} is not what its name claims: {cause}; the process that made it is broken or hostile",
            fault=Fault.FALSE_CLAIM,
            detail=Refused(
                reason="false_claim",
                descriptor=fd,
                seals=seals,
                needed_seals=_NEEDED,
                mode=mode,
                size=facts.st_size,
                multiple=granularity,
            ),
        )
    ordinal = HOST_ORDINAL if device == _HOST else int(device)
    return MemoryFile(own, ordinal, int(block, 16), facts.st_size, access == os.O_RDONLY, peer == "1")


@cache
def _file_system() -> int:
    """Return the file system of memory files; one with huge pages is another, where an access may be a SIGBUS."""
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
