"""The memory that each process of a node holds, read from the node's file by a process outside the node.

Reading locks, maps, writes and makes nothing.  Each process's row is consistent; the rows are of slightly different
moments.  The file belongs to this user, but its contents are not trusted.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from peerlane import _core
from peerlane.backend.facts import MAX_DEVICES
from peerlane.backends.virtual.node.config import NodeConfig
from peerlane.backends.virtual.node.node_file import (
    MAGIC,
    SLOT,
    SLOTS,
    SUFFIX,
    Header,
    is_running,
    owners,
    pid_namespace,
    read_header,
    slot_offset,
    slot_stride,
    socket_name,
)
from peerlane.errors import Error, MemoryHolder

_SHOWN_PIDS = 6
_SHOWN_HOLDERS, _LONGEST_COMMAND = 3, 80
_DEVICE_SHIFT = np.uint64(48)

RUNNING, ENDED, FOREIGN = "running", "ended", "foreign"

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Holder:
    """One process of a node."""

    pid: int
    #: ``"running"``; ``"ended"``: the next process of the node frees its slot; ``"foreign"``: it is in another pid
    #: namespace, so that its state is unknown.
    state: str
    command: str  #: its command line; empty if it is unknown
    age_seconds: float | None  #: seconds since it started
    own: dict[int, int]  #: by device, the bytes that only it can use; devices without any are left out
    shared: dict[int, int]  #: by device, the bytes of blocks that it exported or imported
    shared_blocks: int
    peers: tuple[tuple[int, int], ...]  #: the peer access that it enabled, from one device to another
    serves: bool  #: whether it serves handles


@dataclass(frozen=True)
class Census:
    """The contents of a node's file."""

    name: str
    #: Why the file cannot be read; all else is empty then.  Empty if it can be read.
    problem: str = ""
    shape: str = ""  #: the node in words
    #: Bytes of each device that its running processes hold; shared memory counts once.
    used: tuple[int, ...] = ()
    capacity: tuple[int, ...] = ()  #: bytes of each device; empty if the file does not have them
    holders: tuple[Holder, ...] = ()

    @property
    def is_used(self) -> bool:
        """Whether a process that has not ended is in the node."""
        return any(holder.state != ENDED for holder in self.holders)


def node_names(directory: Path) -> tuple[str, ...]:
    """Return the names of the nodes that have a file in a runtime directory, in their order."""
    return tuple(sorted(path.name.removesuffix(SUFFIX) for path in directory.glob(f"*{SUFFIX}")))


