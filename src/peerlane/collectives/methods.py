"""The collectives as methods of a group: what is checked, and which algorithm runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from peerlane import reductions
from peerlane.buffer import as_buffer
from peerlane.collectives.all_gather import all_gather
from peerlane.collectives.all_reduce_one_shot import one_shot
from peerlane.collectives.all_reduce_two_shot import two_shot
from peerlane.collectives.barrier import barrier
from peerlane.collectives.broadcast import broadcast
from peerlane.collectives.folding import Operation
from peerlane.collectives.turns import Turns
from peerlane.copies import copy
from peerlane.errors import InvalidValue
from peerlane.stream import checked_stream

if TYPE_CHECKING:
    import numpy.typing as npt

    from peerlane.buffer import Buffer
    from peerlane.stream import Stream

ALL_REDUCE = {"one-shot": one_shot, "two-shot": two_shot}
_LONGEST_ONE_SHOT = 32 << 10  # bytes; docs/performance.md


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
        whole, root = as_buffer(buffer), self._checked_peer(call, root)
        if self.size > 1:
            self._turns.run(call, stream, broadcast, whole, root)

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
        whole = as_buffer(dst)
        part = self._part(call, "dst", whole)
        own = part if src is None else as_buffer(src)
        _check_equal(call, "a part of dst", part, "src", own)
        _check_apart(call, whole, own, part)
        if self.size > 1:
            self._turns.run(call, stream, all_gather, whole, own)
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
        whole = as_buffer(dst)
        own = whole if src is None else as_buffer(src)
        _check_equal(call, "dst", whole, "src", own)
        _check_apart(call, whole, own, whole)
        operation = _operation(call, dtype, op, own)
        if self.size > 1:
            name = algorithm or ("one-shot" if own.size <= _LONGEST_ONE_SHOT else "two-shot")
            self._turns.run(call, stream, ALL_REDUCE[name], whole, own, operation)
        elif own.address != whole.address:
            copy(whole, own, stream=stream)

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


def _check_apart(call: str, dst: Buffer, src: Buffer, where: Buffer) -> None:
    """Refuse ends that overlap, unless ``src`` is just ``where`` it may be."""
    if src.address < dst.address + dst.size and dst.address < src.address + src.size and src.size:
        if src.address == where.address and src.size == where.size:
            return
        raise InvalidValue(
            f"{call}: dst is {dst.size:,} bytes at {dst.address:#x} and src {src.size:,} at {src.address:#x}; they "
            "overlap, and not where a collective in place has them",
            call=call,
        )


def _operation(call: str, dtype: npt.DTypeLike, op: str, src: Buffer) -> Operation:
    width = reductions.width_of(reductions.number_of(call, dtype, op))
    if src.size % width:
        raise InvalidValue(
            f"{call}: {src.size:,} bytes are no whole number of elements of {width}; {src.size % width} left over",
            call=call,
        )
    return Operation(dtype, op)
