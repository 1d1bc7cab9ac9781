"""The dialect mooncake between processes: bytes, late registrations, ends, deaths, forks, hostile bytes."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import numpy as np
import pytest

import peerlane as pl
from helpers.peers import Peer, peer
from helpers.promised import overdue
from helpers.promises import Node
from peerlane.dialects import mooncake as dialect
from peerlane.dialects.mooncake._segments import decode
from peerlane.dialects.mooncake.engine import (
    Read,
    TransferEngine,
    TransferNotify,
    TransferOpcode,
    Write,
)

pytestmark = pytest.mark.schedules_in_turn

Shared: TypeAlias = tuple[pl.Device, pl.Device, Peer]
SIZE = 1 << 20

OTHER = f"""
import numpy as np
from peerlane.dialects import mooncake
from peerlane.dialects.mooncake.engine import TransferEngine, TransferNotify, Write
other = TransferEngine()
other.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "")
device = pl.devices()[1].allocate({SIZE})
device.fill(0)
host = np.zeros({SIZE}, np.uint8)
kept = other.batch_register_memory([device.address, host.ctypes.data], [{SIZE}, {SIZE}])
result = [other.get_rpc_port(), device.address, host.ctypes.data]
"""


class Ends:
    """An engine of this process, and one of another process with registered memory of both kinds."""

    def __init__(self, device: pl.Device, other: Peer) -> None:
        self.other = other
        port, self.device_there, self.host_there = other.run(OTHER)
        self.there = f"127.0.0.1:{port}"
        self.engine = TransferEngine()
        self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "")
        self.host = np.arange(SIZE).astype(np.uint8)
        self.device = device.allocate(SIZE)
        self.device.view()[:] = self.host[::-1]
        kept = [self.device.address, int(self.host.ctypes.data)]
        assert self.engine.batch_register_memory(kept, [SIZE, SIZE]) == 0

    def local(self, kind: str) -> int:
        """Return where this process's memory of a kind begins."""
        return self.device.address if kind == "device" else int(self.host.ctypes.data)

    def remote(self, kind: str) -> int:
        """Return where the other process's memory of a kind begins."""
        return int(self.device_there if kind == "device" else self.host_there)

    def content(self, kind: str) -> bytes:
        """Return this process's bytes of a kind."""
        return bytes(self.device.view() if kind == "device" else self.host)

    def content_there(self, kind: str, size: int) -> bytes:
        """Return the other process's first bytes of a kind."""
        what = "device.view()" if kind == "device" else "host"
        return bytes.fromhex(self.other.run(f"result = {what}[:{size}].tobytes().hex()"))

    def write(self, kind: str, size: int = 64) -> int:
        """Write to memory of the other process."""
        return self.engine.transfer_sync_write(self.there, self.local("host"), self.remote(kind), size)


@pytest.fixture
def ends(shared: Shared) -> Ends:
    return Ends(shared[0], shared[2])


@pytest.fixture
def far(node: Node) -> Iterator[Ends]:
    """Yield ends on two machines, which have no memory in common."""
    device, _ = node(f"name=far-{os.getpid()},devices=2")
    with peer(f"name=farther-{os.getpid()},devices=2", PEERLANE_MACHINE="another") as other:
        yield Ends(device, other)


KINDS = pytest.mark.parametrize(
    "mine, theirs", [(a, b) for a in ("device", "host") for b in ("device", "host")]
)


@pytest.mark.parametrize("size", [1, 64, 40_000, SIZE])
@KINDS
def test_mooncake_write_and_read_between_processes_bring_the_bytes(
    ends: Ends, mine: str, theirs: str, size: int
) -> None:
    _check_write_and_read(ends, mine, theirs, size)


@pytest.mark.parametrize("size", [1, SIZE])
@KINDS
def test_mooncake_write_and_read_between_machines_bring_the_bytes(
    far: Ends, mine: str, theirs: str, size: int
) -> None:
    _check_write_and_read(far, mine, theirs, size)


def test_mooncake_large_transfer_between_machines_goes_in_several_frames(far: Ends) -> None:
    size = (9 << 20) + 5
    there = far.other.run(
        f"large = np.zeros({size}, np.uint8); other.register_memory(large.ctypes.data, {size})\n"
        "result = large.ctypes.data"
    )
    source = np.random.default_rng(3).integers(0, 256, size, np.uint8)
    back = np.zeros(size, np.uint8)
    for each in (source, back):
        assert far.engine.register_memory(int(each.ctypes.data), size) == 0
    assert far.engine.transfer_sync_write(far.there, int(source.ctypes.data), there, size) == 0
    assert far.engine.transfer_sync_read(far.there, int(back.ctypes.data), there, size) == 0
    assert (source == back).all()


