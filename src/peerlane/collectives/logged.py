"""What the event log says of collectives: one event each, with the bytes that the program gave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from peerlane.collectives import by_mail
from peerlane.collectives.all_gather_by_machine import all_gather_by_machine, broadcast_by_machine
from peerlane.collectives.all_reduce_one_shot import one_shot
from peerlane.collectives.all_reduce_ring import ring
from peerlane.collectives.all_reduce_two_shot import two_shot
from peerlane.collectives.all_to_all import all_to_all
from peerlane.collectives.barrier import barrier
from peerlane.collectives.in_rounds import InRounds, Parts
from peerlane.collectives.point_to_point import receive, send
from peerlane.collectives.reductions_by_machine import (
    all_reduce_by_machine,
    reduce_by_machine,
    reduce_scatter_by_machine,
)
from peerlane.collectives.scatter import scatter
from peerlane.diagnostics.ranks.collective_calls import Kind
from peerlane.memory.buffer import Buffer


class Touched(NamedTuple):
    """The buffers that this rank's part of a collective writes and reads, and its root or peer."""

    written: Sequence[Any]  # of Buffer
    read: Sequence[Any]
    peer: int = 0


def _broadcast(rank: int, whole: Buffer, root: int) -> Touched:
    return Touched([], [whole], root) if rank == root else Touched([whole], [], root)


def _all_gather(_rank: int, whole: Buffer, own: Buffer, at: list[int], sizes: list[int]) -> Touched:
    return Touched(_parts(whole, at, sizes), [own])


def _reduce_scatter(
    _rank: int, part: Buffer, whole: Buffer, at: list[int], sizes: list[int], _operation: Any
) -> Touched:
    return Touched([part], _parts(whole, at, sizes))


def _parts(whole: Buffer, at: Sequence[int], sizes: Sequence[int]) -> list[Buffer]:
    return [whole[first : first + each] for first, each in zip(at, sizes, strict=True)]


def _all_to_all(_rank: int, dst: Buffer, src: Buffer, takes: Parts, gives: Parts) -> Touched:
    return Touched(_parts(dst, *takes), _parts(src, *gives))


def _scatter(_rank: int, part: Buffer, whole: Buffer | None, root: int) -> Touched:
    return Touched([part], [] if whole is None else [whole], root)


def _reduce(_rank: int, result: Buffer | None, own: Buffer, _operation: Any, root: int) -> Touched:
    return Touched([] if result is None else [result], [own], root)


def _all_reduce(_rank: int, whole: Buffer, own: Buffer, _operation: Any) -> Touched:
    return Touched([whole], [own])


#: By algorithm: the kind, and what it touches.
_KINDS: dict[Callable[..., None], tuple[str, Callable[..., Touched]]] = {
    barrier: ("barrier", lambda _rank: Touched([], [])),
    broadcast_by_machine: ("broadcast", _broadcast),
    all_gather_by_machine: ("all_gather", _all_gather),
    scatter: ("scatter", _scatter),
    all_to_all: ("all_to_all", _all_to_all),
    one_shot: ("all_reduce", _all_reduce),
    two_shot: ("all_reduce", _all_reduce),
    ring: ("all_reduce", _all_reduce),
    all_reduce_by_machine: ("all_reduce", _all_reduce),
    reduce_scatter_by_machine: ("reduce_scatter", _reduce_scatter),
    reduce_by_machine: ("reduce", _reduce),
    send: ("send", lambda _rank, whole, peer: Touched([], [whole], peer)),
    receive: ("receive", lambda _rank, whole, peer: Touched([whole], [], peer)),
    by_mail.send: ("send", lambda _rank, whole, peer: Touched([], [whole], peer)),
    by_mail.receive: ("receive", lambda _rank, whole, peer: Touched([whole], [], peer)),
}


def told(algorithm: Callable[..., None], rank: int, what: tuple[Any, ...]) -> tuple[str, Touched]:
    """Return the kind of a collective, as the log names it, and what this rank's part of it touches."""
    if not isinstance(algorithm, InRounds):
        kind, touched = _KINDS[algorithm]
        return kind, touched(rank, *what)
    call = algorithm.call(rank, *what)
    written, read = ([] if each is None else [each] for each in (call.dst, call.src))
    if call.sizes and call.dst is not None and call.src is not None:
        if call.kind is Kind.REDUCE_SCATTER:
            read = _parts(call.src, call.at, call.sizes)
        else:
            written = _parts(call.dst, call.at, call.sizes)
        if call.given:
            read = _parts(call.src, call.given_at, call.given)
    return call.kind.name.lower(), Touched(written, read, call.root)
