"""The kernel calls that peerlane makes, each made here, and the limits of this process."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import platform
import resource
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from peerlane.cli.doctor.finding import ABSENT, LIMITED, MISSING, Finding, about
from peerlane.diagnostics.log import event_log
from peerlane.testing.procs import run_python

_PAGE = mmap.PAGESIZE
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_SO_PEERPIDFD = 77
_FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "ppc64le": 221, "s390x": 238}
_FUTEX_WAIT, _FUTEX_WAKE = 0, 1
_KEEP_SIZE_AND_PUNCH = 3
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_MAP_NORESERVE = 0x4000
_WINDOW, _LEAST_WINDOW, _ENOUGH_WINDOW = 64 << 40, 1 << 30, 64 << 30
_ENOUGH_DESCRIPTORS, _ENOUGH_MAPPINGS, _ENOUGH_MEMORY = 4096, 65530, 512 << 20
_SECONDS = 20.0
_KERNEL = "a newer kernel, or a container whose seccomp profile lets the call pass"

_libc = ctypes.CDLL(None, use_errno=True)


class _Call(NamedTuple):
    """A trial of the kernel: ``attempt`` returns its result, and raises OSError if the kernel refuses."""

    what: str
    attempt: Callable[[], str]
    otherwise: str  # the state if it fails
    lost: str
    remedy: str = _KERNEL


def kernel() -> list[Finding]:
    """Try each call that peerlane makes and that some kernels and containers lack."""
    return [*(_tried(call) for call in _calls()), _address_space()]


def _calls() -> tuple[_Call, ...]:
    return (
        _Call("memfd_create, sealed", _sealed_memory, MISSING, "device memory: nothing can be allocated"),
        _Call(
            "/proc/self/fd",
            _reopened,
            MISSING,
            "read-only handles, and sockets with long paths",
            "mount /proc",
        ),
        _Call("pidfd_open", _pidfd, MISSING, "seeing that another process has ended; `peerlane launch`"),
        _Call("eventfd, epoll", _eventfd, MISSING, "waits, and serving handles to other processes"),
        _Call("futex, shared", _futex, MISSING, "waits for notifies of other processes"),
        _Call("descriptors by socket", _sent, MISSING, "sharing memory with other processes"),
        _Call(
            "SO_PEERPIDFD",
            _pidfd_of_peer,
            ABSENT,
            "the surest way to see that a peer has ended; its pid and start time are used instead",
            "",
        ),
        _Call(
            "process_vm_readv",
            _read_of_other,
            LIMITED,
            "transfers of host memory between processes in the nixl dialect; collectives and messages copy it twice",
            "sysctl kernel.yama.ptrace_scope=0; in a container also --cap-add=SYS_PTRACE",
        ),
        _Call(
            "fallocate, punching",
            _punched,
            LIMITED,
            "giving back the pages of event logs: `peerlane check` takes more memory",
        ),
        _Call(
            "child subreaper",
            _subreaper,
            LIMITED,
            "ending processes whose parent has ended, in `peerlane launch` and in pytest",
        ),
        _Call(
            "/proc/self/task",
            _syscall_of_thread,
            LIMITED,
            "proofs of deadlocks: such waits last until their time-out",
            "mount /proc, and let processes read their own /proc/self/task/*/syscall",
        ),
        _Call(
            "/proc children",
            _children,
            ABSENT,
            "quick look-ups of a test's processes in pytest; it searches all processes instead",
            "a kernel with CONFIG_PROC_CHILDREN",
        ),
    )


def _tried(call: _Call) -> Finding:
    try:
        present = call.attempt()
    except OSError as error:
        why = f"refused: {error.strerror or error}"
        return Finding(call.what, why, call.otherwise, call.lost, call.remedy)
    return Finding(call.what, present)


@contextmanager
def _memory() -> Iterator[int]:
    fd = os.memfd_create("peerlane-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, _PAGE)
        yield fd
    finally:
        os.close(fd)


def _sealed_memory() -> str:
    with _memory() as fd:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        with mmap.mmap(fd, _PAGE) as mapped:
            mapped[:4] = b"peer"
        if os.pread(fd, 4, 0) != b"peer":
            raise OSError(errno.EIO, "bytes written to a mapping are not in the file")
    return "works"


def _address_space() -> Finding:
    """Reserve what a node does, twice: the addresses of devices, and those by which peerlane reaches the bytes."""
    kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    what, remedy = "address space", "a higher `ulimit -v`"
    size, why = _WINDOW, ""
    while size >= _LEAST_WINDOW:
        try:
            with closing(mmap.mmap(-1, size, kind, 0)), closing(mmap.mmap(-1, size, kind, 0)):
                amount = f"twice {about(size)} can be reserved"
                if size >= _ENOUGH_WINDOW:
                    return Finding(what, amount)
                return Finding(what, amount, LIMITED, f"more than {about(size)} of device memory", remedy)
        except OSError as error:
            size, why = size // 2, error.strerror or str(error)
    return Finding(what, f"refused: {why}", MISSING, "device memory: nothing can be allocated", remedy)


def _reopened() -> str:
    with _memory() as fd:
        os.close(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC))
    return "works"


def _pidfd() -> str:
    descriptor = os.pidfd_open(os.getpid())
    try:
        if select.select([descriptor], [], [], 0)[0]:
            raise OSError(errno.EIO, "it says that this process has ended")
    finally:
        os.close(descriptor)
    return "works"


def _eventfd() -> str:
    descriptor = os.eventfd(1, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    try:
        with select.epoll() as poll:
            poll.register(descriptor, select.EPOLLIN)
            if not poll.poll(1.0):
                raise OSError(errno.EIO, "epoll does not tell of an eventfd")
    finally:
        os.close(descriptor)
    return "works"


def _futex() -> str:
    number = _FUTEX.get(platform.machine())
    if number is None:
        return f"not tried: its number on {platform.machine()} is not known here"
    with _memory() as fd, mmap.mmap(fd, _PAGE) as mapped:
        word = ctypes.c_uint32.from_buffer(mapped)
        try:
            # It must not sleep: the word is 0, not 1.
            waited = _libc.syscall(number, ctypes.byref(word), _FUTEX_WAIT, 1, None, None, 0)
            if waited == 0 or ctypes.get_errno() != errno.EAGAIN:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            if _libc.syscall(number, ctypes.byref(word), _FUTEX_WAKE, 1, None, None, 0) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        finally:
            del word  # else the mapping cannot be closed
    return "works"


def _sent() -> str:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs, _memory() as fd:
        ours.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        socket.send_fds(ours, [b"x"], [fd])
        _, got, _, _ = socket.recv_fds(theirs, 1, 1)
        if not got:
            raise OSError(errno.EIO, "no descriptor arrived")
        os.close(got[0])
    return "works"


def _pidfd_of_peer() -> str:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        os.close(ours.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD))
    return "works"


def _read_of_other() -> str:
    byte = ctypes.create_string_buffer(b"x")
    words = ["-m", "peerlane.cli.doctor.programs", "read_parent", str(os.getpid())]
    try:
        done = run_python([*words, str(ctypes.addressof(byte))], timeout=_SECONDS)
    except AssertionError:
        raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None
    number = int(done.stdout) if done.stdout.strip().isdecimal() else errno.EIO
    if number:
        raise OSError(number, os.strerror(number))
    return "works between processes of this user"


def _punched() -> str:
    with _memory() as fd:
        at, size = ctypes.c_int64(0), ctypes.c_int64(_PAGE)
        if _libc.fallocate(fd, _KEEP_SIZE_AND_PUNCH, at, size) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "works"


def _subreaper() -> str:
    before = ctypes.c_int()
    if (
        _libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0) != 0
        or _libc.prctl(_PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0) != 0
    ):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "works"


def _syscall_of_thread() -> str:
    Path(f"/proc/self/task/{threading.get_native_id()}/syscall").read_bytes()
    return "can be read"


def _children() -> str:
    Path("/proc/thread-self/children").read_bytes()
    return "can be read"


def limits() -> list[Finding]:
    """Return the limits that bound what this process can do."""
    return [_descriptors(), _mappings(), _memory_left(), _overcommit(), _processors(), _shared_memory()]


def _descriptors() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    amount = _number(soft)
    if soft != hard:
        amount += f"; peerlane raises it to {_number(hard)} when it needs more"
    if hard != resource.RLIM_INFINITY and hard < _ENOUGH_DESCRIPTORS:
        lost = f"more than about {hard:,} allocations of 2 MiB or more: each takes a descriptor"
        return Finding("open files", amount, LIMITED, lost, "a higher `ulimit -Hn`")
    return Finding("open files", amount)


def _number(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else f"{limit:,}"


def _mappings() -> Finding:
    text = text_of("/proc/sys/vm/max_map_count")
    if not text.isdecimal():
        return Finding("max_map_count", "cannot be read")
    lost = "large numbers of allocations of 2 MiB or more: each takes a mapping"
    is_enough = int(text) >= _ENOUGH_MAPPINGS
    amount = f"{int(text):,}"
    if is_enough:
        return Finding("max_map_count", amount)
    return Finding("max_map_count", amount, LIMITED, lost, f"sysctl vm.max_map_count={_ENOUGH_MAPPINGS}")


def _memory_left() -> Finding:
    values = dict(line.split(":", 1) for line in text_of("/proc/meminfo").splitlines() if ":" in line)
    if "MemAvailable" not in values:
        return Finding("memory", "cannot be read")
    total, left = (int(values[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    amount = f"{about(left)} of {about(total)} available"
    limit = group_limit()
    if limit is not None:
        amount += f"; the control group may use {about(limit)}"
    least = left if limit is None else min(left, limit)
    if least < _ENOUGH_MEMORY:
        lost = "devices hold no more bytes than there is memory; a process that takes more is killed"
        return Finding("memory", amount, LIMITED, lost, "end other programs, or raise the container's limit")
    return Finding("memory", amount)


def group_limit(root: Path = Path("/sys/fs/cgroup"), own: str | None = None) -> int | None:
    """Return the least memory limit of this process's control group and of those around it; None if there is none."""
    lines = (text_of("/proc/self/cgroup") if own is None else own).splitlines()
    memory_limits: list[int] = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        base, name = (
            (root / "memory", "memory.limit_in_bytes") if controllers else (root, "memory.max")
        )  # version 1, version 2
        inside = base / path.lstrip("/")
        for folder in (inside, *inside.parents):
            text = text_of(folder / name)
            if text.isdecimal() and int(text) < 1 << 60:  # version 1 says so for "none"
                memory_limits.append(int(text))
            if folder == base:
                break
    return min(memory_limits, default=None)


