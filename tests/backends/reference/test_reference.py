"""The reference back-end passes the conformance suite, and its errors name the program's lines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import peerlane as pl
from peerlane.backend.interface import Backend
from peerlane.backends.reference import FACTORY
from peerlane.testing.conformance import BackendConformance

pytestmark = pytest.mark.any_schedule


class TestReference(BackendConformance):
    def make(self) -> Backend:
        return FACTORY.enter(FACTORY.configure("memory=2GiB", "test"), None)


@pytest.fixture
def devices() -> Iterator[tuple[pl.Device, ...]]:
    yield pl.enter_node("backend=reference,devices=3,memory=1MiB")
    pl.leave_node()


def line_of(text: str) -> str:
    """Return the place of the line that ends with this comment, written as messages write it."""
    lines = Path(__file__).read_text().splitlines()
    return f"test_reference.py:{next(n for n, line in enumerate(lines, 1) if line.endswith(f'  # {text}'))}"


def test_node_settings_inline_choose_devices_and_memory() -> None:
    devices = pl.enter_node("backend=reference,devices=2,memory=4KiB/5KiB")
    assert [(each.name, each.total_bytes) for each in devices] == [
        ("reference:0", 4096),
        ("reference:1", 5120),
    ]
    pl.leave_node()


def test_node_settings_of_file_choose_devices_and_memory(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('[node]\nbackend = "reference"\ndevices = 3\nmemory = "1MiB"\n')
    assert [each.total_bytes for each in pl.enter_node(str(file))] == [1 << 20] * 3
    pl.leave_node()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ("devices=0", "node.devices is 0; valid: a whole number from 1 to 4096"),
        ("memory=4x", "node.memory is '4x'; valid: bytes, or a number with one of"),
        ("profile=hgx", "profile is not a setting; valid: devices, memory"),
    ],
)
def test_node_settings_invalid_raise_with_valid_values(settings: str, text: str) -> None:
    with pytest.raises(pl.InvalidValue, match=text) as refused:
        pl.enter_node(f"backend=reference,{settings}")
    assert refused.value.fault is pl.Fault.BAD_CONFIG


def test_freed_address_error_names_lines_that_allocated_and_freed_it(devices: tuple[pl.Device, ...]) -> None:
    buffer = devices[0].allocate(1000)  # made
    address = buffer.address
    buffer.close()  # freed
    with pytest.raises(pl.BadAddress) as refused:
        pl.raw.fill(address + 5, 1, count=3)
    assert refused.value.fault is pl.Fault.FREED_ADDRESS
    assert line_of("made") in str(refused.value)
    assert line_of("freed") in str(refused.value)


def test_closed_buffer_error_names_line_that_allocated_it(devices: tuple[pl.Device, ...]) -> None:
    with devices[0].allocate(1000) as buffer:  # lent
        pass
    with pytest.raises(pl.Closed) as refused:
        buffer.fill(1)
    assert line_of("lent") in str(refused.value)


def test_range_beyond_allocation_error_names_the_allocation(devices: tuple[pl.Device, ...]) -> None:
    a, b = devices[0].allocate(1000), devices[1].allocate(700)  # both
    backend = devices[0].backend
    for call in (
        lambda: pl.raw.copy(a.address, b.address + 1, 700),
        lambda: backend.copy(a.address, b.address + 1, 700),
    ):
        with pytest.raises(pl.BadAddress) as refused:
            call()
        assert refused.value.fault is pl.Fault.OUT_OF_BOUNDS
        assert "source range of 700 bytes" in str(refused.value)
        assert "ends 1 bytes beyond allocation" in str(refused.value)
        assert line_of("both") in str(refused.value)


def test_address_outside_allocations_error_names_the_nearest(devices: tuple[pl.Device, ...]) -> None:
    buffer = devices[0].allocate(1000)  # near
    with pytest.raises(pl.BadAddress) as refused:
        pl.raw.fill(buffer.address + 1005, 1, count=3)
    assert refused.value.fault is pl.Fault.UNKNOWN_ADDRESS
    assert "whose end is 5 bytes below" in str(refused.value)
    assert line_of("near") in str(refused.value)


def test_allocate_beyond_capacity_error_names_the_largest_allocation(devices: tuple[pl.Device, ...]) -> None:
    kept = devices[0].allocate(1000 << 10)  # large
    with pytest.raises(pl.OutOfMemory) as refused:
        devices[0].allocate(25 << 10)
    assert (
        "24,576 of its 1,048,576 bytes are free; this process holds 1, the largest: 1,024,000 bytes"
        in str(refused.value)
    )
    assert line_of("large") in str(refused.value)
    kept.close()
    devices[0].allocate(25 << 10)


@pytest.mark.parametrize(
    ("call", "capability"),
    [
        (lambda device: pl.Host().allocate(8), "PINNED_HOST"),
        (lambda device: pl.Physical(device, 1 << 21), "PHYSICAL"),
        (lambda device: pl.AddressRange(device, 1 << 21), "PHYSICAL"),
        (lambda device: device.allocate(8).export(), "SHARE"),
        (lambda device: pl.Buffer.open(b"handle"), "SHARE"),
        (lambda device: pl.Physical.open(b"handle"), "SHARE"),
    ],
    ids=["pinned", "physical", "range", "export", "open buffer", "open physical"],
)
def test_call_needing_missing_capability_raises_unsupported_naming_it(
    call: Callable[[pl.Device], object], capability: str, devices: tuple[pl.Device, ...]
) -> None:
    with pytest.raises(pl.Unsupported, match=capability):
        call(devices[0])
    assert devices[0].free_bytes == 1 << 20


def test_fill_on_stream_has_run_after_sync(devices: tuple[pl.Device, ...]) -> None:
    buffer = devices[0].allocate(1000)
    with devices[0].create_stream() as stream:
        buffer.fill(7, stream=stream)
        stream.sync(timeout=20)
    assert (buffer.view() == 7).all()


def test_memory_of_left_node_stays_refused_after_new_enter(devices: tuple[pl.Device, ...]) -> None:
    buffer = devices[0].allocate(1000)
    address = buffer.address
    pl.leave_node()
    pl.enter_node("backend=reference,devices=1")
    with pytest.raises(pl.Closed):
        buffer.fill(1)
    with pytest.raises(pl.BadAddress, match="leaving the node"):
        pl.raw.fill(address, 1, count=1)


@pytest.mark.parametrize("nbytes", [0, 1, 4097, (3 << 20) + 5])
@pytest.mark.parametrize("direction", ["virtual to reference", "reference to virtual"])
def test_copy_between_backends_moves_bytes_through_the_host(direction: str, nbytes: int) -> None:
    pl.enter_node(f"name=between-{os.getpid()},devices=1")
    try:
        devices = {name: pl.Device(f"{name}:0") for name in ("virtual", "reference")}
        origin, target = (devices[name] for name in direction.split(" to "))
        src, dst = origin.allocate(nbytes + 10), target.allocate(nbytes + 10)
        data = np.random.default_rng(nbytes).integers(0, 256, nbytes + 10, dtype=np.uint8)
        src.view()[:] = data
        dst.view()[:] = 0x11
        route = src.route_to(dst)
        assert route.kind == "staged"
        assert (
            route.reason
            == f"between back-ends {origin.backend.name} and {target.backend.name} bytes go through the host"
        )
        pl.copy(dst[3 : 3 + nbytes], src[5 : 5 + nbytes])
        assert np.array_equal(dst.view()[3 : 3 + nbytes], data[5 : 5 + nbytes])
        assert (dst.view()[:3] == 0x11).all()
        assert (dst.view()[3 + nbytes :] == 0x11).all()
        dst.view()[:] = 0x11
        pl.raw.copy(dst.address + 3, src.address + 5, nbytes)
        assert np.array_equal(dst.view()[3 : 3 + nbytes], data[5 : 5 + nbytes])
        assert (dst.view()[3 + nbytes :] == 0x11).all()
        with pytest.raises(pl.InvalidValue, match="another node"):
            origin.peers.add(target)
    finally:
        pl.leave_node()