def _check_write_and_read(ends: Ends, mine: str, theirs: str, size: int) -> None:
    notify = TransferNotify("came", str(size))
    call = ends.engine.transfer_sync
    assert call(ends.there, ends.local(mine), ends.remote(theirs), size, Write, notify) == 0
    notes = ends.other.run("result = [[each.name, each.msg] for each in other.get_notifies()]")
    assert notes == [["came", str(size)]]
    assert ends.content_there(theirs, size) == ends.content(mine)[:size]
    ends.other.run("device.fill(3); host[:] = 4")
    before = ends.content(mine)
    number = ends.engine.batch_transfer_async_read(
        ends.there, [ends.local(mine)], [ends.remote(theirs)], [size]
    )
    assert ends.engine.get_batch_transfer_status([number]) == 0
    assert ends.content(mine) == bytes([3 if theirs == "device" else 4]) * size + before[size:]


def test_mooncake_memory_registered_after_the_first_transfer_is_reached(ends: Ends) -> None:
    assert ends.write("host") == 0
    there = ends.other.run(
        "later = pl.devices()[0].allocate(G); later.fill(0)\n"
        "other.register_memory(later.address, G); result = later.address"
    )
    assert ends.engine.transfer_sync_write(ends.there, ends.local("device"), there, 100) == 0
    assert bytes.fromhex(ends.other.run("result = later.view()[:101].tobytes().hex()")) == (
        ends.content("device")[:100] + b"\0"
    )


def test_mooncake_threads_that_use_new_memory_at_once_all_write(ends: Ends) -> None:
    count, size = 16, 2 << 20
    targets = ends.other.run(
        f"many = [pl.devices()[1].allocate({size}) for _ in range({count})]\n"
        "result = [each.address for each in many if not other.register_memory(each.address, each.size)]"
    )
    assert len(targets) == count
    begin = threading.Barrier(8)

    def write(first: int) -> list[int]:
        begin.wait(30)
        return [
            ends.engine.transfer_sync_write(ends.there, ends.local("host"), targets[(first + at) % count], 64)
            for at in range(count)
        ]

    with ThreadPoolExecutor(8) as threads:
        assert set(itertools.chain(*threads.map(write, range(8), timeout=30))) == {0}
    wanted = list(ends.content("host")[:64])
    assert (
        ends.other.run(f"result = [each.view()[:64].tolist() == {wanted} for each in many]") == [True] * count
    )


@pytest.mark.parametrize("kind", ["device", "host"])
def test_mooncake_unregistered_memory_of_another_process_is_refused(ends: Ends, kind: str) -> None:
    assert ends.write(kind) == 0
    name = "device.address" if kind == "device" else "host.ctypes.data"
    ends.other.run(f"device.fill(0); host[:] = 0; result = other.unregister_memory({name})")
    assert ends.write(kind) == -1
    assert "not registered memory of" in dialect.explain()
    assert not any(ends.content_there(kind, 64))
    ends.other.run(f"result = other.register_memory({name}, 80)")
    assert [ends.write(kind, size) for size in (80, 81)] == [0, -1]
    assert ends.content_there(kind, 80) == ends.content("host")[:80]


def test_mooncake_memory_that_another_process_freed_is_refused(ends: Ends) -> None:
    assert ends.write("device") == 0
    ends.other.run("device.close()")
    assert ends.write("device") == -1
    assert "its registered memory (1,048,576 bytes)" in dialect.explain()


def test_mooncake_small_device_memory_with_a_view_is_refused_with_what_to_do(ends: Ends) -> None:
    there = ends.other.run(
        "held = pl.devices()[0].allocate(64); seen = held.view()\n"
        "result = held.address, other.register_memory(held.address, 64)"
    )[0]
    assert ends.engine.transfer_sync_write(ends.there, ends.local("host"), there, 64) == -1
    assert "allocate 2 MiB or more" in dialect.explain()
    ends.other.run("del seen; import gc; gc.collect()")
    assert ends.engine.transfer_sync_write(ends.there, ends.local("host"), there, 64) == 0


