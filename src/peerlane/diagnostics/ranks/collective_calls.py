"""Calls of collectives in words, for the errors of ranks that have called different ones."""

from __future__ import annotations

import enum

from peerlane.errors import InvalidValue, Refused
from peerlane.support import reductions


class Kind(enum.IntEnum):
    """Collectives and messages, by the numbers of native code."""

    BARRIER = 1
    BROADCAST = 2
    ALL_GATHER = 3
    ALL_REDUCE = 4
    REDUCE = 5
    REDUCE_SCATTER = 6
    ALL_TO_ALL = 7
    SCATTER = 8
    SEND = 9
    RECEIVE = 10
    GIVE_PART = 11
    TAKE_PART = 12


_WORDS: dict[int, str] = {
    Kind.BARRIER: "barrier",
    Kind.BROADCAST: "broadcast of {size:,} bytes from rank {root}",
    Kind.ALL_GATHER: "all_gather of {size:,} bytes of each rank",
    Kind.ALL_REDUCE: "all_reduce of {size:,} bytes, {operation}",
    Kind.REDUCE: "reduce of {size:,} bytes, {operation}, to rank {root}",
    Kind.REDUCE_SCATTER: "reduce_scatter of {size:,} bytes to each rank, {operation}",
    Kind.ALL_TO_ALL: "all_to_all of {size:,} bytes between any two ranks",
    Kind.SCATTER: "scatter of {size:,} bytes to each rank from rank {root}",
}
_MOVES: dict[int, tuple[str, str]] = {
    Kind.SEND: ("sends", "message"),
    Kind.RECEIVE: ("receives", "message"),
    Kind.GIVE_PART: ("sends", "part"),
    Kind.TAKE_PART: ("receives", "part"),
}


def in_words(kind: int, size: int, number: int = 0, root: int = 0) -> str:
    """Return a call in words.

    ``kind``: one of :class:`Kind`; a hostile peer may send any other number.
    ``size``: bytes of the whole, or of a rank's part.
    ``number``: of the reduction.
    """
    words = _WORDS.get(kind, "something that is not a collective")
    return words.format(size=size, operation=_operation(number), root=root)


def _operation(number: int) -> str:
    if not reductions.is_number(number):
        return "an unknown operation"
    dtype, op = reductions.names_of(number)
    return f"{op} of {dtype}"


def of_word(call: tuple[int, int, int, int, bool]) -> str:
    """Return the words for a call of native code: kind, size, number, root, and whether parts differ."""
    kind, size, number, root, has_parts = call
    words = in_words(kind, size, number, root)
    return f"{words.split()[0]}_v of parts that differ" if has_parts else words


def differing(
    number: int,
    rank: int,
    did: tuple[int, int, int, int, bool],
    peer: int,
    peer_did: tuple[int, int, int, int, bool],
) -> InvalidValue:
    """Return the exception for two ranks' calls that differ, as native code has them."""
    mine, theirs = _done(did), _done(peer_did)
    position = (
        f"number {number:,} of its lane" if did[0] in (Kind.SEND, Kind.RECEIVE) else f"collective {number:,}"
    )
    return differ(None, position, rank, mine, peer, theirs)


def _done(call: tuple[int, int, int, int, bool]) -> str:
    if call[0] not in _MOVES:
        return f"calls {of_word(call)}"
    verb, noun = _MOVES[call[0]]
    return f"{verb} {call[1]:,} bytes as a {noun}"


def differ(call: str | None, position: str, rank: int, mine: str, peer: int, theirs: str) -> InvalidValue:
    """Return the exception for ranks that call different collectives; ``position`` names the call."""
    return InvalidValue(
        f"{call + ': ' if call else ''}as {position}, rank {peer} {theirs}, and rank {rank} {mine}; all ranks must "
        "call the same, in the same order and with sizes that agree",
        call=call,
        detail=Refused(
            reason="calls_differ", place=position, rank=rank, did=mine, peer=peer, peer_did=theirs
        ),
    )
