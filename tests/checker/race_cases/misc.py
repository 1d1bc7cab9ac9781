"""Accesses that are hard to see in the source: aliases, deep calls, functions as values, copies by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import OWN, WINDOW, World, case


def _same(array: Any) -> Any:
    return array


def _load_deep(array: Any, depth: int) -> int:
    if depth:
        return _load_deep(array, depth - 1)
    return int(array[0])


def _racing_load_deep(array: Any, depth: int) -> int:
    if depth:
        return _racing_load_deep(array, depth - 1)
    return int(array[0])  # second


def _racing_store_deep(array: Any, depth: int) -> None:
    if depth:
        _racing_store_deep(array, depth - 1)
    else:
        array[0] = 42  # second


# At the origin: rank 0's own memory.


@case("misc-001")
def write_and_load_in_deep_calls(w: World) -> None:
    if w.rank == 0:
        w.to[1].write(w.own[:4], nonblocking=True)
        assert _load_deep(w.own.view(), 8) == OWN


@case("misc-002")
def write_and_load_of_an_alias(w: World) -> None:
    if w.rank == 0:
        alias = w.own.view("int32")
        other = alias[:2]
        w.to[1].write(w.own[:4], nonblocking=True)
        assert other[0] == alias[0]


@case("misc-003")
def write_and_load_of_a_returned_array(w: World) -> None:
    if w.rank == 0:
        array = _same(w.own.view())
        w.to[1].write(w.own[:4], nonblocking=True)
        assert array[0] == OWN


@case("misc-004")
def write_and_copy_to_the_host(w: World) -> None:
    if w.rank == 0:
        host = np.zeros(4, np.uint8)
        w.to[1].write(w.own[:4], nonblocking=True)
        np.copyto(host, w.own.view()[:4])
        assert host[0] == OWN


@case("misc-005", race="local", lines_in=(_racing_load_deep,))
def read_and_load_in_deep_calls(w: World) -> None:
    if w.rank == 0:
        w.to[1].read(w.own[:4], nonblocking=True)  # first
        w.note(_racing_load_deep(w.own.view(), 8))


@case("misc-006", race="local")
def read_and_load_of_an_alias(w: World) -> None:
    if w.rank == 0:
        alias = w.own.view("int32").reshape(4, 4)
        other = alias[0]
        w.to[1].read(w.own[:4], nonblocking=True)  # first
        w.note(other[0])  # second


@case("misc-007", race="local")
def read_and_load_of_a_returned_array(w: World) -> None:
    if w.rank == 0:
        array = _same(w.own.view())
        w.to[1].read(w.own[:4], nonblocking=True)  # first
        w.note(array[0])  # second


@case("misc-008", race="local")
def read_and_copy_to_the_host(w: World) -> None:
    if w.rank == 0:
        host = np.zeros(4, np.uint8)
        w.to[1].read(w.own[:4], nonblocking=True)  # first
        np.copyto(host, w.own.view()[:4])  # second
        w.note(host[0])


# At the target: rank 1's window.


@case("misc-009")
def read_beside_load_in_deep_calls(w: World) -> None:
    if w.rank == 0:
        assert _load_deep(w.window.view(), 8) == WINDOW
    else:
        w.to[0].read(w.own[:4], nonblocking=True)


@case("misc-010")
def read_and_load_in_functions_chosen_by_rank(w: World) -> None:
    def origin() -> None:
        w.to[1].read(w.own[:4], nonblocking=True)

    def target() -> None:
        assert w.window.view()[0] == WINDOW + 1

    chosen = (origin, target)[w.rank]
    chosen()


@case("misc-011")
def read_beside_load_of_an_alias(w: World) -> None:
    alias = w.window.view("int32")
    other = alias[:2]
    if w.rank == 0:
        w.to[1].read(w.own[:4], nonblocking=True)
    else:
        assert other[0] == alias[0]


@case("misc-012")
def read_beside_load_of_a_returned_array(w: World) -> None:
    array = _same(w.window.view())
    if w.rank == 0:
        w.to[1].read(w.own[:4], nonblocking=True)
    else:
        assert array[0] == WINDOW + 1


@case("misc-013")
def read_beside_copy_to_the_host(w: World) -> None:
    if w.rank == 0:
        w.to[1].read(w.own[:4], nonblocking=True)
    else:
        host = np.zeros(4, np.uint8)
        np.copyto(host, w.window.view()[:4])
        assert host[0] == WINDOW + 1


@case("misc-014", race="remote", lines_in=(_racing_store_deep,))
def read_beside_store_in_deep_calls(w: World) -> None:
    if w.rank == 0:
        _racing_store_deep(w.window.view(), 8)
    else:
        w.to[0].read(w.own[:4], nonblocking=True)  # first


@case("misc-015", race="remote")
def read_and_store_in_functions_chosen_by_rank(w: World) -> None:
    def origin() -> None:
        w.to[1].read(w.own[:4], nonblocking=True)  # first

    def target() -> None:
        w.window.view()[0] = 42  # second

    chosen = (origin, target)[w.rank]
    chosen()


@case("misc-016", race="remote")
def read_beside_store_to_an_alias(w: World) -> None:
    alias = w.window.view("int32").reshape(4, 4)
    other = alias[0]
    if w.rank == 0:
        w.to[1].read(w.own[:4], nonblocking=True)  # first
    else:
        other[0] = 42  # second


@case("misc-017", race="remote")
def read_beside_store_to_a_returned_array(w: World) -> None:
    array = _same(w.window.view())
    if w.rank == 0:
        w.to[1].read(w.own[:4], nonblocking=True)  # first
    else:
        array[0] = 42  # second


@case("misc-018", race="remote")
def read_beside_copy_from_the_host(w: World) -> None:
    if w.rank == 0:
        w.to[1].read(w.own[:4], nonblocking=True)  # first
    else:
        host = np.full(4, 42, np.uint8)
        np.copyto(w.window.view()[:4], host)  # second