def take_census(directory: Path, name: str) -> Census:
    """Read the file of a node; whatever it contains, do not wait."""
    try:
        # Without O_NONBLOCK, opening a pipe in its place would wait.
        fd = os.open(
            directory / f"{name}{SUFFIX}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        )
    except OSError as error:
        return Census(name, problem=f"cannot be opened: {error.strerror}")
    try:
        status = os.fstat(fd)
        header = read_header(fd) if stat.S_ISREG(status.st_mode) else None
        problem = _problem(fd, status, header)
        if problem or header is None:
            return Census(name, problem=problem)
        return _read(fd, directory, name, header)
    except OSError as error:
        return Census(name, problem=f"cannot be read: {error.strerror}")
    finally:
        os.close(fd)


def holders_of(directory: Path, name: str, device: int) -> tuple[MemoryHolder, ...]:
    """Return the running processes of this pid namespace that hold memory of a device, by their pids."""
    held = (
        (each, each.own.get(device, 0) + each.shared.get(device, 0))
        for each in take_census(directory, name).holders
        if each.state == RUNNING
    )
    return tuple(MemoryHolder(each.pid, _printable(each.command), nbytes) for each, nbytes in held if nbytes)


def other_holders(directory: Path, name: str, device: int) -> tuple[str, tuple[MemoryHolder, ...]]:
    """Return the other processes that hold memory of a device, the largest first: a text, and up to three records."""
    others = [
        (each.own.get(device, 0) + each.shared.get(device, 0), each)
        for each in take_census(directory, name).holders
        if each.state != ENDED and not (each.state == RUNNING and each.pid == os.getpid())
    ]
    held = sorted(((nbytes, each) for nbytes, each in others if nbytes), key=lambda pair: -pair[0])
    if not held:
        return "", ()
    shown = ", ".join(f"{_named(each)} {nbytes:,} bytes" for nbytes, each in held[:_SHOWN_HOLDERS])
    more = f" and {len(held) - _SHOWN_HOLDERS:,} more" if len(held) > _SHOWN_HOLDERS else ""
    text = (
        f"other processes of node {name!r} hold the rest: {shown}{more} (`peerlane ps` shows them; "
        "with another name=... in PEERLANE_NODE you get a node of your own)"
    )
    largest = held[:_SHOWN_HOLDERS]
    return text, tuple(MemoryHolder(each.pid, _printable(each.command), nbytes) for nbytes, each in largest)


def _printable(command: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in command)


def _named(holder: Holder) -> str:
    where = " of another pid namespace" if holder.state == FOREIGN else ""
    command = _printable(holder.command)
    program = command if len(command) <= _LONGEST_COMMAND else f"{command[:_LONGEST_COMMAND]}..."
    return f"process {holder.pid}{where}{f' ({program})' if program else ''}"


def _problem(fd: int, status: os.stat_result, header: Header | None) -> str:
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    if status.st_uid != os.geteuid():
        return f"belongs to user {status.st_uid}, and this is user {os.geteuid()}"
    if header is None:
        return "has no header: no process has finished making it"
    if header.magic != MAGIC:
        if header.magic[:-1] != MAGIC[:-1]:
            return "is not the file of a node"
        return _other_layout(fd, header)
    if not 1 <= header.devices <= MAX_DEVICES or header.slots != SLOTS:
        return f"claims {header.devices:,} devices and {header.slots:,} slots, which no node has"
    needed = _core.ledger_layout(header.devices, SLOTS)[0]
    if status.st_size < needed:
        return f"is cut short: {status.st_size:,} bytes of {needed:,}"
    return ""


def _other_layout(fd: int, header: Header) -> str:
    text = f"has layout {header.magic[-1]} of another release of peerlane, and this one reads {MAGIC[-1]}"
    # The slots' owners are at the same offsets in every layout.
    known = header.devices <= MAX_DEVICES and header.slots == SLOTS
    inside = [fields for _, fields in (owners(fd, header.devices) if known else ()) if is_running(*fields)]
    if not inside:
        return f"{text}; no process is in it: delete it, or the next process of the node replaces it"
    pids = ", ".join(str(owner & 0xFFFFFFFF) for owner, _ in inside[:_SHOWN_PIDS])
    more = f" and {len(inside) - _SHOWN_PIDS} more" if len(inside) > _SHOWN_PIDS else ""
    return f"{text}; ask that release's `peerlane ps`, or end its processes ({pids}{more}) and delete it"


def _read(fd: int, directory: Path, name: str, header: Header) -> Census:
    devices = header.devices
    _, entries_at, holdings_at, _ = _core.ledger_layout(devices, SLOTS)
    entries = _words(fd, entries_at, holdings_at - entries_at).reshape(-1, 2)[:, 1]
    device_of = (entries >> _DEVICE_SHIFT).astype(np.int64)
    bytes_of = entries & ((np.uint64(1) << _DEVICE_SHIFT) - np.uint64(1))
    known_device = device_of < devices
    alive = np.zeros(len(entries), dtype=bool)
    used = [0] * devices
    holders = []
    for slot, fields in owners(fd, devices):
        row = _row(fd, devices, slot, fields)
        if row is None:
            continue
        counters, bits = row
        held = bits[: len(entries)] & known_device
        shared = np.zeros(devices, dtype=np.uint64)
        np.add.at(shared, device_of[held], bytes_of[held])
        state = _state(*fields)
        if state != ENDED:
            alive |= held
            for device, nbytes in enumerate(counters.tolist()):
                used[device] += nbytes
        pid = fields[0] & 0xFFFFFFFF
        known = state == RUNNING
        pairs = np.flatnonzero(bits[len(entries) :][: devices * devices]).tolist()
        holders.append(
            Holder(
                pid=pid,
                state=state,
                command=_command(pid) if known else "",
                age_seconds=_age(pid) if known else None,
                own=_nonzero(counters.tolist()),
                shared=_nonzero(shared.tolist()),
                shared_blocks=int(held.sum()),
                peers=tuple(divmod(pair, devices) for pair in pairs),
                serves=state != ENDED and _is_socket(directory / socket_name(name, slot)),
            )
        )
    for index in np.flatnonzero(alive).tolist():
        used[device_of[index]] += int(bytes_of[index])
    return Census(
        name,
        shape=header.shape,
        used=tuple(used),
        capacity=_capacity(header),
        holders=tuple(sorted(holders, key=lambda holder: holder.pid)),
    )


def _row(
    fd: int, devices: int, slot: int, fields: tuple[int, int]
) -> tuple[Words, npt.NDArray[np.bool_]] | None:
    """Return a slot's counters and bits, all of one owner; None if the slot was freed meanwhile."""
    _, _, holdings_at, size = _core.ledger_layout(devices, SLOTS)
    counters = _words(fd, slot_offset(devices, slot) + SLOT.size, slot_stride(devices) - SLOT.size)
    bits = np.unpackbits(_words(fd, holdings_at + slot * size, size).view(np.uint8), bitorder="little")
    if os.pread(fd, SLOT.size, slot_offset(devices, slot)) != SLOT.pack(*fields):
        return None
    return counters, bits.view(np.bool_)  # each is 0 or 1


def _words(fd: int, at: int, size: int) -> Words:
    """Read 8-byte fields; fields behind the file's end are zero."""
    content = b""
    while len(content) < size and (more := os.pread(fd, size - len(content), at + len(content))):
        content += more
    return np.frombuffer(content.ljust(size, b"\0"), dtype="<u8")


def _nonzero(amounts: Iterable[int]) -> dict[int, int]:
    return {device: nbytes for device, nbytes in enumerate(amounts) if nbytes}


def _state(owner: int, namespace: int) -> str:
    if namespace != pid_namespace():
        return FOREIGN
    return RUNNING if is_running(owner, namespace) else ENDED


def _capacity(header: Header) -> tuple[int, ...]:
    try:
        config = NodeConfig.parse(header.spec)
    except Error:
        return ()
    return config.memory if config.digest.encode() == header.digest else ()


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return ""
    return " ".join(word.decode(errors="backslashreplace") for word in words)


def _age(pid: int) -> float | None:
    started = _core.start_time(pid) / os.sysconf("SC_CLK_TCK")
    try:
        uptime = float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return max(0.0, uptime - started) if started else None


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return False
