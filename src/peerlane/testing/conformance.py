"""Suites of the duties that a back-end has to the neutral API.

A class of tests inherits from them:

    from peerlane.testing.conformance import BackendConformance

    class TestMine(BackendConformance):
        def make(self):
            return MyBackend()

:class:`BackendConformance` has all suites.  Every back-end owes the first four; each other suite belongs to a
capability:

* ``MemoryConformance``, ``AddressesConformance``, ``PeersConformance`` and ``CopiesConformance``: every back-end
* ``VirtualMemoryConformance``: ``Caps.PHYSICAL``
* ``QueueConformance`` and ``SignalConformance``: ``Caps.QUEUE``
* ``ShareConformance``: ``Caps.SHARE``

If the back-end lacks a capability, the tests that need it are skipped by its name.  The suites look at bytes by
another way than the verb under test: by the host's view where there is one, else by ``read``.  They need pytest and
NumPy.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

import peerlane as pl
from peerlane.backend.facts import Caps, HandleKind, Kind
from peerlane.backend.interface import Backend, Memory, VisibleMemory
from peerlane.errors import BadAddress, BadHandle, Error, Fault, InvalidValue, OutOfMemory
from peerlane.node.base import devices_of
from peerlane.support.host_reductions import combined

SIZES = (1, 3, 255, 256, 4097, 65_536, 262_145, 1 << 20, (2 << 20) - 1, 2 << 20, (5 << 20) + 7, 33 << 20)
SECONDS = 20
Bytes = npt.NDArray[np.uint8]


def noise(seed: int, nbytes: int) -> Bytes:
    """Return bytes that a seed determines."""
    return np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8)


class Suite:
    """The base of all suites.  Implement :meth:`make`, and collect with pytest."""

    def make(self) -> Backend:
        """Return a fresh back-end with at least two devices, of 128 MiB or more."""
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
        """Skip the test, with the capability's name, if the back-end lacks it."""
        if cap not in backend.caps:
            pytest.skip(f"{backend.name} lacks {cap.name}")

    def devices(self, backend: Backend, cap: Caps) -> tuple[pl.Device, ...]:
        """Return the devices on which the neutral API makes its objects; skip if the capability is missing."""
        self.needs(backend, cap)
        present: tuple[pl.Device, ...] = devices_of(backend)
        return present

    @staticmethod
    def put(backend: Backend, memory: Memory, data: Bytes, at: int = 0) -> None:
        """Set bytes by the host's view, or by ``write`` if there is no view."""
        if isinstance(memory, VisibleMemory) and Caps.HOST_VIEW in backend.caps:
            np.frombuffer(memory.host_view(), np.uint8)[at : at + data.nbytes] = data
        else:
            backend.write(memory.address + at, data.data)

    @staticmethod
    def seen(backend: Backend, memory: Memory) -> Bytes:
        """Return a copy of all bytes by the host's view, or by ``read`` if there is no view."""
        if isinstance(memory, VisibleMemory) and Caps.HOST_VIEW in backend.caps:
            return np.array(memory.host_view(), np.uint8)
        data = np.full(memory.size, 0xA5, np.uint8)
        backend.read(memory.address, data.data)
        return data

    def filled(self, backend: Backend, ordinal: int, data: Bytes) -> Memory:
        """Return new memory with these bytes."""
        memory = backend.allocate(ordinal, data.nbytes)
        self.put(backend, memory, data)
        return memory


