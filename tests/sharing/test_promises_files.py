"""The promises of docs/errors.md on memory that is passed as a file descriptor."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import peerlane as pl
from helpers.promises import Node
from peerlane.errors import Fault

G = 2 << 20
SEALS = 7  # against shrinking, growing and further seals
_ADD_SEALS = 1033

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(120)]


def _refused(kind: type[pl.Error], fault: Fault, work: Callable[[], object]) -> str:
    with pytest.raises(kind) as refused:
        work()
    assert refused.value.fault is fault, str(refused.value)
    return str(refused.value)


@contextlib.contextmanager
def _mapped(physical: pl.Physical) -> Iterator[pl.Buffer]:
    with pl.AddressRange(physical.device, physical.size) as rng:
        rng.map(physical)
        yield rng[: physical.size]


def _name(fd: int) -> str:
    return str(Path(f"/proc/self/fd/{fd}").readlink()).removeprefix("/memfd:").removesuffix(" (deleted)")


def _file(name: str, nbytes: int = G, seals: int = SEALS) -> int:
    fd = os.memfd_create(name, os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.ftruncate(fd, nbytes)
    fcntl.fcntl(fd, _ADD_SEALS, seals)
    return fd


@pytest.fixture
def true_name(node: Node) -> str:
    with pl.Physical(node()[0], G) as physical:
        fd = physical.export_fd()
        name = _name(fd)
        os.close(fd)
    return name


def test_open_fd_maps_the_same_memory_charged_once(node: Node) -> None:
    d0, d1 = node()[:2]
    with pl.Physical(d1, 2 * G) as physical, _mapped(physical) as address:
        fd = physical.export_fd()
        with pl.Physical.open_fd(fd, device=d0) as other, _mapped(other) as there:
            os.close(fd)
            assert (other.id, other.size, other.device, other.is_imported) == (physical.id, 2 * G, d1, True)
            address.view()[:] = 7
            there.view()[G:] = 9
            assert (there.view()[:G] == 7).all()
            assert (address.view()[G:] == 9).all()
            assert d1.total_bytes - d1.free_bytes == 2 * G  # charged once


def test_export_fd_each_time_gives_new_private_descriptor(node: Node) -> None:
    with pl.Physical(node()[0], G) as physical:
        fds = [physical.export_fd() for _ in range(3)]
        assert len(set(fds)) == 3
        assert not any(os.get_inheritable(fd) for fd in fds)
        os.close(fds[0])
        with pl.Physical.open_fd(fds[1]) as again:
            second = again.export_fd()  # imported memory can be exported too
        with pl.Physical.open_fd(second) as last:
            assert last.id == physical.id
        for fd in (fds[1], fds[2], second):
            os.close(fd)


CHILD = """
import os, socket, sys
import numpy as np
import peerlane as pl
G = 2 << 20
line = socket.socket(fileno=int(sys.argv[1]))
devices = pl.devices()
if sys.argv[2] == "make":
    with pl.Physical(devices[0], G) as physical, pl.AddressRange(devices[0], G) as rng:
        rng.map(physical)
        rng[:G].view()[:] = np.arange(G) % 251
        fd = physical.export_fd()
    socket.send_fds(line, [b"x"], [fd])
    if len(sys.argv) == 4:
        line.recv(1)
else:
    _, (fd,), _, _ = socket.recv_fds(line, 1, 1)
    with pl.Physical.open_fd(fd) as physical, pl.AddressRange(devices[0], G) as rng:
        rng.map(physical)
        part = rng[:G].view()
        assert (part == 5).all()
        part[:] = 6
        del part
        print(pl.devices()[0].free_bytes, flush=True)
        line.send(b"y")
        line.recv(1)
