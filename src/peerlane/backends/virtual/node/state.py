"""The shared state of a node: a slot for each process in the node's file, whose layout is in ``node_file``.

Only its own process writes a slot's counters and bits, through ``_core.Ledger``.  Slots are claimed and freed under
an exclusive lock of the file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from peerlane import _core
from peerlane.backend.facts import MAX_DEVICES
from peerlane.backends.virtual.node.config import NodeConfig
from peerlane.backends.virtual.node.node_file import (
    AGREED_BYTES,
    MAGIC,
    SLOT,
    SLOTS,
    SUFFIX,
    is_running,
    owner_of,
    owners,
    pack_header,
    pid_namespace,
    read_header,
    slot_offset,
    slot_stride,
    socket_name,
)
from peerlane.errors import Error, Fault, InvalidValue, OutOfMemory, Refused, WaitTimeout
from peerlane.support.runtime_directory import existing_runtime_directory, runtime_directory
from peerlane.support.system_limits import of_system

_LOCK_SECONDS = 5.0

_claimed: set[tuple[int, int, int]] = (
    set()
)  # slots that this program has: the file's device and inode, and the slot


class NodeState:
    """This process's slot in the shared state of a node.

    ``config``: the node; its ``digest`` must agree with that of every live process under the same name.
    ``directory``: the directory of the file; the runtime directory by default.
    Raises InvalidValue: ``NODE_MISMATCH``: a live process uses the name for another shape; the text shows both.
    Raises OutOfMemory: ``OUT_OF_RESOURCES``: all slots belong to live processes.
    Raises WaitTimeout: another process held the lock for five seconds.

    ``ledger``: the slot's counters and bits, which the back-end writes.
    ``slot``: the number of this process's slot, 0..1023.
    """

    def __init__(self, config: NodeConfig, directory: Path | None = None) -> None:
        self._config = config
        self._path = _path(config, directory)
        self.directory = -1  #: a descriptor of the directory with the processes' sockets
        self._pid = os.getpid()
        self._exit = ExitStack()
        self._fd = _open(config, self._path)
        self._exit.callback(os.close, self._fd)
        try:
            self.directory = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self._exit.callback(os.close, self.directory)
            self._slots = _Slots(self._fd, self.directory, config)
            with _locked(self._fd, config, self._path):
                status = os.fstat(self._fd)
                if status.st_nlink == 0:  # the process that made it had no room, and has removed it
                    raise OSError(errno.ESTALE, "another process has just removed it; try again")
                try:
                    self._agree()
                    self.slot = self._claim()
                except OSError:
                    if status.st_size == 0:  # nobody else can have used it
                        self._path.unlink(missing_ok=True)
                    raise
            self._exit.callback(self._give_back)
            self.ledger = _core.Ledger(self._fd, config.devices, SLOTS, self.slot)
            self._exit.callback(self._leave_ledger)
        except OSError as error:
            self.close()
            raise _no_file(config, self._path, error) from error
        except BaseException:
            self.close()
            raise

    def reap(self) -> int:
        """Free the slots of dead processes; return their number."""
        if not self._slots.dead():
            return 0
        # `ulimit -f` may have been lowered since this process entered: then another process frees the slots.
        with _locked(self._fd, self._config, self._path), suppress(OSError):
            return self._slots.clear_dead()
        return 0

    def owner(self, slot: int) -> tuple[int, int] | None:
        """Return pid and low 32 bits of the start time of a slot's live process; None if there is none."""
        owner, namespace = self._slot(slot)
        return (owner & 0xFFFFFFFF, owner >> 32) if is_running(owner, namespace) else None

    def last_pid(self, slot: int) -> int | None:
        """Return the pid of a slot's process, even if it has ended; None if the slot is free."""
        return self._slot(slot)[0] & 0xFFFFFFFF or None

    def is_foreign(self, slot: int) -> bool:
        """Tell whether a slot's process is in another pid namespace, where pids cannot be compared."""
        owner, namespace = self._slot(slot)
        return owner != 0 and namespace != pid_namespace()

    def _slot(self, slot: int) -> tuple[int, int]:
        raw = os.pread(self._fd, SLOT.size, self._slots.offset(slot)) if 0 <= slot < SLOTS else b""
        owner, namespace = SLOT.unpack(raw) if len(raw) == SLOT.size else (0, 0)
        return owner, namespace

    def socket_name(self, slot: int) -> str:
        """Return the name, in :attr:`directory`, of the socket on which a slot's process serves handles."""
        return socket_name(self._config.name, slot)

    def serves(self, slot: int) -> bool:
        """Tell whether a slot's process serves handles, or has ended without removing its socket."""
        try:
            os.stat(self.socket_name(slot), dir_fd=self.directory, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def processes(self) -> tuple[int, ...]:
        """Return the pids of the live processes of the node."""
        return tuple(owner & 0xFFFFFFFF for _, (owner, ns) in self._slots.taken() if is_running(owner, ns))

    @property
    def path(self) -> Path:
        """The node's file."""
        return self._path

    def close(self) -> None:
        """Free the slot; idempotent.  A forked child does nothing: the slot belongs to its parent."""
        self._exit.close()

    def _give_back(self) -> None:
        if self._pid == os.getpid():
            with suppress(OSError):  # as `reap`: the slot is a dead process's then
                self._slots.clear(self.slot)
            _claimed.discard(_claim_of(self._fd, self.slot))

    def _leave_ledger(self) -> None:
        if (
            self._pid == os.getpid()
        ):  # in a forked child, a thread that does not exist there may hold its lock
            self.ledger.leave()

    def _agree(self) -> None:
        ours = pack_header(self._config)
        size = _core.ledger_layout(self._config.devices, SLOTS)[0]
        present = os.fstat(self._fd).st_size
        if os.pread(self._fd, AGREED_BYTES, 0) == ours[:AGREED_BYTES]:
            os.ftruncate(self._fd, max(size, present))
            return
        _refuse_shape(self._config, _other_shape(self._fd, besides=0))
        header = read_header(self._fd)
        if header is not None and header.devices <= MAX_DEVICES:
            for slot, _ in owners(self._fd, header.devices):
                self._slots.unlink_socket(slot)
        # Never truncated: a process that is unknown here may have it mapped, and would get a SIGBUS.
        # The bytes behind the slots mean nothing without an owner.
        _write(self._fd, bytes(min(present, self._slots.offset(SLOTS))), 0)
        os.ftruncate(self._fd, max(size, present))
        _write(self._fd, ours, 0)

    def _claim(self) -> int:
        slots = self._slots
        taken = _lived_in(self._fd, slots.taken())
        free = next((slot for slot in range(SLOTS) if slot not in taken), None)
        if free is None:
            raise OutOfMemory(
                f"node {self._config.name!r} has {SLOTS} live processes, the most that a node can have; "
                "end some, or give this one another node name",
                fault=Fault.OUT_OF_RESOURCES,
                detail=Refused(reason="slots", node=self._config.name, most=SLOTS),
            )
        fields = SLOT.pack(owner_of(self._pid), pid_namespace())
        # Allocate the pages before native code counts in them: a full directory must be an error, not a SIGBUS.
        os.posix_fallocate(self._fd, slots.offset(free), slot_stride(self._config.devices))
        os.posix_fallocate(self._fd, *slots.holdings(free))
        for slot, owner in list(slots.taken()):
            if slot not in taken:
                slots.unlink_socket(slot)
                if is_running(*owner):  # no other process would ever notice that this one has left the slot
                    slots.clear(slot)
        slots.clear(free)
        _write(self._fd, fields, slots.offset(free))
        _claimed.add(_claim_of(self._fd, free))
        return free


class _Slots:
    """The slots of a node's file.  Changing one needs the file's lock."""

    def __init__(self, fd: int, directory: int, config: NodeConfig) -> None:
        self._fd, self._directory, self._name, self._devices = fd, directory, config.name, config.devices

    def taken(self) -> Iterator[tuple[int, tuple[int, int]]]:
        yield from owners(self._fd, self._devices)

    def dead(self) -> list[int]:
        by_slot = dict(self.taken())
        living = _lived_in(self._fd, by_slot.items())
        return [slot for slot in by_slot if slot not in living]

    def clear_dead(self) -> int:
        dead = self.dead()
        for slot in dead:
            self.unlink_socket(slot)
            self.clear(slot)
        return len(dead)

    def unlink_socket(self, slot: int) -> None:
        with suppress(OSError):
            os.unlink(socket_name(self._name, slot), dir_fd=self._directory)

    def offset(self, slot: int) -> int:
        return slot_offset(self._devices, slot)

    def holdings(self, slot: int) -> tuple[int, int]:
        _, _, start, size = _core.ledger_layout(self._devices, SLOTS)
        return start + slot * size, size

    def clear(self, slot: int) -> None:
        start, size = self.holdings(slot)
        # The owner is cleared last, so that a slot that looks free is empty.
        _write(self._fd, bytes(size), start)
        _write(self._fd, bytes(slot_stride(self._devices) - SLOT.size), self.offset(slot) + SLOT.size)
        _write(self._fd, bytes(SLOT.size), self.offset(slot))


def tidy(config: NodeConfig, directory: Path | None = None) -> int:
    """Free the slots of a node's dead processes, and remove their sockets, without entering it; return their number.

    It makes no file, and leaves a file of another shape or layout as it is.

    Raises WaitTimeout: as :class:`NodeState`; only if there are slots to free.
    Raises Error: the file cannot be opened.
    """
    folder = directory or existing_runtime_directory()
    if folder is None or not (path := _path(config, folder)).exists():
        return 0
    agreed = pack_header(config)[:AGREED_BYTES]
    with ExitStack() as stack:
        fd = _open(config, path, create=False)
        stack.callback(os.close, fd)
        folder_fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, folder_fd)
        slots = _Slots(fd, folder_fd, config)
        if os.pread(fd, AGREED_BYTES, 0) != agreed or not slots.dead():
            return 0
        with _locked(fd, config, path):
            return slots.clear_dead() if os.pread(fd, AGREED_BYTES, 0) == agreed else 0


