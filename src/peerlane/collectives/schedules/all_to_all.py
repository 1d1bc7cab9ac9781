"""All-to-all with parts of any sizes: each time a rank sends a piece to every other rank, then takes one of each.

All ranks send before they take, so that they cannot deadlock.  Each begins with the rank after it, so that they do
not all write to one rank at once.  Outgoing bytes are written once; incoming bytes are copied once.
"""

from __future__ import annotations

from collections.abc import Iterator

from peerlane.collectives.pieces import pieces
from peerlane.collectives.schedules import operations as ops


def all_to_all(plan: ops.Plan) -> Iterator[ops.Operation]:
    """Give each rank its part of the source, and put the parts of all ranks in their places."""
    rank, (at, sizes), (source_at, source_sizes) = plan.rank, plan.parts, plan.source_parts
    sent = {peer: pieces(source_sizes[peer], plan.slot) for peer in plan.others}
    taken = {peer: pieces(sizes[peer], plan.slot) for peer in plan.others}
    yield ops.Copy(
        ops.Result(at[rank], at[rank] + sizes[rank]),
        ops.Source(source_at[rank], source_at[rank] + source_sizes[rank]),
    )
    for number in range(max(map(len, [*sent.values(), *taken.values()]))):
        for peer in plan.others:
            if number < len(sent[peer]):
                first, last = sent[peer][number]
                yield ops.Send(peer, ops.Source(source_at[peer] + first, source_at[peer] + last))
        for peer in reversed(plan.others):
            if number < len(taken[peer]):
                first, last = taken[peer][number]
                yield ops.Take(peer, last - first)
                yield ops.Copy(
                    ops.Result(at[peer] + first, at[peer] + last), ops.Arrived(peer, 0, last - first)
                )
                yield ops.LetGo(peer)
