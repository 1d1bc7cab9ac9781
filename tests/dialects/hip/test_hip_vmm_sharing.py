"""Virtual memory of HIP that processes share by file descriptors (facts/hip 3.6, 0.7)."""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from helpers.hip_memory import BEGIN, G, code, descriptions, hip_peer, ok, properties, read, spec, write
from helpers.peers import Peer
from helpers.prepared import run_python

Enter = Callable[..., ModuleType]
INVALID = "hipErrorInvalidValue"

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule, pytest.mark.timeout(120)]

MAKE = """
prop = hip.hipMemAllocationProp()
prop.type = hip.hipMemAllocationType.hipMemAllocationTypePinned
prop.location.type = hip.hipMemLocationType.hipMemLocationTypeDevice
prop.location.id = {device}
desc = hip.hipMemAccessDesc()
desc.location.type, desc.location.id = prop.location.type, {device}
desc.flags = hip.hipMemAccessFlags.hipMemAccessFlagsProtReadWrite
def mapped(handle):
    address = int(ok(hip.hipMemAddressReserve(G, 0, None, 0)))
    ok(hip.hipMemMap(address, G, 0, handle, 0))
    ok(hip.hipMemSetAccess(address, G, desc, 1))
    return address
def exported(handle):
    fd = ctypes.c_int(-1)
    ok(hip.hipMemExportToShareableHandle(ctypes.addressof(fd), handle, FD, 0))
    return fd.value
"""


def fd_type(hip: ModuleType) -> Any:
    return hip.hipMemAllocationHandleType.hipMemHandleTypePosixFileDescriptor


def exported(hip: ModuleType, handle: Any) -> int:
    """Return a new descriptor of memory."""
    fd = ctypes.c_int(-1)
    ok(hip.hipMemExportToShareableHandle(ctypes.addressof(fd), handle, fd_type(hip), 0))
    return fd.value


def mapped(hip: ModuleType, handle: Any, device: int = 0) -> int:
    """Map memory somewhere and let its device use it."""
    address = int(ok(hip.hipMemAddressReserve(G, 0, None, 0)))
    ok(hip.hipMemMap(address, G, 0, handle, 0))
    ok(hip.hipMemSetAccess(address, G, *descriptions(hip, **{f"d{device}": "ReadWrite"})))
    return address


