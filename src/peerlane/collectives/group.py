"""Groups: the ranks of a program that write into each other's memory, and their collectives."""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from peerlane.diagnostics.ranks.collective_calls import Kind
from peerlane.errors import BadArgument, Error, InvalidValue
from peerlane.memory.buffer import Buffer
from peerlane.node.device import Device, before_leaving
from peerlane.ranks.arguments import LONGEST_NAME, check_texts
from peerlane.ranks.conversation import Conversation
from peerlane.ranks.deadlock import detect
from peerlane.ranks.invite import Invitations
from peerlane.ranks.joining import join
from peerlane.ranks.session import Session
from peerlane.streams.notify import NotifyKind
from peerlane.streams.stream import checked_stream
from peerlane.support.late import Late
from peerlane.support.reductions import number_of
from peerlane.support.system_limits import out_of_resources
from peerlane.support.timeouts import checked_timeout

if TYPE_CHECKING:
    import numpy.typing as npt

    import peerlane.collectives.call_order as _order
    import peerlane.collectives.calls as _calls
    import peerlane.collectives.choice as _choice
    import peerlane.rendezvous.meet as _meetings
    from peerlane.backend.ranks import CallQueue, Mails, Rounds
    from peerlane.memory.buffer_like import BufferLike
    from peerlane.ranks.channel import Channel
    from peerlane.rendezvous import Rendezvous
    from peerlane.rendezvous.meet import Exchange
    from peerlane.streams.stream import Stream

else:  # which a program without ranks does not need
    _order = Late("peerlane.collectives.call_order")
    _calls = Late("peerlane.collectives.calls")
    _choice = Late("peerlane.collectives.choice")
    _meetings = Late("peerlane.rendezvous.meet")
_KINDS = {kind.name.lower(): kind for kind in NotifyKind}
_open: weakref.WeakSet[Group] = weakref.WeakSet()