class MemoryConformance(Suite):
    """Devices, allocations and capacity."""

    def test_devices_are_numbered_and_distinct(self, backend: Backend) -> None:
        infos = backend.devices()
        assert len(infos) >= 2
        assert [info.ordinal for info in infos] == list(range(len(infos)))
        assert len({info.uuid for info in infos}) == len(infos)
        assert all(len(info.uuid) == 16 and info.total_bytes > 0 for info in infos)
        assert all(0 <= backend.free_bytes(info.ordinal) <= info.total_bytes for info in infos)

    def test_memory_has_an_address_and_the_size_asked_for(self, backend: Backend) -> None:
        for nbytes in (1, 100, 4097, 3 << 20):
            memory = backend.allocate(0, nbytes)
            assert isinstance(memory, Memory)
            assert memory.size == nbytes
            assert memory.address > 0

    def test_allocations_are_aligned_and_disjoint(self, backend: Backend) -> None:
        blocks = [
            backend.allocate(0, nbytes) for nbytes in (1, 100, 256, 257, 5000, 1 << 20, 3 << 20) for _ in "ab"
        ]
        ranges = sorted((block.address, block.address + block.size) for block in blocks)
        assert all(block.address % 256 == 0 for block in blocks)
        assert all(ranges[i][1] <= ranges[i + 1][0] for i in range(len(ranges) - 1))

    def test_capacity_is_charged_refunded_and_enforced(self, backend: Backend) -> None:
        before = backend.free_bytes(0)
        block = backend.allocate(0, 10 << 20)
        assert backend.free_bytes(0) <= before - (10 << 20)
        assert backend.free_bytes(1) == backend.devices()[1].total_bytes
        assert [each.pid for each in backend.memory_holders(0) if each.nbytes >= 10 << 20] == [os.getpid()]
        block.close()
        assert backend.free_bytes(0) == before
        with pytest.raises(OutOfMemory) as refused:
            backend.allocate(0, backend.devices()[0].total_bytes + 1)
        assert f"{backend.devices()[0].total_bytes + 1:,}" in str(refused.value)
        assert backend.free_bytes(0) == before

    def test_no_bytes_are_refused(self, backend: Backend) -> None:
        with pytest.raises(InvalidValue):
            backend.allocate(0, 0)

    def test_pinned_memory_is_touched_by_both(self, backend: Backend) -> None:
        self.needs(backend, Caps.PINNED_HOST)
        data = noise(4, 10_000)
        pinned, block = backend.allocate_host(10_000), backend.allocate(0, 10_000)
        ctypes.memmove(pinned.address, data.ctypes.data, 10_000)
        backend.copy(block.address, pinned.address, 10_000)
        assert np.array_equal(self.seen(backend, block), data)
        location = backend.locate(pinned.address)
        assert (location.kind, location.ordinal, location.base, location.size) == (
            Kind.PINNED,
            -1,
            pinned.address,
            10_000,
        )
        assert isinstance(pinned, VisibleMemory) and pinned.host_view().tobytes() == data.tobytes()

    def test_the_host_sees_device_memory(self, backend: Backend) -> None:
        self.needs(backend, Caps.HOST_VIEW)
        data = noise(5, 5000)
        block = backend.allocate(0, 5000)
        backend.write(block.address, data.data)
        assert isinstance(block, VisibleMemory)
        view = block.host_view()
        assert view.tobytes() == data.tobytes()
        view[7:9] = b"\x01\x02"
        assert self.read(backend, block.address + 6, 4).tolist() == [data[6], 1, 2, data[9]]

    def test_a_host_view_keeps_the_bytes(self, backend: Backend) -> None:
        self.needs(backend, Caps.HOST_VIEW)
        data = noise(6, 3 << 20)
        block = self.filled(backend, 0, data)
        assert isinstance(block, VisibleMemory)
        view = block.host_view()
        block.close()
        assert view.tobytes() == data.tobytes()

    def test_after_close_nothing_works_and_nothing_crashes(self, backend: Backend) -> None:
        block = backend.allocate(0, 4096)
        address = block.address
        backend.close()
        backend.close()
        assert backend.is_closed
        with pytest.raises(Error):
            backend.allocate(0, 1)
        with pytest.raises(Error):
            backend.write(address, memoryview(bytes(8)))
        block.close()

    def test_threads_do_not_disturb_each_other(self, backend: Backend) -> None:
        failures: list[object] = []

        def work(seed: int) -> None:
            try:
                for i in range(20):
                    data = noise(seed * 100 + i, 50_000 + 400_000 * (i % 3))
                    block = backend.allocate(seed % 2, data.nbytes)
                    backend.write(block.address, data.data)
                    if not np.array_equal(self.seen(backend, block), data):
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

    @staticmethod
    def read(backend: Backend, address: int, nbytes: int) -> Bytes:
        """Copy from an address to a new host array."""
        data = np.full(nbytes, 0xA5, np.uint8)
        backend.read(address, data.data)
        return data


