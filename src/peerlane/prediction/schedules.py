"""The steps of collectives as loads of links: what one device or link has to move, for each byte of the call.

All ranks of a machine do the same at the same time, up to their numbers.  So the load of one link of each kind stands
for all, and 4,096 ranks take no longer than eight.  ``tests/prediction/test_schedules.py`` compares the loads with
those of all single transfers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from peerlane.prediction.machines import Machine

#: A kind of link: of a port or of a link of a mesh, in either direction; or of a network interface.
PEER, NETWORK, SWITCH = "peer", "network", "switch"


class Step(NamedTuple):
    """Transfers of all ranks that run at the same time."""

    repeats: int  #: how many steps like this follow one another
    #: ``peer``, ``network``, ``switch``: bytes that the busiest link of each kind moves in one of them, for each byte
    #: of the call.  ``switch`` is a port while the switch reduces and repeats.
    peer: float = 0.0
    network: float = 0.0
    switch: float = 0.0
    hops_network: bool = False  #: whether it waits for the network


class Shape(NamedTuple):
    """Where the ranks are."""

    ranks: int
    local: int  #: ranks of each machine
    is_mesh: bool

    @property
    def machines(self) -> int:
        return self.ranks // self.local

    @property
    def lanes(self) -> int:
        """The links that a device has to the others of its machine."""
        return max(self.local - 1, 1) if self.is_mesh else 1


def shape_of(machine: Machine, ranks: int, local: int | None = None) -> Shape:
    """Return where the ranks are: on one machine, or on several whole ones.

    ``local``: ranks of each machine; by default as many as fit.
    """
    return Shape(ranks, local or min(ranks, machine.devices), machine.is_mesh)


def _ring_steps(shape: Shape, count: int, part: float) -> list[Step]:
    """Return ``count`` steps in which each rank sends ``part`` to the next rank of each ring.

    There are as many rings as network interfaces of a machine, or as links of a device in a mesh, and each has the
    same part.  A ring leaves each machine once, by another interface than the others.
    """
    if shape.machines == 1:
        return [Step(count, peer=part / shape.lanes)]
    inside = (shape.local - 1) / shape.local
    crossing = min(count, count // (shape.ranks - 1) * (shape.machines - 1))
    near = Step(count - crossing, peer=part * inside / shape.lanes, network=part / shape.local)
    return [near._replace(repeats=crossing, hops_network=True), near]


def ring_all_reduce(shape: Shape) -> list[Step]:
    """Reduce and scatter around the ring, then gather around it."""
    return _ring_steps(shape, 2 * (shape.ranks - 1), 1 / shape.ranks)


def ring_once(shape: Shape) -> list[Step]:
    """Gather, or reduce and scatter, around the ring; the bytes of the call are those of all ranks."""
    return _ring_steps(shape, shape.ranks - 1, 1 / shape.ranks)


def tree_all_reduce(shape: Shape) -> list[Step]:
    """Reduce along a chain in each machine and up two binary trees of machines, then send the result back.

    Each machine is inside one tree and a leaf of the other one, so it sends and receives the whole in each direction.
    The bytes flow through all levels at once: only the first step has them, the others have their latency.
    """
    levels = max(shape.machines - 1, 0).bit_length()
    network = 2 / shape.local if shape.machines > 1 else 0.0
    steps = [
        Step(1, peer=2.0 / shape.lanes, network=network),
        Step(2 * (shape.local - 1) - 1),
        Step(2 * levels, hops_network=True),
    ]
    return [step for step in steps if step.repeats > 0]


def switch_all_reduce(shape: Shape) -> list[Step]:
    """Let the switch reduce the part of each rank, and repeat it to all.

    A port carries the bytes of its device up and the reduced part down, then that part up and the result down.
    """
    return [Step(1, switch=1 + 1 / shape.ranks)]


def direct(shape: Shape) -> list[Step]:
    """Send to each rank its part; the bytes of the call are those of one rank."""
    near = (shape.local - 1) / shape.ranks
    far = (shape.ranks - shape.local) / shape.ranks
    return [Step(1, peer=near / shape.lanes, network=far, hops_network=far > 0)]


def chain_broadcast(shape: Shape) -> list[Step]:
    """Pass the bytes from rank to rank; all pieces are under way at once, and the last one has the latency of all."""
    crossing = shape.machines - 1
    first = Step(1, peer=1.0 / shape.lanes, network=1.0 / shape.local if crossing else 0.0)
    steps = [first, Step(shape.ranks - 2 - crossing), Step(crossing, hops_network=True)]
    return [step for step in steps if step.repeats > 0]


Schedule = Callable[[Shape], list[Step]]
