"""The route of a piece that is combined over several machines: in the order of ranks, and so with the same bits.

A piece passes *stations*: machines whose ranks combine a share of it each.  Where the ranks of each machine follow
each other, a station combines the bytes of its own ranks into the partial result of the station before it.  Only that
result crosses the network.  Where ranks alternate, as in ``a0 + b1 + a2 + b3``, no machine may combine its own bytes
first.  So one station combines the bytes of all ranks.  The result goes once to each machine that wants it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from peerlane.collectives.pieces import shares

if TYPE_CHECKING:
    from peerlane.collectives.machines import Machines

#: By rank: the first byte and the end of its share, which is not empty.
Shares = dict[int, tuple[int, int]]


class Station(NamedTuple):
    """A machine on the route of a piece.

    Attributes
    ----------
    machine : int
    sources : list of int
        The ranks whose bytes are combined there, in this order.
    shares : dict of int to (int, int)
        Who combines which bytes.
    """

    machine: int
    sources: list[int]
    shares: Shares


class Route(NamedTuple):
    """The route of a piece.

    Attributes
    ----------
    stations : list of Station
        In the order in which the piece passes them; the last one has the result.
    receivers : dict of int to (int, int)
        Which ranks of other machines receive which bytes of the result.
    """

    stations: list[Station]
    receivers: Shares


def route_of(machines: Machines, number: int, first: int, last: int, root: int | None) -> Route:
    """Return the route of the bytes ``first`` to ``last``.

    Parameters
    ----------
    machines : Machines
    number : int
        The piece's number: machines that could combine it equally well take turns.
    first, last : int
    root : int or None
        The only rank that wants the result; None: all want it.
    """
    everyone = list(range(len(machines.of)))
    if root is None:
        single, goes_round = number % len(machines.ranks), machines.in_order
    else:
        single = machines.of[root]
        hops = len(machines.ranks) - (single == len(machines.ranks) - 1)
        goes_round = machines.in_order and hops < len(everyone) - len(machines.ranks[single])

    def cut(machine: int) -> Shares:
        ranks = machines.ranks[machine]
        cuts = zip(ranks, shares(first, last, len(ranks)), strict=True)
        return {rank: share for rank, share in cuts if share[0] < share[1]}

    if goes_round:
        stations = [Station(each, ranks, cut(each)) for each, ranks in enumerate(machines.ranks)]
    else:
        stations = [Station(single, everyone, cut(single))]
    final = stations[-1].machine
    if root is not None:
        return Route(stations, {} if machines.of[root] == final else {root: (first, last)})
    others = [cut(each) for each in range(len(machines.ranks)) if each != final]
    return Route(stations, {rank: share for each in others for rank, share in each.items()})


def meeting(ranks: Shares, first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Yield the ranks whose shares meet the bytes ``first`` to ``last``, and the bytes that both have."""
    for rank, (begin, end) in ranks.items():
        low, high = max(first, begin), min(last, end)
        if low < high:
            yield rank, low, high
