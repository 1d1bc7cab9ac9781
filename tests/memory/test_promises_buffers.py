"""The promises of docs/errors.md on buffers."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

import peerlane as pl
from helpers.promises import Node, filled, parked, untouched
from peerlane.errors import Fault


def test_buffer_class_called_raises_type_error() -> None:
    with pytest.raises(TypeError, match=r"made by Device\.allocate"):
        pl.Buffer(0x1000, 8, False, True)  # type: ignore[call-arg]


def test_as_buffer_of_mapped_file_refuses_write_and_cut_pages(node: Node, tmp_path: Path) -> None:
    d0, _ = node()
    page = mmap.PAGESIZE
    a, s = filled(d0, 2 * page, 1), d0.create_stream()
    path = tmp_path / "mapped"
    path.write_bytes(bytes([5]) * 2 * page)
    with path.open("r+b") as file:
        read_only = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        shared = mmap.mmap(file.fileno(), 0)
        pl.copy(a, read_only)
        assert untouched(a, 5)
        for stream in (None, s):
            with pytest.raises(
                pl.AccessDenied, match=r"mapped to be read.*ACCESS_WRITE or ACCESS_COPY"
            ) as refused:
                pl.copy(read_only, a, stream=stream)
            assert refused.value.fault is Fault.READ_ONLY
        with pytest.raises(pl.BadAddress, match=r"is protected: .*a destination writable"):
            pl.raw.copy(pl.as_buffer(read_only).address, a.address, page)
        assert s.submitted == 0
        file.truncate(page)
        # Which byte of the second page is touched first is a matter of the C library.
        cut = r"byte [4-8],\d{3} of it\. The file that is mapped there has no such page: it was truncated"
        for ends in ((a, shared), (shared, a)):
            with pytest.raises(pl.BadAddress, match=cut) as refused:
                pl.copy(*ends)
            assert refused.value.fault is Fault.HOST_FAULT
            pl.copy(*ends, stream=s)
            with pytest.raises(pl.BadAddress, match=cut):
                s.sync(timeout=20)
        pl.copy(a[:page], pl.as_buffer(shared)[:page])  # the rest of the file can still be copied
        file.truncate(2 * page)
        pl.copy(shared, a)
    assert path.read_bytes() == bytes(a.view())
    gone = mmap.mmap(-1, page)
    gone.close()
    with pytest.raises(pl.InvalidValue, match=r"the mmap does not export its bytes.*open it again"):
        pl.as_buffer(gone)


def test_enter_closed_buffer_raises_closed(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(8)
    a.close()
    with pytest.raises(pl.Closed), a:
        pass


def test_buffer_protocol_of_closed_buffer_raises_closed(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(8)
    a.close()
    for export in (a.__dlpack__, lambda: memoryview(a), lambda: bytes(a)):
        with pytest.raises(pl.Closed):
            export()


def test_close_with_stream_frees_in_stream_order(node: Node) -> None:
    device = node()[0]
    with device.create_stream() as first, device.create_stream() as second:
        a, b = device.allocate(64, stream=first), device.allocate(64)
        address = a.address
        gate = parked(second)
        pl.raw.fill(address, 5, count=64, stream=second)
        pl.raw.copy(b.address, address, 64, stream=second)
        with pytest.raises(TypeError):
            a.close(stream=0)  # type: ignore[arg-type]
        assert not a.is_closed
        a.close(stream=second)
        assert a.is_closed
        first.sync()
        gate.record()
        second.sync()
        assert (b.view() == 5).all()
        with pytest.raises(pl.BadAddress):
            pl.raw.fill(address, 6, count=64)
    c = device.allocate(64)
    c.close(stream=second)
    assert c.is_closed


def test_buffer_close_twice_does_nothing_more(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(64)
    a.close()
    b = d0.allocate(64)
    a.close()
    assert a.is_closed
    assert not b.is_closed


def test_buffer_close_with_live_view_keeps_bytes(node: Node) -> None:
    d0, _ = node()
    for nbytes in (64, 4 << 20):
        a = filled(d0, nbytes, 5)
        view = a.view()
        a.close()
        others = [filled(d0, nbytes, 6) for _ in range(3)]
        assert (view == 5).all()
        with pytest.raises(pl.Closed):
            a.view()
        del others


def test_copy_from_sizes_differ_raises_invalid_value(node: Node) -> None:
    d0, _ = node()
    a = filled(d0, 8, 1)
    with pytest.raises(pl.InvalidValue):
        a.copy_from(b"123456789")
    assert untouched(a, 1)


def test_copy_to_from_closed_buffer_raises_closed(node: Node) -> None:
    d0, _ = node()
    a, target = d0.allocate(8), bytearray(b"12345678")
    a.close()
    with pytest.raises(pl.Closed):
        a.copy_to(target)
    assert target == b"12345678"


def test_buffer_fill_not_a_byte_raises_invalid_value(node: Node) -> None:
    d0, _ = node()
    with pytest.raises(pl.InvalidValue, match="300 is not a byte"):
        d0.allocate(8).fill(300)


def test_view_that_does_not_fit_raises_invalid_value(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(10)
    with pytest.raises(pl.InvalidValue, match="10 bytes are not a whole number of float32"):
        a.view(np.float32)
    with pytest.raises(pl.InvalidValue, match=r"shape \(3, 2\)"):
        a.view(np.uint8, (3, 2))
    with pytest.raises(pl.InvalidValue, match="not a type of plain bytes"):
        a.view(object)


def test_view_beside_queued_fill_never_waits(node: Node) -> None:
    d0, _ = node()
    a = filled(d0, 8, 1)
    with d0.create_stream() as s:
        gate = parked(s)
        a.fill(2, stream=s)
        assert untouched(a, 1)
        gate.record()
        s.sync(timeout=20)
        assert untouched(a, 2)


def test_view_of_closed_buffer_raises_closed(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(10)
    a.close()
    for export in (a.view, lambda: memoryview(a), lambda: np.from_dlpack(a)):
        with pytest.raises(pl.Closed):
            export()


def test_route_to_wrong_buffer_raises(node: Node) -> None:
    d0, _ = node()
    old = d0.allocate(8)
    d0, _ = node()
    with pytest.raises(pl.InvalidValue, match="another node"):
        d0.allocate(8).route_to(old)
    with pytest.raises(TypeError, match="must be a Buffer"):
        d0.allocate(8).route_to(bytearray(8))  # type: ignore[arg-type]
    closed = d0.allocate(8)
    closed.close()
    with pytest.raises(pl.Closed):
        d0.allocate(8).route_to(closed)
    with pytest.raises(pl.BadAddress) as nowhere:
        pl.AddressRange(d0, 2 << 20)[:8].route_to(d0.allocate(8))
    assert nowhere.value.fault is Fault.UNKNOWN_ADDRESS


def test_address_of_closed_buffer_raises_closed(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(8)
    part = a[2:4]
    a.close()
    for closed in (a, part):
        with pytest.raises(pl.Closed, match=r"allocated at test_promises_buffers.py:\d+"):
            closed.address  # noqa: B018


def test_part_out_of_bounds_raises_bad_address(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(100)
    with pytest.raises(pl.BadAddress, match="ends 20 bytes beyond") as refused:
        a[50:120]
    assert refused.value.fault is Fault.OUT_OF_BOUNDS
    for start, stop in ((-101, 5), (60, 50), (101, 101)):
        with pytest.raises(pl.BadAddress):
            a[start:stop]
    with pytest.raises(pl.InvalidValue, match="step is 2"):
        a[::2]
    with pytest.raises(TypeError, match="not with int"):
        a[3]  # type: ignore[index]
    with pytest.raises(TypeError):
        a[1.5:3]  # type: ignore[misc]


def test_part_of_closed_buffer_raises_closed(node: Node) -> None:
    d0, _ = node()
    a = filled(d0, 16, 1)
    part = a[4:8]
    part.close()
    with pytest.raises(pl.Closed, match=r"a part of allocation \d+ .* its own close"):
        part.fill(2)
    assert untouched(a, 1)
    a.close()
    with pytest.raises(pl.Closed):
        a[0:4]


def test_reading_of_closed_buffer_raises_closed(node: Node) -> None:
    d0, _ = node()
    a = filled(d0, 16, 3)
    with a.reading() as array, pytest.raises(ValueError, match="read-only"):
        array[0] = 4
    assert untouched(a, 3)
    a.close()
    with pytest.raises(pl.Closed):
        a.reading()


def test_writing_of_read_only_memory_raises_access_denied(node: Node) -> None:
    d0, _ = node()
    a = filled(d0, 16, 3)
    with a.writing() as array:
        array[:] = 5
    assert untouched(a, 5)
    with pytest.raises(pl.AccessDenied) as refused:
        pl.as_buffer(bytes(8)).writing()
    assert refused.value.fault is Fault.READ_ONLY
    a.close()
    with pytest.raises(pl.Closed):
        a.writing()
