"""The promises of docs/errors.md on reductions."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import peerlane as pl
from helpers.promises import WILD, Node, filled, parked, untouched
from peerlane.errors import Fault

pytestmark = pytest.mark.timeout(60)
MIB = 1 << 20
G = 2 << 20


def test_reduce_sizes_differ_raises_invalid_value(node: Node) -> None:
    d0, d1 = node()
    a, b = filled(d0, 100, 1), filled(d1, 60, 2)
    s = d0.create_stream()
    for stream in (None, s):
        with pytest.raises(
            pl.InvalidValue, match=r"^reduce: the source has 60 bytes, the destination 100.*\[:60\]"
        ):
            pl.reduce(a, b, dtype="int8", stream=stream)
        with pytest.raises(
            pl.InvalidValue, match="60 bytes are not a whole number of elements of 8 bytes; 4 are left"
        ) as bad:
            pl.reduce(a[:60], b, dtype="int64", stream=stream)
        assert bad.value.call == "reduce"
    assert s.submitted == 0
    assert untouched(a, 1)


def test_reduce_misaligned_end_raises_invalid_value(node: Node) -> None:
    d0, _ = node()
    a, b, s = filled(d0, 64, 1), filled(d0, 64, 2), d0.create_stream()
    host = np.zeros(64, np.uint8)
    for stream in (None, s):
        for dst, src, end in (
            (a[2:34], b[:32], "destination"),
            (a[:32], b[1:33], "source"),
            (a[:32], host[1:33], "source"),
        ):
            with pytest.raises(
                pl.InvalidValue, match=rf"the {end} address 0x[0-9a-f]+ is not a multiple of 4"
            ):
                pl.reduce(dst, src, dtype="float32", stream=stream)
        with pytest.raises(pl.InvalidValue, match=f"{a.address + 1:#x} is not a multiple of 2"):
            pl.raw.reduce(a.address + 1, b.address, 4, dtype="float16", stream=stream)
        pl.reduce(a[1:2], b[3:4], dtype="int8", stream=stream)
    s.sync()
    assert bytes(a.view()) == bytes([1, 5]) + bytes([1]) * 62


def test_reduce_partly_overlapping_ends_raises_invalid_value(node: Node) -> None:
    d0, _ = node()
    a, s = filled(d0, 4 * MIB, 1), d0.create_stream()
    block = pl.Physical(d0, G)
    with pl.AddressRange(d0, 4 * G) as rng:
        for at in (0, G, 3 * G):
            rng.map(block, at=at)
        rng.map(pl.Physical(d0, G), at=2 * G)
        rng[:G].fill(2)
        rng[2 * G : 3 * G].fill(5)
        for stream in (None, s):
            for dst, src in (
                (a[: 3 * MIB], a[MIB:]),
                (a[MIB:], a[: 3 * MIB]),
                (a[:8], a[4:12]),
                (rng[:64], rng[G + 32 : G + 96]),
                (rng[G - 32 : G], rng[2 * G - 48 : 2 * G - 16]),
                (rng[: 2 * G], rng[2 * G - 4 : 4 * G - 4]),
            ):
                with pytest.raises(
                    pl.InvalidValue, match="overlap and are not the same; use one address for both"
                ):
                    pl.reduce(dst, src, dtype="int32", stream=stream)
            pl.reduce(a[:64], a[64:128], dtype="int8", stream=stream)
            pl.reduce(rng[:64], rng[G : G + 64], dtype="int8", stream=stream)  # the very same bytes
        s.sync()
        assert s.submitted == 2
        assert bytes(rng[3 * G : 3 * G + 65].view()) == bytes([8]) * 64 + bytes([2])
    block.close()
    assert bytes(a[:65].view()) == bytes([3]) * 64 + bytes([1])


def test_reduce_unknown_type_or_operation_raises(node: Node) -> None:
    d0, _ = node()
    a, s = filled(d0, 64, 1), d0.create_stream()
    wrong: list[Any] = [
        "float8",
        "bool",
        "complex64",
        "S4",
        bool,
        "f4,f4",
        np.dtype("int32").newbyteorder(),
        "datetime64[s]",
        "",
    ]
    for dtype in wrong:
        for call in (
            lambda dtype: pl.reduce(a, a, dtype=dtype, stream=s),
            lambda dtype: pl.raw.reduce(a.address, a.address, 1, dtype=dtype),
        ):
            with pytest.raises(pl.InvalidValue, match=r"dtype is '.*'; valid are int8, .*bfloat16"):
                call(dtype)
    other: list[Any] = [None, 5, object(), [("a", "nothing")]]
    for dtype in other:
        with pytest.raises(TypeError, match="dtype must be the name of a type or a NumPy dtype"):
            pl.reduce(a, a, dtype=dtype)
    with pytest.raises(pl.InvalidValue, match="op is 'mean'; valid are sum, prod, max, min"):
        pl.reduce(a, a, dtype="int8", op="mean")
    with pytest.raises(TypeError, match=r"raw\.reduce: op must be a str, not int"):
        pl.raw.reduce(a.address, a.address, 1, dtype="int8", op=0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="dtype"):
        pl.reduce(a, a)  # type: ignore[call-arg]
    assert s.submitted == 0
    assert untouched(a, 1)
    same: list[Any] = ["int8", "b", "i1", np.int8, np.dtype("int8"), "byte"]
    for dtype in same:
        pl.reduce(a, a, dtype=dtype)
    assert untouched(a, 64)


def test_reduce_closed_or_read_only_end_raises(node: Node) -> None:
    d0, _ = node()
    a, gone, s = filled(d0, 4, 1), filled(d0, 4, 2), d0.create_stream()
    gone.close()
    target = b"abcd"
    for stream in (None, s):
        for dst, src in ((a, gone), (gone, a)):
            with pytest.raises(
                pl.Closed, match=r"freed by Buffer.close\(\) at test_promises_reductions.py:\d+"
            ):
                pl.reduce(dst, src, dtype="int8", stream=stream)
        with pytest.raises(pl.AccessDenied, match="read-only") as refused:
            pl.reduce(target, a, dtype="int8", stream=stream)
        assert refused.value.fault is Fault.READ_ONLY
        with pytest.raises(TypeError, match="int has neither the buffer protocol nor DLPack"):
            pl.reduce(a, 5, dtype="int8", stream=stream)
        pl.reduce(bytearray(4), a, dtype="int8", stream=stream)
    assert s.submitted == 1
    assert target == b"abcd" and untouched(a, 1)


def test_reduce_from_threads_and_streams_at_once_loses_nothing(node: Node) -> None:
    d0, d1 = node()
    words = (3 * MIB) // 4 + 7
    total, one = d0.allocate(4 * words), np.ones(words, np.uint32)
    total.fill(0)
    source = d1.allocate(4 * words)
    source.copy_from(one)
    streams = [device.create_stream() for device in (d0, d0, d1, d1)]
    rounds = 5

    def add(src: Any) -> None:
        for _ in range(rounds):
            pl.reduce(total, src, dtype="uint32")

    threads = [threading.Thread(target=add, args=(src,)) for src in (source, one, one)]
    for stream in streams * rounds:
        pl.reduce(total, source, dtype="uint32", stream=stream)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    for stream in streams:
        stream.sync(timeout=50)
    assert (total.view(np.uint32) == rounds * (len(streams) + len(threads))).all()


def test_raw_reduce_unusable_address_raises(node: Node) -> None:
    d0, _ = node()
    a, gone, s = filled(d0, 64, 1), d0.allocate(64), d0.create_stream()
    freed = gone.address
    gone.close()
    for stream in (None, s):
        for dst, src, count, fault in (
            (0, a.address, 8, Fault.NULL_ADDRESS),
            (a.address, 0, 8, Fault.NULL_ADDRESS),
            (a.address, freed, 8, Fault.FREED_ADDRESS),
            (a.address + (1 << 40), a.address, 8, Fault.UNKNOWN_ADDRESS),
            (a.address, a.address, 9, Fault.OUT_OF_BOUNDS),
        ):
            with pytest.raises(pl.BadAddress) as refused:
                pl.raw.reduce(dst, src, count, dtype="int64", stream=stream)
            assert refused.value.fault is fault
        for count in (1 << 61, (1 << 64) - 1):
            with pytest.raises(pl.InvalidValue) as wrapped:
                pl.raw.reduce(a.address, a.address, count, dtype="int64", stream=stream)
            assert wrapped.value.fault is Fault.OUT_OF_BOUNDS
        with pytest.raises(pl.InvalidValue, match=r"0 to 2\*\*64 - 1"):
            pl.raw.reduce(a.address, a.address, -1, dtype="int64", stream=stream)
        with pytest.raises(TypeError, match="count must be an int, not float"):
            pl.raw.reduce(a.address, a.address, 1.0, dtype="int64", stream=stream)  # type: ignore[arg-type]
    assert s.submitted == 0
    assert untouched(a, 1)


def test_raw_reduce_wild_host_address_raises_host_fault(node: Node) -> None:
    d0, _ = node()
    a, s = filled(d0, 4 * MIB, 1), d0.create_stream()
    for count in (2, MIB):
        for dst, src in ((a.address, WILD), (WILD, a.address)):
            with pytest.raises(pl.BadAddress, match="cannot be touched") as failed:
                pl.raw.reduce(dst, src, count, dtype="float32")
            assert failed.value.fault is Fault.HOST_FAULT
            pl.raw.reduce(dst, src, count, dtype="float32", stream=s)
            with pytest.raises(
                pl.BadAddress, match=r"operation \d+ \(reduction\) .*cannot be touched"
            ) as failed:
                s.sync()
            assert failed.value.fault is Fault.HOST_FAULT
            pl.reduce(a, a, dtype="int8", op="max", stream=s)
            s.sync()


def test_raw_reduce_direct_without_route_raises_access_denied(node: Node) -> None:
    d0, d1 = node()
    a, b, s = filled(d0, 4 * MIB, 1), filled(d1, 4 * MIB, 2), d0.create_stream()
    for nbytes in (64, 4 * MIB):
        with pytest.raises(pl.AccessDenied, match="virtual:0 and virtual:1 have no peer access") as refused:
            pl.raw.reduce(a.address, b.address, nbytes, dtype="int8", direct=True)
        assert refused.value.fault is Fault.PEER_NOT_ENABLED
        pl.raw.reduce(a.address, b.address, nbytes, dtype="int8", direct=True, stream=s)
        with pytest.raises(pl.AccessDenied, match="no peer access"):
            s.sync()
    assert untouched(a, 1)
    pl.raw.reduce(a.address, b.address, 4 * MIB, dtype="int8")
    pl.raw.reduce(a.address, b.address, 4 * MIB, dtype="int8", stream=s)
    s.sync()
    d0.peers.add(d1)
    pl.raw.reduce(a.address, b.address, 4 * MIB, dtype="int8", direct=True, stream=s)
    s.sync()
    assert untouched(a, 7)


def test_raw_reduce_of_no_elements_looks_at_no_address(node: Node) -> None:
    d0, _ = node()
    a, s = filled(d0, 64, 1), d0.create_stream()
    for stream in (None, s):
        pl.raw.reduce(0, 0, 0, dtype="int64", stream=stream)
        pl.raw.reduce(0x1000, 1 << 63, 0, dtype="int64", stream=stream)
        with pytest.raises(pl.InvalidValue, match="not a multiple of 8"):
            pl.raw.reduce(0, 4, 0, dtype="int64", stream=stream)
        with pytest.raises(pl.InvalidValue, match="op is"):
            pl.raw.reduce(0, 0, 0, dtype="int64", op="", stream=stream)
        pl.reduce(a[:0], b"", dtype="int8", stream=stream)
    s.close()
    with pytest.raises(pl.Closed, match="it takes no more operations"):
        pl.raw.reduce(0, 0, 0, dtype="int64", stream=s)
    assert untouched(a, 1)


def test_reduce_queued_keeps_closed_source_and_abort_cancels(node: Node) -> None:
    d0, _ = node()
    s, t = d0.create_stream(), d0.create_stream()
    total, late = filled(d0, 8, 1), filled(d0, 8, 2)
    gates = parked(s), parked(t)
    pl.reduce(total, late, dtype="int8", stream=s)
    pl.reduce(total, late, dtype="int8", stream=t)
    late.close()
    gates[0].record()
    s.sync()
    t.abort()
    with pytest.raises(pl.Cancelled):
        t.sync()
    assert untouched(total, 3)
