"""The promises of docs/errors.md on copy lists in device memory."""

from __future__ import annotations

import struct

import pytest

import peerlane as pl
from helpers.promises import Node, filled, untouched
from peerlane.errors import Fault

pytestmark = pytest.mark.timeout(60)

HEADER, ENTRY = struct.Struct("<8sIIQQ"), struct.Struct("<QQQQ")


def test_descriptor_with_bad_table_raises(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(128)
    with pytest.raises(pl.InvalidValue, match="31 bytes; a header needs 32"):
        pl.CopyDescriptor(a[:31])
    with pytest.raises(pl.InvalidValue, match="not a multiple of 8"):
        pl.CopyDescriptor(a[4:100])
    with pytest.raises(TypeError, match="must be a Buffer, not bytearray"):
        pl.CopyDescriptor(bytearray(64))  # type: ignore[arg-type]


def test_size_for_negative_count_raises_invalid_value() -> None:
    assert pl.CopyDescriptor.size_for(0) == 32
    assert pl.CopyDescriptor.size_for(3) == 128
    with pytest.raises(pl.InvalidValue, match="entries is -1"):
        pl.CopyDescriptor.size_for(-1)
    with pytest.raises(TypeError, match="entries must be an int, not float"):
        pl.CopyDescriptor.size_for(1.5)  # type: ignore[arg-type]


def test_encode_bad_pair_raises_naming_the_pair(node: Node) -> None:
    d0, _ = node()
    a, b, gone = d0.allocate(8), d0.allocate(8), d0.allocate(8)
    gone.close()
    with pytest.raises(pl.InvalidValue, match="pair 1 copies 7 bytes to 8"):
        pl.CopyDescriptor.encode([(a, b), (a, b[:7])])
    for pair, end in (
        ((a, pl.as_buffer(bytes(8))), "source"),
        ((pl.as_buffer(bytearray(8)), a), "destination"),
    ):
        with pytest.raises(pl.BadAddress, match=rf"{end} of pair 0 is pageable host memory"):
            pl.CopyDescriptor.encode([pair])
    for pair in ((a, gone), (gone, a)):
        with pytest.raises(pl.Closed, match="of pair 1: "):
            pl.CopyDescriptor.encode([(a, b), pair])


def test_encode_of_what_is_not_a_pair_raises(node: Node) -> None:
    d0, _ = node()
    a, b = d0.allocate(8), d0.allocate(8)
    for few in ((), (a,), (a, b, a)):
        with pytest.raises(
            pl.InvalidValue, match=rf"pair 1 must be \(destination, source\).* {len(few)} items"
        ):
            pl.CopyDescriptor.encode([(a, b), few])  # type: ignore[list-item]
    for none in (5, None, a):
        with pytest.raises(TypeError, match=rf"pair 1 must be .*, not {type(none).__name__}"):
            pl.CopyDescriptor.encode([(a, b), none])  # type: ignore[list-item]
        with pytest.raises(TypeError, match=rf"needs an iterable of .*, not {type(none).__name__}"):
            pl.CopyDescriptor.encode(none)  # type: ignore[arg-type]
    for ends, name in (((a, {}), "source"), (("a", b), "destination")):
        with pytest.raises(TypeError, match=f"the {name} of pair 0: as_buffer"):
            pl.CopyDescriptor.encode([ends])  # type: ignore[list-item]
    with pytest.raises(ZeroDivisionError):
        pl.CopyDescriptor.encode((a, b) for _ in [1 // 0])
    assert pl.CopyDescriptor.encode([[a, b]]) == pl.CopyDescriptor.encode(iter([(a, b)]))  # type: ignore[list-item]


def test_encode_bad_address_raises_naming_the_entry(node: Node) -> None:
    d0, _ = node()
    a, b = d0.allocate(8), d0.allocate(8)
    for entry in ((-1, 1, 1), (1, 1 << 64, 1), (1, 1, -1)):
        with pytest.raises(pl.InvalidValue, match=r"of entry 1 is .* valid are 0 to"):
            pl.CopyDescriptor.encode_addresses([(1, 1, 1), entry])
    with pytest.raises(TypeError, match="source of entry 0 must be an int"):
        pl.CopyDescriptor.encode_addresses([(1, None, 1)])  # type: ignore[list-item]
    with pytest.raises(
        pl.InvalidValue, match=r"entry 0 must be \(destination, source, bytes\); it has 2 items"
    ):
        pl.CopyDescriptor.encode_addresses([(1, 1)])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"entry 0 must be .*, not int"):
        pl.CopyDescriptor.encode_addresses([1])  # type: ignore[list-item]
    assert pl.CopyDescriptor.encode_addresses([(a.address, b.address, 8)]) == pl.CopyDescriptor.encode(
        [(a, b)]
    )
    assert len(pl.CopyDescriptor.encode_addresses([(0x40, 0x80, 8)])) == pl.CopyDescriptor.size_for(1)


def test_build_in_too_small_table_raises_and_writes_nothing(node: Node) -> None:
    d0, _ = node()
    a, b, table = filled(d0, 8, 1), filled(d0, 8, 2), filled(d0, 95, 5)
    with pytest.raises(pl.InvalidValue, match="2 entries need 96 bytes; the table has 95"):
        pl.CopyDescriptor.build(table, [(a, b), (b, a)])
    with pytest.raises(pl.InvalidValue):
        pl.CopyDescriptor.build(table, [(a, b[:3])])
    with pytest.raises(pl.InvalidValue, match=r"CopyDescriptor\.build: pair 0 must be"):
        pl.CopyDescriptor.build(table, [(a,)])  # type: ignore[list-item]
    with pytest.raises(ZeroDivisionError):
        pl.CopyDescriptor.build(table, ((a, b) for number in range(2) if 1 // (1 - number)))
    assert untouched(table, 5)


def test_launch_on_closed_table_or_stream_raises_closed(node: Node) -> None:
    d0, _ = node()
    a, b, s, t = filled(d0, 8, 1), filled(d0, 8, 2), d0.create_stream(), d0.create_stream()
    descriptor = pl.CopyDescriptor.build(d0.allocate(64), [(a, b)])
    t.close()
    with pytest.raises(pl.Closed):
        descriptor.launch(t)
    descriptor.table.close()
    for stream in (None, s):
        with pytest.raises(pl.Closed):
            descriptor.launch(stream)
    assert s.submitted == 0
    assert untouched(a, 1)


def _run(descriptor: pl.CopyDescriptor, stream: pl.Stream | None) -> None:
    descriptor.launch(stream)
    if stream is not None:
        stream.sync(timeout=20)


def test_launch_of_bad_list_raises_bad_descriptor(node: Node) -> None:
    d0, _ = node()
    a, b = filled(d0, 8, 1), filled(d0, 8, 2)
    good = ENTRY.pack(a.address, b.address, 8, 0)
    host = bytearray(8)
    wild = pl.as_buffer(host).address
    lists = {
        r"its first 8 bytes are 0x0, not the magic": bytes(64),
        r"its version is 2; this one is 1": HEADER.pack(b"PLCOPIES", 2, 32, 0, 0),
        r"its entries have 24 bytes; valid is 32": HEADER.pack(b"PLCOPIES", 1, 24, 0, 0),
        r"it counts 4 entries, and the table has room for 3": HEADER.pack(b"PLCOPIES", 1, 32, 4, 0),
        r"18,446,744,073,709,551,615 entries": HEADER.pack(b"PLCOPIES", 1, 32, (1 << 64) - 1, 0),
        r"a reserved field is 0x7": HEADER.pack(b"PLCOPIES", 1, 32, 0, 7),
        r"entry 1 of the copy list.*reserved field is 0x9": HEADER.pack(b"PLCOPIES", 1, 32, 2, 0)
        + good
        + ENTRY.pack(a.address, b.address, 8, 9),
        r"entry 1 of the copy list.*the destination .* is not device or pinned": HEADER.pack(
            b"PLCOPIES", 1, 32, 2, 0
        )
        + good
        + ENTRY.pack(wild, b.address, 8, 0),
        r"entry 1 of the copy list.*the source .* is not device or pinned": HEADER.pack(
            b"PLCOPIES", 1, 32, 2, 0
        )
        + good
        + ENTRY.pack(a.address, wild, 8, 0),
    }
    for stream in (None, d0.create_stream()):
        for text, content in lists.items():
            table = filled(d0, 128, 0)
            table[: len(content)].copy_from(content)
            with pytest.raises(pl.InvalidValue, match=text) as refused:
                _run(pl.CopyDescriptor(table), stream)
            assert refused.value.fault is Fault.BAD_DESCRIPTOR
            assert untouched(a, 1)


def test_launch_of_list_naming_freed_memory_raises_bad_address(node: Node) -> None:
    d0, d1 = node()
    a, b, gone = filled(d0, 8, 1), filled(d1, 8, 2), d1.allocate(8)
    for stream in (None, d0.create_stream()):
        freed = d1.allocate(8)
        descriptor = pl.CopyDescriptor.build(d0.allocate(128), [(a, b), (a, freed)])
        freed.close()
        with pytest.raises(pl.BadAddress, match=r"entry 1.*freed by Buffer\.close") as refused:
            _run(descriptor, stream)
        assert refused.value.fault is Fault.FREED_ADDRESS
        descriptor.table[32 + 32 + 16 : 32 + 32 + 24].copy_from((1 << 40).to_bytes(8, "little"))
        with pytest.raises(pl.BadAddress, match="entry 1"):
            _run(descriptor, stream)
        assert untouched(a, 1)
    gone.close()


def test_raw_launch_at_bad_address_or_size_raises(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(128)
    s = d0.create_stream()
    for stream in (None, s):
        with pytest.raises(pl.InvalidValue, match="31 bytes cannot hold a list"):
            pl.raw.launch_descriptor(a.address, 31, stream=stream)
        with pytest.raises(pl.InvalidValue):
            pl.raw.launch_descriptor(a.address, -1, stream=stream)
        with pytest.raises(pl.BadAddress, match="beyond"):
            pl.raw.launch_descriptor(a.address, 256, stream=stream)
        with pytest.raises(pl.BadAddress):
            pl.raw.launch_descriptor(a.address + (1 << 40), 64, stream=stream)
    assert s.submitted == 0


def test_raw_launch_on_other_device_or_without_route_raises(node: Node) -> None:
    d0, d1 = node()
    a, b, c = filled(d0, 8, 1), filled(d1, 8, 2), filled(d0, 8, 3)
    table = pl.CopyDescriptor.build(d0.allocate(128), [(a, c), (a, b)]).table
    for stream in (None, d0.create_stream()):
        for options, error, fault in (
            ({"device": d0}, pl.InvalidValue, Fault.BAD_DESCRIPTOR),
            ({"direct": True}, pl.AccessDenied, Fault.PEER_NOT_ENABLED),
        ):
            with pytest.raises(error, match="entry 1") as refused:
                pl.raw.launch_descriptor(table.address, table.size, stream=stream, **options)
                if stream is not None:
                    stream.sync(timeout=20)
            assert refused.value.fault is fault
            assert untouched(a, 1)