def _lived_in(fd: int, slots: Iterable[tuple[int, tuple[int, int]]]) -> set[int]:
    """Return the slots of live processes, without those that this process had before an `exec`."""
    by_process: dict[tuple[int, int], set[int]] = {}
    for slot, fields in slots:
        by_process.setdefault(fields, set()).add(slot)
    living: set[int] = set()
    for (owner, namespace), its in by_process.items():
        if is_running(owner, namespace):
            is_ours = owner & 0xFFFFFFFF == os.getpid() and namespace == pid_namespace()
            living |= {slot for slot in its if _claim_of(fd, slot) in _claimed} if is_ours else its
    return living


def _claim_of(fd: int, slot: int) -> tuple[int, int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino, slot


def refuse_other_shape(config: NodeConfig, directory: Path | None = None) -> None:
    """Raise ``NODE_MISMATCH`` if another live process uses the name for another shape."""
    path = _path(config, directory)
    fd = _open(config, path)
    try:
        with _locked(fd, config, path):
            header = os.pread(fd, AGREED_BYTES, 0)
            if header[-32:] != config.digest.encode():
                _refuse_shape(config, _other_shape(fd, besides=os.getpid()))
    finally:
        os.close(fd)


def _refuse_shape(config: NodeConfig, others: str | None) -> None:
    if others is not None:
        raise InvalidValue(
            f"node {config.name!r} is in use with another shape: this process asks for [{config.describe()}], live "
            f"processes have [{others}]; use the same shape, or give one of the two another name (name=... in "
            "PEERLANE_NODE)",
            fault=Fault.NODE_MISMATCH,
            detail=Refused(reason="other_shape", node=config.name, own_shape=config.describe(), shape=others),
        )


def _other_shape(fd: int, besides: int) -> str | None:
    """Return the shape in the header if a live process other than ``besides`` uses it, else None."""
    header = read_header(fd)
    if header is None or header.devices > MAX_DEVICES or header.slots != SLOTS:
        return None
    # The slots' owners are at the same offsets in every version of the layout.
    version = header.magic[-1] if header.magic[:-1] == MAGIC[:-1] else None
    if version is None:
        return None
    others = ((slot, it) for slot, it in owners(fd, header.devices) if it[0] & 0xFFFFFFFF != besides)
    if not _lived_in(fd, others):
        return None
    if version != MAGIC[-1]:
        return f"layout {version} of another release of peerlane"
    return header.shape or f"digest {header.digest.decode(errors='replace')}"


def _path(config: NodeConfig, directory: Path | None) -> Path:
    return (directory or runtime_directory()) / f"{config.name}{SUFFIX}"


def _open(config: NodeConfig, path: Path, *, create: bool = True) -> int:
    flags = os.O_RDWR | os.O_CREAT * create | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        fd = os.open(path, flags, 0o600)
    except OSError as error:
        raise _no_file(config, path, error) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _no_file(config, path, OSError(errno.EINVAL, "it is not a regular file"))
    return fd


def _no_file(config: NodeConfig, path: Path, error: OSError) -> Error:
    kind, remedy = of_system(error)
    return kind(
        f"cannot open the state of node {config.name!r} at {path}: {error.strerror}; {remedy}",
        fault=Fault.OUT_OF_RESOURCES,
        detail=Refused(reason="no_node_file", node=config.name, path=str(path), errno=error.errno),
    )


def _write(fd: int, content: bytes, at: int) -> None:
    while content:
        written = os.pwrite(fd, content, at)
        content, at = content[written:], at + written


@contextmanager
def _locked(fd: int, config: NodeConfig, path: Path) -> Iterator[None]:
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise WaitTimeout(
                    f"the state of node {config.name!r} ({path}) stayed locked for {_LOCK_SECONDS:g} s; a process "
                    "of this node is stopped: resume or end it",
                    detail=Refused(reason="locked", node=config.name, path=str(path), seconds=_LOCK_SECONDS),
                ) from None
            time.sleep(0.001)
    try:
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)