@pytest.mark.parametrize("kind", ["device", "host"])
def test_mooncake_killed_process_fails_all_calls_within_a_deadline(ends: Ends, kind: str) -> None:
    assert ends.write(kind) == 0
    ends.other.kill()
    begin = time.monotonic()
    assert ends.write(kind) == -1
    assert ends.engine.transfer_submit_write(ends.there, ends.local("host"), ends.remote(kind), 64) == 0
    assert ends.engine.send_probe(ends.there) == -102
    assert ends.engine.get_first_buffer_address(ends.there) == 0
    assert time.monotonic() - begin < overdue(2.0)
    explanation = dialect.explain()
    assert "cannot be reached" in explanation and "get_rpc_port()" in explanation


def test_mooncake_process_killed_during_a_transfer_ends_it(ends: Ends) -> None:
    size = 128 << 20
    there = ends.other.run(
        f"large = np.zeros({size}, np.uint8); other.register_memory(large.ctypes.data, {size})\n"
        "result = large.ctypes.data"
    )
    source = np.ones(size, np.uint8)
    assert ends.engine.register_memory(int(source.ctypes.data), size) == 0
    number = ends.engine.transfer_submit_write(ends.there, int(source.ctypes.data), there, size)
    ends.other.kill()
    deadline = time.monotonic() + 30
    while (status := ends.engine.transfer_check_status(number)) == 0:
        assert time.monotonic() < deadline
    assert status == -1


@pytest.mark.parametrize("between", ["processes", "machines"])
@pytest.mark.parametrize("opcode", [Read, Write])
def test_mooncake_far_memory_with_a_hole_moves_nothing(
    request: pytest.FixtureRequest, between: str, opcode: TransferOpcode
) -> None:
    ends: Ends = request.getfixturevalue("ends" if between == "processes" else "far")
    there = ends.other.run(
        "import ctypes, mmap\n"
        "unmap = ctypes.CDLL(None).munmap; unmap.argtypes = ctypes.c_void_p, ctypes.c_size_t\n"
        f"memory = mmap.mmap(-1, {SIZE}); at = ctypes.addressof(ctypes.c_char.from_buffer(memory))\n"
        f"unmap(at + {SIZE // 2}, mmap.PAGESIZE); result = other.register_memory(at, {SIZE}) or at"
    )
    before = ends.content("host"), ends.content("device")
    pieces = [ends.local("device"), ends.local("host")], [ends.remote("device"), there], [SIZE, SIZE]
    assert ends.engine.batch_transfer_sync(ends.there, *pieces, opcode) == -1
    assert ends.engine.batch_transfer_async(ends.there, *pieces, opcode) == 0
    assert "not all of" in dialect.explain()
    assert (ends.content("host"), ends.content("device")) == before
    assert not any(ends.content_there("device", SIZE))
    assert not any(bytes.fromhex(ends.other.run("result = memory[:4096].hex()")))


@pytest.mark.parametrize("between", ["processes", "machines"])
def test_mooncake_far_registration_of_freed_memory_reaches_no_later_allocation(
    request: pytest.FixtureRequest, between: str
) -> None:
    ends: Ends = request.getfixturevalue("ends" if between == "processes" else "far")
    ends.other.run(
        f"at = device.address; device.close(); device = pl.devices()[1].allocate({SIZE}); device.fill(3)\n"
        "assert device.address == at, 'the allocator did not use the address again'"
    )
    assert ends.write("device") == -1
    assert ends.content_there("device", SIZE) == bytes([3]) * SIZE


def test_mooncake_notify_that_is_no_utf8_comes_to_another_process(ends: Ends) -> None:
    notify = TransferNotify(b"\xff", "m")  # type: ignore[arg-type]
    local, there = ends.local("host"), ends.remote("host")
    assert ends.engine.transfer_sync(ends.there, local, there, 64, Write, notify) == 0
    notes = ends.other.run("result = [[each.name, each.msg] for each in other.get_notifies()]")
    assert notes == [["\ufffd", "m"]]


