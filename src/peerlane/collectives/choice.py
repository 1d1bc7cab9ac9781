"""Which algorithms a group uses: some for ranks of one machine, others where bytes should cross the network once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from peerlane.collectives.all_gather import all_gather
from peerlane.collectives.all_gather_by_machine import all_gather_by_machine, broadcast_by_machine
from peerlane.collectives.all_reduce_one_shot import one_shot
from peerlane.collectives.all_reduce_ring import ring
from peerlane.collectives.all_reduce_two_shot import two_shot
from peerlane.collectives.broadcast import broadcast
from peerlane.collectives.reduce_scatter import reduce_scatter
from peerlane.collectives.reduce_to_root import reduce_to_root
from peerlane.collectives.reductions_by_machine import (
    all_reduce_by_machine,
    reduce_by_machine,
    reduce_scatter_by_machine,
)

#: By the name that ``Group.all_reduce`` takes.
ALL_REDUCE: dict[str, Callable[..., None]] = {
    "one-shot": one_shot,
    "two-shot": two_shot,
    "ring": ring,
    "by-machine": all_reduce_by_machine,
}


class Choice(NamedTuple):
    """The algorithms of a group.

    Attributes
    ----------
    all_gather, broadcast, reduce, reduce_scatter : callable
    long_all_reduce : str
        The name of the algorithm for an all-reduce of more than ``longest_one_shot`` bytes.
    longest_one_shot : int
    workspace : int
        Bytes of scratch memory.
    """

    all_gather: Callable[..., None]
    broadcast: Callable[..., None]
    reduce: Callable[..., None]
    reduce_scatter: Callable[..., None]
    long_all_reduce: str
    longest_one_shot: int
    workspace: int

    def all_reduce(self, nbytes: int) -> str:
        """Return the name of the algorithm for an all-reduce."""
        return "one-shot" if nbytes <= self.longest_one_shot else self.long_all_reduce


# The limits of one-shot, and why pieces for a network are longer: docs/performance.md
ONE_MACHINE = Choice(
    all_gather,
    broadcast,
    reduce_to_root,
    reduce_scatter,
    "two-shot",
    longest_one_shot=64 << 10,
    workspace=8 << 20,
)
SEVERAL_MACHINES = Choice(
    all_gather_by_machine,
    broadcast_by_machine,
    reduce_by_machine,
    reduce_scatter_by_machine,
    "by-machine",
    longest_one_shot=16 << 10,
    workspace=32 << 20,
)
