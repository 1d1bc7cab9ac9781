"""The collectives that combine elements: what is checked, and which algorithm runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from peerlane.collectives.all_reduce_one_shot import one_shot
from peerlane.collectives.all_reduce_ring import ring, ring_pairs
from peerlane.collectives.all_reduce_two_shot import two_shot
from peerlane.collectives.checks import Checks, as_target, check_apart, check_equal, operation_on
from peerlane.collectives.reduce_scatter import reduce_scatter
from peerlane.collectives.reduce_to_root import reduce_to_root
from peerlane.errors import InvalidValue
from peerlane.memory.buffer import as_buffer
from peerlane.memory.copy import copy

if TYPE_CHECKING:
    import numpy.typing as npt

    from peerlane.streams.stream import Stream

ALL_REDUCE = {"one-shot": one_shot, "two-shot": two_shot, "ring": ring}
_LONGEST_ONE_SHOT = 64 << 10  # bytes; docs/performance.md


class Reducing(Checks):
    """Collectives that combine elements."""

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
        whole = as_target(dst)
        own = whole if src is None else as_buffer(src)
        check_equal(call, "dst", whole, "src", own)
        check_apart(call, whole, own, whole)
        operation = operation_on(call, dtype, op, own, whole)
        if self.size > 1:
            name = algorithm or ("one-shot" if own.size <= _LONGEST_ONE_SHOT else "two-shot")
            said = f"all_reduce of {own.size:,} bytes, {operation}, {name}"
            pairs = ring_pairs(self.rank, self.size, own.size) if name == "ring" else None
            what = (whole, own, operation)
            self._turns.run(call, stream, ALL_REDUCE[name], *what, nbytes=own.size, said=said, pairs=pairs)
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
        part, whole = as_target(dst), as_buffer(src)
        own = self._part(call, "src", whole)
        check_equal(call, "dst", part, "a part of src", own)
        check_apart(call, whole, part, own)
        operation = operation_on(call, dtype, op, part, whole)
        if self.size > 1:
            said, at = (
                f"reduce_scatter of {part.size:,} bytes to each rank, {operation}",
                self._equal_parts(whole),
            )
            self._turns.run(
                call, stream, reduce_scatter, part, whole, *at, operation, nbytes=whole.size, said=said
            )
        elif part.address != own.address:
            copy(part, own, stream=stream)

    def reduce_scatter_v(
        self,
        dst: Any,
        src: Any,
        *,
        sends: Sequence[int],
        sends_at: Sequence[int] | None = None,
        dtype: npt.DTypeLike,
        op: str = "sum",
        stream: Stream | None = None,
    ) -> None:
        """Combine the elements of all ranks, and have one part of the result in each: parts of any sizes.

        Parameters
        ----------
        dst : Buffer or host object
            Where this rank's part goes; it may be this rank's part of ``src``.
        src : Buffer or host object
        sends : sequence of int
            Bytes of each rank's part; the same in all ranks.
        sends_at : sequence of int, optional
            The first byte of each part in ``src``, which may differ from rank to rank; by default they lie side by
            side, in rank order.
        dtype, op
            As :func:`peerlane.reduce`.
        stream : Stream, optional

        Raises
        ------
        Error
            As :meth:`all_reduce`; a part is not inside (``BadAddress``).
        """
        call = "Group.reduce_scatter_v"
        self._begin(call, stream)
        part, whole = as_target(dst), as_buffer(src)
        at, sizes = self._parts(call, "sends", sends, sends_at)
        parts = [whole[first : first + nbytes] for first, nbytes in zip(at, sizes, strict=True)]
        own = parts[self.rank]
        check_equal(call, "dst", part, "this rank's part of src", own)
        for each in parts:
            check_apart(call, each, part, own)
        operation = operation_on(call, dtype, op, part, *parts)
        if self.size > 1:
            said = f"reduce_scatter_v of {sizes} bytes, {operation}"
            self._turns.run(
                *(call, stream, reduce_scatter, part, whole, at, sizes, operation),
                nbytes=sum(sizes),
                said=said,
            )
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
        result = as_target(dst) if self.rank == root else None
        if result is not None:
            check_equal(call, "dst", result, "src", own)
            check_apart(call, result, own, result)
        operation = operation_on(call, dtype, op, own)
        if self.size > 1:
            said = f"reduce of {own.size:,} bytes, {operation}, to rank {root}"
            self._turns.run(
                call, stream, reduce_to_root, result, own, operation, root, nbytes=own.size, said=said
            )
        elif result is not None and own.address != result.address:
            copy(result, own, stream=stream)
