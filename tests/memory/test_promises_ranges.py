"""The promises of docs/errors.md on address ranges; test_address_ranges.py tests what ranges do."""

from __future__ import annotations

import pytest

import peerlane as pl
from helpers.promises import Node
from peerlane.errors import Fault

G = 2 << 20


def test_range_bad_arguments_raise(node: Node) -> None:
    device = node()[0]
    for size in (0, -1):
        with pytest.raises(pl.InvalidValue):
            pl.AddressRange(device, size)
    for alignment in (3, -2, 1 << 31):
        with pytest.raises(pl.InvalidValue, match="power of two"):
            pl.AddressRange(device, G, alignment=alignment)
    for address in (-1, 1 << 64):
        with pytest.raises(pl.InvalidValue, match="64-bit"):
            pl.AddressRange(device, G, address=address)
    for unfit in ({"alignment": 2.0}, {"alignment": True}, {"address": "0"}):
        with pytest.raises(TypeError):
            pl.AddressRange(device, G, **unfit)
    with pytest.raises(TypeError, match="Device"):
        pl.AddressRange(pl.Host(), G)  # type: ignore[arg-type]
    assert pl.AddressRange(device, G + 1, alignment=1 << 30).address % (1 << 30) == 0


def test_range_beyond_address_windows_raises_out_of_memory(node: Node) -> None:
    with pytest.raises(pl.OutOfMemory) as refused:
        pl.AddressRange(node()[0], 1 << 62)
    assert refused.value.fault is Fault.OUT_OF_RESOURCES


def test_range_used_after_close_raises_closed(node: Node) -> None:
    device = node()[0]
    rng, block = pl.AddressRange(device, G), pl.Physical(device, G)
    rng.map(block)
    rng.close()
    assert rng.is_closed
    assert "closed" in repr(rng)
    for use in (
        lambda: rng.address,
        lambda: rng.map(block),
        lambda: rng.unmap(),
        lambda: rng.set_access("r"),
        lambda: rng.access(device),
        lambda: rng.grow(2 * G),
        lambda: rng[:1],
        lambda: rng.__enter__(),
    ):
        with pytest.raises(pl.Closed, match="AddressRange"):
            use()


def test_range_size_after_close_is_known(node: Node) -> None:
    rng = pl.AddressRange(node()[0], 3)
    assert rng.size == len(rng) == G
    rng.close()
    assert rng.size == G
    assert rng


def test_range_mappings_list_offset_and_size(node: Node) -> None:
    device = node()[0]
    rng = pl.AddressRange(device, 3 * G)
    assert rng.mappings == ()
    rng.map(pl.Physical(device, G), at=G)
    rng.map(pl.Physical(device, G))
    assert rng.mappings == ((0, G), (G, G))
    rng.close()
    assert rng.mappings == ()


def test_map_that_does_not_fit_raises_and_maps_nothing(node: Node) -> None:
    device = node()[0]
    rng, block = pl.AddressRange(device, 2 * G), pl.Physical(device, 2 * G)
    for at in (G, 2 * G, 1 << 62, 1):
        with pytest.raises(pl.BadAddress) as refused:
            rng.map(block, at=at)
        assert refused.value.fault is Fault.OUT_OF_BOUNDS
    for at in (-G, 1 << 63):
        with pytest.raises(pl.InvalidValue):
            rng.map(block, at=at)
    for unfit in (1.0, True):
        with pytest.raises(TypeError):
            rng.map(block, at=unfit)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Physical"):
        rng.map(device.allocate(G))  # type: ignore[arg-type]
    for size in (3 * G, G + 4096, 1, -G, 1 << 63):
        with pytest.raises(pl.InvalidValue):
            rng.map(block, size=size)
    with pytest.raises(TypeError):
        rng.map(block, size=2.0 * G)  # type: ignore[arg-type]
    with pytest.raises(pl.BadAddress):
        rng.map(block, at=2 * G, size=G)
    assert rng.mappings == ()
    rng.map(block, at=G, size=G)
    assert rng.mappings == ((G, G),)


def test_map_over_mapping_or_live_view_raises_busy(node: Node) -> None:
    device = node()[0]
    rng, block = pl.AddressRange(device, 2 * G), pl.Physical(device, G)
    rng.map(block)
    with pytest.raises(pl.Busy):
        rng.map(block)
    view = rng[:8].view()
    rng.unmap()
    with pytest.raises(pl.Busy):
        rng.map(block)
    assert len(view) == 8
    del view
    rng.map(block)
    assert rng.mappings == ((0, G),)