def _overcommit() -> Finding:
    text = text_of("/proc/sys/vm/overcommit_memory")
    meaning = {"0": "by guess", "1": "always", "2": "strictly"}.get(text, "")
    if text == "2":
        lost = "memory that was allocated and not yet written counts, so allocations fail early"
        return Finding(
            "overcommit_memory", f"{text} ({meaning})", LIMITED, lost, "sysctl vm.overcommit_memory=0"
        )
    return Finding("overcommit_memory", f"{text} ({meaning})" if meaning else "cannot be read")


def _processors() -> Finding:
    usable, there = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    quota, _, period = text_of("/sys/fs/cgroup/cpu.max").partition(" ")
    amount = f"{usable} of {there} may be used"
    if quota.isdecimal() and period.isdecimal():
        amount += f"; the control group has the time of {int(quota) / int(period):.1f}"
    return Finding("processors", amount)


def _shared_memory() -> Finding:
    lost = "event logs in memory: those of `peerlane check` go to the temporary directory, and cost more"
    remedy = "in a container: --shm-size=2g"
    try:
        free = os.statvfs("/dev/shm")
    except OSError as error:
        return Finding("/dev/shm", f"refused: {error.strerror}", LIMITED, lost, remedy)
    room = free.f_bavail * free.f_frsize
    is_fine = room > event_log.DEFAULT_BYTES and os.access("/dev/shm", os.W_OK)
    amount = f"{about(room)} free" + ("" if os.access("/dev/shm", os.W_OK) else ", not writable")
    return Finding("/dev/shm", amount) if is_fine else Finding("/dev/shm", amount, LIMITED, lost, remedy)


def text_of(path: str | Path) -> str:
    """Return the text of a file of the system; empty if it cannot be read."""
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""
