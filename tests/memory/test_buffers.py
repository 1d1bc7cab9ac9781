"""Buffers, parts, views, DLPack and host objects move the right bytes."""

from __future__ import annotations

import _thread
import array
import collections
import gc
import itertools
import pickle
import sys
import weakref
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

import peerlane as pl

Node = Callable[..., tuple[pl.Device, ...]]


def test_copy_host_device_peer_device_host_keeps_bytes(node: Node) -> None:
    d0, d1 = node()
    data = np.random.default_rng(7).integers(0, 256, 3_000_001, dtype=np.uint8)
    with d0.allocate(data.nbytes) as a, d1.allocate(data.nbytes) as b:
        a.copy_from(data)
        assert a.route_to(b).kind == "staged"
        b.copy_from(a)
        d0.peers.add(d1)
        assert a.route_to(b).kind == b.route_to(a).kind == "peer"
        a.fill(0)
        b.copy_to(a)
        out = bytearray(data.nbytes)
        a.copy_to(out)
    assert out == data.tobytes()
    assert a.is_closed
    assert b.is_closed


def test_copy_of_each_host_object_type_moves_bytes(node: Node) -> None:
    d0, _ = node()
    device = d0.allocate(8)
    for source in (
        b"12345678",
        bytearray(b"12345678"),
        memoryview(b"12345678"),
        array.array("B", b"12345678"),
        np.frombuffer(b"12345678", np.float64),
        np.frombuffer(b"12345678", np.uint8).reshape(2, 4),
    ):
        device.fill(0)
        pl.copy(device, source)
        assert bytes(device.view()) == b"12345678"
    for target in (bytearray(8), np.zeros(2, np.int32), array.array("q", [0])):
        pl.copy(target, device)
        assert bytes(memoryview(target)) == b"12345678"


def test_part_of_buffer_shares_its_bytes(node: Node) -> None:
    d0, _ = node()
    whole = d0.allocate(100)
    whole.fill(0)
    part = whole[10:-10][5:15]
    assert (part.address, part.size, len(part)) == (whole.address + 15, 10, 10)
    part.fill(9)
    expected = np.zeros(100, np.uint8)
    expected[15:25] = 9
    assert np.array_equal(whole.view(), expected)
    pl.copy(whole[0:10], part)
    assert bytes(whole[:10].view()) == b"\x09" * 10
    assert whole[40:40].size == 0
    pl.copy(whole[40:40], b"")


