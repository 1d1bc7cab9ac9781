"""The loads of schedules, against all single transfers of all ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerlane.prediction import schedules
from peerlane.prediction.schedules import Shape, Step

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

SHAPES = st.builds(
    lambda machines, local, is_mesh: Shape(machines * local, local, is_mesh),
    st.integers(1, 4),
    st.sampled_from([2, 4, 6, 8]),
    st.booleans(),
)
#: Two ranks, where and how many bytes: those of a hop.
Hop = tuple[int, int, float]


def zigzag(local: int, number: int) -> list[int]:
    """Return one of ``local`` paths through all devices that together pass each ordered pair once."""
    first = number % (local // 2)
    path = [(first + (step + 1) // 2 * (-1) ** (step + 1)) % local for step in range(local)]
    return path if first == number else path[::-1]


def rings(shape: Shape, part: float) -> Iterator[Hop]:
    """Yield the hops of one step of all rings; each has the same part of ``part``."""
    if shape.machines == 1:
        shifts = range(1, shape.ranks) if shape.is_mesh else [1]
        for shift in shifts:
            for rank in range(shape.ranks):
                yield rank, (rank + shift) % shape.ranks, part / len(shifts)
        return
    for ring in range(shape.local):
        if shape.is_mesh:
            path = zigzag(shape.local, ring)
        else:
            path = [(ring + step) % shape.local for step in range(shape.local)]
        for machine in range(shape.machines):
            ranks = [machine * shape.local + each for each in path]
            following = (machine + 1) % shape.machines * shape.local + path[0]
            for one, other in zip(ranks, [*ranks[1:], following], strict=True):
                yield one, other, part / shape.local


def busiest(shape: Shape, hops: Iterator[Hop]) -> tuple[float, float]:
    """Return the bytes of the busiest link within machines, and of the busiest network interface."""
    peer: Counter[tuple[object, ...]] = Counter()
    network: Counter[tuple[object, ...]] = Counter()
    for src, dst, nbytes in hops:
        if src // shape.local != dst // shape.local:
            network["out", src] += nbytes
            network["in", dst] += nbytes
        elif shape.is_mesh:
            peer[src, dst] += nbytes
        else:
            peer["out", src] += nbytes
            peer["in", dst] += nbytes
    return max(peer.values(), default=0.0), max(network.values(), default=0.0)


def of_one(steps: list[Step]) -> list[tuple[float, float]]:
    return [(step.peer, step.network) for step in steps]


@given(SHAPES)
def test_ring_steps_have_the_loads_of_all_hops(shape: Shape) -> None:
    steps = schedules.ring_all_reduce(shape)
    expected = busiest(shape, rings(shape, 1 / shape.ranks))
    assert sum(step.repeats for step in steps) == 2 * (shape.ranks - 1)
    assert all(each == pytest.approx(expected) for each in of_one(steps))
    once = schedules.ring_once(shape)
    assert sum(step.repeats for step in once) == shape.ranks - 1
    assert all(each == pytest.approx(expected) for each in of_one(once))


@given(SHAPES)
def test_ring_waits_for_the_network_once_for_each_machine_of_a_round(shape: Shape) -> None:
    far = sum(step.repeats for step in schedules.ring_all_reduce(shape) if step.hops_network)
    assert far == 2 * (shape.machines - 1)


@given(SHAPES)
def test_direct_has_the_loads_of_all_pairs(shape: Shape) -> None:
    everyone = range(shape.ranks)
    pairs = ((src, dst, 1 / shape.ranks) for src in everyone for dst in everyone if src != dst)
    (step,) = schedules.direct(shape)
    assert (step.peer, step.network) == pytest.approx(busiest(shape, pairs))


@given(st.integers(2, 64))
def test_switch_carries_the_bytes_of_each_rank_and_its_part_in_each_direction(ranks: int) -> None:
    # Up: the whole, which the ranks that reduce its parts ask for, and this rank's reduced part.
    # Down: that part, and the whole result.
    up, down = [1 / ranks] * ranks + [1 / ranks], [1 / ranks] + [1 / ranks] * ranks
    (step,) = schedules.switch_all_reduce(Shape(ranks, ranks, False))
    assert step.switch == pytest.approx(sum(up)) == pytest.approx(sum(down))


@given(SHAPES)
def test_tree_and_chain_have_each_latency_once(shape: Shape) -> None:
    tree = schedules.tree_all_reduce(shape)
    levels = 0
    while 2**levels < shape.machines:
        levels += 1
    assert sum(step.repeats for step in tree if step.hops_network) == 2 * levels
    assert sum(step.repeats for step in tree if not step.hops_network) == 2 * (shape.local - 1)
    assert sum(step.repeats for step in schedules.chain_broadcast(shape)) == shape.ranks - 1
