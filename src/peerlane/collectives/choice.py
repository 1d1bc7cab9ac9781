"""Which algorithms a group uses: some for ranks of one machine, others where bytes should cross the network once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from peerlane.collectives import by_mail, in_rounds
from peerlane.collectives.all_gather_by_machine import all_gather_by_machine, broadcast_by_machine
from peerlane.collectives.all_reduce_one_shot import one_shot
from peerlane.collectives.all_reduce_ring import ring
from peerlane.collectives.all_reduce_two_shot import two_shot
from peerlane.collectives.all_to_all import all_to_all
from peerlane.collectives.barrier import barrier
from peerlane.collectives.point_to_point import receive, send
from peerlane.collectives.reductions_by_machine import (
    all_reduce_by_machine,
    reduce_by_machine,
    reduce_scatter_by_machine,
)
from peerlane.collectives.scatter import scatter

#: By the name that ``Group.all_reduce`` takes.
ALL_REDUCE: dict[str, Callable[..., None]] = {
    "one-shot": one_shot,
    "two-shot": two_shot,
    "ring": ring,
    "by-machine": all_reduce_by_machine,
}


class Choice(NamedTuple):
    """The algorithms of a group, and the bytes of its scratch memory.

    Attributes
    ----------
    barrier, broadcast, all_gather, all_gather_v, reduce, reduce_scatter, reduce_scatter_v, scatter : callable
    all_to_all_v : callable
    all_to_all : callable or None
        For equal parts; None: ``all_to_all_v``.
    all_reduce : callable
        Returns the algorithm for a number of bytes.
    workspace : int
    """

    barrier: Callable[..., None]
    broadcast: Callable[..., None]
    all_gather: Callable[..., None]
    all_gather_v: Callable[..., None]
    reduce: Callable[..., None]
    reduce_scatter: Callable[..., None]
    reduce_scatter_v: Callable[..., None]
    scatter: Callable[..., None]
    all_to_all_v: Callable[..., None]
    all_to_all: Callable[..., None] | None
    all_reduce: Callable[[int], Callable[..., None]]
    send: Callable[..., None]
    receive: Callable[..., None]
    workspace: int


_LONGEST_ONE_SHOT = 16 << 10  # over several machines: docs/performance.md

ONE_MACHINE = Choice(
    in_rounds.barrier,
    in_rounds.broadcast,
    in_rounds.all_gather,
    in_rounds.all_gather_v,
    in_rounds.reduce,
    in_rounds.reduce_scatter,
    in_rounds.reduce_scatter_v,
    in_rounds.scatter,
    in_rounds.all_to_all_v,
    in_rounds.all_to_all,
    lambda _nbytes: in_rounds.all_reduce,
    by_mail.send,
    by_mail.receive,
    workspace=8 << 20,
)
# Pieces for a network are longer.
SEVERAL_MACHINES = Choice(
    barrier,
    broadcast_by_machine,
    all_gather_by_machine,
    all_gather_by_machine,
    reduce_by_machine,
    reduce_scatter_by_machine,
    reduce_scatter_by_machine,
    scatter,
    all_to_all,
    None,
    lambda nbytes: one_shot if nbytes <= _LONGEST_ONE_SHOT else all_reduce_by_machine,
    send,
    receive,
    workspace=32 << 20,
)
