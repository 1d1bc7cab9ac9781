"""Which transport and which schedule make a call: one table for each kind of group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from peerlane.collectives.schedules.all_gather_by_machine import all_gather_by_machine, broadcast_by_machine
from peerlane.collectives.schedules.all_to_all import all_to_all
from peerlane.collectives.schedules.barrier import barrier
from peerlane.collectives.schedules.one_shot import one_shot
from peerlane.collectives.schedules.point_to_point import receive, send
from peerlane.collectives.schedules.reductions_by_machine import (
    all_reduce_by_machine,
    reduce_by_machine,
    reduce_scatter_by_machine,
)
from peerlane.collectives.schedules.ring import ring
from peerlane.collectives.schedules.scatter import scatter
from peerlane.collectives.schedules.two_shot import two_shot
from peerlane.collectives.transports.channels import OverChannels
from peerlane.collectives.transports.native import ByMail, InRounds
from peerlane.diagnostics.ranks.collective_calls import Kind

if TYPE_CHECKING:
    from peerlane.collectives.call import Call
    from peerlane.collectives.schedules.operations import Parts
    from peerlane.collectives.workspace import Workspace
    from peerlane.streams.event import Event
    from peerlane.streams.stream import Stream


class CollectiveTransport(Protocol):
    """Carries out calls of a group's collectives and messages."""

    def start(self, work: Workspace, call: Call, finish: Callable[[], None], /) -> bool:
        """Make a call without a stream in this thread, or return False with nothing done.

        False: the ranks compare the call, and ``run_in_thread`` or ``queue`` makes it.  If the call must wait for
        long, native code calls ``finish``, which completes it on a stream.
        """
        ...

    def run_in_thread(self, work: Workspace, call: Call, before: Sequence[Event], /) -> bool:
        """Make a call in this thread once these events are over, or return False: then ``queue`` makes it."""
        ...

    def queue(self, work: Workspace, call: Call, stream: Stream, /) -> None:
        """Queue a call on a stream."""
        ...

    def lane_bytes(self, work: Workspace, call: Call, /) -> Parts | None:
        """Return how many bytes go by lanes from each rank and to each rank; None if the call uses no lanes.

        Each pair of ranks compares these numbers before it moves a byte.
        """
        ...


#: The algorithms of ``Group.all_reduce``, by the names that it takes.
ALL_REDUCE = {
    "one-shot": OverChannels(one_shot),
    "two-shot": OverChannels(two_shot),
    "ring": OverChannels(ring, by_lanes=True),
    "by-machine": OverChannels(all_reduce_by_machine),
}

_IN_ROUNDS, _BY_MAIL = InRounds(), ByMail()
_LONGEST_ONE_SHOT = 16 << 10  # over several machines: docs/design/figures.md
_SEVERAL_MACHINES = {
    Kind.BARRIER: OverChannels(barrier),
    Kind.BROADCAST: OverChannels(broadcast_by_machine),
    Kind.ALL_GATHER: OverChannels(all_gather_by_machine),
    Kind.REDUCE: OverChannels(reduce_by_machine),
    Kind.REDUCE_SCATTER: OverChannels(reduce_scatter_by_machine),
    Kind.SCATTER: OverChannels(scatter),
    Kind.ALL_TO_ALL: OverChannels(all_to_all, by_lanes=True),
    Kind.SEND: OverChannels(send),
    Kind.RECEIVE: OverChannels(receive),
}


def for_one_machine(call: Call) -> CollectiveTransport:
    """Return what makes a call between ranks of one machine."""
    if call.algorithm:
        return ALL_REDUCE[call.algorithm]
    return _IN_ROUNDS if call.lane is None else _BY_MAIL


def for_several_machines(call: Call) -> CollectiveTransport:
    """Return what makes a call where bytes should cross the network once."""
    if call.kind is Kind.ALL_REDUCE:
        usual = "one-shot" if call.size <= _LONGEST_ONE_SHOT else "by-machine"
        return ALL_REDUCE[call.algorithm or usual]
    return _SEVERAL_MACHINES[call.kind]


#: Bytes of scratch memory.  Pieces for a network are longer.
ONE_MACHINE_BYTES, SEVERAL_MACHINES_BYTES = 8 << 20, 32 << 20
