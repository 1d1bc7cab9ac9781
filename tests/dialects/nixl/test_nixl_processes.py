"""The dialect nixl between two processes: bytes, notifications, deregistration, death, hostile bytes."""

from __future__ import annotations

import gc
import os
import random
import resource
import socket
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

import peerlane as pl
from helpers.nixl_calls import OTHER, address_of, finish, heard, rows
from helpers.peers import Peer
from helpers.promises import Node
from peerlane.dialects._shared import frames
from peerlane.dialects._shared.boards import SLOTS
from peerlane.dialects.nixl import _bindings, _status
from peerlane.dialects.nixl._api import nixl_agent
from peerlane.dialects.nixl._board import OtherBoard
from peerlane.dialects.nixl._metadata import decode

pytestmark = pytest.mark.schedules_in_turn

Shared: TypeAlias = tuple[pl.Device, pl.Device, Peer]


class Ends:
    """An agent "mine" that knows the agent "other" of another process; each has 1 MiB of both kinds of memory."""

    def __init__(self, device: pl.Device, other: Peer) -> None:
        encoded, self.there, self.there_dram = other.run(OTHER)
        self.metadata, self.other = bytes.fromhex(encoded), other
        self.agent = nixl_agent("mine")
        self.vram = device.allocate(1 << 20)
        self.dram = np.arange(1 << 20).astype(np.uint8)
        self.vram.view()[:] = self.dram[::-1]
        self.agent.register_memory([(self.vram.address, self.vram.size, 0, "")], "VRAM")
        self.agent.register_memory([(address_of(self.dram), self.dram.nbytes, 0, "")], "DRAM")
        self.agent.add_remote_agent(self.metadata)
        other.run(f"agent.add_remote_agent(bytes.fromhex({self.agent.get_agent_metadata().hex()!r}))")

    def make(
        self, mine: str, theirs: str, size: int, *, operation: str = "WRITE", message: bytes = b""
    ) -> Any:
        """Make a transfer of the first ``size`` bytes, in four descriptors."""
        address = self.vram.address if mine == "VRAM" else address_of(self.dram)
        there, device = (self.there, 1) if theirs == "VRAM" else (self.there_dram, 0)
        return self.agent.initialize_xfer(
            operation,
            self.agent.get_xfer_descs(rows(address, 4, size // 4), mine),
            self.agent.get_xfer_descs(rows(there, 4, size // 4, device), theirs),
            "other",
            message,
        )

    def theirs(self, kind: str, size: int) -> bytes:
        """Return the other process's first bytes."""
        what = "vram.view()" if kind == "VRAM" else "dram"
        return bytes.fromhex(self.other.run(f"result = {what}[:{size}].tobytes().hex()"))


@pytest.fixture
def ends(shared: Shared) -> Iterator[Ends]:
    d0, _, other = shared
    yield Ends(d0, other)
    gc.collect()


@pytest.mark.parametrize("size", [64, 1 << 20])
@pytest.mark.parametrize("theirs", ["VRAM", "DRAM"])
@pytest.mark.parametrize("mine", ["VRAM", "DRAM"])
def test_nixl_write_to_another_process_brings_bytes_and_one_notification(
    ends: Ends, mine: str, theirs: str, size: int
) -> None:
    assert finish(ends.agent, ends.make(mine, theirs, size, message=b"there")) == "DONE"
    assert ends.other.run(
        "result = {name: [m.decode() for m in got] for name, got in heard(agent).items()}"
    ) == {"mine": ["there"]}
    wanted = ends.vram.view() if mine == "VRAM" else ends.dram
    assert ends.theirs(theirs, size) == wanted[:size].tobytes()
    assert ends.other.run("result = agent.get_new_notifs()") == {}


@pytest.mark.parametrize("theirs", ["VRAM", "DRAM"])
@pytest.mark.parametrize("mine", ["VRAM", "DRAM"])
def test_nixl_read_from_another_process_brings_its_bytes(ends: Ends, mine: str, theirs: str) -> None:
    ends.other.run("vram.fill(3); dram[:] = 4")
    assert finish(ends.agent, ends.make(mine, theirs, 4096, operation="READ")) == "DONE"
    content = ends.vram.view() if mine == "VRAM" else ends.dram
    assert (content[:4096] == (3 if theirs == "VRAM" else 4)).all()


def test_nixl_host_view_of_device_memory_is_registered_as_dram_and_written_by_another_process(
    ends: Ends,
) -> None:
    metadata, at = ends.other.run(
        "held = pl.devices()[0].allocate(4 << 20)\n"
        "held.fill(0)\n"
        "seen = held.view()\n"
        "agent.register_memory([(seen.ctypes.data, seen.nbytes, 0, '')], 'DRAM')\n"
        "result = [agent.get_agent_metadata().hex(), seen.ctypes.data]"
    )
    ends.agent.add_remote_agent(bytes.fromhex(metadata))
    local = ends.agent.get_xfer_descs([(address_of(ends.dram), 4096, 0)], "DRAM")
    there = ends.agent.get_xfer_descs([(at + 64, 4096, 0)], "DRAM")
    assert finish(ends.agent, ends.agent.initialize_xfer("WRITE", local, there, "other")) == "DONE"
    content = bytes.fromhex(ends.other.run("result = held.view()[:4200].tobytes().hex()"))
    assert content == bytes(64) + ends.dram[:4096].tobytes() + bytes(40)


def test_nixl_small_device_memory_with_a_view_is_refused_with_what_to_do(ends: Ends) -> None:
    held = pl.devices()[0].allocate(64)
    seen = held.view()
    ends.agent.register_memory([(held.address, 64, 0, "")], "VRAM")
    with pytest.raises(
        _bindings.nixlBackendError, match="delete the view or synchronize first, or allocate 2 MiB"
    ):
        ends.agent.get_agent_metadata()
    del seen
    gc.collect()
    assert ends.agent.get_agent_metadata()


def test_nixl_agent_that_did_not_load_metadata_hears_who_loaded_its_own(shared: Shared) -> None:
    _, _, other = shared
    agent = nixl_agent("unknown to the other")
    agent.add_remote_agent(bytes.fromhex(other.run(OTHER)[0]))
    agent.send_notif("other", b"hello")
    assert other.run("result = list(heard(agent))") == ["unknown to the other"]


def test_nixl_many_notifications_arrive_once_each_in_order(ends: Ends) -> None:
    lengths = [0, 1, 40, 70_000, 3_000_000]
    for at in range(400):
        ends.agent.send_notif("other", at.to_bytes(4, "little") + bytes(lengths[at % 5] if at < 10 else 300))
    ends.other.send(
        "found = heard(agent, 400)['mine']\n"
        "result = [[int.from_bytes(m[:4], 'little') for m in found], [len(m) for m in found[:10]]]"
    )
    order, sizes = ends.other.receive()
    assert order == list(range(400))
    assert sizes == [4 + each for each in lengths * 2]


@pytest.mark.parametrize("kind", ["VRAM", "DRAM"])
def test_nixl_write_to_deregistered_memory_of_another_process_is_refused(ends: Ends, kind: str) -> None:
    handle = ends.make("VRAM", kind, 64)
    which = "registered" if kind == "VRAM" else "registered_dram"
    ends.other.run(f"agent.deregister_memory({which})")
    with pytest.raises(_bindings.nixlNotAllowedError, match="'other' has deregistered 1,048,576 bytes"):
        finish(ends.agent, handle)
    assert not any(ends.theirs(kind, 64))


def test_nixl_memory_that_another_process_freed_is_refused(ends: Ends) -> None:
    handle = ends.make("VRAM", "VRAM", 64)
    finish(ends.agent, handle)
    ends.other.run("vram.close()")
    with pytest.raises(_bindings.nixlBackendError, match="agent 'other'"):
        finish(ends.agent, handle)


@pytest.mark.parametrize("kind", ["VRAM", "DRAM"])
def test_nixl_killed_agent_is_disconnected_for_all_calls(ends: Ends, kind: str) -> None:
    handle = ends.make("VRAM", kind, 64)
    finish(ends.agent, handle)
    ends.other.kill()
    for call in (
        lambda: finish(ends.agent, handle),
        lambda: ends.agent.check_xfer_state(handle),
        lambda: ends.agent.send_notif("other", b"x"),
        lambda: finish(ends.agent, ends.make("DRAM", "DRAM", 64)),
    ):
        with pytest.raises(_bindings.nixlRemoteDisconnectError, match="has ended"):
            call()
    assert ends.agent.check_remote_metadata("other")
    ends.agent.remove_remote_agent("other")
    with pytest.raises(_bindings.nixlBackendError, match="cannot be reached"):
        ends.agent.add_remote_agent(ends.metadata)
    assert not ends.agent.check_remote_metadata("other")


@pytest.mark.parametrize("kind", ["VRAM", "DRAM"])
def test_nixl_agent_that_is_killed_during_a_transfer_is_disconnected_and_stays_so(
    ends: Ends, kind: str
) -> None:
    size = 128 << 20
    metadata, at = ends.other.run(
        f"large = pl.devices()[1].allocate({size})\n"
        f"array = np.zeros({size}, np.uint8)\n"
        f"agent.register_memory([(large.address, {size}, 1, '')], 'VRAM')\n"
        f"agent.register_memory([(array.ctypes.data, {size}, 0, '')], 'DRAM')\n"
        f"result = [agent.get_agent_metadata().hex(), {'large.address' if kind == 'VRAM' else 'array.ctypes.data'}]"
    )
    ends.agent.add_remote_agent(bytes.fromhex(metadata))
    source = np.ones(size, np.uint8)
    near = ends.agent.register_memory([(address_of(source), size, 0, "")], "DRAM").trim()
    far = ends.agent.get_xfer_descs([(at, size, int(kind == "VRAM"))], kind)
    handle = ends.agent.initialize_xfer("WRITE", near, far, "other", b"never")
    state = ends.agent.transfer(handle)
    ends.other.kill()
    texts = []
    while state == "PROC":
        try:
            state = ends.agent.check_xfer_state(handle)
        except _bindings.nixlRemoteDisconnectError as error:
            texts.append(str(error))
            break
    for _ in range(20):  # the transfer may have been over in time; what was told once stays
        if texts:
            with pytest.raises(_bindings.nixlRemoteDisconnectError, match="has ended"):
                ends.agent.check_xfer_state(handle)
        else:
            assert ends.agent.check_xfer_state(handle) == "DONE"
    with pytest.raises(_bindings.nixlRemoteDisconnectError, match="has ended"):
        ends.agent.transfer(handle)
    handle.release()


def test_nixl_memory_that_another_process_registers_anew_is_written_again(ends: Ends) -> None:
    ends.vram.fill(6)
    for _ in range(3):
        metadata = ends.other.run(
            "agent.deregister_memory(registered)\n"
            "vram.fill(0)\n"
            "registered = agent.register_memory([(vram.address, vram.size, 1, '')], 'VRAM')\n"
            "result = agent.get_agent_metadata().hex()"
        )
        ends.agent.add_remote_agent(bytes.fromhex(metadata))
        assert finish(ends.agent, ends.make("VRAM", "VRAM", 64)) == "DONE"
        assert ends.theirs("VRAM", 80) == bytes([6] * 64 + [0] * 16)


def test_nixl_notification_of_a_process_that_has_ended_still_arrives(ends: Ends) -> None:
    ends.other.run("agent.send_notif('mine', b'last words')")
    ends.other.kill()
    assert heard(ends.agent) == {"other": [b"last words"]}


def test_nixl_second_agent_of_a_known_name_is_not_allowed(ends: Ends) -> None:
    twin = nixl_agent("other")
    with pytest.raises(_bindings.nixlNotAllowedError, match="remove that one first"):
        ends.agent.add_remote_agent(twin.get_agent_metadata())
    assert finish(ends.agent, ends.make("DRAM", "VRAM", 64)) == "DONE"


def test_nixl_metadata_that_was_changed_or_cut_is_a_mismatch(ends: Ends) -> None:
    metadata, agent = ends.metadata, nixl_agent("careful")
    damaged = [metadata[:at] for at in range(0, len(metadata), 7)] + [
        metadata + b"\0",
        b"garbage",
        b"",
        metadata[::-1],
    ]
    damaged += [
        metadata[:at] + bytes([metadata[at] ^ 0x40]) + metadata[at + 1 :] for at in range(0, len(metadata), 3)
    ]
    for each in damaged:
        with pytest.raises(_bindings.nixlMismatchError, match="not the metadata of an agent") as refusal:
            agent.add_remote_agent(each)
        assert "unpack" not in str(refusal.value)  # Python's words about a struct
    assert agent.add_remote_agent(metadata) == b"other"


def test_nixl_forged_metadata_with_a_right_checksum_does_no_harm(ends: Ends) -> None:
    drawn = random.Random(71)
    agent = nixl_agent("careful")
    body = ends.metadata[:-4]
    outcomes = set()
    for _ in range(400):
        forged = bytearray(body)
        for _ in range(drawn.randrange(1, 5)):
            forged[drawn.randrange(16, len(forged))] = drawn.choice([0, 1, 0x7F, 0xFF, drawn.randrange(256)])
        if drawn.random() < 0.2:
            del forged[drawn.randrange(16, len(forged)) :]
        try:
            name = agent.add_remote_agent(bytes(forged) + struct.pack("<I", zlib.crc32(forged)))
        except (
            _bindings.nixlMismatchError,
            _bindings.nixlBackendError,
            _bindings.nixlInvalidParamError,
        ) as error:
            outcomes.add(type(error).__name__)
            continue
        outcomes.add("loaded")
        # What it claims of memory is tried: the owner's process, not the claim, decides what is opened.
        _, (region, *_) = decode(bytes(forged) + struct.pack("<I", zlib.crc32(forged)))
        local = agent.get_xfer_descs([(address_of(ends.dram), 1, 0)], "DRAM")
        try:
            agent.register_memory([(address_of(ends.dram), 1, 0, "")], "DRAM")
            there = _bindings.nixlXferDList(region.mem, [(region.start, 1, region.device)])
            handle = agent.initialize_xfer("READ", local, there, name.decode())
            finish(agent, handle)
        except _status.Failure as error:
            outcomes.add(f"{type(error).__name__} of a transfer")
        agent.remove_remote_agent(name.decode())
    assert {"loaded", "nixlMismatchError", "nixlBackendError"} <= outcomes


def test_nixl_nonsense_in_a_ring_is_named_once_and_then_forgotten(ends: Ends) -> None:
    metadata, _ = decode(ends.agent.get_agent_metadata())
    board = OtherBoard(metadata.origin)
    os.pwrite(board.fd, struct.pack("<Q", 5_000), 4096 + 8 * SLOTS + 8 * 40)  # the head of ring 40
    with pytest.raises(_bindings.nixlBackendError, match="wrote 5,000 bytes that are none"):
        ends.agent.get_new_notifs()
    board.close()
    ends.other.run("agent.send_notif('mine', b'after')")
    assert heard(ends.agent) == {"other": [b"after"]}


def test_nixl_host_memory_that_is_gone_fails_the_transfer_and_not_the_process(ends: Ends) -> None:
    metadata, at = ends.other.run(
        "import mmap\n"
        "gone = mmap.mmap(-1, 8192)\n"
        "at = np.frombuffer(gone, np.uint8).ctypes.data\n"
        "agent.register_memory([(at, 8192, 0, '')], 'DRAM')\n"
        "result = [agent.get_agent_metadata().hex(), at]\n"
    )
    ends.agent.add_remote_agent(bytes.fromhex(metadata))
    no_access = "ctypes.CDLL(None).mprotect(ctypes.c_void_p(at), ctypes.c_size_t(8192), 0)"
    assert ends.other.run(f"import ctypes; result = {no_access}") == 0
    local = ends.agent.get_xfer_descs([(address_of(ends.dram), 4096, 0)], "DRAM")
    handle = ends.agent.initialize_xfer(
        "WRITE", local, ends.agent.get_xfer_descs([(at, 4096, 0)], "DRAM"), "other", b"never"
    )
    with pytest.raises(_bindings.nixlBackendError, match="the system did not copy 4,096 bytes"):
        finish(ends.agent, handle)
    assert ends.other.run("result = agent.get_new_notifs()") == {}


def test_nixl_metadata_by_sockets_is_loaded_fetched_and_forgotten(shared: Shared) -> None:
    _, _, other = shared
    port = other.run(
        "from peerlane.dialects.nixl._api import nixl_agent, nixl_agent_config\n"
        "agent = nixl_agent('server', nixl_agent_config(enable_listen_thread=True, listen_port=0))\n"
        "result = agent.agent.port"
    )
    config = _config(0)
    client = nixl_agent("client", config)
    client.fetch_remote_metadata("server", "127.0.0.1", port)
    _until(lambda: client.check_remote_metadata("server"))
    client.send_local_metadata("127.0.0.1", port)
    _until(lambda: other.run("result = agent.check_remote_metadata('client')"))
    client.invalidate_local_metadata("127.0.0.1", port)
    _until(lambda: not other.run("result = agent.check_remote_metadata('client')"))
    client.fetch_remote_metadata("another name", "127.0.0.1", port)
    client.send_local_metadata("127.0.0.1", 1)
    client.send_local_metadata("not an address", port)
    client.send_local_metadata("127.0.0.1", 99_999)
    client.send_local_metadata("127.0.0.1", port)
    _until(lambda: other.run("result = agent.check_remote_metadata('client')"))
    assert not client.check_remote_metadata("another name")
    with pytest.raises(RuntimeError, match=f"to port {port}"):
        nixl_agent("second", _config(port))


def test_connection_is_accepted_when_the_system_has_a_descriptor_again() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    refusals = []

    def raise_limit() -> None:
        refusals.append(None)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        client.connect(listener.getsockname())
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            connection = frames.accept(listener, raise_limit)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert connection is not None and len(refusals) == 1
        with connection:
            assert connection.getpeername() == client.getsockname()
        listener.shutdown(socket.SHUT_RDWR)
        assert frames.accept(listener, raise_limit) is None, "it is closed"


def test_nixl_agent_whose_port_is_taken_is_refused_and_leaves_nothing(node: Node) -> None:
    node("devices=1")
    gc.collect()  # agents of earlier tests, whose threads end soon
    _until(lambda: all(each.name != "peerlane nixl listener" for each in threading.enumerate()))
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        before = threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(5):
            with pytest.raises(RuntimeError, match=f"to port {port}: .*; choose a free port"):
                nixl_agent("target", _config(port))
        assert (threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))) == before
    assert nixl_agent("target", _config(0)).agent.port != port


def test_nixl_agent_that_asks_where_nobody_listens_is_warned(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    """As the initiator of two peers does whose target had no port: it would wait for ever without a word."""
    node("devices=1")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # a port that nobody gets, and where nobody listens
        port = nobody.getsockname()[1]
        client = nixl_agent("initiator", _config(0))
        client.fetch_remote_metadata("target", "127.0.0.1", port)
        client.send_local_metadata("127.0.0.1", port)
        warning = f"metadata was not exchanged with 127.0.0.1 port {port}: "
        _until(lambda: [each.getMessage().startswith(warning) for each in caplog.records] == [True, True])
        assert not client.check_remote_metadata("target")


def _config(port: int) -> Any:
    from peerlane.dialects.nixl._api import nixl_agent_config

    return nixl_agent_config(enable_listen_thread=True, listen_port=port)


def _until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    import time

    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_nixl_registrations_of_one_allocation_share_a_mapping_until_the_last_ends(ends: Ends) -> None:
    count, size = 200, 4096
    metadata, at = ends.other.run(
        "held = pl.devices()[0].allocate(4 << 20)\nheld.fill(0)\n"
        f"pieces = [(held.address + i * {size}, {size}, 0, '') for i in range({count})]\n"
        "kept = [agent.register_memory([each], 'VRAM') for each in pieces]\n"
        "result = [agent.get_agent_metadata().hex(), held.address]"
    )
    descriptors = len([*Path("/proc/self/fd").iterdir()])
    ends.agent.add_remote_agent(bytes.fromhex(metadata))

    def write(piece: int) -> str:
        near = ends.agent.get_xfer_descs([(ends.vram.address, 64, 0)], "VRAM")
        there = ends.agent.get_xfer_descs([(at + piece * size, 64, 0)], "VRAM")
        return finish(ends.agent, ends.agent.initialize_xfer("WRITE", near, there, "other"))

    assert {write(piece) for piece in range(count)} == {"DONE"}
    assert len([*Path("/proc/self/fd").iterdir()]) < descriptors + count // 4
    content = bytes.fromhex(ends.other.run(f"result = held.view()[:{count * size}].tobytes().hex()"))
    wanted = ends.vram.view()[:64].tobytes()
    assert all(content[i * size : i * size + 64] == wanted for i in range(count))
    ends.other.run("agent.deregister_memory(kept[0])")
    assert write(1) == "DONE"
    with pytest.raises(_bindings.nixlNotAllowedError, match="has deregistered"):
        write(0)
    ends.other.run("for each in kept[1:]: agent.deregister_memory(each)")
    with pytest.raises(_bindings.nixlNotAllowedError, match="has deregistered"):
        write(1)
    again, at_again = ends.other.run(
        "agent.register_memory(pieces[:1], 'VRAM')\nresult = [agent.get_agent_metadata().hex(), held.address]"
    )
    assert at_again == at
    ends.agent.add_remote_agent(bytes.fromhex(again))
    assert write(0) == "DONE"