def test_copy_between_overlapping_parts_acts_as_memmove(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(1000)
    data = bytes(np.random.default_rng(1).integers(0, 256, 1000, dtype=np.uint8))
    pl.copy(a, data)
    pl.copy(a[100:1000], a[0:900])
    assert bytes(a.view()) == data[:100] + data[:900]


def test_view_with_dtype_and_shape_reads_and_writes_the_buffer(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(48)
    view = a.view(np.float32, (3, -1))
    assert (view.shape, view.dtype) == ((3, 4), np.float32)
    view[:] = np.arange(12).reshape(3, 4)
    out = np.zeros(12, np.float32)
    pl.copy(out, a)
    assert np.array_equal(out, np.arange(12))
    flat = memoryview(a)
    assert (flat.nbytes, flat.readonly, flat.format) == (48, False, "B")
    flat[0] = 255
    assert a.view()[0] == 255
    host_address = view.ctypes.data
    assert host_address != a.address
    assert pl.raw.locate(host_address).ordinal == 0


def test_dlpack_export_and_import_share_bytes(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(16)
    a.fill(3)
    assert a.__dlpack_device__() == (1, 0)
    array = np.from_dlpack(a)
    assert (array == 3).all()
    if array.flags.writeable:
        array[0] = 4
        assert a.view()[0] == 4

    class OnlyDLPack:
        def __init__(self, array: np.ndarray[tuple[int], np.dtype[np.int32]]) -> None:
            self.array = array

        def __dlpack__(self, **options: object) -> object:
            return self.array.__dlpack__(**options)  # type: ignore[arg-type]

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.array.__dlpack_device__()

    source = np.arange(4, dtype=np.int32)
    pl.copy(a, OnlyDLPack(source))
    assert np.array_equal(a.view(np.int32), source)


def test_host_buffer_and_its_part_keep_the_object_alive() -> None:
    source = np.arange(10, dtype=np.uint8)
    alive = weakref.ref(source)
    buffer = pl.as_buffer(source)
    del source
    gc.collect()
    assert alive() is not None
    assert buffer.device == pl.Host()
    assert bytes(buffer.view()) == bytes(range(10))
    part = buffer[2:4]
    del buffer
    gc.collect()
    assert bytes(part.view()) == b"\2\3"
    del part
    gc.collect()
    assert alive() is None


def test_pinned_buffer_is_located_as_pinned_and_copied(node: Node) -> None:
    d0, _ = node()
    pinned = pl.Host().allocate(1 << 20)
    pinned.view()[:] = 7
    a = d0.allocate(1 << 20)
    a.copy_from(pinned)
    assert (a.view() == 7).all()
    assert pl.raw.locate(pinned.address).kind is pl.Kind.PINNED
    assert pinned.view().ctypes.data == pinned.address
    assert a.route_to(pinned).kind == "host"


def test_buffer_dropped_gives_memory_back(node: Node) -> None:
    d0, _ = node()
    before = d0.free_bytes
    for _ in range(100):
        d0.allocate(50 << 20)
    gc.collect()
    assert d0.free_bytes == before


def test_copy_2d_between_buffers_and_arrays_moves_rectangle(node: Node) -> None:
    d0, d1 = node()
    image = np.arange(40 * 30, dtype=np.uint16).reshape(40, 30)
    a, b = d0.allocate(40 * 64), d1.allocate(40 * 60)
    pl.copy_2d(a, 64, image, 60, 60, 40)
    pl.copy_2d(b, 60, a, 64, 60, 40)
    assert np.array_equal(b.view(np.uint16, (40, 30)), image)
    tile = np.zeros((10, 5), np.uint16)
    pl.copy_2d(tile, 10, b[(3 * 30 + 7) * 2 :], 60, 10, 10)
    assert np.array_equal(tile, image[3:13, 7:12])


@pytest.mark.parametrize("pattern", [0, 255, b"\x01", b"\x01\x02", b"\x01\x02\x03\x04"])
def test_fill_with_each_pattern_repeats_it(node: Node, pattern: int | bytes) -> None:
    d0, _ = node()
    unit = bytes([pattern]) if isinstance(pattern, int) else pattern
    for size in (4, 4096, 3 << 20):
        a = d0.allocate(size)
        pl.fill(a, pattern)
        assert bytes(a.view()) == unit * (size // len(unit))


def test_device_lookup_and_pickle_give_the_same_object(node: Node) -> None:
    d0, d1 = node("devices=2,profile=ascend-a2,memory=4MiB")
    assert pl.Device("virtual:0") is d0
    assert pl.devices()[1] is d1
    assert pickle.loads(pickle.dumps(d1)) is d1
    assert d0.uuid != d1.uuid
    assert (d0.total_bytes, d0.free_bytes) == (4 << 20, 4 << 20)
    assert d0.can_access(d1)
    assert not d0.can_access(d0)
    assert d0.why_not(d1) == ""
    assert pl.Caps.PEER in d0.caps
    assert "virtual:0" in repr(d0)
    assert d0.info.name == "Ascend910B1"


def test_peers_act_as_a_mutable_set(node: Node) -> None:
    devices = node("devices=4")
    peers = devices[0].peers
    peers |= {devices[1], devices[3]}
    assert set(peers) == {devices[1], devices[3]}
    assert devices[0] not in devices[1].peers
    peers.remove(devices[1])
    assert list(peers) == [devices[3]]
    assert peers & {devices[3]} == {devices[3]}
    peers.clear()
    assert len(peers) == 0
    assert repr(peers) == "PeerSet({})"


def test_buffer_repr_shows_size_address_and_closed(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(1000)
    assert repr(a) == f"<Buffer 1,000 bytes at {a.address:#x} on virtual:0>"
    a.close()
    assert repr(a).endswith("closed>")
    with pytest.raises(pl.Closed), a:
        pass


def test_direct_copy_of_non_peer_memory_on_ascend_310p_raises(node: Node) -> None:
    d0, d1 = node("devices=2,profile=ascend-310p,memory=8MiB")
    d0.peers.add(d1)
    plain, peer0, peer1 = d0.allocate(64), d0.allocate(64, peer=True), d1.allocate(64, peer=True)
    assert plain.route_to(peer1).kind == "staged"
    assert "peer=True" in plain.route_to(peer1).reason
    assert peer0.route_to(peer1).kind == "peer"
    with pytest.raises(pl.AccessDenied, match="peer=True"):
        pl.raw.copy(peer1.address, plain.address, 64, direct=True)
    pl.raw.copy(peer1.address, peer0.address, 64, direct=True)


def test_route_to_agrees_with_direct_copy_for_mapped_blocks(node: Node) -> None:
    d0, d1 = node()
    size = d0.granularity
    rng = pl.AddressRange(d0, 2 * size)
    rng.map(pl.Physical(d1, size))
    rng.map(pl.Physical(d0, size), at=size)
    x0, x1 = d0.allocate(8), d1.allocate(8)

    def is_direct(src: pl.Buffer, dst: pl.Buffer) -> bool:
        try:
            pl.raw.copy(dst.address, src.address, 8, direct=True)
        except pl.AccessDenied:
            return False
        return True

    ends = rng[:8], rng[size - 4 : size + 4], rng[size : size + 8], x0, x1
    routes = [[a.route_to(b).kind for b in (x0, x1)] for a in ends]
    either = [["staged", "local"], ["local", "staged"]]
    assert routes == [either[0], ["staged"] * 2, either[1], *either[::-1]]
    for _ in range(2):
        assert all((a.route_to(b).kind != "staged") == is_direct(a, b) for a in ends for b in ends)
        d1.peers.add(d0)
    assert (
        rng[:8].route_to(x0).kind == x0.route_to(rng[:8]).kind == rng[: 2 * size].route_to(x1).kind == "peer"
    )
    assert rng[:0].route_to(x0).kind == "local"


def test_buffer_with_host_access_map_has_host_address(node: Node) -> None:
    d0, _ = node("devices=2,profile=mi300x,memory=4MiB")
    a = d0.allocate(64)
    assert a.view().ctypes.data == a.address


def test_poison_fills_new_memory_and_spares_viewed_memory(node: Node) -> None:
    d0, _ = node("devices=2,poison=true")
    a, keep = d0.allocate(1000), d0.allocate(1000)
    assert (a.view() == 0xCB).all()
    view = keep.view()
    keep.close()
    assert (view != 0xDD).all()
    del view
    gc.collect()
    again = [d0.allocate(1000) for _ in range(3)]
    assert all((buffer.view() == 0xCB).all() for buffer in again)


def test_ctrl_c_while_a_part_is_dropped_is_raised(node: Node) -> None:
    """Python drops an exception that is raised in a __del__, so the loop that makes and drops parts would go on."""
    buffer = node()[0].allocate(64)
    with pytest.raises(KeyboardInterrupt):
        # One C call sets a Ctrl-C pending and drops the part; no Python code runs in between.
        collections.deque(itertools.chain(iter(_thread.interrupt_main, None), (buffer[:1],)), maxlen=0)
        for _ in range(1000):
            pass  # since Python 3.14 a call of C does not look for a Ctrl-C; a loop does


def test_copies_and_channels_work_while_another_thread_imports_numpy(
    alone: pl.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "numpy", ModuleType("numpy"))  # as it is then: nothing is in it
    with pl.devices()[0].allocate(8) as buffer:
        pl.copy(buffer, b"12345678")
        alone.write(buffer, at=16)
        out = bytearray(8)
        alone.read(out, at=16)
    assert out == b"12345678"