class AddressesConformance(Suite):
    """What integers mean as addresses, and the refusals of those that mean nothing."""

    def test_locate_returns_kind_device_and_bounds(self, backend: Backend) -> None:
        block = backend.allocate(1, 5000)
        location = backend.locate(block.address + 4999)
        assert (location.kind, location.ordinal, location.base, location.size) == (
            Kind.DEVICE,
            1,
            block.address,
            5000,
        )
        host = ctypes.create_string_buffer(8)
        assert backend.locate(ctypes.addressof(host)).kind is Kind.PAGEABLE

    def test_locate_numbers_allocations_apart(self, backend: Backend) -> None:
        blocks = [backend.allocate(each % 2, 300) for each in range(6)]
        numbers = [backend.locate(block.address).allocation for block in blocks]
        assert len(set(numbers)) == 6
        assert all(numbers)
        assert backend.locate(blocks[0].address + 299).allocation == numbers[0]

    def test_bounds_are_the_requested_size(self, backend: Backend) -> None:
        for nbytes in (1, 100, 5000, (2 << 20) + 1):
            block, scratch = backend.allocate(0, nbytes), np.zeros(nbytes + 1, np.uint8)
            for verb in (backend.read, backend.write):
                with pytest.raises(BadAddress) as refused:
                    verb(block.address, scratch.data)
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

    def test_the_refused_operand_is_named(self, backend: Backend) -> None:
        block, other = backend.allocate(0, 4096), backend.allocate(1, 100)
        with pytest.raises(BadAddress, match="source") as refused:
            backend.copy(block.address, other.address, 4096)
        assert refused.value.fault is Fault.OUT_OF_BOUNDS
        with pytest.raises(BadAddress, match="destination"):
            backend.copy(other.address, block.address, 4096)

    def test_wild_addresses_are_refused(self, backend: Backend) -> None:
        block = backend.allocate(0, 4096)
        faults = (Fault.HOST_FAULT, Fault.NULL_ADDRESS, Fault.UNKNOWN_ADDRESS)
        for wild in (0, 0x1000, 0xDEAD << 48):
            with pytest.raises(BadAddress) as refused:
                backend.copy(block.address, wild, 4096)
            assert refused.value.fault in faults
            with pytest.raises(BadAddress):
                backend.copy(wild, block.address, 4096)


class PeersConformance(Suite):
    """Which devices reach each other.  With ``Caps.PEER`` devices 0 and 1 must be peers."""

    def test_a_device_is_not_its_own_peer(self, backend: Backend) -> None:
        assert not backend.can_access(0, 0)
        assert backend.why_not(0, 0)
        assert backend.link(0, 0) == "X"
        assert backend.link(0, 1) == backend.link(1, 0) != "X"
        assert set(backend.peers(0)) == set()

    def test_why_not_is_empty_where_access_is_possible(self, backend: Backend) -> None:
        everyone = range(len(backend.devices()))
        assert all(
            (backend.why_not(a, b) == "") is backend.can_access(a, b) for a in everyone for b in everyone
        )

    def test_peers_are_directed_and_idempotent(self, backend: Backend) -> None:
        self.needs(backend, Caps.PEER)
        assert backend.can_access(0, 1)
        for _ in range(2):
            backend.set_peer(0, 1, True)
            assert (set(backend.peers(0)), set(backend.peers(1))) == ({1}, set())
        for _ in range(2):
            backend.set_peer(0, 1, False)
            assert set(backend.peers(0)) == set()

    def test_an_announced_peer_opens_no_route(self, backend: Backend) -> None:
        self.needs(backend, Caps.PEER)
        assert not backend.is_announced(0, 1)
        backend.announce_peer(0, 1, True)
        assert backend.is_announced(0, 1)
        assert not backend.is_announced(1, 0)
        assert set(backend.peers(0)) == set()
        backend.announce_peer(0, 1, False)
        assert not backend.is_announced(0, 1)


