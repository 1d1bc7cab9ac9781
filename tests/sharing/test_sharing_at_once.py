"""Sharing at the same time as copies in threads, other handles, re-entered nodes and a flooding process."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import peerlane as pl
from helpers.peers import Peer, PeerError, peer
from helpers.promises import Node
from peerlane.backend import registry
from peerlane.backends.virtual.node.node_file import socket_name
from peerlane.support.runtime_directory import runtime_directory

G = 2 << 20

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(120)]

Shared = tuple[pl.Device, pl.Device, Peer]


def test_buffer_export_beside_copying_threads_keeps_bytes(node: Node) -> None:
    device = node()[0]
    ended, current = threading.Event(), [device.allocate(100_000)]

    counts = [0, 0]

    def copy(number: int) -> None:
        target = device.allocate(100_000)
        while not ended.is_set():
            with contextlib.suppress(pl.Closed):
                target.copy_from(current[0])
                counts[number] += 1

    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(copy, number) for number in range(2)]
        rounds, deadline = 0, time.monotonic() + 60
        try:
            while (rounds < 30 or min(counts) <= 30) and time.monotonic() < deadline:
                rounds += 1
                before, current[0] = current[0], device.allocate(100_000)
                before.close()
                current[0].fill(3)
                current[0].export(allow=[1]).close()
                assert (current[0].view() == 3).all()
        finally:
            ended.set()
        for each in running:
            each.result(20)
    assert rounds >= 30
    assert min(counts) > 30


def test_handle_of_closed_block_is_open_while_another_importer_has_it(shared: Shared) -> None:
    d0, _, other = shared
    block = pl.Physical(d0, G)
    first, second = (int(block.export(allow=[other.pid])) for _ in range(2))
    other.run(f"p = pl.Physical.open({first})")
    block.close()
    other.run(f"q = pl.Physical.open({second}); r = pl.AddressRange(devices[0], G); r.map(q)")
    other.run("p.close(); q.close(); r.close()")
    deadline = time.monotonic() + 20
    while True:
        try:
            other.run(f"pl.Physical.open({second}).close()")
        except PeerError as error:
            assert error.fault == "STALE_HANDLE"
            return
        assert time.monotonic() < deadline, "the handle outlives its memory"


def test_physical_opened_after_reentering_node_is_charged_after_maker_died(node: Node) -> None:
    spec = f"name=stays-{os.getpid()},devices=2,memory=64MiB"
    d0, _ = node(spec)
    with peer(spec) as maker, peer(spec) as other:
        number = maker.run("p = pl.Physical(devices[0], 16 * G); h = p.export(allow='user'); result = int(h)")
        other.run(f"kept = pl.Physical.open({number}); pl.leave_node(); devices = pl.devices()")
        other.run(
            f"q = pl.Physical.open({number}); r = pl.AddressRange(devices[0], 16 * G); r.map(q); r[:4].fill(1)"
        )
        maker.kill()
        assert d0.total_bytes - d0.free_bytes == 16 * G
        with pytest.raises(pl.OutOfMemory):
            pl.Physical(d0, 32 * G)
        other.run("r.close(); q.close()")
        pl.Physical(d0, 32 * G).close()


FLOOD = """
import socket
taken = []
for _ in range(1024):
    idle = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    idle.connect({path!r})
    taken.append(idle)
"""


def test_open_beside_process_flooding_connections_succeeds(shared: Shared) -> None:
    d0, _, other = shared
    block = pl.Physical(d0, G)
    number = int(block.export(allow="user"))
    name = f"shared-{os.getpid()}"
    with peer(f"name={name},devices=2") as flooding:
        slot = registry.current()._state.slot
        flooding.run(FLOOD.format(path=str(runtime_directory() / socket_name(name, slot))))
        for _ in range(20):
            other.run(f"pl.Physical.open({number}).close()")
        with pytest.raises(PeerError, match="16 connections of one process") as refused:
            flooding.run(f"pl.Physical.open({number})")
        assert (refused.value.kind, refused.value.fault) == ("OutOfMemory", "OUT_OF_RESOURCES")
        flooding.run("taken.clear()")
        flooding.run(f"pl.Physical.open({number}).close()")