"""


@contextlib.contextmanager
def _child(spec: str, *args: str) -> Iterator[tuple[subprocess.Popen[str], socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ours.settimeout(60)
    env = {**os.environ, "PEERLANE_NODE": spec}
    command = [sys.executable, "-c", CHILD, str(theirs.fileno()), *args]
    with subprocess.Popen(command, env=env, pass_fds=[theirs.fileno()], text=True, stdout=-1) as process:
        theirs.close()
        try:
            yield process, ours
        finally:
            ours.close()
            if process.poll() is None:
                process.kill()


def _spec(tag: str) -> str:
    return f"name=files-{os.getpid()}-{tag},devices=1,memory=16MiB"


def _enter(spec: str) -> pl.Device:
    pl.leave_node()
    return pl.enter_node(spec)[0]


def test_export_fd_outlives_its_maker(node: Node) -> None:
    node()
    spec = _spec("gone")
    device = _enter(spec)
    with _child(spec, "make") as (process, line):
        _, (fd,), _, _ = socket.recv_fds(line, 1, 1)
        assert process.wait(60) == 0
        assert device.free_bytes == 16 << 20  # only the descriptor holds the memory
        with pl.Physical.open_fd(fd) as physical, _mapped(physical) as part:
            assert device.free_bytes == (16 << 20) - G
            assert (part.view() == np.arange(G) % 251).all()
        assert device.free_bytes == 16 << 20
        os.close(fd)


def test_open_fd_memory_outlives_killed_maker(node: Node) -> None:
    node()
    spec = _spec("killed")
    device = _enter(spec)
    with _child(spec, "make", "stay") as (process, line):
        _, (fd,), _, _ = socket.recv_fds(line, 1, 1)
        with pl.Physical.open_fd(fd) as physical, _mapped(physical) as part:
            os.close(fd)
            process.send_signal(signal.SIGKILL)
            process.wait(60)
            assert (part.view() == np.arange(G) % 251).all()
            assert device.free_bytes == (16 << 20) - G


def test_open_fd_in_other_process_shares_bytes_and_is_charged_once(node: Node) -> None:
    node()
    spec = _spec("both")
    device = _enter(spec)
    with pl.Physical(device, G) as physical, _mapped(physical) as part:
        part.fill(5)
        with _child(spec, "take") as (process, line):
            fd = physical.export_fd()
            socket.send_fds(line, [b"x"], [fd])
            os.close(fd)
            assert line.recv(1) == b"y"
            assert (part.view() == 6).all()
            assert process.stdout is not None
            assert int(process.stdout.readline()) == device.free_bytes == (16 << 20) - G
            line.send(b"z")
            assert process.wait(60) == 0


def test_export_fd_bad_rights_raises_invalid_value(node: Node) -> None:
    with pl.Physical(node()[0], G) as physical:
        text = _refused(pl.InvalidValue, Fault.INVALID_VALUE, lambda: physical.export_fd(rights="w"))
        assert "'r' and 'rw'" in text


def test_export_fd_read_only_refuses_writes(node: Node) -> None:
    device = node()[0]
    with pl.Physical(device, G) as physical, _mapped(physical) as address:
        address.fill(3)
        fd = physical.export_fd(rights="r")
        with pl.Physical.open_fd(fd) as reader, pl.AddressRange(device, G) as rng:
            assert reader.is_read_only
            _refused(pl.AccessDenied, Fault.READ_ONLY, lambda: rng.map(reader, access="rw"))
            rng.map(reader)
            assert (rng[:G].view() == 3).all()
            _refused(pl.AccessDenied, Fault.READ_ONLY, lambda: rng[:G].fill(4))
            _refused(pl.AccessDenied, Fault.READ_ONLY, reader.export_fd)
            os.close(reader.export_fd(rights="r"))
        os.close(fd)
        assert (address.view() == 3).all()


def test_export_fd_closed_raises_closed(node: Node) -> None:
    physical = pl.Physical(node()[0], G)
    physical.close()
    _refused(pl.Closed, Fault.CLOSED, physical.export_fd)


def test_export_fd_no_descriptor_left_raises_out_of_resources(node: Node) -> None:
    device = node()[0]
    with pl.Physical(device, G) as physical:
        fd = physical.export_fd()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        kept = []
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
            # Only the soft limit is lowered, because a hard one cannot be raised again; only dup obeys it.
            with contextlib.suppress(OSError):
                while True:
                    kept.append(os.dup(fd))
            text = _refused(pl.OutOfMemory, Fault.OUT_OF_RESOURCES, lambda: pl.Physical.open_fd(fd))
            assert "ulimit -n" in text
            one = physical.export_fd()  # raises the soft limit by itself
            os.close(one)
        finally:
            for each in kept:
                os.close(each)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.close(fd)


def test_open_fd_of_no_int_or_unused_number_raises(node: Node) -> None:
    node()
    for wrong in ("3", None, True, 3.0):
        with pytest.raises(TypeError, match="a descriptor is an int"):
            pl.Physical.open_fd(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be a Device"):
        pl.Physical.open_fd(3, device=0)  # type: ignore[arg-type]
    for beyond in (-1, 1 << 31, 1 << 70):
        _refused(pl.BadHandle, Fault.BAD_HANDLE, lambda fd=beyond: pl.Physical.open_fd(fd))  # type: ignore[misc]


def test_open_fd_of_other_file_raises_bad_handle(node: Node, tmp_path: Path) -> None:
    node()
    ends = os.pipe()
    pair = socket.socketpair()
    plain = os.open(tmp_path / "plain", os.O_RDWR | os.O_CREAT)
    os.ftruncate(plain, G)
    unnamed = _file("peerlane")
    longer = _file("peerlane:0:0:0:0")
    folder = os.open(tmp_path, os.O_RDONLY)
    closed = os.dup(plain)
    os.close(closed)
    try:
        for fd in (*ends, pair[0].fileno(), plain, unnamed, longer, folder, 0, closed):
            text = _refused(pl.BadHandle, Fault.BAD_HANDLE, lambda fd=fd: pl.Physical.open_fd(fd))  # type: ignore[misc]
            assert f"descriptor {fd} is" in text
    finally:
        for fd in (*ends, plain, unnamed, longer, folder):
            os.close(fd)
        for end in pair:
            end.close()


def test_open_fd_of_false_claim_raises_and_charges_nothing(true_name: str) -> None:
    free = pl.devices()[0].free_bytes
    claims = {
        "seals": _file(true_name, seals=SEALS & ~2),
        "no seals": _file(true_name, seals=0),
        "sealed to write": _file(true_name, seals=SEALS | 8),
        "empty": _file(true_name, 0),
        "cut": _file(true_name, G - 4096),
        "no granule": _file(true_name, G + 1),
        "more than there is": _file(true_name, 1 << 40),
        "device": _file(re.sub(r"(peerlane:\w+):0:", r"\1:77:", true_name)),
    }
    whole = _file(true_name)
    claims["write only"] = os.open(f"/proc/self/fd/{whole}", os.O_WRONLY)
    claims["path"] = os.open(f"/proc/self/fd/{whole}", os.O_PATH)
    for what, fd in claims.items():
        with pytest.raises(pl.BadHandle) as refused:
            pl.Physical.open_fd(fd)
        assert refused.value.fault in (Fault.FALSE_CLAIM, Fault.BAD_HANDLE), what
        os.close(fd)
    os.close(whole)
    assert pl.devices()[0].free_bytes == free


def test_open_fd_of_huge_pages_raises_bad_handle(true_name: str) -> None:
    try:
        fd = os.memfd_create(true_name, os.MFD_ALLOW_SEALING | os.MFD_HUGETLB)
    except OSError:
        pytest.skip("the kernel has no files of huge pages")
    os.ftruncate(fd, G)
    fcntl.fcntl(fd, _ADD_SEALS, SEALS)
    _refused(pl.BadHandle, Fault.BAD_HANDLE, lambda: pl.Physical.open_fd(fd))
    os.close(fd)


def test_open_fd_of_forged_id_leaves_true_memory_alone(true_name: str) -> None:
    device = pl.devices()[0]
    prefix = true_name[:-16]
    with pl.Physical(device, G) as true, _mapped(true) as mine:
        mine.fill(1)
        forged = _file(f"{prefix}{true.id:016x}")
        fd = true.export_fd()
        with pl.Physical.open_fd(fd) as same, pl.Physical.open_fd(forged) as other, _mapped(other) as theirs:
            assert same.id == other.id
            theirs.fill(2)
            assert (mine.view() == 1).all()
            with _mapped(same) as again:
                assert (again.view() == 1).all()
        os.close(forged)
        os.close(fd)
    assert device.free_bytes == device.total_bytes


def test_open_fd_of_other_node_raises_node_mismatch(true_name: str) -> None:
    node, rest = true_name.split(":", 2)[1:]
    for bit, named in ((32, "PEERLANE_NODE"), (0, "is of another machine")):
        other = _file(f"peerlane:{int(node, 16) ^ 1 << bit:016x}:{rest}")
        assert named in _refused(pl.BadHandle, Fault.NODE_MISMATCH, lambda fd=other: pl.Physical.open_fd(fd))
        os.close(other)


def test_open_fd_for_unreachable_device_raises_access_denied(node: Node) -> None:
    near, far = node("devices=4,switch=2,memory=16MiB")[::2]
    with pl.Physical(near, G) as physical:
        fd = physical.export_fd()
        _refused(pl.AccessDenied, Fault.PEER_UNREACHABLE, lambda: pl.Physical.open_fd(fd, device=far))
        os.close(fd)
    assert near.free_bytes == near.total_bytes


def test_open_fd_leaves_the_descriptor_to_the_caller(node: Node) -> None:
    node()
    with pl.Physical(pl.devices()[0], G) as physical:
        fd = physical.export_fd()
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(300):
            pl.Physical.open_fd(fd).close()
            with pytest.raises(pl.BadHandle):
                pl.Physical.open_fd(0)
        assert len(list(Path("/proc/self/fd").iterdir())) <= before
        os.close(fd)
        with pytest.raises(OSError) as closed:
            os.fstat(fd)
        assert closed.value.errno == errno.EBADF


def test_open_fd_from_threads_at_once_leaks_nothing(node: Node) -> None:
    device = node()[0]
    failures: list[pl.Error] = []
    with pl.Physical(device, G) as physical:
        fd = physical.export_fd()

        def work() -> None:
            try:
                for _ in range(100):
                    with pl.Physical.open_fd(fd) as one:
                        os.close(one.export_fd())
            except pl.Error as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        os.close(fd)
    assert not failures
    assert device.free_bytes == device.total_bytes
