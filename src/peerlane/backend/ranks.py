"""What a back-end owes ranks that write into each other's memory, besides memory, streams, notifies and handles.

Channels, collectives, the network engine and the board of waits run in native code, so the objects are native ones;
``peerlane/_core.pyi`` has their methods.  A second back-end would make its memory, streams and notifies from native
classes too, and implement :class:`Ranks`, whose verbs may change until it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from peerlane import _core

# Native classes.
Bank: TypeAlias = (
    "_core.Signal"  # lines of memory that several processes map: for notifies, leases, or a board
)
HeldArea: TypeAlias = (
    "_core.LateDeliveries"  # memory of two processes for the writes that a channel holds back
)
Members: TypeAlias = "_core.Members"  # the watched processes of a group
MessageRings: TypeAlias = "_core.MessageRings"  # rings in shared memory with one reader, each with one sender
ProcessCopies: TypeAlias = "_core.ProcessCopies"  # copies between the memory of two processes, by the system
Undelivered: TypeAlias = (
    "_core.Undelivered"  # brings the contents of a held area to the memory that they are for
)
WaitBoard: TypeAlias = "_core.WaitBoard"  # on it the ranks of a group report that they can only wait

# Native classes of these names, whose methods take buffers and streams: the types of those do not show native bases.
FarEnd: TypeAlias = Any  # an end of a channel to a process of another machine
Farewell: TypeAlias = Any  # ends the waits of peers for what this rank will not do
Lease: TypeAlias = Any  # the right of other ranks to use memory that was lent to them
Mails: TypeAlias = Any  # the messages between a rank and the others of its machine
Rounds: TypeAlias = Any  # a rank's part in the collectives of the ranks of one machine

# Objects of the neutral API, whose packages import this one; native code knows them by classes of its own.
Memory: TypeAlias = Any  # a Buffer
Notify: TypeAlias = Any
Stream: TypeAlias = Any
Device: TypeAlias = Any
Channel: TypeAlias = Any
Handle: TypeAlias = Any
Offer: TypeAlias = Any  # what `open_handle` returns

C = TypeVar("C")


class Lent(NamedTuple):
    """Another rank's memory, for texts: the rank, the memory's name, and the call that takes the memory back."""

    whose: str
    what: str
    how: str


class Turns(Protocol):
    """A rank's part in the turns of its group, which a schedule may have its ranks take."""

    def join(self, seconds: float, /) -> None:
        """Let the calling thread be this rank from now on, and wait for the others; or take no turns."""
        ...

    def leave(self) -> None:
        """Take no turns any more; idempotent."""
        ...


