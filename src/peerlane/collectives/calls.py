"""What a program asks a group for, and the checks that one rank can make alone, before it sends a byte."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from peerlane.collectives.call import Call, longer
from peerlane.collectives.checks import as_target, check_apart, check_equal, check_parts_apart, operation_on
from peerlane.collectives.choice import ALL_REDUCE
from peerlane.diagnostics.ranks.collective_calls import Kind
from peerlane.errors import BadArgument, InvalidValue, Refused
from peerlane.memory.buffer import as_buffer
from peerlane.memory.copy import copy
from peerlane.ranks.arguments import checked_rank

if TYPE_CHECKING:
    import numpy.typing as npt

    from peerlane.collectives.call import Operation
    from peerlane.memory.buffer import Buffer
    from peerlane.streams.stream import Stream

#: Bytes of each rank's part, and where it begins, or None: side by side.
AskedParts: TypeAlias = tuple[Sequence[int], Sequence[int] | None]


class Asked(NamedTuple):
    """The arguments of a group's method, as the program gave them.

    Attributes
    ----------
    kind : Kind
    dst, src : Any
    root : int
        Or the peer of a message.
    receives, sends : AskedParts or None
        Of the destination and of the source, where parts may differ.
    reduction : (DTypeLike, str) or None
    algorithm : str or None
    """

    kind: Kind
    dst: Any = None
    src: Any = None
    root: int = 0
    receives: AskedParts | None = None
    sends: AskedParts | None = None
    reduction: tuple[npt.DTypeLike, str] | None = None
    algorithm: str | None = None

    @property
    def method(self) -> str:
        """Return the method, as errors name it."""
        has_parts = self.receives is not None or self.sends is not None
        return f"Group.{_FORMS[self.kind].name}{'_v' if has_parts else ''}"


class _Form(NamedTuple):
    """What a kind of call does with its arguments."""

    name: str
    writes: str = "all"  # which ranks have a destination: all, root, others or none
    reads: str = "all"  # and a source
    has_dst_parts: bool = False  # a part of each rank
    has_src_parts: bool = False  # a part for each rank
    may_be_in_dst: bool = False  # the source, if none is given


_FORMS = {
    Kind.BARRIER: _Form("barrier", writes="none", reads="none"),
    Kind.BROADCAST: _Form("broadcast", writes="others", reads="root"),
    Kind.ALL_GATHER: _Form("all_gather", has_dst_parts=True, may_be_in_dst=True),
    Kind.SCATTER: _Form("scatter", reads="root", has_src_parts=True),
    Kind.ALL_TO_ALL: _Form("all_to_all", has_dst_parts=True, has_src_parts=True),
    Kind.ALL_REDUCE: _Form("all_reduce", may_be_in_dst=True),
    Kind.REDUCE: _Form("reduce", writes="root", may_be_in_dst=True),
    Kind.REDUCE_SCATTER: _Form("reduce_scatter", has_src_parts=True),
    Kind.SEND: _Form("send", writes="none"),
    Kind.RECEIVE: _Form("recv", reads="none"),
}


def checked(call: str, asked: Asked, rank: int, ranks: int) -> Call:
    """Return a rank's call, after all checks that need no other rank; ``call`` is its method."""
    kind, form = asked.kind, _FORMS[asked.kind]
    if asked.algorithm is not None and asked.algorithm not in ALL_REDUCE:
        raise InvalidValue(
            f"{call}: algorithm is {asked.algorithm!r}; valid are {', '.join(ALL_REDUCE)}",
            call=call,
            detail=BadArgument("algorithm", asked.algorithm, choices=tuple(ALL_REDUCE)),
        )
    root = checked_rank(call, asked.root, ranks)
    lane = None
    if kind in (Kind.SEND, Kind.RECEIVE):
        _check_other(call, root, rank, ranks)
        lane = ("to" if kind is Kind.SEND else "from"), root
    among = ("all", "root" if rank == root else "others")
    src = asked.dst if asked.src is None and form.may_be_in_dst else asked.src
    own = as_buffer(src) if form.reads in among else None
    into = as_target(asked.dst) if form.writes in among else None
    if form.has_dst_parts or form.has_src_parts:
        divided = _exchange if form.has_dst_parts and form.has_src_parts else _divided
        return divided(asked, Call(call, kind, into, own, root=root), rank, ranks)
    if into is not None and own is not None and own is not into:
        check_equal(call, "dst", into, "src", own)
        check_apart(call, into, own, into)
    reduced = () if own is None else (own,) if kind is Kind.REDUCE or into is None else (own, into)
    size, operation, algorithm = longer(into, own), _operation(call, asked, *reduced), asked.algorithm or ""
    return Call(call, kind, into, own, size, root, operation, algorithm=algorithm, lane=lane)


