"""The collectives as methods of a group: what is checked, and which algorithm runs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from peerlane import reductions
from peerlane.buffer import as_buffer
from peerlane.collectives.all_gather import all_gather
from peerlane.collectives.all_reduce_one_shot import one_shot
from peerlane.collectives.all_reduce_ring import ring
from peerlane.collectives.all_reduce_two_shot import two_shot
from peerlane.collectives.all_to_all import all_to_all
from peerlane.collectives.barrier import barrier
from peerlane.collectives.broadcast import broadcast
from peerlane.collectives.folding import Operation
from peerlane.collectives.point_to_point import receive, send
from peerlane.collectives.reduce_scatter import reduce_scatter
from peerlane.collectives.reduce_to_root import reduce_to_root
from peerlane.collectives.scatter import scatter
from peerlane.collectives.turns import Turns
from peerlane.copies import copy
from peerlane.errors import InvalidValue
from peerlane.stream import checked_stream

if TYPE_CHECKING:
    import numpy.typing as npt

    from peerlane.buffer import Buffer
    from peerlane.stream import Stream

ALL_REDUCE = {"one-shot": one_shot, "two-shot": two_shot, "ring": ring}
_LONGEST_ONE_SHOT = 64 << 10  # bytes; docs/performance.md


class Collectives:
    """The part of a :class:`peerlane.Group` that all ranks call together, in the same order and with equal sizes.

    Without a stream a call is complete on return: this rank's result is there, and its sources may be changed.  With
    one it is queued there; collectives of a group run one after the other, whatever streams they are on.  Buffers are
    what :func:`peerlane.copy` takes.

    A collective that fails half-way ends the collectives of its group, here (``Closed``) and for the peers
    (``PeerLost``).
    """

    rank: int
    size: int
    _turns: Turns
    _check_open: Callable[[str], None]
    _checked_peer: Callable[[str, object], int]

    def barrier(self, *, stream: Stream | None = None) -> None:
        """Wait until all ranks have come; on a stream, let it wait.

        Parameters
        ----------
        stream : Stream, optional

        Raises
        ------
        PeerLost
            A rank has died or closed its group; on a stream at the synchronization.
        Closed
            The group or the stream is closed, or a collective has failed before.
        """
        self._begin("Group.barrier", stream)
        if self.size > 1:
            self._turns.run("Group.barrier", stream, barrier)

    def broadcast(self, buffer: Any, root: int = 0, *, stream: Stream | None = None) -> None:
        """Have the bytes of one rank in the buffers of all.

        Parameters
        ----------
        buffer : Buffer or host object
            Of the same size everywhere; writable, but for the root.
        root : int
            Whose bytes.
        stream : Stream, optional

        Raises
        ------
        InvalidValue, TypeError, AccessDenied
            An argument is impossible.  Nothing was sent then, and the other ranks wait.
        PeerLost, Closed
            As :meth:`barrier`.
        """
        call = "Group.broadcast"
        self._begin(call, stream)
        root = self._checked_peer(call, root)
        whole = as_buffer(buffer) if self.rank == root else _target(buffer)
        if self.size > 1:
            self._turns.run(call, stream, broadcast, whole, root, nbytes=whole.size)

    def all_gather(self, dst: Any, src: Any = None, *, stream: Stream | None = None) -> None:
        """Have the parts of all ranks side by side, in rank order, in all of them.

        Parameters
        ----------
        dst : Buffer or host object
            ``size`` times as long as a part.
        src : Buffer or host object, optional
            This rank's part; by default it lies where it belongs in ``dst`` (so may this).
        stream : Stream, optional

        Raises
        ------
        InvalidValue, TypeError, AccessDenied
            As :meth:`broadcast`.
        PeerLost, Closed
            As :meth:`barrier`.
        """
        call = "Group.all_gather"
        self._begin(call, stream)
        whole = _target(dst)
        part = self._part(call, "dst", whole)
        own = part if src is None else as_buffer(src)
        _check_equal(call, "a part of dst", part, "src", own)
        _check_apart(call, whole, own, part)
        if self.size > 1:
            self._turns.run(call, stream, all_gather, whole, own, nbytes=whole.size)
        elif own.address != part.address:
            copy(part, own, stream=stream)

    def all_reduce(
        self,
        dst: Any,
        src: Any = None,
        *,
        dtype: npt.DTypeLike,
        op: str = "sum",
        algorithm: str | None = None,
        stream: Stream | None = None,
    ) -> None:
        """Combine the elements of all ranks, and have the result in all of them.

        Parameters
        ----------
        dst : Buffer or host object
            Where the result goes.
        src : Buffer or host object, optional
            This rank's elements, of the size of ``dst``; by default they lie in ``dst``.
        dtype, op
            As :func:`peerlane.reduce`.
        algorithm : {"one-shot", "two-shot", "ring"}, optional
            By default chosen by the size.  All give the same bits.
        stream : Stream, optional

        Raises
        ------
        InvalidValue, TypeError, AccessDenied
            As :meth:`broadcast` and :func:`peerlane.reduce`.
        PeerLost, Closed
            As :meth:`barrier`.

        Notes
        -----
        Elements are combined in the order of ranks, ``((a0 OP a1) OP a2) ...``, so every rank and every run has the
        same bits, of floating point too.
        """
        call = "Group.all_reduce"
        self._begin(call, stream)
        if algorithm is not None and algorithm not in ALL_REDUCE:
            raise InvalidValue(
                f"{call}: algorithm is {algorithm!r}; valid are {', '.join(ALL_REDUCE)}", call=call
            )
        whole = _target(dst)
        own = whole if src is None else as_buffer(src)
        _check_equal(call, "dst", whole, "src", own)
        _check_apart(call, whole, own, whole)
        operation = _operation(call, dtype, op, own, whole)
        if self.size > 1:
            name = algorithm or ("one-shot" if own.size <= _LONGEST_ONE_SHOT else "two-shot")
            self._turns.run(call, stream, ALL_REDUCE[name], whole, own, operation, nbytes=whole.size)
        elif own.address != whole.address:
            copy(whole, own, stream=stream)

    def reduce_scatter(
        self, dst: Any, src: Any, *, dtype: npt.DTypeLike, op: str = "sum", stream: Stream | None = None
    ) -> None:
        """Combine the elements of all ranks, and have one part of the result in each.

        Parameters
        ----------
        dst : Buffer or host object
            Where this rank's part goes; it may be this rank's part of ``src``.
        src : Buffer or host object
            ``size`` parts, in rank order.
        dtype, op
            As :func:`peerlane.reduce`.
        stream : Stream, optional

        Raises
        ------
        Error
            As :meth:`all_reduce`.
        """
        call = "Group.reduce_scatter"
        self._begin(call, stream)
        part, whole = _target(dst), as_buffer(src)
        own = self._part(call, "src", whole)
        _check_equal(call, "dst", part, "a part of src", own)
        _check_apart(call, whole, part, own)
        operation = _operation(call, dtype, op, part, whole)
        if self.size > 1:
            self._turns.run(call, stream, reduce_scatter, part, whole, operation, nbytes=whole.size)
        elif part.address != own.address:
            copy(part, own, stream=stream)

    def reduce(
        self,
        dst: Any,
        src: Any = None,
        root: int = 0,
        *,
        dtype: npt.DTypeLike,
        op: str = "sum",
        stream: Stream | None = None,
    ) -> None:
        """Combine the elements of all ranks, and have the result in one.

        Parameters
        ----------
        dst : Buffer, host object or None
            Where the result goes; other ranks than the root may pass None.
        src : Buffer or host object, optional
            This rank's elements; by default they lie in ``dst``, which only the root changes.
        root : int
            Where the result is wanted.
        dtype, op
            As :func:`peerlane.reduce`.
        stream : Stream, optional

        Raises
        ------
        Error
            As :meth:`all_reduce`.
        """
        call = "Group.reduce"
        self._begin(call, stream)
        root = self._checked_peer(call, root)
        own = as_buffer(dst if src is None else src)
        target = _target(dst) if self.rank == root else None
        if target is not None:
            _check_equal(call, "dst", target, "src", own)
            _check_apart(call, target, own, target)
        operation = _operation(call, dtype, op, own)
        if self.size > 1:
            self._turns.run(call, stream, reduce_to_root, target, own, operation, root, nbytes=own.size)
        elif target is not None and own.address != target.address:
            copy(target, own, stream=stream)

    def scatter(self, dst: Any, src: Any = None, root: int = 0, *, stream: Stream | None = None) -> None:
        """Have a part of one rank's bytes in each.

        Parameters
        ----------
        dst : Buffer or host object
            Where this rank's part goes; at the root it may be its part of ``src``.
        src : Buffer or host object
            ``size`` parts, in rank order; other ranks than the root may leave it out.
        root : int
            Whose bytes.
        stream : Stream, optional

        Raises
        ------
        InvalidValue, TypeError, AccessDenied
            As :meth:`broadcast`.
        PeerLost, Closed
            As :meth:`barrier`.
        """
        call = "Group.scatter"
        self._begin(call, stream)
        root, part = self._checked_peer(call, root), _target(dst)
        whole = as_buffer(src) if self.rank == root else None
        if whole is not None:
            own = self._part(call, "src", whole)
            _check_equal(call, "dst", part, "a part of src", own)
            _check_apart(call, whole, part, own)
        if self.size > 1:
            self._turns.run(call, stream, scatter, part, whole, root, nbytes=part.size)
        elif whole is not None and part.address != whole.address:
            copy(part, whole, stream=stream)

    def send(self, src: Any, peer: int, *, stream: Stream | None = None) -> None:
        """Send bytes to a rank, which receives as many.

        Without a stream it returns once ``src`` may be changed: small ones may then still wait for the peer (a few
        slots of the workspace), long ones do not return before the peer receives them.  So two ranks that both send
        first do so on a stream, and receive on another one, or without.

        Parameters
        ----------
        src : Buffer or host object
        peer : int
            Another rank.
        stream : Stream, optional

        Raises
        ------
        InvalidValue, TypeError
            An argument is impossible.  Nothing was sent.
        PeerLost, Closed
            As :meth:`barrier`; of the peer only.
        """
        call = "Group.send"
        self._begin(call, stream)
        whole, peer = as_buffer(src), self._checked_other(call, peer)
        self._turns.run(call, stream, send, whole, peer, lane=("to", peer), nbytes=whole.size)

    def recv(self, dst: Any, peer: int, *, stream: Stream | None = None) -> None:
        """Receive bytes of a rank, in the order in which it sends; parameters and errors are as of :meth:`send`."""
        call = "Group.recv"
        self._begin(call, stream)
        whole, peer = _target(dst), self._checked_other(call, peer)
        self._turns.run(call, stream, receive, whole, peer, lane=("from", peer), nbytes=whole.size)

    def all_to_all(self, dst: Any, src: Any, *, stream: Stream | None = None) -> None:
        """Have part ``i`` of each rank's bytes at rank ``i``, in rank order.

        Parameters
        ----------
        dst, src : Buffer or host object
            ``size`` equal parts each; they must not overlap.
        stream : Stream, optional

        Raises
        ------
        InvalidValue, TypeError, AccessDenied
            As :meth:`broadcast`.
        PeerLost, Closed
            As :meth:`barrier`.
        """
        call = "Group.all_to_all"
        self._begin(call, stream)
        into, whole = _target(dst), as_buffer(src)
        each = self._part(call, "src", whole).size
        _check_equal(call, "dst", into, "src", whole)
        _check_apart(call, into, whole, None)
        starts = [rank * each for rank in range(self.size)]
        self._exchange(call, stream, into, whole, starts, starts, [each] * self.size, [each] * self.size)

    def all_to_all_v(
        self,
        dst: Any,
        src: Any,
        *,
        receives: Sequence[int],
        sends: Sequence[int],
        receives_at: Sequence[int] | None = None,
        sends_at: Sequence[int] | None = None,
        stream: Stream | None = None,
    ) -> None:
        """Have what each rank sends to this one in ``dst``: parts of any sizes.

        Parameters
        ----------
        dst, src : Buffer or host object
            They must not overlap.
        receives, sends : sequence of int
            Bytes from and to each rank.  What one sends is what the other receives.
        receives_at, sends_at : sequence of int, optional
            The first byte of each part in ``dst`` and ``src``; by default they lie side by side, in rank order.
            Parts of ``dst`` must not overlap.
        stream : Stream, optional

        Raises
        ------
        InvalidValue, TypeError, AccessDenied, BadAddress
            As :meth:`broadcast`; a part is not inside.
        PeerLost, Closed
            As :meth:`barrier`.
        """
        call = "Group.all_to_all_v"
        self._begin(call, stream)
        into, whole = _target(dst), as_buffer(src)
        _check_apart(call, into, whole, None)
        takes, gives = self._counts_of(call, "receives", receives), self._counts_of(call, "sends", sends)
        to = self._counts_of(call, "receives_at", receives_at or _side_by_side(takes))
        origin = self._counts_of(call, "sends_at", sends_at or _side_by_side(gives))
        if takes[self.rank] != gives[self.rank]:
            raise InvalidValue(
                f"{call}: rank {self.rank} sends itself {gives[self.rank]:,} bytes and receives {takes[self.rank]:,}",
                call=call,
            )
        self._exchange(call, stream, into, whole, to, origin, takes, gives)

    def _exchange(
        self,
        call: str,
        stream: Stream | None,
        dst: Buffer,
        src: Buffer,
        to: Sequence[int],
        origin: Sequence[int],
        takes: Sequence[int],
        gives: Sequence[int],
    ) -> None:
        incoming = [dst[at : at + nbytes] for at, nbytes in zip(to, takes, strict=True)]
        outgoing = [src[at : at + nbytes] for at, nbytes in zip(origin, gives, strict=True)]
        if self.size > 1:
            self._turns.run(call, stream, all_to_all, incoming, outgoing, nbytes=max(src.size, dst.size))
        else:
            copy(incoming[0], outgoing[0], stream=stream)

    def _begin(self, call: str, stream: object) -> None:
        self._check_open(call)
        checked_stream(call, stream)

    def _part(self, call: str, name: str, whole: Buffer) -> Buffer:
        """Return this rank's part of a buffer."""
        each, left = divmod(whole.size, self.size)
        if left:
            raise InvalidValue(
                f"{call}: the {whole.size:,} bytes of {name} are no {self.size} equal parts; {left} are left over",
                call=call,
            )
        return whole[self.rank * each : (self.rank + 1) * each]

    def _checked_other(self, call: str, peer: object) -> int:
        number = self._checked_peer(call, peer)
        if number == self.rank:
            raise InvalidValue(f"{call}: rank {number} is this one; copy instead", call=call)
        return number

    def _counts_of(self, call: str, name: str, given: Sequence[int]) -> list[int]:
        found = [operator.index(each) for each in given]
        if len(found) != self.size or min(found) < 0:
            raise InvalidValue(
                f"{call}: {name} is {found}; valid are {self.size} numbers of bytes, 0 and more", call=call
            )
        return found

    def _prepare_collectives(self, call: str, workspace: object) -> None:
        if isinstance(workspace, bool) or not isinstance(workspace, int):
            raise TypeError(f"{call}: workspace must be an int, not {type(workspace).__name__}")
        if workspace < 0:
            raise InvalidValue(f"{call}: workspace is {workspace}; valid are 0 bytes and more", call=call)
        self._turns = Turns(self, workspace)  # type: ignore[arg-type]  # every Collectives is a Group

    def _end_collectives(self) -> None:
        self._turns.end()


