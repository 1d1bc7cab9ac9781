"""The dialect mooncake in one process: registration, transfers, status, notifies, managed buffers."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import mmap
import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import peerlane as pl
from helpers.promises import Node
from peerlane.dialects import mooncake as dialect
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects._shared.moves import ranks
from peerlane.dialects.mooncake import _service
from peerlane.dialects.mooncake._memory import check_of
from peerlane.dialects.mooncake.engine import Read, TransferEngine, TransferNotify, TransferOpcode, Write

pytestmark = pytest.mark.schedules_in_turn

SIZE = 4096
SECONDS = 30.0
PAGES = 5


def engine(protocol: str = "tcp") -> TransferEngine:
    """Return an engine of this machine."""
    fresh = TransferEngine()
    assert fresh.initialize("127.0.0.1", "P2PHANDSHAKE", protocol, "") == 0
    return fresh


def address_of(array: np.ndarray) -> int:
    """Return where an array begins."""
    return int(array.ctypes.data)


def ended(one: TransferEngine, number: int) -> int:
    """Ask for the status of a transfer until it is over."""
    assert number
    deadline = time.monotonic() + SECONDS
    while (status := one.transfer_check_status(number)) == 0:
        assert time.monotonic() < deadline, "the transfer is not over"
    return status


class Pair:
    """Two engines, each with registered memory of the host and of a device; ``there`` is the other's segment."""

    def __init__(self, protocol: str = "tcp") -> None:
        self.one, self.other = engine(protocol), engine(protocol)
        self.there = f"127.0.0.1:{self.other.get_rpc_port()}"
        self.source, self.target = np.arange(SIZE).astype(np.uint8), np.zeros(SIZE, np.uint8)
        self.near, self.far = (device.allocate(SIZE) for device in pl.devices()[:2])
        self.near.copy_from(self.source)
        self.far.fill(0)
        for one, buffer, array in ((self.one, self.near, self.source), (self.other, self.far, self.target)):
            assert one.batch_register_memory([buffer.address, address_of(array)], [SIZE, SIZE]) == 0

    def local(self, kind: str) -> int:
        """Return the address of this end's memory of a kind."""
        return self.near.address if kind == "device" else address_of(self.source)

    def remote(self, kind: str) -> int:
        """Return the address of the other end's memory of a kind."""
        return self.far.address if kind == "device" else address_of(self.target)

    def came(self, kind: str) -> bytes:
        """Return the bytes of the other end's memory of a kind."""
        return bytes(self.far.view() if kind == "device" else self.target)