class Group(Session):
    """The ranks of a program, one device each, that write into each other's memory over channels.

    All ranks make their groups at about the same time.  Ranks are processes, threads of one process, or both, on one
    node, or on nodes of one description on several machines.  When a rank dies, the others' waits for it fail with
    ``PeerLost``.

    All ranks call the collectives, in the same order and with equal sizes.  Without a stream a call is complete on
    return: this rank has its result, and may change its sources.  With a stream it is queued there.  The collectives
    of a group run one after the other, on whatever streams they are.  Only the first collective on a stream makes its
    caller wait: for the first collective of the ranks in other processes.  A buffer is anything that
    :func:`peerlane.copy` takes.

    A collective that fails half-way ends the collectives of its group: here later ones raise ``Closed``, at the peers
    ``PeerLost``.  The same happens if a rank calls another collective than the others, or with other sizes: the last
    rank to call raises ``InvalidValue``.

    Parameters
    ----------
    rank, size : int, optional
        This rank, and the number of ranks (at most 1,024); by default those that the launcher set.
    rendezvous : str, callable or Rendezvous, optional
        How the ranks find each other.  One of these: ``"tcp://host:port"``, where rank 0 listens until all have come;
        a callable ``exchange(bytes) -> list[bytes]`` that each rank calls once, and that returns the bytes of all
        ranks (an all-gather, by any means); a :class:`peerlane.rendezvous.Rendezvous`.  By default the variables of
        ``peerlane launch``, ``torchrun``, ``mpirun`` or ``srun`` decide; without those, the ranks are processes that
        one parent started.  Ranks on several machines need ``PEERLANE_SECRET``, at least 16 bytes that are the same
        in all of them; a launcher's also ``MASTER_ADDR`` and ``PEERLANE_PORT``, by default ``MASTER_PORT`` + 1.  A
        callable brings only ranks of one machine together.
    device : Device, optional
        This rank's device; by default the one with the rank's number on this machine, modulo the number of devices.
    window : int or Buffer
        The memory on this rank's device that peers write to, or its size in bytes.
    notifies : str
        The kind of the notifies of its channels, the same in all ranks.  ``"binary"``: all records since the last
        wait count as one.  ``"strict"``: a second record, or one that is left over, is a failure.  ``"fifo"``: the
        records of all notifies of a channel's end form one queue; a wait takes the next record, and fails if that is
        another notify's (facts/hcomm 3.9).
    workspace : int, optional
        Bytes of scratch memory for collectives, the same in all ranks: by default 8 MiB, or 32 MiB if ranks are on
        several machines.  The first collective allocates it; longer ones go through it in pieces.
    wait_timeout : float, optional
        Seconds that a collective waits for a peer at a time; then it fails with ``WaitTimeout``.
    name : str
        Tells groups of a program apart that are made at the same time.
    timeout : float, optional
        Seconds within which all ranks must come.

    Attributes
    ----------
    rank, size : int
    device : Device
    window : Buffer
    members : tuple of Member
        All ranks.
    name : str

    Raises
    ------
    InvalidValue
        An argument, or a variable of the launcher, is impossible; ranks disagree (``BAD_CONFIG``), or are in
        different nodes (``NODE_MISMATCH``), and the text shows both sides.
    WaitTimeout, PeerLost
        A rank did not come in time, or died; the text names it.
    Deadlock
        A rank that should come waits elsewhere, in vain.
    BadHandle, AccessDenied
        A rank uses another version of peerlane (``HANDLE_VERSION``), or belongs to another user; or ranks are on
        several machines, and have no secret or not the same one.
    Busy
        Rank 0 cannot listen: another process has its port.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from threading import Barrier
    >>> parts, all_came = {}, Barrier(2)
    >>> def gather(rank, part):  # the ranks are threads here; `peerlane launch` starts processes
    ...     parts[rank] = part
    ...     all_came.wait()
    ...     return [parts[0], parts[1]]
    >>> def program(rank):
    ...     numbers = np.array([rank, 10], np.int32)
    ...     with pl.Group(rank, 2, rendezvous=lambda part: gather(rank, part)) as group:
    ...         group.all_reduce(numbers, numbers, dtype="int32")
    ...     return numbers.tolist()
    >>> with ThreadPoolExecutor(2) as threads:
    ...     print(list(threads.map(program, range(2))))
    [[1, 20], [1, 20]]
    """

    def __init__(
        self,
        rank: int | None = None,
        size: int | None = None,
        *,
        rendezvous: str | Exchange | Rendezvous | None = None,
        device: Device | None = None,
        window: int | Buffer = 1 << 20,
        notifies: str = "binary",
        workspace: int | None = None,
        wait_timeout: float | None = None,
        name: str = "world",
        timeout: float | None = 60.0,
    ) -> None:
        call = "Group"
        check_texts(call, notifies=notifies, name=name)
        kind = _KINDS.get(notifies)
        if kind is None:
            raise InvalidValue(
                f"{call}: notifies is {notifies!r}; valid are {', '.join(_KINDS)}",
                call=call,
                detail=BadArgument("notifies", notifies, choices=tuple(_KINDS)),
            )
        if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
            raise InvalidValue(
                f"{call}: name is {name!r}; valid are 1 to {LONGEST_NAME} printable characters",
                call=call,
                detail=BadArgument("name", name, least=1, most=LONGEST_NAME, rule="printable characters"),
            )
        if device is not None and not isinstance(device, Device):
            raise TypeError(f"{call}: device must be a Device or None, not {type(device).__name__}")
        checked_timeout(call, timeout)
        if isinstance(workspace, bool) or not isinstance(workspace, int | None):
            raise TypeError(f"{call}: workspace must be an int or None, not {type(workspace).__name__}")
        if workspace is not None and workspace < 0:
            raise InvalidValue(
                f"{call}: workspace is {workspace}; valid are 0 bytes and more",
                call=call,
                detail=BadArgument("workspace", workspace, least=0),
            )
        checked_timeout(call, wait_timeout)
        with out_of_resources(call), contextlib.ExitStack() as undo:
            patience = 1e9 if timeout is None else timeout
            meeting = _meetings.meet(call, rank, size, rendezvous, name=name, timeout=patience)
            undo.push(meeting.give_up)
            self._begin(meeting, name, kind, device, patience)
            self._lend_window(window, undo)
            self._conversation = Conversation(self)
            self._invitations = Invitations(self, self._conversation)
            join(self, self._conversation)
            undo.pop_all()
        is_one = all(each.is_here for each in self.members)
        self._choose = _choice.for_one_machine if is_one else _choice.for_several_machines
        usual = _choice.ONE_MACHINE_BYTES if is_one else _choice.SEVERAL_MACHINES_BYTES
        self._workspace_bytes = usual if workspace is None else workspace
        self._order = _order.CallOrder(
            self, self._invitations, self._workspace_bytes, wait_timeout, self._serve
        )
        self._duplicates: list[Group] = []
        self._parts: list[Group] = []
        _open.add(self)
        detect.watch(self)
        # At exit, groups must close before the rendezvous, which was made just now.
        atexit.unregister(_close_all)
        atexit.register(_close_all)
        if self._membership is not None and self._membership.turns is not None:
            self._membership.turns.join(min(patience, 60.0))
        self._order.follow_neighbours()

    def channel(self, peer: int, *, notifies: int = 8, timeout: float | None = None) -> Channel:
        """Return a new channel to a rank; the peer makes its end by the same call.

        The n-th call of this rank for a peer meets the peer's n-th call for this rank; calls for several peers may
        come in any order.

        Parameters
        ----------
        peer : int
            A rank, which may be this one.
        notifies : int
            How many notifies this end can wait for, 0 to 1,024; the other end may choose another number.
        timeout : float, optional
            Seconds for the other end to come; by default the group's.

        Raises
        ------
        InvalidValue
            There is no such rank, or the number of notifies is not valid.
        WaitTimeout
            The peer did not come in time.
        PeerLost
            The peer died, or closed its group.
        Closed
            The group is closed.
        """
        return self.channels([peer], notifies=notifies, timeout=timeout)[0]

    def channels(
        self,
        peers: Sequence[int],
        *,
        notifies: int | Sequence[int] = 8,
        names: Sequence[str] | None = None,
        timeout: float | None = None,
    ) -> list[Channel]:
        """Return new channels to several ranks.

        All invitations are sent before the first answer is waited for, so that ranks may make their channels in any
        order without a deadlock.  Parameters and errors are those of :meth:`channel`; after an error none was made.

        Parameters
        ----------
        notifies : int or sequence of int
            One number for all channels, or one for each.
        names : sequence of str, optional
            A name for each channel: the n-th channel of a name meets the n-th of that name at the other end.
        """
        return self._invitations.channels(peers, notifies, names, timeout)

    def close(self) -> None:
        """Close its channels, its window and its rendezvous; idempotent.  Queued operations go on.

        It first waits for ranks that have begun a collective or message with this one, and still open its memory.
        Then waits of peers for this rank fail with ``PeerLost``, and their uses of its memory are refused.  A
        ``with`` block that ends with an error waits for nobody.

        Raises
        ------
        Busy
            ``NOTIFY_LEFT``: strict notifies were recorded and not consumed; the group is closed all the same.
        """
        try:
            if not self._is_closed and self._pid == os.getpid():
                self._await_peers()
        finally:
            self._leave()

    def _await_peers(self) -> None:
        self._order.await_peers()
        for each in (*self._duplicates, *self._parts):
            each._await_peers()

    def _leave(self) -> None:
        """Close the group without a wait for peers."""
        if self._is_closed or self._pid != os.getpid():
            self._is_closed = True
            return
        self._is_closed = True
        with contextlib.ExitStack() as ends:
            if self._membership is not None and self._membership.turns is not None:
                ends.callback(self._membership.turns.leave)
            ends.callback(self._meeting.close)
            ends.callback(self._conversation.close)  # from now on, peers see that this rank has left
            if self._membership is not None:
                ends.callback(self._membership.close)
            ends.callback(self._conversation.leave)
            self._end_memory(ends)
            ends.callback(self._order.end, withdraws=not self._has_left)
            for each in (*self._duplicates, *self._parts):
                ends.callback(each._leave)
            for channel in list(self._channels):
                ends.callback(channel.close)

    @property
    def _has_left(self) -> bool:
        """Whether all ranks see in the membership that this one has left."""
        return self._is_closed

    def __enter__(self) -> Group:
        self._check_open("Group")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        with contextlib.suppress(Error):  # the exception of the block matters more
            self._leave()

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"{len(self._channels)} channels"
        return f"<Group {self.name!r}: rank {self.rank} of {self.size} on {self.device.name}, {state}>"

    def barrier(self, *, stream: Stream | None = None) -> None:
        """Wait until all ranks have come; with a stream, let that wait instead.

        Parameters
        ----------
        stream : Stream, optional

        Raises
        ------
        PeerLost
            A rank has died or closed its group; on a stream, the synchronization raises it.
        Closed
            The group or the stream is closed, or a collective has failed before.
        """
        self._make(_calls.Asked(Kind.BARRIER), stream)

    def broadcast(self, buffer: BufferLike, root: int = 0, *, stream: Stream | None = None) -> None:
        """Copy the bytes of one rank into the buffers of all.

        Parameters
        ----------
        buffer : Buffer or host object
            It has the same size in all ranks, and must be writable except at the root.
        root : int
            The rank that has the bytes.
        stream : Stream, optional

        Raises
        ------
        InvalidValue, TypeError, AccessDenied
            An argument is not valid.  This rank has sent nothing, and the other ranks wait.
        PeerLost, Closed
            As :meth:`barrier`.
        """
        self._make(_calls.Asked(Kind.BROADCAST, buffer, buffer, root=root), stream)

    def all_gather(
        self, dst: BufferLike, src: BufferLike | None = None, *, stream: Stream | None = None
    ) -> None:
        """Gather the parts of all ranks, side by side in rank order, in each of them.

        Parameters
        ----------
        dst : Buffer or host object
            ``size`` times as long as a part.
        src : Buffer or host object, optional
            This rank's part; by default it is already in its place in ``dst``, where ``src`` may lie, too.
        stream : Stream, optional

        Raises
        ------
        InvalidValue, TypeError, AccessDenied
            As :meth:`broadcast`.
        PeerLost, Closed
            As :meth:`barrier`.
        """
        self._make(_calls.Asked(Kind.ALL_GATHER, dst, src), stream)

    def all_gather_v(
        self,
        dst: BufferLike,
        src: BufferLike | None = None,
        *,
        receives: Sequence[int],
        receives_at: Sequence[int] | None = None,
        stream: Stream | None = None,
    ) -> None:
        """Gather the parts of all ranks, which may have any sizes, in each of them.

        Parameters
        ----------
        dst : Buffer or host object
        src : Buffer or host object, optional
            This rank's part; by default it is already in its place in ``dst``, where ``src`` may lie, too.
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
        self._make(_calls.Asked(Kind.ALL_GATHER, dst, src, receives=(receives, receives_at)), stream)

    def scatter(
        self, dst: BufferLike, src: BufferLike | None = None, root: int = 0, *, stream: Stream | None = None
    ) -> None:
        """Give each rank a part of one rank's bytes.

        Parameters
        ----------
        dst : Buffer or host object
            Receives this rank's part; at the root it may be the root's part of ``src``.
        src : Buffer or host object
            ``size`` parts, in rank order; other ranks than the root may leave it out.
        root : int
            The rank that has the bytes.
        stream : Stream, optional

        Raises
        ------
        InvalidValue, TypeError, AccessDenied
            As :meth:`broadcast`.
        PeerLost, Closed
            As :meth:`barrier`.
        """
        self._make(_calls.Asked(Kind.SCATTER, dst, src, root=root), stream)

    def all_to_all(self, dst: BufferLike, src: BufferLike, *, stream: Stream | None = None) -> None:
        """Give part ``i`` of each rank's bytes to rank ``i``, which receives the parts in rank order.

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
        self._make(_calls.Asked(Kind.ALL_TO_ALL, dst, src), stream)

    def all_to_all_v(
        self,
        dst: BufferLike,
        src: BufferLike,
        *,
        receives: Sequence[int],
        sends: Sequence[int],
        receives_at: Sequence[int] | None = None,
        sends_at: Sequence[int] | None = None,
        stream: Stream | None = None,
    ) -> None:
        """Exchange parts of any sizes between all ranks.

        Parameters
        ----------
        dst, src : Buffer or host object
            They must not overlap.
        receives, sends : sequence of int
            Bytes from and to each rank.  A rank must send as many bytes as the other receives.
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
        self._make(
            _calls.Asked(
                Kind.ALL_TO_ALL, dst, src, receives=(receives, receives_at), sends=(sends, sends_at)
            ),
            stream,
        )

    def send(self, src: BufferLike, peer: int, *, stream: Stream | None = None) -> None:
        """Send bytes to a rank, which receives as many.

        Without a stream it returns once ``src`` may be changed.  A short message may then still wait for the peer, in
        a few slots of the workspace; a long one does not return before the peer receives it.  So two ranks that both
        send first must send on a stream, and receive on another stream or without one.

        Parameters
        ----------
        src : Buffer or host object
        peer : int
            Another rank.
        stream : Stream, optional

        Raises
        ------
        InvalidValue, TypeError
            An argument is not valid.  Nothing was sent.
        PeerLost, Closed
            As :meth:`barrier`; only the loss of the peer counts.
        """
        self._make(_calls.Asked(Kind.SEND, src=src, root=peer), stream)

    def recv(self, dst: BufferLike, peer: int, *, stream: Stream | None = None) -> None:
        """Receive bytes of a rank, in the order in which it sends; parameters and errors as for :meth:`send`."""
        self._make(_calls.Asked(Kind.RECEIVE, dst, root=peer), stream)

    def all_reduce(
        self,
        dst: BufferLike,
        src: BufferLike | None = None,
        *,
        dtype: npt.DTypeLike,
        op: str = "sum",
        algorithm: str | None = None,
        stream: Stream | None = None,
    ) -> None:
        """Combine the elements of all ranks, and give all of them the result.

        Parameters
        ----------
        dst : Buffer or host object
            Receives the result.
        src : Buffer or host object, optional
            This rank's elements, of the size of ``dst``; by default they are in ``dst``.
        dtype, op
            As :func:`peerlane.reduce`.
        algorithm : str, optional
            One of the algorithms that run over channels; the error for another name lists them.  By default the size
            decides, and whether the ranks are on several machines.  All algorithms give the same bits.
        stream : Stream, optional

        Raises
        ------
        InvalidValue, TypeError, AccessDenied
            As :meth:`broadcast` and :func:`peerlane.reduce`.
        PeerLost, Closed
            As :meth:`barrier`.

        Notes
        -----
        Elements are combined in the order of ranks, ``((a0 OP a1) OP a2) ...``, so that all ranks and all runs have
        the same bits, in floating point too.
        """
        self._make(
            _calls.Asked(Kind.ALL_REDUCE, dst, src, reduction=(dtype, op), algorithm=algorithm), stream
        )

    def reduce_scatter(
        self,
        dst: BufferLike,
        src: BufferLike,
        *,
        dtype: npt.DTypeLike,
        op: str = "sum",
        stream: Stream | None = None,
    ) -> None:
        """Combine the elements of all ranks, and give each a part of the result.

        Parameters
        ----------
        dst : Buffer or host object
            Receives this rank's part; it may be this rank's part of ``src``.
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
        self._make(_calls.Asked(Kind.REDUCE_SCATTER, dst, src, reduction=(dtype, op)), stream)

    def reduce_scatter_v(
        self,
        dst: BufferLike,
        src: BufferLike,
        *,
        sends: Sequence[int],
        sends_at: Sequence[int] | None = None,
        dtype: npt.DTypeLike,
        op: str = "sum",
        stream: Stream | None = None,
    ) -> None:
        """Combine the elements of all ranks, and give each a part of the result; parts may have any sizes.

        Parameters
        ----------
        dst : Buffer or host object
            Receives this rank's part; it may be this rank's part of ``src``.
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
        self._make(
            _calls.Asked(Kind.REDUCE_SCATTER, dst, src, sends=(sends, sends_at), reduction=(dtype, op)),
            stream,
        )

    def reduce(
        self,
        dst: BufferLike | None,
        src: BufferLike | None = None,
        root: int = 0,
        *,
        dtype: npt.DTypeLike,
        op: str = "sum",
        stream: Stream | None = None,
    ) -> None:
        """Combine the elements of all ranks, and give one of them the result.

        Parameters
        ----------
        dst : Buffer, host object or None
            Receives the result at the root; other ranks may pass None.
        src : Buffer or host object, optional
            This rank's elements; by default they are in ``dst``, which only the root changes.
        root : int
            The rank that gets the result.
        dtype, op
            As :func:`peerlane.reduce`.
        stream : Stream, optional

        Raises
        ------
        Error
            As :meth:`all_reduce`.
        """
        self._make(_calls.Asked(Kind.REDUCE, dst, src, root=root, reduction=(dtype, op)), stream)

    def _serve(
        self, names: Sequence[str], maker: Rounds | Mails | None, finish: Callable[..., None] | None
    ) -> None:
        """Let native code make the calls that it can; without a maker the methods make all of them."""
        own = self.__dict__
        for name in names:
            own.pop(name, None)
            method = getattr(self, name)
            is_own = method.__func__ is getattr(Group, name)  # not a subclass's
            if maker is not None and finish is not None and is_own:
                own[name] = self.device.backend.ranks.group_call(maker, name, method, finish, number_of)

    def _make(self, asked: _calls.Asked, stream: Stream | None) -> None:
        """Check a call, and make it."""
        name = asked.method
        self._check_open(name)
        checked_stream(name, stream)
        call = _calls.checked(name, asked, self.rank, self.size)
        if self.size > 1:
            self._order.run(call, self._choose(call), stream)
        else:
            _calls.alone(call, stream)


def native_queue(group: Group) -> CallQueue | None:
    """Return what queues a group's calls for programs in C without Python; None if Python must make them as yet."""
    return group._order.native_queue()


def native_messages(group: Group, peer: int, *, sends: bool) -> None:
    """Let that queue have the messages to a peer, or from it, once there were some."""
    group._order.share_mail(peer, sends=sends)


def ranks_that_left(group: Group) -> list[int]:
    """Return the ranks of this machine that have closed the group."""
    membership = group._membership
    return [] if membership is None else [each for each in range(group.size) if membership.has_left(each)]


def _close_all() -> None:
    """Close all groups: a process that ends without closing its group counts as lost."""
    for group in list(_open):
        with contextlib.suppress(Error):
            group.close()


before_leaving.append(_close_all)