def _check_equal(call: str, one: str, a: Buffer, other: str, b: Buffer) -> None:
    if a.size != b.size:
        raise InvalidValue(f"{call}: {one} has {a.size:,} bytes, {other} has {b.size:,}", call=call)


def _side_by_side(sizes: list[int]) -> list[int]:
    return [sum(sizes[:rank]) for rank in range(len(sizes))]


def _check_apart(call: str, dst: Buffer, src: Buffer, where: Buffer | None) -> None:
    """Refuse ends that overlap, unless ``src`` is just ``where`` it may be."""
    if src.address < dst.address + dst.size and dst.address < src.address + src.size and src.size:
        if where is not None and src.address == where.address and src.size == where.size:
            return
        raise InvalidValue(
            f"{call}: dst is {dst.size:,} bytes at {dst.address:#x} and src {src.size:,} at {src.address:#x}; they "
            "overlap, and not where a collective in place has them",
            call=call,
        )


def _target(dst: Any) -> Buffer:
    buffer = as_buffer(dst)
    buffer.writable_address  # noqa: B018 - raises the text that says why it may not be written
    return buffer


def _operation(call: str, dtype: npt.DTypeLike, op: str, *ends: Buffer) -> Operation:
    width = reductions.width_of(reductions.number_of(call, dtype, op))
    for end in ends:
        if end.size % width or end.address % width:
            raise InvalidValue(
                f"{call}: {end.size:,} bytes at {end.address:#x} are no whole number of elements of {width} bytes, "
                f"at a multiple of {width}",
                call=call,
            )
    return Operation(dtype, op)
