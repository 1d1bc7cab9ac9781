"""The collectives that move bytes: what is checked, and which algorithm runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from peerlane.collectives.all_gather import all_gather
from peerlane.collectives.all_to_all import all_to_all
from peerlane.collectives.barrier import barrier
from peerlane.collectives.broadcast import broadcast
from peerlane.collectives.checks import Checks, as_target, check_apart, check_equal
from peerlane.collectives.point_to_point import receive, send
from peerlane.collectives.scatter import scatter
from peerlane.errors import InvalidValue
from peerlane.memory.buffer import as_buffer
from peerlane.memory.copy import copy

if TYPE_CHECKING:
    from peerlane.memory.buffer import Buffer
    from peerlane.streams.stream import Stream


class Moving(Checks):
    """Collectives and messages that move bytes."""

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
            self._turns.run("Group.barrier", stream, barrier, said="barrier")

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
        whole = as_buffer(buffer) if self.rank == root else as_target(buffer)
        if self.size > 1:
            said = f"broadcast of {whole.size:,} bytes from rank {root}"
            self._turns.run(call, stream, broadcast, whole, root, nbytes=whole.size, said=said)

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
        whole = as_target(dst)
        part = self._part(call, "dst", whole)
        own = part if src is None else as_buffer(src)
        check_equal(call, "a part of dst", part, "src", own)
        check_apart(call, whole, own, part)
        if self.size > 1:
            said, at = f"all_gather of {own.size:,} bytes of each rank", self._equal_parts(whole)
            self._turns.run(call, stream, all_gather, whole, own, *at, nbytes=whole.size, said=said)
        elif own.address != part.address:
            copy(part, own, stream=stream)

    def all_gather_v(
        self,
        dst: Any,
        src: Any = None,
        *,
        receives: Sequence[int],
        receives_at: Sequence[int] | None = None,
        stream: Stream | None = None,
    ) -> None:
        """Have the parts of all ranks, of any sizes, in all of them.

        Parameters
        ----------
        dst : Buffer or host object
        src : Buffer or host object, optional
            This rank's part; by default it lies where it belongs in ``dst`` (so may this).
        receives : sequence of int
            Bytes of each rank's part; the same in all ranks.
        receives_at : sequence of int, optional
            The first byte of each part in ``dst``, which may differ from rank to rank; by default they lie side by
            side, in rank order.  They must not overlap.
        stream : Stream, optional

        Raises
        ------
        InvalidValue, TypeError, AccessDenied, BadAddress
            As :meth:`broadcast`; a part is not inside.
        PeerLost, Closed
            As :meth:`barrier`.
        """
        call = "Group.all_gather_v"
        self._begin(call, stream)
        whole = as_target(dst)
        at, sizes = self._parts(call, "receives", receives, receives_at)
        parts = [whole[first : first + nbytes] for first, nbytes in zip(at, sizes, strict=True)]
        part = parts[self.rank]
        own = part if src is None else as_buffer(src)
        check_equal(call, "this rank's part of dst", part, "src", own)
        for each in parts:
            check_apart(call, each, own, part)
        if self.size > 1:
            said = f"all_gather_v of {sizes} bytes"
            self._turns.run(call, stream, all_gather, whole, own, at, sizes, nbytes=sum(sizes), said=said)
        elif own.address != part.address:
            copy(part, own, stream=stream)

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
        root, part = self._checked_peer(call, root), as_target(dst)
        whole = as_buffer(src) if self.rank == root else None
        if whole is not None:
            own = self._part(call, "src", whole)
            check_equal(call, "dst", part, "a part of src", own)
            check_apart(call, whole, part, own)
        if self.size > 1:
            said = f"scatter of {part.size:,} bytes to each rank from rank {root}"
            self._turns.run(call, stream, scatter, part, whole, root, nbytes=part.size, said=said)
        elif whole is not None and part.address != whole.address:
            copy(part, whole, stream=stream)

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
        into, whole = as_target(dst), as_buffer(src)
        self._part(call, "src", whole)
        check_equal(call, "dst", into, "src", whole)
        check_apart(call, into, whole, None)
        parts = self._equal_parts(whole)
        said = f"all_to_all of {parts[1][0]:,} bytes between any two ranks"
        self._exchange(call, stream, into, whole, parts, parts, said=said)

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
        into, whole = as_target(dst), as_buffer(src)
        check_apart(call, into, whole, None)
        takes = self._parts(call, "receives", receives, receives_at)
        gives = self._parts(call, "sends", sends, sends_at)
        here, there = takes[1][self.rank], gives[1][self.rank]
        if here != there:
            raise InvalidValue(
                f"{call}: rank {self.rank} sends itself {there:,} bytes and receives {here:,}", call=call
            )
        self._exchange(call, stream, into, whole, takes, gives, said="all_to_all_v")

    def _exchange(
        self,
        call: str,
        stream: Stream | None,
        dst: Buffer,
        src: Buffer,
        takes: tuple[list[int], list[int]],
        gives: tuple[list[int], list[int]],
        *,
        said: str,
    ) -> None:
        incoming = [dst[at : at + nbytes] for at, nbytes in zip(*takes, strict=True)]
        outgoing = [src[at : at + nbytes] for at, nbytes in zip(*gives, strict=True)]
        if self.size > 1:
            pairs = takes[1], gives[1]
            nbytes, what = max(src.size, dst.size), (incoming, outgoing)
            self._turns.run(call, stream, all_to_all, *what, nbytes=nbytes, said=said, pairs=pairs)
        else:
            copy(incoming[0], outgoing[0], stream=stream)

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
        whole, peer = as_target(dst), self._checked_other(call, peer)
        self._turns.run(call, stream, receive, whole, peer, lane=("from", peer), nbytes=whole.size)