@pytest.mark.parametrize("between", ["processes", "machines"])
def test_mooncake_killed_process_that_had_forked_is_noticed_at_once(
    request: pytest.FixtureRequest, between: str
) -> None:
    ends: Ends = request.getfixturevalue("ends" if between == "processes" else "far")
    assert ends.write("host") == 0
    parent, child = ends.other.run(
        "import os, signal\nchild = os.fork()\nif child == 0: signal.alarm(60); signal.pause(); os._exit(0)\n"
        "result = os.getpid(), child"
    )
    assert ends.write("host") == 0  # the child has closed its own descriptors only
    exit = os.pidfd_open(parent)
    try:
        os.kill(parent, signal.SIGKILL)
        assert select.select([exit], [], [], 30)[0]
        begin = time.monotonic()
        assert [ends.write("host"), ends.engine.send_probe(ends.there)] == [-1, -102]
        assert "Connection refused" in dialect.explain()
        assert time.monotonic() - begin < overdue(1.0)
        os.kill(child, 0)  # it lives
    finally:
        os.close(exit)
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("kind", ["device", "host"])
def test_mooncake_killed_machine_fails_all_calls_within_a_deadline(far: Ends, kind: str) -> None:
    assert far.write(kind) == 0
    far.other.kill()
    begin = time.monotonic()
    assert far.write(kind) == -1
    assert far.engine.transfer_submit_write(far.there, far.local("host"), far.remote(kind), 64) == 0
    assert time.monotonic() - begin < overdue(2.0)


@pytest.mark.parametrize("wrong", ["beyond", "unknown"])
def test_mooncake_wrong_address_of_another_machine_writes_nothing(far: Ends, wrong: str) -> None:
    near = far.local("host")
    bad = far.host_there + SIZE - 8 if wrong == "beyond" else 4096
    pieces = ([near, near], [far.host_there, bad], [64, 64])
    assert far.engine.batch_transfer_sync(far.there, *pieces, Write) == -1
    assert far.engine.batch_transfer_sync(far.there, *pieces, Read) == -1
    assert "are not registered" in dialect.explain()
    assert not any(far.content_there("host", SIZE))
    assert far.content("host") == bytes(np.arange(SIZE).astype(np.uint8))


def test_mooncake_engine_that_takes_the_port_of_another_one_is_a_new_segment(ends: Ends) -> None:
    assert ends.write("host") == 0
    port, device, host = ends.other.run(OTHER)
    assert ends.engine.transfer_sync_write(f"127.0.0.1:{port}", ends.local("device"), host, 64) == 0
    assert ends.write("host") == -1  # the older engine has ended with its last reference
    assert device


def test_mooncake_engine_of_the_parent_is_refused_in_the_child_of_a_fork(ends: Ends) -> None:
    assert ends.write("host") == 0
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, str([ends.write("host"), ends.engine.get_rpc_port()]).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 100).decode() == str([-1, ends.engine.get_rpc_port()])
    for each in (read, write):
        os.close(each)
    assert ends.write("device") == 0


def test_mooncake_hostile_bytes_at_the_port_harm_nothing(ends: Ends) -> None:
    drawn = random.Random(36)
    port = ends.engine.get_rpc_port()
    before = bytes(ends.host)
    for at in range(300):
        verb = drawn.choice([b"DESC", b"NOTE", b"LKRD", b"LKWR", b"READ", b"WRIT", b"PROB", b"????"])
        body = drawn.randbytes(drawn.choice([0, 4, 16, 20, 32, 48]))
        if at % 3 == 0:  # the bytes of a piece that this engine has not registered
            body = (
                bytes(16)
                + struct.pack("<QQ", drawn.getrandbits(64), drawn.choice([0, 8, 1 << 63]))
                + bytes(8)
            )
        size = len(body) if drawn.random() < 0.8 else drawn.choice([0, 1 << 20, (1 << 32) - 1])
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            magic = b"plmoon-2" if drawn.random() < 0.9 else drawn.randbytes(8)
            with contextlib.suppress(OSError):  # the engine may have closed it
                connection.sendall(struct.pack("<8s4sI", magic, verb, size) + body)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):
                    pass
    assert bytes(ends.host) == before
    assert (
        ends.other.run(
            f"result = other.transfer_sync_write('127.0.0.1:{port}', host.ctypes.data, {ends.local('host')}, 64)"
        )
        == 0
    )
    assert bytes(ends.host) == bytes(64) + before[64:]


def test_mooncake_description_that_was_changed_is_refused_or_opens_only_what_is_offered(ends: Ends) -> None:
    assert ends.write("host") == 0
    content = ends.engine._own().segment.describe()
    drawn, outcomes = random.Random(5), set()
    for _ in range(2000):
        forged = bytearray(content)
        for _ in range(drawn.randrange(1, 4)):
            forged[drawn.randrange(len(forged))] = drawn.choice([0, 1, 0x7F, 0xFF, drawn.randrange(256)])
        if drawn.random() < 0.3:
            del forged[drawn.randrange(len(forged)) :]
        try:
            decode(bytes(forged))
            outcomes.add("read")
        except ValueError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}