class CopiesConformance(Suite):
    """The verbs that move bytes; each is checked by another way to look at bytes."""

    @pytest.mark.parametrize("nbytes", SIZES)
    def test_bytes_survive_host_device_peer_host(self, backend: Backend, nbytes: int) -> None:
        data = noise(nbytes, nbytes)
        a, b = self.filled(backend, 0, data), backend.allocate(1, nbytes)
        backend.copy(b.address, a.address, nbytes)
        assert np.array_equal(self.seen(backend, b), data)
        backend.copy(a.address, a.address, nbytes)
        assert np.array_equal(self.seen(backend, a), data)

    @pytest.mark.parametrize("nbytes", [1, 255, 4097, 262_145, (2 << 20) - 1, (5 << 20) + 7])
    def test_write_sets_its_range_only(self, backend: Backend, nbytes: int) -> None:
        data, canvas = noise(1, nbytes), np.full(nbytes + 200, 0x11, np.uint8)
        block = self.filled(backend, 0, canvas)
        backend.write(block.address + 77, data.data)
        canvas[77 : 77 + nbytes] = data
        assert np.array_equal(self.seen(backend, block), canvas)

    @pytest.mark.parametrize("nbytes", [1, 255, 4097, 262_145, (2 << 20) - 1, (5 << 20) + 7])
    def test_read_returns_its_range_and_no_more(self, backend: Backend, nbytes: int) -> None:
        data = noise(1, nbytes + 200)
        block, into = self.filled(backend, 0, data), np.full(nbytes + 2, 0xA5, np.uint8)
        backend.read(block.address + 77, into[1:-1].data)
        assert np.array_equal(into[1:-1], data[77 : 77 + nbytes])
        assert into[0] == into[-1] == 0xA5

    def test_a_copy_touches_its_range_only(self, backend: Backend) -> None:
        for nbytes in (1, 64, 5000, (3 << 20) + 1):
            data, canvas = noise(1, nbytes), np.full(nbytes + 200, 0x11, np.uint8)
            source, block = self.filled(backend, 1, data), self.filled(backend, 0, canvas)
            backend.copy(block.address + 77, source.address, nbytes)
            canvas[77 : 77 + nbytes] = data
            assert np.array_equal(self.seen(backend, block), canvas)

    def test_overlapping_copies_behave_as_memmove(self, backend: Backend) -> None:
        for nbytes, shift in ((100, 1), (5000, 100), (9 << 20, 1 << 20), (9 << 20, 3)):
            data = noise(2, nbytes)
            block = backend.allocate(0, nbytes)
            for to, source in ((shift, 0), (0, shift)):
                self.put(backend, block, data)
                backend.copy(block.address + to, block.address + source, nbytes - shift)
                expected = data.copy()
                expected[to : to + nbytes - shift] = data[source : source + nbytes - shift]
                assert np.array_equal(self.seen(backend, block), expected)

    def test_no_bytes_is_a_no_op(self, backend: Backend) -> None:
        block = backend.allocate(0, 16)
        backend.copy(block.address, 0, 0)
        backend.copy(0, block.address, 0)

    def test_a_refused_copy_writes_nothing(self, backend: Backend) -> None:
        data = noise(3, 8192)
        target, source = self.filled(backend, 0, data), backend.allocate(1, 4096)
        with pytest.raises(BadAddress):
            backend.copy(target.address, source.address, 8192)
        assert np.array_equal(self.seen(backend, target), data)

    def test_fill_repeats_elements(self, backend: Backend) -> None:
        self.needs(backend, Caps.FILL)
        for width, dtype, value in ((1, np.uint8, 0xAB), (2, np.uint16, 0xBEEF), (4, np.uint32, 0xDEADBEEF)):
            for count in (1, 1001, 3 << 20):
                block = self.filled(backend, 0, np.full((count + 1) * width, 0x5A, np.uint8))
                backend.fill(block.address, value, width, count)
                got = self.seen(backend, block)
                assert (got[: count * width].view(dtype) == value).all()
                assert (got[count * width :] == 0x5A).all()

    def test_copy_batch_copies_each_pair(self, backend: Backend) -> None:
        data = noise(7, 10_000)
        source, target = self.filled(backend, 0, data), self.filled(backend, 1, np.zeros(10_000, np.uint8))
        pieces = [(0, 5000, 1), (100, 0, 4097), (9000, 8000, 1000)]
        backend.copy_batch([(target.address + to, source.address + at, n) for to, at, n in pieces])
        expected = np.zeros(10_000, np.uint8)
        for to, at, n in pieces:
            expected[to : to + n] = data[at : at + n]
        assert np.array_equal(self.seen(backend, target), expected)

    def test_rectangles(self, backend: Backend) -> None:
        for width, height, dst_pitch, src_pitch in (
            (1, 1, 1, 1),
            (7, 9, 7, 7),
            (100, 50, 128, 101),
            (1 << 20, 5, (1 << 20) + 64, 1 << 20),
        ):
            data, expected = noise(6, height * src_pitch), np.full(height * dst_pitch, 0x33, np.uint8)
            src, dst = self.filled(backend, 0, data), self.filled(backend, 1, expected)
            backend.copy_2d(dst.address, dst_pitch, src.address, src_pitch, width, height)
            expected.reshape(height, dst_pitch)[:, :width] = data.reshape(height, src_pitch)[:, :width]
            assert np.array_equal(self.seen(backend, dst), expected)

    @pytest.mark.parametrize(
        ("dtype", "width"),
        [
            *(("int8", 1), ("uint16", 2), ("int32", 4), ("uint64", 8), ("float16", 2), ("bfloat16", 2)),
            *(("float32", 4), ("float8_e4m3fn", 1), ("float8_e5m2", 1)),
        ],
    )
    def test_reductions_combine_elements(self, backend: Backend, dtype: str, width: int) -> None:
        mine, other = noise(8, 4000), noise(9, 4000)
        for op in ("sum", "max"):
            a, b = self.filled(backend, 0, mine), self.filled(backend, 1, other)
            backend.reduce(a.address, b.address, 4000 // width, dtype, op)
            assert np.array_equal(self.seen(backend, a), combined(mine, other, dtype, op))
            assert np.array_equal(self.seen(backend, b), other)

    def test_a_misaligned_reduction_is_refused(self, backend: Backend) -> None:
        a, b = backend.allocate(0, 64), backend.allocate(0, 64)
        with pytest.raises(InvalidValue):
            backend.reduce(a.address + 1, b.address, 4, "float32", "sum")


class VirtualMemoryConformance(Suite):
    """Physical memory and address ranges as separate objects: ``Caps.PHYSICAL``."""

    def test_physical_memory_is_charged_until_closed(self, backend: Backend) -> None:
        devices = self.devices(backend, Caps.PHYSICAL)
        device, before = devices[0], devices[0].free_bytes
        with pl.Physical(device, device.granularity) as block:
            assert block.size == device.granularity
            assert device.free_bytes == before - block.size
        assert device.free_bytes == before

    def test_memory_mapped_twice_has_the_same_bytes(self, backend: Backend) -> None:
        devices = self.devices(backend, Caps.PHYSICAL)
        device = devices[0]
        block = pl.Physical(device, device.granularity)
        first, second = (pl.AddressRange(device, block.size) for _ in "ab")
        first.map(block)
        second.map(block)
        first[5:9].fill(7)
        assert second[4:10].view().tolist()[1:5] == [7, 7, 7, 7]
        for each in (first, second, block):
            each.close()

    def test_a_range_without_a_mapping_is_refused(self, backend: Backend) -> None:
        devices = self.devices(backend, Caps.PHYSICAL)
        with pl.AddressRange(devices[0], devices[0].granularity) as reserved, pytest.raises(BadAddress):
            reserved[:8].fill(1)


class QueueConformance(Suite):
    """Streams that the back-end implements: ``Caps.QUEUE``."""

    def test_operations_run_in_order(self, backend: Backend) -> None:
        devices = self.devices(backend, Caps.QUEUE)
        a, b = devices[0].allocate(70_000), devices[1].allocate(70_000)
        with devices[0].create_stream() as stream:
            for value in range(1, 6):
                a.fill(value, stream=stream)
                b.copy_from(a, stream=stream)
            stream.sync(timeout=SECONDS)
            assert (b.view() == 5).all()
            assert stream.completed == stream.submitted

    def test_a_failure_surfaces_at_sync(self, backend: Backend) -> None:
        devices = self.devices(backend, Caps.QUEUE)

        def fail() -> None:
            raise ValueError("asked for")

        with devices[0].create_stream() as stream:
            stream.launch_callback(fail)
            with pytest.raises(Error) as failed:
                stream.sync(timeout=SECONDS)
            assert failed.value.fault is Fault.CALLBACK_FAILED
            stream.sync(timeout=SECONDS)

    def test_abort_cancels_what_waits(self, backend: Backend) -> None:
        devices = self.devices(backend, Caps.QUEUE)
        signal = devices[0].create_notify()
        stream = devices[0].create_stream()
        stream.wait(signal)
        stream.abort()
        with pytest.raises(pl.Cancelled):
            stream.sync(timeout=SECONDS)
        stream.close()


class SignalConformance(Suite):
    """Signals that streams record and wait for: ``Caps.QUEUE``."""

    def test_a_wait_comes_after_the_record(self, backend: Backend) -> None:
        devices = self.devices(backend, Caps.QUEUE)
        a, b = devices[0].allocate(5000), devices[1].allocate(5000)
        with devices[0].create_stream() as s, devices[1].create_stream() as t:
            a.fill(9, stream=s)
            done = s.record()
            t.wait(done)
            b.copy_from(a, stream=t)
            t.sync(timeout=SECONDS)
            assert done.is_done
            assert (b.view() == 9).all()

    def test_a_notify_lets_one_wait_through(self, backend: Backend) -> None:
        devices = self.devices(backend, Caps.QUEUE)
        signal, calls = devices[0].create_notify(), list[int]()
        with devices[0].create_stream() as s, devices[0].create_stream() as t:
            t.wait(signal, timeout=SECONDS)
            t.launch_callback(calls.append, 2)
            s.launch_callback(calls.append, 1)
            s.notify(signal)
            t.sync(timeout=SECONDS)
        assert calls == [1, 2]


class ShareConformance(Suite):
    """Handles for other processes: ``Caps.SHARE``.  No other process opens one here."""

    def test_a_handle_is_a_plain_record(self, backend: Backend) -> None:
        devices = self.devices(backend, Caps.SHARE)
        with pl.Physical(devices[0], devices[0].granularity) as block:
            handle = block.export(allow=[os.getpid()])
            assert isinstance(bytes(handle), bytes)
            assert devices[0].backend.maker_of(bytes(handle)) == os.getpid()

    def test_a_record_that_no_handle_has_is_refused(self, backend: Backend) -> None:
        devices = self.devices(backend, Caps.SHARE)
        with pytest.raises(BadHandle):
            devices[0].backend.open_handle(HandleKind.PHYSICAL, b"not a handle", 1.0)


class BackendConformance(
    MemoryConformance,
    AddressesConformance,
    PeersConformance,
    CopiesConformance,
    VirtualMemoryConformance,
    QueueConformance,
    SignalConformance,
    ShareConformance,
):
    """All suites."""