class Holed:
    """Pages of memory without the one in the middle."""

    def __init__(self, pages: int = PAGES) -> None:
        self._memory = mmap.mmap(-1, pages * mmap.PAGESIZE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        unmap = ctypes.CDLL(None).munmap
        unmap.argtypes = ctypes.c_void_p, ctypes.c_size_t
        assert unmap(self.address + pages // 2 * mmap.PAGESIZE, mmap.PAGESIZE) == 0

    @property
    def content(self) -> bytes:
        """The bytes of the first page."""
        return ctypes.string_at(self.address, mmap.PAGESIZE)


@pytest.fixture
def pair(node: Node) -> Pair:
    node("devices=2")
    return Pair()


@pytest.mark.parametrize("theirs", ["device", "host"])
@pytest.mark.parametrize("mine", ["device", "host"])
def test_mooncake_write_then_read_brings_the_bytes(pair: Pair, mine: str, theirs: str) -> None:
    wanted = bytes(pair.source)
    assert pair.one.transfer_sync_write(pair.there, pair.local(mine), pair.remote(theirs), SIZE) == 0
    assert pair.came(theirs) == wanted
    back = pl.devices()[1].allocate(SIZE)
    assert pair.one.transfer_sync_read(pair.there, back.address, pair.remote(theirs), SIZE) == 0
    assert bytes(back.view()) == wanted


def test_mooncake_batches_move_each_piece(pair: Pair) -> None:
    base, to = address_of(pair.source), pair.far.address
    ours, theirs, lengths = [base, base + 100, base + 7], [to + 64, to, to + 2048], [16, 8, 1024]
    assert pair.one.batch_transfer_sync_write(pair.there, ours, theirs, lengths) == 0
    wanted = bytearray(SIZE)
    for a, b, n in zip(ours, theirs, lengths, strict=True):
        wanted[b - to : b - to + n] = bytes(pair.source[a - base : a - base + n])
    assert pair.came("device") == bytes(wanted)
    assert pair.one.batch_transfer_sync(pair.there, tuple(theirs), np.array(ours), lengths, Read) == -1
    assert "not registered memory" in dialect.explain()


@pytest.mark.parametrize("opcode", [Read, Write])
def test_mooncake_asynchronous_batch_is_over_when_its_status_is_completed(
    pair: Pair, opcode: TransferOpcode
) -> None:
    pair.target[:] = 9
    number = pair.one.batch_transfer_async(
        pair.there, [pair.near.address] * 1, [address_of(pair.target)], [SIZE], opcode
    )
    assert number and pair.one.get_batch_transfer_status([number]) == 0
    if opcode is Write:
        assert bytes(pair.target) == bytes(pair.source)
    else:
        assert bytes(pair.near.view()) == bytes([9]) * SIZE
    assert pair.one.get_batch_transfer_status([number]) == -1
    assert "reported already" in dialect.explain()


def test_mooncake_submitted_write_is_reported_once(pair: Pair) -> None:
    number = pair.one.transfer_submit_write(pair.there, pair.near.address, pair.far.address, SIZE)
    assert ended(pair.one, number) == 1
    assert pair.came("device") == bytes(pair.source)
    assert pair.one.transfer_check_status(number) == -1


@pytest.mark.parametrize("wrong", ["submitted", "unknown"])
def test_mooncake_batch_status_that_is_refused_lets_all_transfers_go_on(pair: Pair, wrong: str) -> None:
    size = 32 << 20
    source, target = np.full(size, 7, np.uint8), np.zeros(size, np.uint8)
    near, far = address_of(source), address_of(target)
    assert pair.other.register_memory(far, size) == 0
    batch = pair.one.batch_transfer_async_write(pair.there, [near], [far], [size // 2])
    single = pair.one.transfer_submit_write(pair.there, near, far + size // 2, size // 2)
    refused = single if wrong == "submitted" else 8
    assert pair.one.get_batch_transfer_status([batch, refused]) == -1
    assert ("call transfer_check_status" if wrong == "submitted" else "no transfer") in dialect.explain()
    assert [ended(pair.one, each) for each in (batch, single)] == [1, 1]
    assert (source == target).all()


def test_mooncake_batch_status_after_its_time_lets_the_transfer_go_on(
    pair: Pair,
) -> None:
    pair.one._own().seconds = 0.0
    size = 256 << 20
    source, target = np.full(size, 7, np.uint8), np.zeros(size, np.uint8)
    assert pair.other.register_memory(address_of(target), size) == 0
    number = pair.one.batch_transfer_async_write(
        pair.there, [address_of(source)], [address_of(target)], [size]
    )
    assert pair.one.get_batch_transfer_status([number]) == -1
    assert "was not over in 0 s" in dialect.explain()
    assert ended(pair.one, number) == 1
    assert (source == target).all()


@pytest.mark.parametrize(
    "name, answer",
    [
        ("transfer_sync_write", -1),
        ("transfer_sync_read", -1),
        ("transfer_submit_write", 0),
    ],
)
@pytest.mark.parametrize("wrong", ["segment", "beyond", "unknown", "null", "no memory"])
def test_mooncake_wrong_segment_or_address_is_refused_and_writes_nothing(
    pair: Pair, name: str, answer: int, wrong: str
) -> None:
    near, far, there = address_of(pair.source), address_of(pair.target), pair.there
    if wrong == "segment":
        there = "127.0.0.1:1"
    elif wrong == "beyond":
        far += SIZE - 8
    elif wrong == "unknown":
        far = pair.near.address
    else:
        near = 0 if wrong == "null" else 1 << 44
    before = bytes(pair.source)
    assert getattr(pair.one, name)(there, near, far, 64) == answer
    assert bytes(pair.source) == before and not pair.target.any()
    text = dialect.explain()
    assert f"TransferEngine.{name} returned {answer}" in text and "length=64" in text


def test_mooncake_batch_with_one_wrong_piece_writes_nothing(pair: Pair) -> None:
    near, far = address_of(pair.source), address_of(pair.target)
    pieces = ([near, near + 64], [far, far + SIZE - 8], [64, 64])
    assert pair.one.batch_transfer_sync_write(pair.there, *pieces) == -1
    assert pair.one.batch_transfer_async_write(pair.there, *pieces) == 0
    assert not pair.target.any()


@pytest.mark.parametrize("whose", ["own", "the peer's"])
@pytest.mark.parametrize("opcode", [Read, Write])
def test_mooncake_memory_with_a_hole_moves_nothing(pair: Pair, opcode: TransferOpcode, whose: str) -> None:
    holed, rest = Holed(), np.full(PAGES * mmap.PAGESIZE, 5, np.uint8)
    near, far = (holed.address, address_of(rest)) if whose == "own" else (address_of(rest), holed.address)
    assert pair.other.register_memory(far, rest.nbytes) == 0
    before = bytes(pair.source), bytes(rest), holed.content
    ours, theirs = [address_of(pair.source), near], [address_of(pair.target), far]
    lengths = [SIZE, rest.nbytes]
    assert pair.one.batch_transfer_sync(pair.there, ours, theirs, lengths, opcode) == -1
    assert pair.one.batch_transfer_async(pair.there, ours, theirs, lengths, opcode) == 0
    assert "not all of" in dialect.explain()
    assert (bytes(pair.source), bytes(rest), holed.content) == before and not pair.target.any()
    assert pair.other.unregister_memory(far) == 0


@pytest.mark.parametrize("pages", [PAGES, 10_000])
def test_mooncake_pages_of_a_process_are_memory_up_to_the_hole(pages: int) -> None:
    holed = Holed(pages)
    before = pages // 2 * mmap.PAGESIZE
    memory = ranks().process_memory(os.getpid())
    check_of(memory, "other", [(holed.address, before)], writes=True)
    for start, size in ((0, pages * mmap.PAGESIZE), (1, before), (before + mmap.PAGESIZE - 1, before)):
        with pytest.raises(Refusal, match="not all of"):
            check_of(memory, "other", [(holed.address + start, size)], writes=True)


@pytest.mark.parametrize("whose", ["own", "the peer's"])
def test_mooncake_registration_of_freed_device_memory_reaches_no_later_allocation(
    node: Node, whose: str
) -> None:
    node("devices=2")
    pair = Pair("rdma")
    one, buffer = (pair.one, pair.near) if whose == "own" else (pair.other, pair.far)
    near, far = pair.near.address, pair.far.address
    assert pair.one.transfer_sync_write(pair.there, near, far, SIZE) == 0
    device = buffer.device
    buffer.close()
    assert pair.one.transfer_sync_write(pair.there, near, far, SIZE) == -1
    later = device.allocate(SIZE)
    later.fill(9)
    assert later.address in (near, far), "the allocator did not use the address again"
    pair.far.fill(9) if whose == "own" else pair.near.fill(7)
    assert pair.one.transfer_sync_write(pair.there, near, far, SIZE) == -1
    assert "whose allocation has ended" in dialect.explain()
    assert bytes((pair.far if whose == "own" else later).view()) == bytes([9]) * SIZE
    assert [one.unregister_memory(later.address), one.register_memory(later.address, SIZE)] == [0, 0]
    assert pair.one.transfer_sync_write(pair.there, near, far, SIZE) == 0


def test_mooncake_silent_peer_stops_no_transfer_with_another(pair: Pair) -> None:
    pair.one._own().seconds = SECONDS
    with socket.create_server(("127.0.0.1", 0)) as silent:
        there = f"127.0.0.1:{silent.getsockname()[1]}"
        codes: list[int] = []
        thread = threading.Thread(
            target=lambda: codes.append(pair.one.transfer_sync_write(there, pair.near.address, 8, 8)),
            daemon=True,
        )
        thread.start()
        with silent.accept()[0]:
            assert pair.one.transfer_sync_write(pair.there, pair.near.address, pair.far.address, 64) == 0
            assert not codes, "the silent peer has answered"
        thread.join(SECONDS)
    assert codes == [-1]


def test_mooncake_registrations_have_the_engines_codes(pair: Pair) -> None:
    one, array = engine(), np.zeros(256, np.uint8)
    at = address_of(array)
    assert one.register_memory(at, 0) == -1
    assert one.register_memory(at, 128) == 0
    assert [one.register_memory(at + off, 64) for off in (0, 64, 127, 128)] == [-7, -7, -7, 0]
    assert [one.unregister_memory(each) for each in (at + 1, at, at)] == [-3, 0, -3]
    assert one.batch_register_memory([at, at + 32], [64, 64]) == -7
    assert one.batch_register_memory([at, at + 64], [64, 0]) == -1
    assert one.batch_register_memory([at, at + 64], [64, 64]) == 0  # the refused calls registered nothing
    assert one.batch_unregister_memory([at, at + 5, at + 64]) == -3
    assert one.unregister_memory(at + 64) == -3  # the rest of the list has ended


def test_mooncake_memory_that_was_unregistered_is_refused(pair: Pair) -> None:
    assert pair.one.transfer_sync_write(pair.there, address_of(pair.source), pair.far.address, 64) == 0
    assert pair.other.unregister_memory(pair.far.address) == 0
    assert pair.one.transfer_sync_write(pair.there, address_of(pair.source), pair.far.address, 64) == -1
    assert pair.other.register_memory(pair.far.address, 64) == 0
    assert pair.one.transfer_sync_write(pair.there, address_of(pair.source), pair.far.address, 64) == 0
    assert pair.one.transfer_sync_write(pair.there, address_of(pair.source), pair.far.address, 65) == -1


def test_mooncake_own_memory_needs_a_registration_unless_the_protocol_is_tcp(node: Node) -> None:
    node("devices=2")
    loose = np.full(64, 7, np.uint8)
    for protocol, wanted in (("tcp", 0), ("rdma", -1), ("ascend", -1)):
        pair = Pair(protocol)
        assert pair.one.transfer_sync_write(pair.there, address_of(loose), pair.far.address, 64) == wanted
        assert pair.came("device")[:64] == (bytes(loose) if wanted == 0 else bytes(64))
    assert "only the protocol tcp sends memory that is not registered" in dialect.explain()


def test_mooncake_notify_follows_the_bytes_and_a_failed_transfer_sends_none(pair: Pair) -> None:
    near, far = address_of(pair.source), pair.far.address
    assert pair.one.transfer_sync(pair.there, near, far, 64, Write, TransferNotify("first", "é")) == 0
    assert pair.one.batch_transfer_sync(pair.there, [near], [far], [8], Read, TransferNotify()) == 0
    assert pair.one.transfer_sync(pair.there, near, 64, 64, Write, TransferNotify("never", "")) == -1
    assert pair.one.transfer_sync(pair.there, near, far, 0, Write, TransferNotify("empty", "0 bytes")) == 0
    assert pair.one.batch_transfer_sync(pair.there, [], [], [], Write, TransferNotify("none", "")) == -1
    received = [(each.name, each.msg) for each in pair.other.get_notifies()]
    assert received == [("first", "é"), ("", ""), ("empty", "0 bytes")]
    assert pair.other.get_notifies() == pair.one.get_notifies() == []


def test_mooncake_texts_that_are_no_utf8_are_replaced_or_refused_as_the_vendors(pair: Pair) -> None:
    near, far = address_of(pair.source), pair.far.address
    notify = TransferNotify(b"\xff", b"a\xfe")  # type: ignore[arg-type]
    assert pair.one.transfer_sync(pair.there, near, far, 64, Write, notify) == 0
    assert [(each.name, each.msg) for each in pair.other.get_notifies()] == [("\ufffd", "a\ufffd")]
    with pytest.raises(TypeError, match="TransferNotify: name has no UTF-8"):
        TransferNotify("\ud800", "")
    with pytest.raises(TypeError, match="send_probe: peer_server_name has no UTF-8"):
        pair.one.send_probe("\udcff:1")
    assert TransferEngine().initialize("a" * 300, "P2PHANDSHAKE", "tcp", "") == 0


def test_mooncake_empty_transfers_succeed(pair: Pair) -> None:
    assert pair.one.batch_transfer_sync_write(pair.there, [], [], []) == 0
    assert pair.one.transfer_sync_write(pair.there, 0, 0, 0) == 0
    assert (
        pair.one.get_batch_transfer_status([pair.one.batch_transfer_async_read(pair.there, [], [], [])]) == 0
    )
    assert pair.one.get_batch_transfer_status([]) == 0


def test_mooncake_managed_buffer_is_registered_and_ends_once(pair: Pair) -> None:
    at = pair.other.allocate_managed_buffer(100)
    assert pair.one.transfer_sync_write(pair.there, address_of(pair.source), at, 100) == 0
    assert pair.other.read_bytes_from_buffer(at, 100) == bytes(pair.source[:100])
    assert pair.other.write_bytes_to_buffer(at + 1, "héllo", 6) == 0
    assert pair.other.read_bytes_from_buffer(at, 8) == b"\0h\xc3\xa9llo" + bytes([7])
    assert pair.other.write_bytes_to_buffer(at, b"abc", 4) == -1
    assert pair.other.free_managed_buffer(at, 1 << 20) == -1
    assert [pair.other.free_managed_buffer(at, 100) for _ in range(2)] == [0, -1]
    assert pair.one.transfer_sync_write(pair.there, address_of(pair.source), at, 100) == -1
    assert pair.other.allocate_managed_buffer(1 << 50) == 0
    with pytest.raises(RuntimeError, match="read_bytes_from_buffer"):
        pair.other.read_bytes_from_buffer(1 << 44, 4)


def test_mooncake_managed_buffer_of_0_bytes_is_one(pair: Pair) -> None:
    at = pair.other.allocate_managed_buffer(0)
    assert at
    assert pair.other.free_managed_buffer(at, 0) == 0


def test_mooncake_managed_buffer_that_was_unregistered_is_freed(pair: Pair) -> None:
    at = pair.other.allocate_managed_buffer(100)
    assert pair.other.unregister_memory(at) == 0
    assert [pair.other.free_managed_buffer(at, 100) for _ in range(2)] == [0, -1]


def test_mooncake_first_buffer_and_probe(pair: Pair) -> None:
    assert pair.one.get_first_buffer_address(pair.there) == min(pair.far.address, address_of(pair.target))
    assert pair.one.get_first_buffer_address(f"127.0.0.1:{engine().get_rpc_port()}") == 0
    assert pair.one.get_first_buffer_address("127.0.0.1:1") == 0
    probes = [pair.one.send_probe(each) for each in (pair.there, "127.0.0.1:1", "127.0.0.1", "")]
    assert probes == [0, -102, -102, -101]
    assert [pair.one.send_probe(each) for each in (".:1", "a" * 300 + ":1")] == [-101, -101]


@pytest.mark.parametrize(
    "server", ["", "P2P", "127.0.0.1:2379", "etcd://127.0.0.1:2379", "http://127.0.0.1:8080/metadata"]
)
def test_mooncake_metadata_server_is_refused_with_what_works(node: Node, server: str) -> None:
    node("devices=1")
    assert TransferEngine().initialize("127.0.0.1", server, "tcp", "") == -1
    assert "P2PHANDSHAKE" in dialect.explain()


def test_mooncake_protocols_are_named_in_the_log(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node("devices=1")
    with caplog.at_level(logging.INFO, "mooncake.engine"):
        for protocol in ("tcp", "rdma", "ascend", "nvlink", "barex"):
            one = engine(protocol)
            assert f"127.0.0.1:{one.get_rpc_port()} serves the protocol {protocol!r}" in caplog.text
    assert TransferEngine().initialize("127.0.0.1", "P2PHANDSHAKE", "xgmi", "") == -1


def test_mooncake_engine_that_was_not_initialized_refuses_all_calls(node: Node) -> None:
    node("devices=1")
    one = TransferEngine()
    calls: list[Callable[[], Any]] = [
        one.get_rpc_port,
        lambda: one.register_memory(4096, 1),
        lambda: one.unregister_memory(4096),
        lambda: one.batch_register_memory([4096], [1]),
        lambda: one.batch_unregister_memory([4096]),
        lambda: one.free_managed_buffer(4096, 1),
        lambda: one.transfer_sync_write("127.0.0.1:1", 4096, 4096, 1),
        lambda: one.transfer_check_status(1),
        lambda: one.get_batch_transfer_status([1]),
        lambda: one.send_probe("127.0.0.1:1"),
    ]
    for call in calls:
        assert call() == -1
        assert "call initialize first" in dialect.explain()
    assert one.allocate_managed_buffer(1) == one.transfer_submit_write("127.0.0.1:1", 4096, 4096, 1) == 0
    assert one.get_engine() is None and one.get_engine_ptr() == 0
    with pytest.raises(RuntimeError, match="call initialize first"):
        one.get_notifies()


@pytest.mark.parametrize(
    "arguments",
    [
        (None, 1, 1, 1),
        ("a:1", 1.0, 1, 1),
        ("a:1", -1, 1, 1),
        ("a:1", 1, 1 << 64, 1),
        ("a:1", "1", 1, 1),
        ("a:1", 1, 1, None),
    ],
)
def test_mooncake_argument_of_another_type_is_a_type_error(pair: Pair, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match="transfer_sync_write: "):
        pair.one.transfer_sync_write(*arguments)


@pytest.mark.parametrize("values", ["ab", b"ab", {1}, {1: 1}, iter([1]), 5, [1.5], [-1]])
def test_mooncake_list_of_another_type_is_a_type_error(pair: Pair, values: Any) -> None:
    with pytest.raises(TypeError, match=r"batch_transfer_sync_write: buffers"):
        pair.one.batch_transfer_sync_write(pair.there, values, [1], [1])


def test_mooncake_opcode_and_notify_have_their_classes(pair: Pair) -> None:
    with pytest.raises(TypeError, match="opcode is a TransferOpcode"):
        pair.one.transfer_sync(pair.there, 1, 1, 1, 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="notify is a TransferNotify"):
        pair.one.transfer_sync(pair.there, 1, 1, 1, Read, "x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="TransferNotify: msg is a str"):
        TransferNotify("name")
    assert TransferEngine.TransferOpcode is TransferOpcode  # type: ignore[attr-defined]
    assert (int(Read), int(Write), str(Read)) == (0, 1, "TransferOpcode.Read")
    assert Read != 0, "the vendor's is no number"


def test_mooncake_notify_keeps_texts_alone(pair: Pair) -> None:
    notify = TransferNotify("name", "msg")
    notify.msg = b"bytes"  # type: ignore[assignment]
    assert (notify.name, notify.msg) == ("name", "bytes")
    with pytest.raises(TypeError, match="TransferNotify: name is a str, not int"):
        notify.name = 5  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        notify.message = "text"  # type: ignore[attr-defined]
    assert pair.one.transfer_sync(pair.there, 0, 0, 0, Write, notify) == 0
    assert [(each.name, each.msg) for each in pair.other.get_notifies()] == [("name", "bytes")]


def test_mooncake_keywords_are_read_as_positions_are(pair: Pair) -> None:
    near, far = address_of(pair.source), pair.far.address
    assert pair.one.transfer_sync_write(pair.there, near, length=64, peer_buffer_address=far) == 0
    with pytest.raises(TypeError, match="transfer_sync_write: length"):
        pair.one.transfer_sync_write(pair.there, near, far, length="64")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="lengths"):
        pair.one.transfer_sync_write(pair.there, near, far, lengths=64)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="7 were given"):
        pair.one.transfer_sync_write(pair.there, near, far, 64, "", "")  # type: ignore[call-arg]


def test_mooncake_types_are_judged_before_values(pair: Pair) -> None:
    with pytest.raises(TypeError, match="batch_transfer_sync_write: transport_hint"):
        pair.one.batch_transfer_sync_write(pair.there, [1], [1, 2], [1], 5)  # type: ignore[arg-type]
    assert pair.one.batch_transfer_sync_write(pair.there, [1], [1, 2], [1], "") == -1


def test_mooncake_engine_that_is_gone_cannot_be_reached_and_a_new_one_can(pair: Pair) -> None:
    assert pair.one.transfer_sync_write(pair.there, pair.near.address, pair.far.address, 64) == 0
    pair.other = engine()
    gc.collect()
    assert pair.one.transfer_sync_write(pair.there, pair.near.address, pair.far.address, 64) == -1
    assert pair.other.register_memory(pair.far.address, SIZE) == 0
    there = f"127.0.0.1:{pair.other.get_rpc_port()}"
    assert pair.one.transfer_sync_write(there, pair.near.address, pair.far.address, 64) == 0


def test_mooncake_engine_initialized_again_has_another_port_and_no_memory(pair: Pair) -> None:
    before = pair.one.get_rpc_port()
    assert pair.one.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", None) == 0  # type: ignore[arg-type]
    assert pair.one.get_rpc_port() != before
    assert pair.one.unregister_memory(pair.near.address) == -3


@pytest.mark.any_schedule
def test_mooncake_engine_serves_a_new_client_when_all_connections_are_idle(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_service, "_MOST_CONNECTIONS", 8)
    first = _service.Client(pair.there)
    assert first.describe().rows
    port = int(pair.there.rpartition(":")[2])
    with contextlib.ExitStack() as stack:
        idle = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), SECONDS)) for _ in range(20)
        ]
        second = _service.Client(pair.there)
        assert second.describe().rows
        assert first.describe().rows, "its connection was ended, and it made a new one"
        assert idle[0].recv(1) == b"", "the connection that waited longest was not ended"
        first.close()
        second.close()


@pytest.mark.any_schedule
def test_mooncake_engine_without_descriptors_ends_idle_connections_and_serves_again(pair: Pair) -> None:
    address = "127.0.0.1", int(pair.there.rpartition(":")[2])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(socket.socket()) for _ in range(4)]
        for each in idle:
            each.settimeout(SECONDS)
        resource.setrlimit(resource.RLIMIT_NOFILE, (idle[-1].fileno() + 1, hard))
        try:
            for each in idle:
                each.connect(address)
            assert idle[0].recv(1) == b"", "the connection that waited longest was not ended"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert pair.one.send_probe(pair.there) == 0


