"""Physical memory mapped into address ranges: copies across mappings, aliases, rights, growth and lifetimes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import peerlane as pl
from helpers.peers import PeerError, peer
from helpers.promises import Node
from peerlane.errors import Fault

G = 2 << 20


def _noise(nbytes: int) -> np.ndarray:
    return np.random.default_rng(5).integers(0, 256, nbytes, dtype=np.uint8)


def test_export_of_empty_range_part_raises(node: Node) -> None:
    (d, *_) = node()
    with pl.AddressRange(d, 2 * G) as rng:
        rng.map(pl.Physical(d, G), at=0)
        for empty in (rng[0:0], rng[G:G], rng[2 * G : 2 * G]):
            with pytest.raises(pl.InvalidValue, match=r"the 0 bytes at 0x[0-9a-f]+ lie in no block"):
                empty.export()
        rng[0:1].export().close()


def test_copy_across_mappings_moves_every_byte(node: Node) -> None:
    d0, d1 = node()
    with pl.AddressRange(d0, 4 * G) as rng:
        for i in range(4):
            with pl.Physical(d0, G) as block:
                rng.map(block, at=i * G)
        data = _noise(3 * G)
        rng[G // 2 : G // 2 + 3 * G].copy_from(data)
        out = np.empty_like(data)
        rng[G // 2 : G // 2 + 3 * G].copy_to(out)
        assert np.array_equal(out, data)
        other = d1.allocate(3 * G)
        with d1.create_stream() as stream:
            other.copy_from(rng[G // 2 : G // 2 + 3 * G], stream=stream)
            pl.copy_batch([rng[:8], rng[G - 4 : G + 4]], [other[:8], other[8:16]], stream=stream)
            stream.sync()
        assert np.array_equal(other.view(), data)
        assert bytes(rng[:8].view()) == bytes(data[:8])
        assert bytes(rng[G - 4 : G + 4].view()) == bytes(data[8:16])


def test_view_over_two_mappings_is_one_array_and_keeps_bytes(node: Node) -> None:
    devices = node()
    rng = pl.AddressRange(devices[0], 2 * G)
    for at in (0, G):
        rng.map(pl.Physical(devices[0], G), at=at)
    with devices[0].create_stream() as stream:
        pl.fill(rng[G - 100 : G + 100], 7, stream=stream)
        view = rng[: 2 * G].view()
        stream.sync(timeout=20)
    assert (view[G - 100 : G + 100] == 7).all()
    rng.close()
    view[G - 1 : G + 1] = 9, 9  # the view keeps the bytes
    assert tuple(view[G - 1 : G + 1]) == (9, 9)


def test_block_mapped_twice_shows_the_same_bytes(node: Node) -> None:
    devices = node()
    block = pl.Physical(devices[0], G)
    with pl.AddressRange(devices[0], 2 * G) as rng:
        rng.map(block)
        rng.map(block, at=G)
        block.close()
        rng[5:10].copy_from(b"twice")
        assert bytes(rng[G + 5 : G + 10].view()) == b"twice"
        with devices[0].create_stream() as stream:
            pl.fill(rng[:5], 3, stream=stream)
            stream.sync(timeout=20)
            assert bytes(rng[G : G + 5].view()) == b"\3" * 5
        assert rng.mappings == ((0, G), (G, G))


def test_operation_without_access_right_raises_access_denied(node: Node) -> None:
    d0, d1 = node()
    rng = pl.AddressRange(d0, G)
    rng.map(pl.Physical(d0, G), access={d1: "r"})
    small, far = d0.allocate(64), d1.allocate(64)
    stream, far_stream = d0.create_stream(), d1.create_stream()
    part = rng[:64]
    far.copy_from(part)
    small.copy_from(part, stream=far_stream)
    far_stream.sync()
    table = d0.allocate(1024)
    list_in_range = pl.CopyDescriptor.build(table, [(part, small)])
    for refused in (
        lambda: small.copy_from(part),
        lambda: part.copy_from(far),
        lambda: part.fill(1),
        lambda: part.fill(1, stream=far_stream),
        lambda: part.copy_from(small, stream=stream),
        lambda: pl.copy_batch([part], [far], stream=far_stream),
        lambda: pl.copy_batch([small], [part]),
        lambda: pl.copy_2d(part, 8, far, 8, 4, 4),
        lambda: pl.copy_2d(part, 8, far, 8, 4, 4, stream=far_stream),
        lambda: pl.reduce(part, far, dtype="int8"),
        lambda: pl.reduce(part, far, dtype="int8", stream=far_stream),
        lambda: pl.reduce(small, part, dtype="int8"),
        lambda: pl.raw.copy(rng.address, far.address, 8),
        lambda: pl.raw.reduce(rng.address, far.address, 8, dtype="int8"),
        lambda: pl.raw.fill(rng.address, 1, count=8),
        lambda: pl.raw.write_value(rng.address, 1, stream=stream),
        lambda: pl.raw.wait_value(rng.address, 1, stream=stream),
        lambda: list_in_range.launch(),
    ):
        with pytest.raises(pl.AccessDenied) as denied:
            refused()
        assert denied.value.fault is Fault.NO_ACCESS, str(denied.value)
        assert f"{rng.address:#x}" in str(denied.value)
    list_in_range.launch(stream)
    with pytest.raises(pl.AccessDenied, match="rw"):
        stream.sync()
    assert rng.access(d1) == "r"
    assert rng.access(d0) == "none"
    rng.set_access({d0: "rw"})
    part.fill(4)
    list_in_range.launch()
    rng.set_access("none")
    with pytest.raises(pl.AccessDenied):
        part.fill(1)
    assert rng.access(d1) == "none"


def test_range_of_blocks_of_two_devices_copies_whole(node: Node) -> None:
    d0, d1 = node()
    rng = pl.AddressRange(d0, 2 * G)
    rng.map(pl.Physical(d0, G), at=0, access="rw")
    rng.map(pl.Physical(d1, G), at=G, access="rw")
    data = _noise(2 * G)
    rng[:].copy_from(data)
    target = d1.allocate(2 * G)
    target.copy_from(rng[:])
    assert np.array_equal(target.view(), data)


def test_range_grow_keeps_address_and_bytes(node: Node) -> None:
    devices = node()
    rng = pl.AddressRange(devices[0], G)
    address = rng.address
    rng.map(pl.Physical(devices[0], G))
    rng[:4].copy_from(b"stay")
    rng.grow(3 * G)
    rng.map(pl.Physical(devices[0], 2 * G), at=G)
    rng[G - 2 : G + 2].copy_from(b"seam")
    assert rng.address == address
    assert rng.size == 3 * G
    assert bytes(rng[:4].view()) == b"stay"
    behind = pl.AddressRange(devices[0], G, address=rng.address + rng.size)
    assert behind.address == rng.address + rng.size
    with pytest.raises(pl.OutOfMemory, match="in use") as refused:
        rng.grow(4 * G)
    assert refused.value.fault is Fault.OUT_OF_RESOURCES
    assert rng.size == 3 * G


def test_physical_memory_in_use_after_close_is_still_charged(node: Node) -> None:
    devices = node()
    device = devices[0]
    before = device.free_bytes
    block = pl.Physical(device, 4 * G)
    rng = pl.AddressRange(device, 4 * G)
    rng.map(block)
    block.close()
    assert block.is_closed
    assert before - device.free_bytes == 4 * G
    view = rng[:4].view()
    rng.close()
    assert before - device.free_bytes == 4 * G
    del view
    assert device.free_bytes == before
    with pytest.raises(pl.OutOfMemory) as full:
        pl.Physical(device, device.total_bytes + G)
    assert full.value.fault is Fault.OUT_OF_MEMORY
    assert device.free_bytes == before


def test_part_of_range_uses_the_mapping_of_the_moment(node: Node) -> None:
    devices = node()
    rng = pl.AddressRange(devices[0], 2 * G)
    part = rng[G : G + 8]
    with pytest.raises(pl.BadAddress, match="no mapping is there") as missing:
        part.fill(1)
    assert missing.value.fault is Fault.UNKNOWN_ADDRESS
    rng.map(pl.Physical(devices[0], G), at=G)
    part.fill(1)
    rng.unmap(G)
    rng.map(pl.Physical(devices[0], G), at=G)
    part.fill(2)
    assert bytes(part.view()) == b"\2" * 8
    rng.close()
    with pytest.raises(pl.Closed, match=r"AddressRange.close\(\) at test_address_ranges.py"):
        part.fill(1)


def test_address_of_closed_range_error_names_the_range(node: Node) -> None:
    devices = node()
    rng = pl.AddressRange(devices[0], G)
    rng.map(pl.Physical(devices[0], G))
    address = rng.address
    rng.close()
    with pytest.raises(pl.BadAddress, match=r"address range \d+ .*reserved at test_address_ranges.py:\d+"):
        pl.raw.fill(address, 0, count=4)


def test_leave_node_closes_ranges_and_physical_memory(node: Node) -> None:
    devices = node()
    block, rng = pl.Physical(devices[0], G), pl.AddressRange(devices[0], G)
    rng.map(block)
    part = rng[:8]
    pl.leave_node()
    assert block.is_closed
    assert rng.is_closed
    assert part.is_closed
    for used in (lambda: rng.map(block), lambda: part.fill(0), lambda: rng.grow(2 * G), lambda: rng[:2]):
        with pytest.raises(pl.Closed):
            used()
    rng.close()
    block.close()


@pytest.mark.parametrize("blocks", [200])
def test_range_of_200_mappings_writes_each_block(node: Node, blocks: int) -> None:
    devices = node()
    rng = pl.AddressRange(devices[0], blocks * G)
    for i in range(blocks):
        rng.map(pl.Physical(devices[0], G), at=i * G)
    rng[:].fill(6)
    marks = np.arange(blocks, dtype=np.uint8)
    for i in range(blocks):
        rng[i * G + 9 : i * G + 10].copy_from(marks[i : i + 1])
    view = rng[:].view(shape=(blocks, G))
    assert np.array_equal(view[:, 9], marks)
    assert (view[:, 10] == 6).all()


def test_view_of_mapping_has_its_access_right(node: Node) -> None:
    d0, d1 = node()
    with pl.AddressRange(d0, G) as rng, pl.Physical(d1, G) as block:
        rng.map(block, access="r")
        assert not rng[:8].view().flags.writeable
        rng.set_access({d0: "rw"})
        rng[:8].view()[:] = 3
        rng.set_access("none")
        with pytest.raises(pl.AccessDenied) as caught:
            rng[:8].view()
        assert caught.value.fault is Fault.NO_ACCESS
        rng.set_access("r")
        assert bytes(rng[:8].view()) == bytes([3] * 8)
        rng.unmap()
        rng.map(block)  # the refused view keeps no mapping busy


def test_map_beyond_range_error_names_offset_in_range(node: Node) -> None:
    devices = node()
    with pl.AddressRange(devices[0], 2 * G) as rng, pl.Physical(devices[0], G) as block:
        for at in (5, 2 * G, (1 << 63) - G):
            with pytest.raises(pl.BadAddress, match=f"does not fit at offset {at:,}") as caught:
                rng.map(block, at=at)
            assert caught.value.fault is Fault.OUT_OF_BOUNDS


@pytest.mark.timeout(120)
def test_view_beside_streams_releasing_unmapped_blocks_works(node: Node) -> None:
    devices = node()
    blocks = [pl.Physical(devices[0], G) for _ in range(2)]
    over = threading.Event()
    with pl.AddressRange(devices[0], G) as shown, ThreadPoolExecutor(1) as pool:
        shown.map(blocks[0])

        def look() -> None:
            while not over.is_set():
                shown[:8].view()

        looking = pool.submit(look)
        try:
            with pl.AddressRange(devices[0], 2 * G) as rng, devices[0].create_stream() as stream:
                for _ in range(1000):
                    for i in range(2):
                        rng.map(blocks[i], at=i * G)
                    for _ in range(4):
                        rng[G - 8 : G + 8].fill(1, stream=stream)
                    pl.copy_batch([rng[:4], rng[G - 4 : G + 4]], [rng[8:12], rng[20:28]], stream=stream)
                    rng.unmap(0, size=2 * G)
                    stream.sync()
                    while rng.mappings == ():  # a stream's thread may still hold the mapping
                        with contextlib.suppress(pl.Busy):
                            rng.map(blocks[0])
                    rng.unmap()
        finally:
            over.set()
        looking.result(timeout=60)
    assert blocks[0].size == G


def _refusal(target: pl.Buffer, source: pl.Buffer | pl.AddressRange) -> str:
    try:
        pl.raw.copy(target.address, source.address, 64, direct=True)
    except pl.AccessDenied as error:
        return str(error)
    return ""


@pytest.mark.parametrize("is_peer", [False, True])
def test_direct_copy_of_mapped_or_imported_memory_needs_peer_flag(node: Node, is_peer: bool) -> None:
    spec = f"name=picky-{os.getpid()},devices=2,profile=ascend-310p,memory=16MiB"
    d0, d1 = node(spec)
    d0.peers.add(d1)
    target, own = d1.allocate(64, peer=True), pl.AddressRange(d0, G)
    own.map(pl.Physical(d0, G, peer=is_peer))
    assert ("peer=True" in _refusal(target, own)) is not is_peer
    with peer(spec) as other:
        other.run(f"block = pl.Physical(pl.devices()[0], G, peer={is_peer})")
        other.run(f"buffer = pl.devices()[0].allocate(64, peer={is_peer})")
        other.run("shared = [each.export(allow='user') for each in (block, buffer)]")
        block, buffer = other.run("result = [*map(int, shared)]")
        address_range = pl.AddressRange(d0, G)
        address_range.map(pl.Physical.open(block))
        assert ("peer=True" in _refusal(target, address_range)) is not is_peer
        assert ("peer=True" in _refusal(target, pl.Buffer.open(buffer))) is not is_peer


def test_range_grow_beside_allocations_succeeds(node: Node) -> None:
    device = node("devices=1,memory=256MiB")[0]
    ranges = [pl.AddressRange(device, 8 * G) for _ in range(4)]
    kept = [device.allocate(nbytes) for nbytes in (G, 8 * G, 3 * G, 1000) for _ in range(3)]
    for rng in ranges:
        rng.grow(16 * G)
        kept.append(device.allocate(G))
        rng.grow(64 * G)
    assert len({rng.address for rng in ranges}) == 4 and not any(each.is_closed for each in kept)


def _seen(address: int, nbytes: int) -> np.ndarray:
    """The bytes that the program itself sees at an address."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


