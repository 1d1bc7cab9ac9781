"""Lifetimes of bytes under closes, views, other threads and a node that is left."""

from __future__ import annotations

import gc
import struct
import threading

import numpy as np
import pytest

import peerlane as pl
from helpers.promises import Node, filled
from peerlane.diagnostics.log.observers import Recorder
from peerlane.diagnostics.memory import allocations


def test_host_object_of_closed_buffer_is_kept_by_views_and_parts(node: Node) -> None:
    d0, _ = node()
    host = pl.as_buffer(np.ones(64 << 20, np.uint8))  # large, so that free() unmaps it
    view, part = host.view(), host[:10]
    host.close()
    gc.collect()
    assert view[0] == view[-1] == 1
    assert bytes(part.view()) == b"\1" * 10
    with pytest.raises(pl.Closed, match="buffer on a host object"):
        pl.copy(d0.allocate(64 << 20), host)


def test_view_held_across_leave_node_leaves_free_bytes_right(node: Node) -> None:
    d0, _ = node("name=across,devices=2,memory=64MiB")
    view = filled(d0, 4 << 20, 5).view()
    pl.leave_node()
    d0, _ = node("name=across,devices=2,memory=64MiB")
    assert (view == 5).all()
    del view
    gc.collect()
    assert d0.free_bytes == d0.total_bytes
    d0.allocate(64 << 20).close()


def test_fill_racing_close_never_writes_a_new_allocation(node: Node) -> None:
    """The main thread closes and allocates at the same address while other threads fill the old buffer."""
    d0, _ = node()
    size, rounds = 2 << 20, 300
    current = [d0.allocate(size)]
    stop = threading.Event()

    def scribble() -> None:
        while not stop.is_set():
            try:
                current[0].fill(0xAA)
                pl.copy(current[0][: 1 << 20], b"\xaa" * (1 << 20))
            except pl.Closed:
                pass

    threads = [threading.Thread(target=scribble) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(rounds):
            current[0].close()
            private = filled(d0, size, 1)
            assert (private.view() == 1).all()
            current[0] = d0.allocate(size)
            assert (private.view() == 1).all()
            private.close()
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)


def test_locate_of_freed_address_racing_frees_raises_bad_address(node: Node) -> None:
    d0, _ = node()
    stop = threading.Event()
    other: list[BaseException] = []

    def churn() -> None:
        while not stop.is_set():
            d0.allocate(64).close()

    thread = threading.Thread(target=churn)
    dead = d0.allocate(3 << 20)
    address = dead.address
    dead.close()
    thread.start()
    try:
        for _ in range(2000):
            try:
                pl.raw.locate(address)
            except pl.BadAddress:
                continue
            except RuntimeError as error:
                other.append(error)
    finally:
        stop.set()
        thread.join(30)
    assert not other


def test_buffer_closed_5000_frees_ago_raises_closed_without_its_line(node: Node) -> None:
    d0, _ = node()
    old = d0.allocate(64)
    old.close()
    for _ in range(5000):
        d0.allocate(64).close()
    with pytest.raises(pl.Closed, match=r"allocation \d+ was closed \(too many frees ago"):
        old.fill(1)


def test_devices_asked_by_threads_at_once_are_one_object(node: Node) -> None:
    for _ in range(20):
        node("devices=64")
        barrier, devices = threading.Barrier(8), []

        def look(barrier: threading.Barrier = barrier, devices: list[pl.Device] = devices) -> None:
            barrier.wait(30)
            devices.append(pl.devices()[0])

        threads = [threading.Thread(target=look) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len({id(device) for device in devices}) == 1


def test_leave_node_racing_allocate_closes_every_buffer(node: Node) -> None:
    for _ in range(60):
        d0, _ = node()
        got: list[pl.Buffer] = []

        def allocate(device: pl.Device = d0, got: list[pl.Buffer] = got) -> None:
            try:
                while True:
                    got.append(device.allocate(64))
            except pl.Closed:
                pass

        thread = threading.Thread(target=allocate)
        thread.start()
        while not got:
            pass
        pl.leave_node()
        thread.join(30)
        assert not thread.is_alive()
        assert all(buffer.is_closed for buffer in got)
        for record in allocations.live_records():
            allocations.forget(record.id, "the test")


def test_raw_copy_and_allocate_errors_name_the_operand_at_fault(node: Node) -> None:
    d0, _ = node("devices=2")
    good = np.zeros(8, np.uint8).ctypes.data
    with pytest.raises(pl.BadAddress, match="destination host range"):
        pl.raw.copy(0xDEAD << 48, good, 8)
    with pytest.raises(pl.OutOfMemory, match="bytes are free"):
        d0.allocate(1 << 61)
    view = filled(d0, 64, 1).view()
    gc.collect()
    with pytest.raises(pl.BadAddress, match="freed by garbage collection"):
        pl.raw.copy(d0.allocate(64).address, view.ctypes.data, 64)


def test_view_released_during_exception_keeps_the_exception(node: Node) -> None:
    buffer = node()[0].allocate(8)
    pl.set_observer(Recorder())
    try:
        with pytest.raises(struct.error, match="requires a buffer of 4 bytes"):
            struct.unpack("<I", buffer)
    finally:
        recorder = pl.set_observer(None)
    assert isinstance(recorder, Recorder)
    assert len(recorder.notices("unview")) == 1