def alone(call: Call, stream: Stream | None) -> None:
    """Make the call of a group of one rank, whose only part is its own."""
    dst, src, form = call.dst, call.src, _FORMS[call.kind]
    if dst is None or src is None:
        return
    if form.has_dst_parts and call.parts[1]:
        dst = dst[call.parts[0][0] :][: call.parts[1][0]]
    if form.has_src_parts and call.parts[1]:
        at, sizes = call.source_parts if call.source_parts[1] else call.parts
        src = src[at[0] :][: sizes[0]]
    if dst.address != src.address:
        copy(dst, src, stream=stream)


def _operation(call: str, asked: Asked, *ends: Buffer) -> Operation | None:
    return operation_on(call, *asked.reduction, *ends) if asked.reduction is not None else None


def _divided(asked: Asked, basis: Call, rank: int, ranks: int) -> Call:
    """Check a call with parts at one side, of which one goes to or from this rank's own bytes."""
    call, gathers = basis.name, _FORMS[asked.kind].has_dst_parts
    whole, own = (basis.dst, basis.src) if gathers else (basis.src, basis.dst)
    name, own_name = ("dst", "src") if gathers else ("src", "dst")
    if whole is None:  # only the root has it
        assert own is not None
        return basis._replace(size=own.size)
    asked_parts, parts = (asked.receives if gathers else asked.sends), basis.parts
    if asked_parts is None:
        part, apart, of = _equal_part(call, name, whole, rank, ranks), [whole], f"a part of {name}"
    else:
        parts = _parts(call, "receives" if gathers else "sends", asked_parts, ranks)
        if gathers:
            check_parts_apart(call, "receives_at", *parts)
        apart = [whole[at : at + nbytes] for at, nbytes in zip(*parts, strict=True)]
        part, of = apart[rank], f"this rank's part of {name}"
    if asked.src is None and gathers:
        own = part
    assert own is not None
    if gathers:
        check_equal(call, of, part, own_name, own)
    else:
        check_equal(call, own_name, own, of, part)
    for each in apart:
        check_apart(call, each, own, part)
    if asked_parts is not None and not gathers and own.address == part.address and own.size:
        check_parts_apart(call, "sends_at", *parts, "src, where dst is a part of it")
    operation = _operation(call, asked, own, *apart)
    if gathers:
        basis = basis._replace(src=own)
    return basis._replace(size=own.size, parts=parts, operation=operation)


def _exchange(asked: Asked, basis: Call, rank: int, ranks: int) -> Call:
    """Check an all-to-all."""
    call, into, whole = basis.name, basis.dst, basis.src
    assert into is not None
    assert whole is not None
    if asked.receives is None or asked.sends is None:
        part = _equal_part(call, "src", whole, rank, ranks)
        check_equal(call, "dst", into, "src", whole)
        check_apart(call, into, whole, None)
        return basis._replace(size=part.size)
    check_apart(call, into, whole, None)
    takes = _parts(call, "receives", asked.receives, ranks)
    check_parts_apart(call, "receives_at", *takes)
    gives = _parts(call, "sends", asked.sends, ranks)
    received, sent = takes[1][rank], gives[1][rank]
    if received != sent:
        raise InvalidValue(
            f"{call}: rank {rank} sends itself {sent:,} bytes and receives {received:,}",
            call=call,
            detail=Refused(reason="sizes_differ", rank=rank, sent=sent, received=received),
        )
    for side, parts in ((into, takes), (whole, gives)):
        for at, nbytes in zip(*parts, strict=True):
            side[at : at + nbytes]  # or BadAddress
    return basis._replace(parts=takes, source_parts=gives)


def _equal_part(call: str, name: str, whole: Buffer, rank: int, ranks: int) -> Buffer:
    """Return this rank's part of a buffer."""
    each, left = divmod(whole.size, ranks)
    if left:
        raise InvalidValue(
            f"{call}: the {whole.size:,} bytes of {name} do not divide into {ranks} equal parts; {left} are left "
            "over",
            call=call,
            detail=Refused(reason="no_equal_parts", name=name, size=whole.size, parts=ranks, left=left),
        )
    return whole[rank * each : (rank + 1) * each]


def _parts(call: str, name: str, asked_parts: AskedParts, ranks: int) -> tuple[list[int], list[int]]:
    """Return the offsets and the sizes of parts; by default they lie side by side."""
    sizes, starts = asked_parts
    counts = _counts(call, name, sizes, ranks)
    if starts is None:
        return [sum(counts[:rank]) for rank in range(ranks)], counts
    return _counts(call, f"{name}_at", starts, ranks), counts


def _counts(call: str, name: str, numbers: Sequence[int], ranks: int) -> list[int]:
    counts = [operator.index(each) for each in numbers]
    if len(counts) != ranks or min(counts) < 0:
        raise InvalidValue(
            f"{call}: {name} is {counts}; valid are {ranks} numbers of bytes, each 0 or more",
            call=call,
            detail=BadArgument(name, tuple(counts), least=0, rule=f"{ranks} numbers of bytes"),
        )
    return counts


def _check_other(call: str, peer: int, rank: int, ranks: int) -> None:
    if peer == rank:
        raise InvalidValue(
            f"{call}: rank {peer} is this one; copy instead",
            call=call,
            detail=Refused(reason="own_rank", rank=peer, size=ranks),
        )