def test_map_with_bad_access_raises_and_maps_nothing(node: Node) -> None:
    device = node()[0]
    rng, block = pl.AddressRange(device, G), pl.Physical(device, G)
    for access in ("w", "", {device: "x"}, {device: 3}):
        with pytest.raises(pl.InvalidValue, match="none"):
            rng.map(block, access=access)  # type: ignore[arg-type]
    for unfit in (3, {"virtual:0": "r"}, [device]):
        with pytest.raises(TypeError):
            rng.map(block, access=unfit)  # type: ignore[arg-type]
    assert rng.mappings == ()


def test_unmap_without_whole_mapping_raises_bad_address(node: Node) -> None:
    device = node()[0]
    rng = pl.AddressRange(device, 4 * G)
    rng.map(pl.Physical(device, 2 * G))
    rng.map(pl.Physical(device, G), at=2 * G)
    for wrong in ((G,), (3 * G,), (0, G), (0, 4 * G), (2 * G, 2 * G)):
        with pytest.raises(pl.BadAddress) as refused:
            rng.unmap(*wrong)
        assert refused.value.fault is Fault.UNKNOWN_ADDRESS
        assert len(rng.mappings) == 2
    rng.unmap(0, 3 * G)
    assert rng.mappings == ()


def test_set_access_bad_raises_and_changes_nothing(node: Node) -> None:
    d0, d1 = node()
    rng = pl.AddressRange(d0, 2 * G)
    rng.map(pl.Physical(d0, G), access={d0: "r"})
    with pytest.raises(pl.InvalidValue):
        rng.set_access({d1: "rw", d0: "x"})
    for wrong in ({"at": G}, {"size": 2 * G}, {"size": 5}):
        with pytest.raises(pl.BadAddress):
            rng.set_access("rw", **wrong)
    assert (rng.access(d0), rng.access(d1)) == ("r", "none")


def test_operation_without_access_raises_no_access(node: Node) -> None:
    d0, d1 = node()
    rng = pl.AddressRange(d0, G)
    rng.map(pl.Physical(d0, G))
    rng[:].fill(1)
    rng.set_access({d0: "r"})
    stream = d0.create_stream()
    for write in (lambda: rng[:].fill(2), lambda: rng[:].fill(2, stream=stream)):
        with pytest.raises(pl.AccessDenied) as refused:
            write()
        assert refused.value.fault is Fault.NO_ACCESS
        assert f"{rng.address:#x}" in str(refused.value)
    stream.sync()
    assert (rng[:].view() == 1).all()
    assert d1 is not d0


def test_access_of_unmapped_offset_raises_bad_address(node: Node) -> None:
    device = node()[0]
    rng = pl.AddressRange(device, 2 * G)
    rng.map(pl.Physical(device, G))
    assert rng.access(device, G - 1) == "rw"
    for at in (G, 2 * G, 1 << 60):
        with pytest.raises(pl.BadAddress) as refused:
            rng.access(device, at)
        assert refused.value.fault is Fault.UNKNOWN_ADDRESS


def test_grow_into_used_addresses_raises_out_of_memory(node: Node) -> None:
    device = node()[0]
    rng = pl.AddressRange(device, G)
    pl.AddressRange(device, G, address=rng.address + G)  # dropped at once
    behind = pl.AddressRange(device, G, address=rng.address + G)
    assert behind.address == rng.address + G
    with pytest.raises(pl.OutOfMemory) as refused:
        rng.grow(2 * G)
    assert refused.value.fault is Fault.OUT_OF_RESOURCES
    assert rng.size == G
    for bad in (0, -1):
        with pytest.raises(pl.InvalidValue):
            rng.grow(bad)
    with pytest.raises(pl.OutOfMemory, match="in use"):
        rng.grow(2 * G)
    for beyond in (1 << 62, (1 << 63) - 1, rng._reservation.most + 1):
        with pytest.raises(
            pl.OutOfMemory, match="bytes can be reserved from its first address on"
        ) as refused:
            rng.grow(beyond)
        assert refused.value.fault is Fault.OUT_OF_RESOURCES
    rng.grow(1)  # it is larger already
    assert rng.size == G


def test_range_close_keeps_bytes_of_queued_work_and_views(node: Node) -> None:
    device = node()[0]
    rng = pl.AddressRange(device, G)
    rng.map(pl.Physical(device, G))
    view = rng[:4].view()
    stream = device.create_stream()
    rng[:4].fill(9, stream=stream)
    rng.close()
    rng.close()
    stream.sync()
    assert bytes(view) == b"\t" * 4


def test_range_part_out_of_bounds_raises_bad_address(node: Node) -> None:
    rng = pl.AddressRange(node()[0], G)
    for part in (slice(0, G + 1), slice(5, 4), slice(-G - 1, 3)):
        with pytest.raises(pl.BadAddress, match="addressrange's"):
            rng[part]
    with pytest.raises(pl.InvalidValue, match="contiguous"):
        rng[::2]
    with pytest.raises(TypeError):
        rng[3]  # type: ignore[index]
