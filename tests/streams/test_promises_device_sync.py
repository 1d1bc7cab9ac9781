"""`Device.sync` waits for all streams of a device."""

from __future__ import annotations

import threading

import pytest

import peerlane as pl
from helpers.promises import Node
from peerlane import Fault

pytestmark = pytest.mark.timeout(120)

SIZE = 4 << 20


def test_device_sync_waits_for_streams_groups_and_dropped_streams(node: Node) -> None:
    device, other = node()
    with pl.StreamGroup(device) as group, device.create_stream() as stream:
        streams = [stream, group.default, group.create_stream(), device.create_stream()]
        buffers = [device.allocate(SIZE) for _ in streams]
        for number, (each, buffer) in enumerate(zip(streams, buffers, strict=True)):
            pl.fill(buffer, number + 1, stream=each)
        del each, streams[-1]
        device.sync()
        assert all(each.is_done for each in streams)
        assert [bytes(buffer)[:: SIZE // 2] for buffer in buffers] == [bytes([n + 1] * 2) for n in range(4)]
        other.sync()
        for buffer in buffers:
            buffer.close()


def test_device_sync_does_not_wait_for_another_device(node: Node) -> None:
    device, other = node()
    with other.create_stream() as stream, other.create_notify() as notify:
        stream.wait(notify)
        device.sync()
        with pytest.raises(pl.WaitTimeout, match=rf"stream {stream.id} on virtual:1") as raised:
            other.sync(timeout=0.05)
        assert raised.value.call == "Device.sync"
        with other.create_stream() as recorder:
            recorder.notify(notify)
        other.sync()
        assert stream.is_done


def test_device_sync_reports_the_first_failure_and_leaves_the_others(node: Node) -> None:
    device = node()[0]

    def fail() -> None:
        raise ValueError("wrong")

    with device.create_stream() as one, device.create_stream() as two:
        one.launch_callback(fail)
        two.launch_callback(fail)
        for number in (one.id, two.id):
            with pytest.raises(pl.DeviceFault, match=f"stream {number}") as raised:
                device.sync()
            assert raised.value.fault is Fault.CALLBACK_FAILED
        device.sync()


def test_device_sync_in_a_callback_of_its_own_stream_is_refused(node: Node) -> None:
    device = node()[0]
    faults: list[Fault] = []

    def wait() -> None:
        try:
            device.sync()
        except pl.Error as error:
            faults.append(error.fault)

    with device.create_stream() as stream:
        stream.launch_callback(wait)
        stream.sync()
    assert faults == [Fault.DEADLOCK]


def test_device_sync_while_threads_make_streams_returns(node: Node) -> None:
    device = node()[0]
    ended = threading.Event()

    def make() -> None:
        while not ended.is_set():
            with device.create_stream() as stream, device.allocate(64) as buffer:
                buffer.fill(1, stream=stream)

    threads = [threading.Thread(target=make) for _ in range(3)]
    for each in threads:
        each.start()
    try:
        for _ in range(200):
            device.sync()
    finally:
        ended.set()
        for each in threads:
            each.join(30)
    assert not any(each.is_alive() for each in threads)


def test_device_sync_of_a_node_that_was_left_is_closed(node: Node) -> None:
    device = node()[0]
    node("devices=3")
    with pytest.raises(pl.Closed):
        device.sync()


def test_device_sync_where_the_back_end_has_no_queues_waits(node: Node) -> None:
    node()
    device = pl.device("reference:0")
    with device.create_stream() as stream, device.allocate(64) as buffer:
        buffer.fill(7, stream=stream)
        device.sync()
        assert bytes(buffer) == bytes([7]) * 64
