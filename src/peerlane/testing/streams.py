"""A suite for streams and events, which every back-end must pass; inherit from it.

::

    from peerlane.testing.streams import StreamConformance

    class TestMine(StreamConformance):
        def enter(self):
            return peerlane.enter_node("devices=2")

Each test has its own deadline.  The suite needs pytest and NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import peerlane as pl

PATIENCE = 30.0  #: Seconds after which a wait of this suite counts as hung.
LARGE = (24 << 20) + 12_345


def _noise(seed: int, nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8)


def _buffer(device: pl.Device, data: np.ndarray[Any, np.dtype[np.uint8]]) -> pl.Buffer:
    buffer = device.allocate(data.nbytes)
    buffer.copy_from(data)
    return buffer


def _bytes(buffer: pl.Buffer) -> np.ndarray[Any, np.dtype[np.uint8]]:
    taken = np.full(buffer.size, 0xA5, np.uint8)
    buffer.copy_to(taken)
    return taken


class StreamConformance:
    """Inherit, implement :meth:`enter`, and collect with pytest."""

    def enter(self) -> tuple[pl.Device, ...]:
        """Enter a fresh node of at least two devices and return them."""
        raise TypeError(f"{type(self).__name__} must implement enter()")

    @pytest.fixture
    def devices(self) -> Iterator[tuple[pl.Device, ...]]:
        devices = self.enter()
        try:
            yield devices
        finally:
            pl.leave_node()

    @pytest.mark.parametrize("nbytes", [1, 8, 4097, 70_000, (1 << 20) + 1, LARGE])
    def test_a_stream_keeps_its_order(self, devices: tuple[pl.Device, ...], nbytes: int) -> None:
        data = _noise(nbytes, nbytes)
        a, b, c = _buffer(devices[0], data), devices[1].allocate(nbytes), devices[0].allocate(nbytes)
        with devices[0].create_stream() as s:
            b.fill(1, stream=s)
            b.copy_from(a, stream=s)
            a.fill(2, stream=s)
            c.copy_from(b, stream=s)
            b.fill(3, stream=s)
            s.sync(timeout=PATIENCE)
        assert np.array_equal(_bytes(c), data)
        assert (_bytes(a) == 2).all() and (_bytes(b) == 3).all()

    def test_streams_of_two_devices_are_ordered_by_events(self, devices: tuple[pl.Device, ...]) -> None:
        data = _noise(1, LARGE)
        a, b, c = _buffer(devices[0], data), devices[1].allocate(LARGE), devices[0].allocate(LARGE)
        with devices[0].create_stream() as s, devices[1].create_stream() as t:
            for _ in range(5):
                b.fill(0, stream=t)
                s.wait(t)
                b.copy_from(a, stream=s)
                t.wait(s.record())
                c.copy_from(b, stream=t)
            t.sync(timeout=PATIENCE)
        assert np.array_equal(_bytes(c), data)

    def test_an_event_means_what_came_before_it(self, devices: tuple[pl.Device, ...]) -> None:
        a = _buffer(devices[0], np.zeros(LARGE, np.uint8))
        with devices[0].create_stream() as s:
            first = s.record()
            a.fill(7, stream=s)
            second = s.record()
            second.sync(timeout=PATIENCE)
            assert first.is_done and second.is_done
            assert (_bytes(a) == 7).all()
            assert second - first >= 0 and second.time_ns >= first.time_ns

    def test_an_event_recorded_again_means_the_new_record(self, devices: tuple[pl.Device, ...]) -> None:
        a = _buffer(devices[0], np.zeros(64, np.uint8))
        notify = devices[0].create_notify()
        with devices[0].create_stream() as s, devices[0].create_stream() as t:
            event = s.record()
            event.sync(timeout=PATIENCE)
            s.wait(notify)
            a.fill(9, stream=s)
            assert s.record(event) is event
            assert not event.is_done
            t.wait(event)
            t.notify(devices[0].create_notify())
            with pytest.raises(pl.WaitTimeout):
                t.sync(timeout=0.05)
            notify.record()
            t.sync(timeout=PATIENCE)
        assert (_bytes(a) == 9).all()

    def test_a_wait_may_be_submitted_before_its_notify(self, devices: tuple[pl.Device, ...]) -> None:
        a = _buffer(devices[0], np.zeros(64, np.uint8))
        b = devices[1].allocate(64)
        notify = devices[1].create_notify()
        with devices[1].create_stream() as t, devices[0].create_stream() as s:
            t.wait(notify)
            b.copy_from(a, stream=t)
            a.fill(5, stream=s)
            s.notify(notify)
            t.sync(timeout=PATIENCE)
        assert (_bytes(b) == 5).all()

    @pytest.mark.parametrize("nbytes", [8, 4096, (1 << 20) + 8, LARGE - LARGE % 8])
    def test_reductions_are_in_order_and_lose_nothing(
        self, devices: tuple[pl.Device, ...], nbytes: int
    ) -> None:
        ones = np.ones(nbytes // 8, np.uint64)
        total, first, second = (
            _buffer(device, values.view(np.uint8))
            for device, values in ((devices[0], 3 * ones), (devices[0], ones), (devices[1], 2 * ones))
        )
        with devices[0].create_stream() as s, devices[0].create_stream() as t:
            pl.reduce(total, first, dtype="uint64", stream=s)
            pl.reduce(total, total, dtype="uint64", op="prod", stream=s)
            pl.reduce(first, second, dtype="uint64", op="max", stream=s)
            t.wait(s)
            for _ in range(3):
                pl.reduce(total, first, dtype="uint64", stream=s)
                pl.reduce(total, second, dtype="uint64", stream=t)
            s.sync(timeout=PATIENCE)
            t.sync(timeout=PATIENCE)
        for buffer, value in ((total, 4 * 4 + 12), (first, 2), (second, 2)):
            assert (_bytes(buffer).view(np.uint64) == value).all()
        pl.reduce(total, second, dtype="uint64", op="min")
        assert np.array_equal(_bytes(total), _bytes(second))

    def test_a_batch_and_a_descriptor_do_what_single_copies_do(self, devices: tuple[pl.Device, ...]) -> None:
        data = _noise(2, 1 << 20)
        src = _buffer(devices[0], data)
        order = np.random.default_rng(3).permutation(256)
        parts = [src[at * 4096 : (at + 1) * 4096] for at in order]
        expected = data.reshape(256, 4096)[order].ravel()
        for device in devices[:2]:
            dst = device.allocate(1 << 20)
            blocks = [dst[at * 4096 : (at + 1) * 4096] for at in range(256)]
            with device.create_stream() as s:
                pl.copy_batch(blocks, parts, stream=s)
                s.sync(timeout=PATIENCE)
                assert np.array_equal(_bytes(dst), expected)
                dst.fill(0, stream=s)
                table = device.allocate(pl.CopyDescriptor.size_for(256))
                launch = pl.CopyDescriptor.build(table, zip(blocks, parts, strict=True))
                launch.launch(s)
                s.sync(timeout=PATIENCE)
                assert np.array_equal(_bytes(dst), expected)

    def test_a_callback_runs_in_queue_order(self, devices: tuple[pl.Device, ...]) -> None:
        a = _buffer(devices[0], np.zeros(64, np.uint8))
        b = devices[0].allocate(64)
        seen: list[int] = []
        with devices[0].create_stream() as s:
            a.fill(1, stream=s)
            b.copy_from(a, stream=s)
            s.launch_callback(lambda: seen.append(int(_bytes(b)[0])))
            b.fill(2, stream=s)
            s.sync(timeout=PATIENCE)
        assert seen == [1] and (_bytes(b) == 2).all()

    def test_a_failure_stops_what_is_behind_it(self, devices: tuple[pl.Device, ...]) -> None:
        a = _buffer(devices[0], np.zeros(64, np.uint8))
        stream, other = devices[0].create_stream(), devices[0].create_stream()
        pl.raw.copy(a.address, 16, 8, stream=stream)  # no process has memory at address 16
        a.fill(1, stream=stream)
        event = stream.record()
        other.wait(event)
        a.fill(2, stream=other)
        with pytest.raises(pl.BadAddress):
            stream.sync(timeout=PATIENCE)
        with pytest.raises(pl.Cancelled):
            event.sync(timeout=PATIENCE)
        with pytest.raises(pl.Cancelled):
            other.close()
        assert (_bytes(a) == 0).all()
        a.fill(3, stream=stream)
        stream.close()
        assert (_bytes(a) == 3).all()

    def test_a_failure_is_reported_where_the_rest_goes_on(self, devices: tuple[pl.Device, ...]) -> None:
        a = _buffer(devices[0], np.zeros(64, np.uint8))
        stream = devices[0].create_stream(on_error="continue")
        pl.raw.copy(a.address, 16, 8, stream=stream)
        a.fill(1, stream=stream)
        event = stream.record()
        event.sync(timeout=PATIENCE)
        with pytest.raises(pl.BadAddress):
            stream.close()
        assert (_bytes(a) == 1).all()

    def test_memory_in_use_may_be_freed(self, devices: tuple[pl.Device, ...]) -> None:
        data = _noise(4, LARGE)
        b = devices[1].allocate(LARGE)
        with devices[0].create_stream() as s:
            a = _buffer(devices[0], data)
            b.copy_from(a, stream=s)
            a.close()
            s.sync(timeout=PATIENCE)
        assert np.array_equal(_bytes(b), data)