class Ranks(Protocol):
    """The verbs, grouped by purpose."""

    # Banks: lines of memory that several processes map.

    def create_bank(self, lines: int) -> Bank:
        """Return a new bank whose lines are 0; raise ``OutOfMemory``."""
        ...

    def offer_bank(
        self,
        source: object,
        device: Device,
        bank: Bank,
        count: int,
        allow: Iterable[int] | str,
        observed: Iterable[object] = (),
        /,
    ) -> Handle:
        """Return the handle of a bank.

        Parameters
        ----------
        source : object
            Kept alive by the handle.
        device : Device
        bank : Bank
        count : int
            How many notifies, ranks or leases its lines are for; the handle brings it to the processes that open it.
        allow : iterable of int, or "user"
            The pids of the processes that may open it.
        observed : iterable of object
            The objects whose export is reported to observers.
        """
        ...

    def open_bank(self, offer: Offer, lines: int) -> Bank:
        """Return the bank that another process offers; ``BadHandle`` if it has fewer lines."""
        ...

    # Notifies of the two ends of a channel.

    def lines_of_notifies(self, kind: int, count: int) -> int:
        """Return how many lines ``count`` notifies of a kind take."""
        ...

    def notifies(self, device: Device, kind: int, count: int, bank: Bank | None) -> list[Notify]:
        """Return the notifies of one end: in a bank, or without one for this process alone."""
        ...

    def line(self, device: Device, kind: int, bank: Bank, index: int) -> Notify:
        """Return one notify of a bank; closing it leaves the bank as it is."""
        ...

    def record(self, notify: Notify) -> None:
        """Record a notify now, without checking that it is open."""
        ...

    def record_on(self, stream: Stream, notify: Notify) -> None:
        """Record a notify when the stream reaches the operation, without checking that the notify is open."""
        ...

    def abandon(self, notify: Notify) -> None:
        """Declare that only queued operations will still record it: other waits for it fail with ``PeerLost``."""
        ...

    # Collectives of ranks on one machine.

    ROUND_LINES: int  # lines from each rank to each other one

    def bytes_of_rounds(self, long_slot: int, /) -> int:
        """Return the bytes of a rank's slots."""
        ...

    #: Names of the methods of a group that :meth:`group_call` knows: collectives and messages.
    COLLECTIVES: ClassVar[tuple[str, ...]]
    MESSAGES: ClassVar[tuple[str, ...]]

    def group_call(
        self,
        maker: Rounds | Mails,
        name: str,
        method: Callable[..., None],
        go_on: Callable[..., None],
        number_of: Callable[[str, Any, str], int],
        /,
    ) -> Callable[..., None]:
        """Return what makes the calls of a group's method by ``maker``'s ``run``, and leaves others to the method.

        ``go_on(call, dst, src)`` or ``go_on(call, sends, peer, buffer)`` goes on with a call that ``run`` has begun.
        ``number_of(call, dtype, op)`` returns a reduction's number.
        """
        ...

    def mails(self, size: int, /) -> Mails:
        """Return a rank's messages in a group of ``size``, none of which can be sent yet."""
        ...

    def add_mail(
        self,
        mails: Mails,
        rank: int,
        size: int,
        peer: int,
        sends: bool,
        sent: Sequence[Notify],
        taken: Sequence[Notify],
        slots: Memory,
        pid: int,
        farewell: Farewell,
        /,
    ) -> None:
        """Let messages go to a peer, or come from it.

        Parameters
        ----------
        sent, taken : sequence of Notify
            Those that say that a piece was sent, and those that say that it was taken.
        slots : Buffer
            As many slots, in the receiver's memory.
        pid : int
            The peer's process.
        farewell : Farewell
            It is said when a message fails or is cancelled.
        """
        ...

    def rounds(
        self,
        rank: int,
        size: int,
        slots: Memory,
        theirs: Sequence[Memory],
        pids: Sequence[int],
        incoming: Sequence[Sequence[Notify]],
        outgoing: Sequence[Sequence[Notify]],
        farewell: Farewell,
        /,
    ) -> Rounds:
        """Return a rank's part; peers come in cyclic order, from the one behind this rank on.

        Parameters
        ----------
        slots, theirs : Buffer, sequence of Buffer
            The memory of this rank, and of each peer.
        pids : sequence of int
            The process of each peer.
        incoming, outgoing : sequence of sequence of Notify
            For each peer ``ROUND_LINES`` notifies that it records, and as many that this rank records.
        farewell : Farewell
            It is said when a call fails or is cancelled.
        """
        ...

    def farewell(self, lines: Sequence[Notify], /) -> Farewell:
        """Return a farewell to the peers of channels; ``lines`` has all notifies that this rank records there."""
        ...

    # Fast calls of a channel.

    def channel_type(self, neutral: type[C]) -> type[C]:
        """Return the class of this back-end's channels: the neutral one, or a faster subclass.

        A faster method behaves as the neutral one, errors included.
        """
        ...

    def serve(
        self, channel: Channel, window: Memory | None, incoming: list[Notify], outgoing: list[Notify]
    ) -> None:
        """Set up the fast methods of a new channel; an argument that is None or empty leaves its methods off."""
        ...

    def serve_far(self, channel: Channel, end: FarEnd, window: int, nbytes: int, notifies: int) -> None:
        """Set up the fast methods that send to another machine, besides those that `serve` has set up."""
        ...

    def log_channel(
        self,
        channel: Channel,
        incoming: list[Notify],
        outgoing: list[Notify],
        rank: int,
        peer: int,
        far_bank: int = 0,
        /,
    ) -> None:
        """Log a new channel and its notifies, between two ranks.

        ``far_bank`` is what the log calls the peer's notifies, if they are on another machine.
        """
        ...

    def serve_nothing(self, channel: Channel) -> None:
        """Switch the fast methods of a channel off: all its calls take the neutral ones."""
        ...

    def put(self, stream: Stream | None, dst: Memory, at: int, src: Memory, /) -> None:
        """Copy all of ``src`` to ``dst`` from byte ``at`` on."""
        ...

    def get(self, stream: Stream | None, dst: Memory, src: Memory, at: int, /) -> None:
        """Copy from byte ``at`` of ``src`` on to all of ``dst``."""
        ...

    def copy_blocks(self, stream: Stream | None, dst: Memory, src: Memory, table: Any, /) -> None:
        """Copy blocks, as one operation; ``table`` has rows of (offset in ``dst``, offset in ``src``, bytes)."""
        ...

    # Lent memory.

    def lease(self) -> Lease:
        """Return a lease of this process alone."""
        ...

    def lease_in(self, bank: Bank, line: int, number: int) -> Lease:
        """Return the lease of a line, valid while the line has this number."""
        ...

    def name_lease(self, lease: Lease, lent: Lent) -> None:
        """Let refusals name the memory that the lease is for."""
        ...

    def forget_lease(self, lease: int) -> None:
        """Forget the names of a lease, given by its number."""
        ...

    # The processes of a group, and what its ranks wait for.

    def watch(
        self, bank: Bank, others: Sequence[tuple[int, int, int]], far: Sequence[tuple[int, int]]
    ) -> Members:
        """Watch processes (rank, pid, start time); rank i records line i of the bank when it leaves.

        ``far``: ranks of other machines, with their numbers in :mod:`peerlane.diagnostics.ranks.losses`.
        """
        ...

    def end_waits_with(self, members: Members, bank: Bank) -> None:
        """Let waits for notifies of a bank also end when one of these processes is lost."""
        ...

    def lines_of_board(self, ranks: int) -> int:
        """Return how many lines the bank of a group has."""
        ...

    def board(self, bank: Bank, rank: int) -> WaitBoard:
        """Return a rank's view of the board, which lies behind the first lines of a group's bank."""
        ...

    def turns(self, bank: Bank, members: Members, rank: int) -> Turns:
        """Return a rank's part in the turns, which stand behind the board."""
        ...

    # Late delivery: writes that a channel holds back.

    @property
    def lateness(self) -> str:
        """Return when a write of a channel arrives.

        ``""``: when its stream reaches it; ``"lazy"``: when the peer waits for a later notify; ``"seeded"``: some
        time later.
        """
        ...

    HELD_LINES: int  #: lines of the bank of a held area
    HELD_ENTRIES: int  #: entries of a held area
    HELD_HEADER: int  #: bytes of a held area behind its entries that are not the sender's

    def held_area(self, bank: Bank) -> HeldArea:
        """Return the area of a bank."""
        ...

    def undelivered(self, held: HeldArea, memories: Sequence[Memory], receives: bool) -> Undelivered:
        """Return what brings the contents of an area to these memories; ``receives``: of this process."""
        ...

    def bring(self, bank: Bank, undelivered: Undelivered) -> None:
        """Let a wait for a notify of a bank bring what was staged before its record.

        If the other end's process ends, the waits bring all that it holds back.
        """
        ...

    def bring_to(self, part: Memory) -> None:
        """Bring what other processes have staged for memory that this process lends as ``part``."""
        ...

    def await_all_to(self, part: Memory, seconds: float) -> None:
        """Wait until other processes have delivered what their streams gave for memory that this process lends.

        It takes ``seconds`` at most.
        """
        ...

    def stage(self, stream: Stream | None, undelivered: Undelivered, entry: int) -> None:
        """Stage the bytes of an entry when the stream reaches it.

        The stream fails if the owner has taken the memory back.
        """
        ...

    def record_staged(self, stream: Stream | None, notify: Notify, area: HeldArea, entry: int) -> None:
        """Record a notify when the stream reaches it; who consumes it brings what was staged before."""
        ...

    def bring_of(self, stream: Stream | None, undelivered: Undelivered, source: int) -> None:
        """Bring all that a source has staged, when the stream reaches it."""
        ...

    def fence_staged(self, stream: Stream | None, undelivered: Undelivered) -> None:
        """Let all that is staged come before the later notifies of any source, when the stream reaches it."""
        ...

    def record_held(self, stream: Stream, notify: Notify, area: HeldArea, entry: int) -> None:
        """Record a notify when the stream reaches it; of the two processes only one does so."""
        ...

    def write_word(self, stream: Stream, memory: Memory, value: int, /) -> None:
        """Write 8 bytes when the stream reaches the operation."""
        ...

    def follow(self, stream: Stream, before: Stream, operations: int) -> None:
        """Run the next ``operations`` of a stream after all of another stream's, unless one of those fails."""
        ...

    # Channels to processes of other machines.

    def far_start(self, library: str, interface: str) -> tuple[bytes, str, str] | list[str] | str:
        """Start the engine, once, from this file and on this network interface; empty texts: by default.

        Return this process's address, the file, and its version; or what was tried in vain to load one; or why the
        one that was loaded does not start.
        """
        ...

    def far_unreachable(self, seconds: float) -> None:
        """Set after how many seconds of silence a process of another machine is lost."""
        ...

    def far_end(
        self,
        grants: Sequence[Memory],
        lines: Sequence[Notify],
        withholds: bool,
        members: Members | None,
        peer: int,
        /,
    ) -> FarEnd:
        """Return a new end for rank ``peer``, which may use the memories ``grants`` and record ``lines``.

        Waits for ``lines`` end when any of ``members`` is lost, and all ranks of this machine learn that the peer is.

        If it ``withholds``, what the peer writes is in its place when this process waits for a later record.
        """
        ...

    def far_bring(self) -> None:
        """Put what was written and is withheld into its place."""
        ...

    # What two processes do with each other without a group.

    MESSAGE_RINGS: int  #: rings
    MESSAGE_RINGS_BYTES: int  #: bytes of a file that all of them need
    MOST_OF_MESSAGE: int  #: bytes of a piece's text

    def message_rings(self, fd: int, offset: int, /) -> MessageRings:
        """Map the rings of a file, which begin at a page."""
        ...

    def process_copies(
        self, pid: int, writes: bool, pieces: Sequence[tuple[int, int, int]], /
    ) -> ProcessCopies:
        """Return copies of ``pieces``: this process's address, the other's, and bytes."""
        ...
