"""All-gather and broadcast over several machines: each rank's bytes cross the network once for each other machine.

A rank puts a piece into its own memory, where the others of its machine read it, and writes it to one rank of each
other machine.  That rank receives for all there: they read the piece in its memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from peerlane.collectives.pieces import pieces, pipelined
from peerlane.collectives.schedules import operations as ops


def all_gather_by_machine(plan: ops.Plan) -> Iterator[ops.Operation]:
    """Gather the parts of all ranks, which may already have their own in its place."""
    at, sizes = plan.parts
    own = at[plan.rank], at[plan.rank] + sizes[plan.rank]
    yield ops.Copy(ops.Result(*own), ops.Source(0, sizes[plan.rank]))
    yield from _gather(plan, at, sizes)


def broadcast_by_machine(plan: ops.Plan) -> Iterator[ops.Operation]:
    """Copy the root's bytes into the destinations of all other ranks."""
    return _gather(plan, [0] * plan.ranks, [plan.size * (rank == plan.root) for rank in range(plan.ranks)])


def _gather(plan: ops.Plan, at: Sequence[int], sizes: Sequence[int]) -> Iterator[ops.Operation]:
    """Bring the parts of the other ranks to this one; ``sizes`` says who has a part."""
    rank, machines = plan.rank, plan.machines
    cuts = [pieces(nbytes, plan.slot) for nbytes in sizes]
    sources: dict[int, list[int]] = {each: [] for each in machines.ranks[machines.own]}
    for source in plan.others:
        if machines.of[source] != machines.own:
            sources[machines.receiver(source, machines.own)].append(source)

    def room_for(source: int, number: int) -> ops.Result:
        first, last = cuts[source][number]
        return ops.Result(at[source] + first, at[source] + last)

    def received(receiver: int, number: int) -> list[int]:
        return [source for source in sources[receiver] if number < len(cuts[source])]

    def offer(number: int) -> Iterator[ops.Operation]:
        yield ops.Begin(number)
        if number >= len(cuts[rank]):
            return
        own = ops.Source(*cuts[rank][number])
        for peer in machines.receivers(rank):
            yield ops.WriteAndNotify(number, peer, own)
        if machines.beside:
            yield ops.Copy(ops.Slot(number, rank, 0, own.last - own.first), own)
        for peer in machines.beside:
            yield ops.Notify(number, peer)

    def pass_on(number: int) -> Iterator[ops.Operation]:
        mine = received(rank, number)
        for source in mine:
            yield ops.Await(number, source)
        for peer in machines.beside if mine else ():
            yield ops.Notify(number, peer, ops.Signal.RESULT)
        for source in mine:
            into = room_for(source, number)
            yield ops.Copy(into, ops.Slot(number, source, 0, into.last - into.first))

    def collect(number: int) -> Iterator[ops.Operation]:
        for peer in machines.beside:
            if number < len(cuts[peer]):
                yield ops.Await(number, peer)
                yield ops.Read(number, peer, peer, room_for(peer, number))
        for peer in machines.beside:
            passed = received(peer, number)
            if passed:
                yield ops.Await(number, peer, ops.Signal.RESULT)
            for source in passed:
                yield ops.Read(number, peer, source, room_for(source, number))
        yield ops.End(number)

    return pipelined(max(map(len, cuts)), offer, pass_on, collect)
