"""Views by address, and classes that export the buffer of another object."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import peerlane as pl
from helpers.promises import Node
from peerlane.errors import Fault


def test_raw_view_reads_and_writes_the_memory(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(100)
    a.fill(1)
    part = pl.raw.view(a.address + 10, 20)
    assert (part.nbytes, part.format, part.readonly) == (20, "B", False)
    part[:] = bytes(range(20))
    assert bytes(a.view()) == b"\1" * 10 + bytes(range(20)) + b"\1" * 70
    with pl.Host().allocate(8) as pinned:
        pl.raw.view(pinned.address, 8)[:] = b"12345678"
        assert bytes(pinned) == b"12345678"


def test_raw_view_of_closed_buffer_keeps_bytes_until_release(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(4 << 20)
    view = pl.raw.view(a.address, a.size)
    view[-1] = 7
    a.close()
    b = d0.allocate(4 << 20)
    b.fill(9)
    assert view[-1] == 7 and d0.free_bytes == d0.total_bytes - (8 << 20)
    view.release()
    assert d0.free_bytes == d0.total_bytes - (4 << 20)


def test_raw_view_over_mappings_has_their_least_right(node: Node) -> None:
    d0, _ = node()
    with (
        pl.AddressRange(d0, 6 << 20) as addresses,
        pl.Physical(d0, 2 << 20) as one,
        pl.Physical(d0, 4 << 20) as two,
    ):
        addresses.map(one, at=0)
        addresses.map(two, at=2 << 20, access={d0: "r"})
        whole = pl.raw.view(addresses.address + 4096, (6 << 20) - 4096)
        assert whole.readonly and whole.nbytes == (6 << 20) - 4096
        assert not pl.raw.view(addresses.address + 4096, 4096).readonly
        first = pl.raw.view(addresses.address, 2 << 20)
        first[4096] = 5
        assert whole[0] == 5
        with pytest.raises(pl.BadAddress) as refused:
            pl.raw.view(addresses.address + 4096, 6 << 20)
        assert refused.value.fault is Fault.OUT_OF_BOUNDS
        whole.release()
        first.release()


class Lender(pl.raw.Exporter):
    def __init__(self, inner: object) -> None:
        self.inner = inner

    def _exported(self) -> object:
        return self.inner


class NoBuffer(pl.raw.Exporter):
    pass


def test_exporter_memoryview_is_the_inner_buffer() -> None:
    inner = bytearray(8)
    lender = Lender(memoryview(inner).cast("I", (2, 1)))
    view = memoryview(lender)
    assert (view.format, view.shape, view.readonly) == ("I", (2, 1), False)
    np.frombuffer(lender, np.uint8)[:] = 7
    assert inner == b"\7" * 8 and bytes(lender) == b"\7" * 8
    assert memoryview(Lender(b"abc")).readonly


def test_exporter_memoryview_keeps_only_the_inner_object() -> None:
    inner = np.arange(4)
    lender = Lender(inner)
    view, lent = memoryview(lender), weakref.ref(lender)
    del lender, inner
    gc.collect()
    assert lent() is None and view.tolist() == [0, 1, 2, 3]


def test_exporter_without_inner_buffer_raises() -> None:
    with pytest.raises(NotImplementedError, match="NoBuffer has no _exported"):
        memoryview(NoBuffer())
    with pytest.raises(TypeError, match="bytes-like"):
        memoryview(Lender(5))
    with pytest.raises(BufferError):
        np.frombuffer(memoryview(Lender(memoryview(bytes(8))[::2])), np.uint8)
    lender = Lender(None)
    lender.inner = lender
    with pytest.raises(RecursionError):
        memoryview(lender)