def test_memory_of_the_host_in_a_range_is_one_for_the_program_and_devices(node: Node) -> None:
    d0, d1 = node()
    data, other = _noise(G), d1.allocate(G)
    with pl.AddressRange(d0, 3 * G) as rng, pl.Physical(pl.Host(), G) as block:
        assert (block.device, block.size, isinstance(block.device, pl.Host)) == (pl.Host(), G, True)
        rng.map(pl.Physical(d0, G), at=0)
        rng.map(block, at=G)
        assert pl.raw.locate(rng.address + G).kind is pl.Kind.PINNED
        with d0.create_stream() as stream:
            rng[G // 2 : G // 2 + G].copy_from(data, stream=stream)
            stream.sync()
        assert np.array_equal(_seen(rng.address + G, G // 2), data[G // 2 :])
        _seen(rng.address + G, G)[:] = data
        other.copy_from(rng[G : 2 * G])
        assert np.array_equal(other.view(), data)
        rng.unmap(G)
        rng.map(pl.Physical(d0, G), at=G)
        rng[G : 2 * G].fill(1)
        assert bytes(rng[G : G + 4]) == b"\1\1\1\1"


def test_rights_of_the_host_are_for_its_own_memory_alone(node: Node) -> None:
    d0, d1 = node()
    with pl.AddressRange(d0, 2 * G) as rng, pl.Physical(pl.Host(), G) as block:
        rng.map(block, at=0, access={d1: "r"})
        rng.map(pl.Physical(d0, G), at=G, access="rw")
        assert [rng.access(each) for each in (pl.Host(), d0, d1)] == ["none", "none", "r"]
        with pytest.raises(pl.AccessDenied) as raised:
            rng[:8].fill(1)
        assert raised.value.fault is Fault.NO_ACCESS
        rng.set_access({pl.Host(): "r"}, at=0, size=G)
        assert rng.access(pl.Host()) == "r"
        for denied in ({pl.Host(): "r"}, {d1: "none", pl.Host(): "rw"}):
            with pytest.raises(pl.AccessDenied, match="the host cannot touch the block at offset 2,097,152"):
                rng.set_access(denied, at=G)
        with pytest.raises(pl.AccessDenied, match="the host cannot touch the block at offset 0"):
            pl.AddressRange(d0, G).map(pl.Physical(d0, G), access={pl.Host(): "rw"})
        assert (rng.access(pl.Host(), G), rng.access(d1, G)) == ("none", "rw")


def test_memory_of_the_host_is_opened_by_descriptor_and_by_handle(node: Node) -> None:
    spec = f"name=host-{os.getpid()},devices=2"
    (d0, _) = node(spec)
    with pl.AddressRange(d0, G) as rng, pl.Physical(pl.Host(), G) as block, peer(spec) as other:
        rng.map(block)
        _seen(rng.address, G)[:] = 7
        fd, handle = block.export_fd(), block.export(allow=[other.pid])
        opened = other.run(
            f"""
import os
fd = os.open("/proc/{os.getpid()}/fd/{fd}", os.O_RDWR)
blocks = pl.Physical.open_fd(fd), pl.Physical.open({bytes(handle)!r})
result = []
for block in blocks:
    rng = pl.AddressRange(devices[1], block.size)
    rng.map(block)
    result += [block.device.name, bytes(rng[:2])[1]]
    rng[:1].fill(9)
"""
        )
        os.close(fd)
        assert opened == ["host", 7, "host", 7]
        assert list(_seen(rng.address, 2)) == [9, 7]
        with pytest.raises(PeerError, match="WRONG_KIND"):
            other.run(f"pl.Buffer.open({bytes(handle)!r})")
