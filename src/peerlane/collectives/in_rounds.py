"""Collectives of ranks on one machine, which native code makes: each is one operation of a stream.

The ranks take rounds together.  In a round a rank leaves bytes in memory that all map, tells every other rank, and
reads what those have left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from peerlane.diagnostics.ranks.collective_calls import Kind

if TYPE_CHECKING:
    from peerlane.backend.ranks import Rounds
    from peerlane.collectives.folding import Operation
    from peerlane.collectives.workspace import Workspace
    from peerlane.memory.buffer import Buffer

_NO_REDUCTION = -1
_NO_PARTS: Sequence[int] = ()

#: Offsets and bytes, by rank.
Parts: TypeAlias = "tuple[Sequence[int], Sequence[int]]"


class Call(NamedTuple):
    """What native code is told of a call.

    Attributes
    ----------
    kind : Kind
    dst, src : Buffer or None
    root : int
    number : int
        Of the reduction; -1 if there is none.
    at, sizes : sequence of int
        Offsets and bytes of the ranks' parts, if they may differ; else nothing.
    given_at, given : sequence of int
        The same for the parts of ``src``, if those are others than the parts of ``dst``.
    """

    kind: Kind
    dst: Buffer | None
    src: Buffer | None
    root: int = 0
    number: int = _NO_REDUCTION
    at: Sequence[int] = _NO_PARTS
    sizes: Sequence[int] = _NO_PARTS
    given_at: Sequence[int] = _NO_PARTS
    given: Sequence[int] = _NO_PARTS


class InRounds:
    """A collective in rounds, to be called like the other algorithms.

    Parameters
    ----------
    call : callable
        Returns the call for this rank and the arguments of the algorithm.
    """

    def __init__(self, call: Callable[..., Call]) -> None:
        self.call = call

    def __call__(self, work: Workspace, *what: Any) -> None:
        """Queue it on the stream, which is the last argument."""
        *arguments, stream = what
        work.rounds.queue(stream, work.timeout_ns, *self.call(work.rank, *arguments))

    def run(self, rounds: Rounds, rank: int, what: Sequence[Any], go_on: Callable[..., None]) -> bool:
        """Make it in this thread if nothing is unusual, as :meth:`Rounds.run`; ``go_on`` gets its buffers."""
        call = self.call(rank, *what)
        is_begun: bool = rounds.run(*call, partial(go_on, call.dst, call.src))
        return is_begun


def _broadcast(rank: int, whole: Buffer, root: int) -> Call:
    if rank == root:
        return Call(Kind.BROADCAST, None, whole, root)
    return Call(Kind.BROADCAST, whole, None, root)


def _all_gather_v(_rank: int, dst: Buffer, src: Buffer, at: Sequence[int], sizes: Sequence[int]) -> Call:
    return Call(Kind.ALL_GATHER, dst, src, at=at, sizes=sizes)


def _reduce_scatter_v(
    _rank: int, dst: Buffer, src: Buffer, at: Sequence[int], sizes: Sequence[int], operation: Operation
) -> Call:
    return Call(Kind.REDUCE_SCATTER, dst, src, 0, operation.number, at, sizes)


def _all_to_all_v(_rank: int, dst: Buffer, src: Buffer, takes: Parts, gives: Parts) -> Call:
    return Call(Kind.ALL_TO_ALL, dst, src, 0, _NO_REDUCTION, *takes, *gives)


def _reduce(_rank: int, dst: Buffer | None, src: Buffer, operation: Operation, root: int) -> Call:
    return Call(Kind.REDUCE, dst, src, root, operation.number)


barrier = InRounds(lambda _rank: Call(Kind.BARRIER, None, None))
broadcast = InRounds(_broadcast)
all_gather = InRounds(lambda _rank, dst, src, _at, _sizes: Call(Kind.ALL_GATHER, dst, src))
all_gather_v = InRounds(_all_gather_v)
all_reduce = InRounds(lambda _rank, dst, src, operation: Call(Kind.ALL_REDUCE, dst, src, 0, operation.number))
reduce = InRounds(_reduce)
reduce_scatter = InRounds(
    lambda _rank, dst, src, _at, _sizes, operation: Call(Kind.REDUCE_SCATTER, dst, src, 0, operation.number)
)
reduce_scatter_v = InRounds(_reduce_scatter_v)
all_to_all = InRounds(lambda _rank, dst, src: Call(Kind.ALL_TO_ALL, dst, src))
all_to_all_v = InRounds(_all_to_all_v)
scatter = InRounds(lambda _rank, dst, src, root: Call(Kind.SCATTER, dst, src, root))