class _Unstarted(threading.Thread):
    """A thread that the system refuses."""

    def start(self) -> None:
        raise RuntimeError("can't start new thread")


@pytest.mark.any_schedule
def test_mooncake_engine_without_threads_serves_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    address = "127.0.0.1", int(pair.there.rpartition(":")[2])
    with monkeypatch.context() as scarce:
        scarce.setattr(_service.threading, "Thread", _Unstarted)
        with socket.create_connection(address, SECONDS) as refused:
            assert refused.recv(1) == b"", "the connection was not ended"
    assert pair.one.send_probe(pair.there) == 0


@pytest.mark.any_schedule
@pytest.mark.parametrize("slow", ["request", "answer"])
def test_mooncake_engine_does_not_wait_for_a_slow_client(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    monkeypatch.setattr(_service, "_EXCHANGE_SECONDS", 0.1)
    port = int(pair.there.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), SECONDS) as connection:
        if slow == "request":
            connection.sendall(b"plmoon-2NOTE")  # the number of bytes does not come
        else:
            size = 4 << 20
            big = np.zeros(size, np.uint8)
            assert pair.other.register_memory(address_of(big), size) == 0
            body = bytes(16) + struct.pack("<QQ", address_of(big), size)
            connection.sendall(struct.pack("<8s4sI", b"plmoon-2", b"PROB", 16) + bytes(16))
            assert connection.recv(64), "the engine does not answer"
            for _ in range(8):  # more than the system keeps for a client that reads nothing
                connection.sendall(struct.pack("<8s4sI", b"plmoon-2", b"READ", len(body)) + body)
            service = next(each for each in _service._services if each.port == port)
            until = time.monotonic() + SECONDS
            while service._connections:
                assert time.monotonic() < until, "the engine still waits for the client"
            assert pair.other.unregister_memory(address_of(big)) == 0
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(1 << 20):
                pass


def test_mooncake_notify_of_too_many_bytes_is_refused_with_the_limit(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_service, "_MOST_OF_NOTIFY", 100)
    client = _service.Client(pair.there)
    with pytest.raises(Refusal, match="has 101 bytes, and may have 100"):
        client.notify("n", "x" * 100)
    client.notify("n", "x" * 99)
    client.close()
    assert [len(each.msg) for each in pair.other.get_notifies()] == [99]