@pytest.fixture
def line(tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """Return a socket that another process connects to, and its path."""
    path = str(tmp_path / "line")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(path)
        server.listen()
        server.settimeout(60)
        yield server, path


@pytest.fixture
def shared(
    hip_on: Enter, line: tuple[socket.socket, str]
) -> Iterator[tuple[ModuleType, Peer, socket.socket]]:
    node = spec("fds")
    hip = hip_on(node)
    with hip_peer(node) as other:
        other.run(MAKE.format(device=1))
        other.run(f"wire = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM); wire.connect({line[1]!r})")
        connection, _ = line[0].accept()
        with connection:
            connection.settimeout(60)
            yield hip, other, connection


def received(connection: socket.socket) -> int:
    return int(socket.recv_fds(connection, 1, 1)[1][0])


MAKE_AND_SEND = """
handle = ok(hip.hipMemCreate(G, prop, 0)); address = mapped(handle); write(address, b"\\x61" * G)
fd = exported(handle); socket.send_fds(wire, [b"x"], [fd]); os.close(fd)
"""


@pytest.mark.parametrize("form", ["the descriptor", "an address of an int", "an int object"])
def test_hip_mem_import_shares_bytes_in_both_directions(
    shared: tuple[ModuleType, Peer, socket.socket], form: str
) -> None:
    hip, other, connection = shared
    other.run(MAKE_AND_SEND)
    fd = received(connection)
    cell = ctypes.c_int(fd)
    shareable = {"the descriptor": fd, "an address of an int": ctypes.addressof(cell), "an int object": cell}[
        form
    ]
    handle = ok(hip.hipMemImportFromShareableHandle(shareable, fd_type(hip)))
    os.close(fd)
    address = mapped(hip, handle, 1)
    assert read(hip, address, G) == b"\x61" * G
    write(hip, address, b"\x62" * G)
    assert other.run("result = read(address, G) == b'\\x62' * G")
    other.run("write(address, b'\\x63' * G)")
    assert read(hip, address, G) == b"\x63" * G


def test_hip_mem_import_properties_equal_those_of_exporter(
    shared: tuple[ModuleType, Peer, socket.socket],
) -> None:
    hip, other, connection = shared
    other.run(MAKE_AND_SEND)
    fd = received(connection)
    handle = ok(hip.hipMemImportFromShareableHandle(fd, fd_type(hip)))
    os.close(fd)
    allocation_properties = ok(hip.hipMemGetAllocationPropertiesFromHandle(handle))
    assert (allocation_properties.type.name, allocation_properties.location.id) == (
        "hipMemAllocationTypePinned",
        1,
    )
    assert ctypes.c_int.from_address(int(allocation_properties) + 4).value == 1


def test_hip_mem_import_shared_memory_is_charged_once(shared: tuple[ModuleType, Peer, socket.socket]) -> None:
    hip, other, connection = shared
    ok(hip.hipSetDevice(1))
    before = hip.hipMemGetInfo()[1]
    other.run(MAKE_AND_SEND)
    fd = received(connection)
    handle = ok(hip.hipMemImportFromShareableHandle(fd, fd_type(hip)))
    os.close(fd)
    mapped(hip, handle, 1)
    assert hip.hipMemGetInfo()[1] == before - G
    other.run("ok(hip.hipMemRelease(handle)); ok(hip.hipMemUnmap(address, G))")
    assert hip.hipMemGetInfo()[1] == before - G
    other.kill()
    assert hip.hipMemGetInfo()[1] == before - G


@pytest.mark.parametrize("when", ["before", "after"])
def test_hip_mem_import_exporter_killed_memory_lives(
    shared: tuple[ModuleType, Peer, socket.socket], when: str
) -> None:
    hip, other, connection = shared
    other.run(MAKE_AND_SEND)
    fd = received(connection)
    if when == "before":
        other.kill()
    handle = ok(hip.hipMemImportFromShareableHandle(fd, fd_type(hip)))
    os.close(fd)
    address = mapped(hip, handle, 1)
    if when == "after":
        other.kill()
    assert read(hip, address, G) == b"\x61" * G
    write(hip, address, b"\x64" * G)
    assert read(hip, address, G) == b"\x64" * G


def test_hip_mem_import_memory_released_after_send_lives(
    shared: tuple[ModuleType, Peer, socket.socket],
) -> None:
    hip, other, connection = shared
    other.run(MAKE_AND_SEND + "ok(hip.hipMemUnmap(address, G)); ok(hip.hipMemRelease(handle))")
    fd = received(connection)
    address = mapped(hip, ok(hip.hipMemImportFromShareableHandle(fd, fd_type(hip))), 1)
    os.close(fd)
    assert read(hip, address, G) == b"\x61" * G


def test_hip_mem_export_by_importer_opens_again(shared: tuple[ModuleType, Peer, socket.socket]) -> None:
    hip, other, connection = shared
    handle = ok(hip.hipMemCreate(G, properties(hip, 1), 0))
    address = mapped(hip, handle, 1)
    write(hip, address, b"\x71" * G)
    fd = exported(hip, handle)
    socket.send_fds(connection, [b"x"], [fd])
    os.close(fd)
    other.run(
        "_, (fd,), _, _ = socket.recv_fds(wire, 1, 1); handle = ok(hip.hipMemImportFromShareableHandle(fd, FD))\n"
        "os.close(fd); fd = exported(handle); socket.send_fds(wire, [b'x'], [fd]); os.close(fd)"
    )
    fd = received(connection)
    again = mapped(hip, ok(hip.hipMemImportFromShareableHandle(fd, fd_type(hip))), 1)
    os.close(fd)
    assert read(hip, again, G) == b"\x71" * G


def test_hip_mem_import_descriptor_taken_by_pidfd_opens(
    shared: tuple[ModuleType, Peer, socket.socket],
) -> None:
    hip, other, _ = shared
    number = other.run(
        "handle = ok(hip.hipMemCreate(G, prop, 0)); write(mapped(handle), b'pid' + bytes(G - 3)); "
        "fd = exported(handle); result = fd"
    )
    system = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(other.pid)
    fd = system.syscall(438, pidfd, number, 0)  # pidfd_getfd
    os.close(pidfd)
    assert fd >= 0, os.strerror(ctypes.get_errno())
    address = mapped(hip, ok(hip.hipMemImportFromShareableHandle(fd, fd_type(hip))), 1)
    os.close(fd)
    assert read(hip, address, 3) == b"pid"


def test_hip_mem_import_in_exporting_process_shares_bytes(hip: ModuleType) -> None:
    handle = ok(hip.hipMemCreate(G, properties(hip), 0))
    free = hip.hipMemGetInfo()[1]
    first = mapped(hip, handle)
    fd = exported(hip, handle)
    other = ok(hip.hipMemImportFromShareableHandle(fd, fd_type(hip)))
    os.close(fd)
    second = mapped(hip, other)
    write(hip, first, b"own" + bytes(G - 3))
    assert read(hip, second, 3) == b"own"
    ok(hip.hipMemRelease(handle))
    ok(hip.hipMemUnmap(first, G))
    assert read(hip, second, 3) == b"own"
    assert hip.hipMemGetInfo()[1] == free


def test_hip_mem_export_each_call_returns_new_descriptor(hip: ModuleType) -> None:
    handle = ok(hip.hipMemCreate(G, properties(hip), 0))
    fds = [exported(hip, handle) for _ in range(3)]
    assert len(set(fds)) == 3
    for fd in fds:
        os.close(fd)


@pytest.mark.parametrize("requested", [0, 1])
def test_hip_mem_export_any_requested_handle_type_succeeds(hip: ModuleType, requested: int) -> None:
    handle = ok(hip.hipMemCreate(G, properties(hip, requested=requested), 0))
    os.close(exported(hip, handle))


def test_hip_mem_export_bad_arguments_return_codes_and_leak_nothing(hip: ModuleType) -> None:
    handle = ok(hip.hipMemCreate(G, properties(hip), 0))
    fd, kinds = ctypes.c_int(-1), hip.hipMemAllocationHandleType
    before = len(list(Path("/proc/self/fd").iterdir()))
    for what, arguments in {
        "NULL": (None, handle, fd_type(hip), 0),
        "no handle": (fd, None, fd_type(hip), 0),
        "another handle": (fd, 64, fd_type(hip), 0),
        "flags": (fd, handle, fd_type(hip), 1),
        "none": (fd, handle, kinds.hipMemHandleTypeNone, 0),
        "Win32": (fd, handle, kinds.hipMemHandleTypeWin32, 0),
        "fabric": (fd, handle, kinds.hipMemHandleTypeFabric, 0),
        "too small": (ctypes.c_short(), handle, fd_type(hip), 0),
    }.items():
        assert code(hip.hipMemExportToShareableHandle(*arguments)) == INVALID, what
    assert fd.value == -1
    assert (
        code(hip.hipMemExportToShareableHandle(0x1000, handle, fd_type(hip), 0)) == "hipErrorIllegalAddress"
    )
    with pytest.raises(TypeError):
        hip.hipMemExportToShareableHandle(fd, handle, 1, 0)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_hip_mem_import_bad_arguments_return_invalid_value(hip: ModuleType) -> None:
    handle = ok(hip.hipMemCreate(G, properties(hip), 0))
    fd, kinds = exported(hip, handle), hip.hipMemAllocationHandleType
    closed = os.dup(fd)
    os.close(closed)
    ends = os.pipe()
    for what, arguments in {
        "NULL": (None, fd_type(hip)),
        "0": (0, fd_type(hip)),
        "none": (fd, kinds.hipMemHandleTypeNone),
        "Win32": (fd, kinds.hipMemHandleTypeWin32),
        "closed": (closed, fd_type(hip)),
        "a pipe": (ends[0], fd_type(hip)),
        "no descriptor": (999_999, fd_type(hip)),
        "negative": (ctypes.c_int(-1), fd_type(hip)),
        "too small": (ctypes.c_short(fd), fd_type(hip)),
    }.items():
        result = hip.hipMemImportFromShareableHandle(*arguments)
        assert (code(result), result[1]) == (INVALID, None), what
    for each in (fd, *ends):
        os.close(each)


FAMILY = (
    BEGIN
    + "G = 2 << 20\n"
    + MAKE.format(device=0)
    + """
# Parent, child and grandchild: forked before anything uses HIP; descriptors travel by socket.
down, up = socket.socketpair()
further, last = socket.socketpair()
child = os.fork()
if child == 0:
    grandchild = os.fork()
    if grandchild == 0:
        _, (fd,), _, _ = socket.recv_fds(last, 1, 1)
        address = mapped(ok(hip.hipMemImportFromShareableHandle(fd, FD)))
        assert read(address, 8) == b"child..."
        write(address, b"grandson")
        os._exit(0)
    _, (fd,), _, _ = socket.recv_fds(up, 1, 1)
    handle = ok(hip.hipMemImportFromShareableHandle(fd, FD))
    address = mapped(handle)
    assert read(address, 8) == b"parent.."
    write(address, b"child...")
    socket.send_fds(further, [b"x"], [exported(handle)])
    os._exit(os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]))
handle = ok(hip.hipMemCreate(G, prop, 0))
address = mapped(handle)
write(address, b"parent..")
socket.send_fds(down, [b"x"], [exported(handle)])
assert os.waitpid(child, 0)[1] == 0
print(read(address, 8).decode())
"""
)


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:3"])
def test_hip_mem_import_in_child_and_grandchild_shares_bytes(schedule: str) -> None:
    env = {**os.environ, "PEERLANE_NODE": spec("family"), "PEERLANE_SCHEDULE": schedule}
    done = run_python(["-c", FAMILY], timeout=90, env=env)
    assert (done.returncode, done.stdout) == (0, "grandson\n"), done.stderr


INHERIT = (
    BEGIN
    + "import subprocess, sys\nG = 2 << 20\n"
    + MAKE.format(device=0)
    + """
if len(sys.argv) == 2:
    address = mapped(ok(hip.hipMemImportFromShareableHandle(int(sys.argv[1]), FD)))
    assert read(address, 6) == b"parent"
    write(address, b"child!")
else:
    handle = ok(hip.hipMemCreate(G, prop, 0))
    address = mapped(handle)
    write(address, b"parent")
    fd = exported(handle)
    subprocess.run([sys.executable, __file__, str(fd)], pass_fds=[fd], check=True)
    print(read(address, 6).decode())
"""
)


def test_hip_mem_import_in_started_program_shares_bytes(tmp_path: Path) -> None:
    program = tmp_path / "inherit.py"
    program.write_text(INHERIT)
    done = run_python([str(program)], timeout=90, env={**os.environ, "PEERLANE_NODE": spec("inherit")})
    assert (done.returncode, done.stdout) == (0, "child!\n"), done.stderr
