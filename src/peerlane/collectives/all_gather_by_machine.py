"""All-gather and broadcast over several machines: each rank's bytes cross the network once for each other machine.

A rank puts a piece into its own memory, where the others of its machine read it, and writes it to one rank of each
other machine.  That rank receives for all there: they read the piece in its memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerlane.collectives.pieces import pieces, pipelined
from peerlane.memory.copy import copy

if TYPE_CHECKING:
    from peerlane.collectives.workspace import Step, Workspace
    from peerlane.memory.buffer import Buffer
    from peerlane.streams.stream import Stream


def all_gather_by_machine(
    work: Workspace, dst: Buffer, src: Buffer, at: list[int], sizes: list[int], stream: Stream | None
) -> None:
    """Gather the parts of all ranks in ``dst``, at the offsets ``at``; ``src`` may be this rank's part of it."""
    own = dst[at[work.rank] : at[work.rank] + src.size]
    if own.address != src.address:
        copy(own, src, stream=stream)
    _gather(work, dst, src, at, sizes, stream)


def broadcast_by_machine(work: Workspace, buffer: Buffer, root: int, stream: Stream | None) -> None:
    """Copy the root's bytes into the buffers of all ranks."""
    sizes = [buffer.size * (rank == root) for rank in range(work.size)]
    _gather(work, buffer, buffer, [0] * work.size, sizes, stream)


def _gather(
    work: Workspace, dst: Buffer, src: Buffer, at: list[int], sizes: list[int], stream: Stream | None
) -> None:
    """Bring the parts of the other ranks to this one; ``sizes`` says who has a part."""
    rank, machines = work.rank, work.machines
    cuts = [pieces(nbytes, work.slot) for nbytes in sizes]
    sources: dict[int, list[int]] = {each: [] for each in machines.ranks[machines.here]}
    for source in work.others:
        if machines.of[source] != machines.here:
            sources[machines.receiver(source, machines.here)].append(source)
    steps: list[Step] = []

    def place(source: int, number: int) -> Buffer:
        first, last = cuts[source][number]
        return dst[at[source] + first : at[source] + last]

    def received(receiver: int, number: int) -> list[int]:
        return [source for source in sources[receiver] if number < len(cuts[source])]

    def offer(number: int) -> None:
        step = work.board.begin(stream)
        steps.append(step)
        if number >= len(cuts[rank]):
            return
        first, last = cuts[rank][number]
        for peer in machines.receivers(rank):
            step.write(peer, src[first:last])
        if machines.beside:
            copy(step.mine(rank, last - first), src[first:last], stream=stream)
        for peer in machines.beside:
            step.tell_data(peer)

    def pass_on(number: int) -> None:
        step, mine = steps[number], received(rank, number)
        for source in mine:
            step.await_data(source)
        for peer in machines.beside if mine else ():
            step.tell_result(peer)
        for source in mine:
            into = place(source, number)
            copy(into, step.mine(source, into.size), stream=stream)

    def collect(number: int) -> None:
        step = steps[number]
        for peer in machines.beside:
            if number < len(cuts[peer]):
                step.await_data(peer)
                step.read(peer, peer, place(peer, number))
        for peer in machines.beside:
            passed = received(peer, number)
            if passed:
                step.await_result(peer)
            for source in passed:
                step.read(peer, source, place(source, number))
        step.end()

    pipelined(max(map(len, cuts)), offer, pass_on, collect)
