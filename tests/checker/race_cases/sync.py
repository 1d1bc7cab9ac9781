"""Accesses with the right order, with none, and with one that comes too late or does not bring bytes."""

from __future__ import annotations

import numpy as np

from .case import OWN, WINDOW, World, case


@case("sync-001", race="local")
def read_and_load_before_the_barrier(w: World) -> None:
    if w.rank == 0:
        w.to[1].read(w.own[:4], nonblocking=True)  # first
        w.note(w.own.view()[0])  # second
    w.group.barrier()


@case("sync-002")
def read_and_load_after_drain(w: World) -> None:
    if w.rank == 0:
        w.to[1].read(w.own[:4], nonblocking=True)
        w.to[1].drain()
        assert w.own.view()[0] == WINDOW + 1
    w.group.barrier()


@case("sync-003")
def read_drain_and_barrier_before_store(w: World) -> None:
    if w.rank == 0:
        w.to[1].read(w.own[:4], nonblocking=True)
        w.to[1].drain()
    w.group.barrier()
    if w.rank == 1:
        w.window.view()[0] = 42


@case("sync-004", race="remote")
def read_and_barrier_without_drain_before_store(w: World) -> None:
    if w.rank == 0:
        w.to[1].read(w.own[:4], nonblocking=True)  # first
    w.group.barrier()
    if w.rank == 1:
        w.window.view()[0] = 42  # second


@case("sync-005", race="remote")
def read_and_drain_without_barrier_beside_store(w: World) -> None:
    if w.rank == 0:
        w.to[1].read(w.own[:4], nonblocking=True)  # first
        w.to[1].drain()
    if w.rank == 1:
        w.window.view()[0] = 42  # second


@case("sync-006", race="remote")
def write_drain_and_barrier_before_load(w: World) -> None:
    """Neither a drain nor a barrier tells the target that the bytes have arrived."""
    if w.rank == 0:
        w.to[1].write(w.own[:4], nonblocking=True)  # first
        w.to[1].drain()
    w.group.barrier()
    if w.rank == 1:
        w.note(w.window.view()[0])  # second


@case("sync-007")
def write_with_notify_and_wait_before_load(w: World) -> None:
    if w.rank == 0:
        w.to[1].write(w.own[:4], notify=0, nonblocking=True)
        w.to[1].drain()
    if w.rank == 1:
        w.to[0].wait(0)
        assert w.window.view()[0] == OWN


@case("sync-008", race="remote", also="unconsumed-notify")
def write_with_notify_without_wait_before_load(w: World) -> None:
    if w.rank == 0:
        w.to[1].write(w.own[:4], notify=0, nonblocking=True)  # first
        w.to[1].drain()
    if w.rank == 1:
        w.note(w.window.view()[0])  # second


@case("sync-009", ranks=3)
def read_drain_and_all_reduce_before_store(w: World) -> None:
    if w.rank == 0:
        w.to[1].read(w.own[:4], nonblocking=True)
        w.to[1].drain()
        assert w.own.view()[0] == WINDOW + 1
    total = np.zeros(1, np.int32)
    w.group.all_reduce(total, np.ones(1, np.int32), dtype="int32")
    assert total[0] == w.size
    if w.rank == 1:
        w.window.view()[0] = 42


@case("sync-010", race="remote", ranks=3)
def read_and_drain_beside_store_before_all_reduce(w: World) -> None:
    if w.rank == 0:
        w.to[1].read(w.own[:4], nonblocking=True)  # first
        w.to[1].drain()
        w.note(w.own.view()[0])
    if w.rank == 1:
        w.window.view()[0] = 42  # second
    total = np.zeros(1, np.int32)
    w.group.all_reduce(total, np.ones(1, np.int32), dtype="int32")


@case("sync-011")
def read_drain_and_send_before_receive_and_store(w: World) -> None:
    if w.rank == 0:
        w.to[1].read(w.own[:4], nonblocking=True)
        w.to[1].drain()
        w.group.send(w.own[:4], 1)
    if w.rank == 1:
        w.group.recv(w.own[:4], 0)
        assert w.own.view()[0] == WINDOW + 1
        w.window.view()[0] = 42


@case("sync-012", race="remote")
def read_drain_and_send_beside_store_before_receive(w: World) -> None:
    if w.rank == 0:
        w.to[1].read(w.own[:4], nonblocking=True)  # first
        w.to[1].drain()
        w.group.send(w.own[:4], 1)
    if w.rank == 1:
        w.window.view()[0] = 42  # second
        w.group.recv(w.own[:4], 0)
