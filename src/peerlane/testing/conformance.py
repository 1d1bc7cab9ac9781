"""What every back-end owes the neutral API, as a suite to inherit from.

::

    from peerlane.testing.conformance import BackendConformance

    class TestMine(BackendConformance):
        def make(self):
            return MyBackend()

A test that needs a capability is skipped by its name where the back-end lacks it.  Needs pytest and NumPy.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from peerlane.backend.facts import Caps, Kind
from peerlane.backend.interface import Backend, VisibleMemory
from peerlane.errors import BadAddress, Error, Fault, OutOfMemory

SIZES = (1, 3, 255, 256, 4097, 65_536, 262_145, 1 << 20, (2 << 20) - 1, 2 << 20, (5 << 20) + 7, 33 << 20)


def _noise(seed: int, nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8)


class BackendConformance:
    """Inherit, implement :meth:`make`, and collect with pytest.  Devices 0 and 1 must be peers."""

    def make(self) -> Backend:
        """Return a fresh back-end with at least two devices that can access each other."""
        raise TypeError(f"{type(self).__name__} must implement make()")

    @pytest.fixture
    def backend(self) -> Iterator[Backend]:
        backend = self.make()
        try:
            yield backend
        finally:
            backend.close()

    @staticmethod
    def needs(backend: Backend, cap: Caps) -> None:
        """Skip the test, by name, where the capability is absent."""
        if cap not in backend.caps:
            pytest.skip(f"{backend.name} lacks {cap.name}")

    @staticmethod
    def write(backend: Backend, address: int, data: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        """Copy a host array to an address."""
        backend.copy(address, data.ctypes.data, data.nbytes)

    @staticmethod
    def read(backend: Backend, address: int, nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Copy from an address to a new host array."""
        data = np.full(nbytes, 0xA5, np.uint8)
        backend.copy(data.ctypes.data, address, nbytes)
        return data

    def test_devices_are_numbered_and_distinct(self, backend: Backend) -> None:
        infos = backend.devices()
        assert len(infos) >= 2
        assert [info.ordinal for info in infos] == list(range(len(infos)))
        assert len({info.uuid for info in infos}) == len(infos)
        assert all(len(info.uuid) == 16 and info.total_bytes > 0 for info in infos)
        assert all(0 <= backend.free_bytes(info.ordinal) <= info.total_bytes for info in infos)

    @pytest.mark.parametrize("nbytes", SIZES)
    def test_bytes_survive_host_device_peer_host(self, backend: Backend, nbytes: int) -> None:
        data = _noise(nbytes, nbytes)
        a, b = backend.allocate(0, nbytes), backend.allocate(1, nbytes)
        self.write(backend, a.address, data)
        backend.copy(b.address, a.address, nbytes)
        assert np.array_equal(self.read(backend, b.address, nbytes), data)
        backend.copy(a.address, a.address, nbytes)
        assert np.array_equal(self.read(backend, a.address, nbytes), data)

    def test_a_copy_touches_its_range_only(self, backend: Backend) -> None:
        for nbytes in (1, 64, 5000, (3 << 20) + 1):
            data, canvas = _noise(1, nbytes), np.full(nbytes + 200, 0x11, np.uint8)
            block = backend.allocate(0, canvas.nbytes)
            self.write(backend, block.address, canvas)
            self.write(backend, block.address + 77, data)
            canvas[77 : 77 + nbytes] = data
            assert np.array_equal(self.read(backend, block.address, canvas.nbytes), canvas)

    def test_overlapping_copies_behave_as_memmove(self, backend: Backend) -> None:
        for nbytes, shift in ((100, 1), (5000, 100), (9 << 20, 1 << 20), (9 << 20, 3)):
            data = _noise(2, nbytes)
            block = backend.allocate(0, nbytes)
            for to, source in ((shift, 0), (0, shift)):
                self.write(backend, block.address, data)
                backend.copy(block.address + to, block.address + source, nbytes - shift)
                expected = data.copy()
                expected[to : to + nbytes - shift] = data[source : source + nbytes - shift]
                assert np.array_equal(self.read(backend, block.address, nbytes), expected)

    def test_no_bytes_is_a_no_op(self, backend: Backend) -> None:
        block = backend.allocate(0, 16)
        backend.copy(block.address, 0, 0)
        backend.copy(0, block.address, 0)

    def test_allocations_are_aligned_and_disjoint(self, backend: Backend) -> None:
        blocks = [
            backend.allocate(0, nbytes) for nbytes in (1, 100, 256, 257, 5000, 1 << 20, 3 << 20) for _ in "ab"
        ]
        ranges = sorted((block.address, block.address + block.size) for block in blocks)
        assert all(block.address % 256 == 0 for block in blocks)
        assert all(ranges[i][1] <= ranges[i + 1][0] for i in range(len(ranges) - 1))

    def test_bounds_are_the_requested_size(self, backend: Backend) -> None:
        for nbytes in (1, 100, 5000, (2 << 20) + 1):
            block, scratch = backend.allocate(0, nbytes), np.zeros(nbytes + 1, np.uint8)
            with pytest.raises(BadAddress) as refused:
                backend.copy(block.address, scratch.ctypes.data, nbytes + 1)
            assert refused.value.fault is Fault.OUT_OF_BOUNDS
            assert "1 bytes beyond" in str(refused.value)

    def test_a_freed_address_is_refused(self, backend: Backend) -> None:
        for nbytes in (64, 3 << 20):
            block, other = backend.allocate(0, nbytes), backend.allocate(0, nbytes)
            address = block.address
            block.close()
            block.close()
            with pytest.raises(BadAddress):
                backend.copy(other.address, address, 8)
            with pytest.raises(BadAddress):
                backend.copy(address, other.address, 8)
            with pytest.raises(BadAddress):
                backend.locate(address)

    def test_a_refused_copy_writes_nothing(self, backend: Backend) -> None:
        data = _noise(3, 8192)
        target, source = backend.allocate(0, 8192), backend.allocate(1, 4096)
        self.write(backend, target.address, data)
        with pytest.raises(BadAddress):
            backend.copy(target.address, source.address, 8192)
        assert np.array_equal(self.read(backend, target.address, 8192), data)

    def test_wild_host_pointers_are_refused(self, backend: Backend) -> None:
        block = backend.allocate(0, 4096)
        for wild in (0, 0x1000, 0xDEAD << 48):
            with pytest.raises(BadAddress) as refused:
                backend.copy(block.address, wild, 4096)
            assert refused.value.fault in (Fault.HOST_FAULT, Fault.NULL_ADDRESS)
            with pytest.raises(BadAddress):
                backend.copy(wild, block.address, 4096)

    def test_capacity_is_charged_refunded_and_enforced(self, backend: Backend) -> None:
        before = backend.free_bytes(0)
        block = backend.allocate(0, 10 << 20)
        assert backend.free_bytes(0) <= before - (10 << 20)
        assert backend.free_bytes(1) == backend.devices()[1].total_bytes
        block.close()
        assert backend.free_bytes(0) == before
        with pytest.raises(OutOfMemory):
            backend.allocate(0, backend.devices()[0].total_bytes + 1)
        assert backend.free_bytes(0) == before

    def test_locate_tells_kind_device_and_bounds(self, backend: Backend) -> None:
        block = backend.allocate(1, 5000)
        found = backend.locate(block.address + 4999)
        assert (found.kind, found.ordinal, found.base, found.size) == (Kind.DEVICE, 1, block.address, 5000)
        host = ctypes.create_string_buffer(8)
        assert backend.locate(ctypes.addressof(host)).kind is Kind.PAGEABLE

    def test_pinned_memory_is_touched_by_both(self, backend: Backend) -> None:
        self.needs(backend, Caps.PINNED_HOST)
        data = _noise(4, 10_000)
        pinned, block = backend.allocate_host(10_000), backend.allocate(0, 10_000)
        ctypes.memmove(pinned.address, data.ctypes.data, 10_000)
        backend.copy(block.address, pinned.address, 10_000)
        assert np.array_equal(self.read(backend, block.address, 10_000), data)
        assert backend.locate(pinned.address).kind is Kind.PINNED

    def test_the_host_sees_device_memory(self, backend: Backend) -> None:
        self.needs(backend, Caps.HOST_VIEW)
        data = _noise(5, 5000)
        block = backend.allocate(0, 5000)
        self.write(backend, block.address, data)
        assert isinstance(block, VisibleMemory)
        assert block.host_view().tobytes() == data.tobytes()

    def test_fill_repeats_elements(self, backend: Backend) -> None:
        self.needs(backend, Caps.FILL)
        for width, dtype, value in ((1, np.uint8, 0xAB), (2, np.uint16, 0xBEEF), (4, np.uint32, 0xDEADBEEF)):
            for count in (1, 1001, 3 << 20):
                block = backend.allocate(0, (count + 1) * width)
                backend.fill(block.address, 0x5A, 1, (count + 1) * width)
                backend.fill(block.address, value, width, count)
                got = self.read(backend, block.address, (count + 1) * width)
                assert (got[: count * width].view(dtype) == value).all()
                assert (got[count * width :] == 0x5A).all()

    def test_rectangles(self, backend: Backend) -> None:
        self.needs(backend, Caps.COPY_2D)
        for width, height, dst_pitch, src_pitch in (
            (1, 1, 1, 1),
            (7, 9, 7, 7),
            (100, 50, 128, 101),
            (1 << 20, 5, (1 << 20) + 64, 1 << 20),
        ):
            data = _noise(6, height * src_pitch)
            src, dst = backend.allocate(0, data.nbytes), backend.allocate(1, height * dst_pitch)
            self.write(backend, src.address, data)
            expected = np.full(height * dst_pitch, 0x33, np.uint8)
            self.write(backend, dst.address, expected)
            backend.copy_2d(dst.address, dst_pitch, src.address, src_pitch, width, height)
            expected.reshape(height, dst_pitch)[:, :width] = data.reshape(height, src_pitch)[:, :width]
            assert np.array_equal(self.read(backend, dst.address, expected.nbytes), expected)

    def test_peers_are_directed_and_idempotent(self, backend: Backend) -> None:
        self.needs(backend, Caps.PEER)
        assert backend.can_access(0, 1)
        assert not backend.can_access(0, 0)
        assert backend.why_not(0, 1) == ""
        assert backend.link(0, 1) == backend.link(1, 0) != backend.link(0, 0) == "X"
        assert backend.why_not(0, 0)
        assert set(backend.peers(0)) == set()
        for _ in range(2):
            backend.set_peer(0, 1, True)
            assert (set(backend.peers(0)), set(backend.peers(1))) == ({1}, set())
        for _ in range(2):
            backend.set_peer(0, 1, False)
            assert set(backend.peers(0)) == set()

    def test_threads_do_not_disturb_each_other(self, backend: Backend) -> None:
        failures: list[object] = []

        def work(seed: int) -> None:
            try:
                for i in range(20):
                    data = _noise(seed * 100 + i, 50_000 + 400_000 * (i % 3))
                    block = backend.allocate(seed % 2, data.nbytes)
                    self.write(backend, block.address, data)
                    if not np.array_equal(self.read(backend, block.address, data.nbytes), data):
                        failures.append((seed, i))
                    block.close()
            except Error as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
        assert not failures

    def test_after_close_nothing_works_and_nothing_crashes(self, backend: Backend) -> None:
        block = backend.allocate(0, 4096)
        address = block.address
        backend.close()
        backend.close()
        with pytest.raises(Error):
            backend.allocate(0, 1)
        with pytest.raises(Error):
            backend.copy(address, np.zeros(8, np.uint8).ctypes.data, 8)
        block.close()
