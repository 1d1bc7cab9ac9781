"""The verbs that a back-end owes ranks that write into one another's memory.

Ranks also use the back-end's memory, streams, notifies and handles.  Channels, collectives, the network engine and
the board of waits run in native code.  So objects that only native code looks into are native ones, whose methods
``peerlane/_core.pyi`` has.  Those that Python calls are protocols.  A second back-end would make its memory, streams
and notifies from native classes too, and implement :class:`Ranks`, whose verbs may change until it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from peerlane import _core

# Native classes.
Bank: TypeAlias = (
    "_core.Signal"  # cache lines of memory that several processes map: for notifies, leases, or a board
)
LateArea: TypeAlias = "_core.LateArea"  # memory of two processes for the late writes of a channel
Members: TypeAlias = "_core.Members"  # the watched processes of a group
MessageRings: TypeAlias = "_core.MessageRings"  # rings in shared memory with one reader, each with one sender
FileCopies: TypeAlias = "_core.FileCopies"  # copies between memory and files that were given to a stream
FilePieces: TypeAlias = "_core.FilePieces"  # pieces of memory and of files, between which bytes are copied
ProcessCopies: TypeAlias = "_core.ProcessCopies"  # copies between the memory of two processes, by the system
ProcessMemory: TypeAlias = "_core.ProcessMemory"  # which addresses of a process are memory
Undelivered: TypeAlias = (
    "_core.Undelivered"  # copies the contents of a late area to the memory that they were written for
)
WaitBoard: TypeAlias = "_core.WaitBoard"  # on it the ranks of a group report that they can only wait

# Objects of the neutral API.  They are not typed: their packages import this one, and the types of their classes do
# not show the native bases by which a back-end knows them.
Memory: TypeAlias = Any  # a Buffer
Notify: TypeAlias = Any
Stream: TypeAlias = Any
Device: TypeAlias = Any
Channel: TypeAlias = Any
Handle: TypeAlias = Any
Offer: TypeAlias = Any  # what `open_handle` returns
Lines: TypeAlias = Any  # what `Ranks.notifies` returns

C = TypeVar("C")


class Lent(NamedTuple):
    """Another rank's memory, for texts: the rank, the memory's name, and the call that takes the memory back."""

    whose: str
    what: str
    how: str


class Turns(Protocol):
    """A rank's part in the turns of its group: under some schedules one rank runs at a time."""

    def join(self, seconds: float, /) -> None:
        """Bind the calling thread to this rank, and wait for the others; do nothing if the schedule has no turns."""
        ...

    def leave(self) -> None:
        """Take no turns from now on; idempotent."""
        ...


class Lease(Protocol):
    """The right of other ranks to use memory that was lent to them.  Its owner calls the methods that end it."""

    @property
    def id(self) -> int:
        """A number, unique in the process."""
        ...

    @property
    def has_ended(self) -> bool: ...

    def begin(self) -> None:
        """Begin the lease; its owner calls this once."""
        ...

    def take_back(self, memory: Memory, /) -> None:
        """End the lease of a memory."""
        ...

    def end_with(self, memory: Memory, /) -> None:
        """End the lease when the memory is freed."""
        ...

    def lend(self, memory: Memory, mapped: bool, /) -> None:
        """Refuse operations on a buffer once the lease has ended; ``mapped``: those that name it by address, too."""
        ...


class Farewell(Protocol):
    """Ends the waits of peers for what this rank will not do any more."""

    @property
    def is_sent(self) -> bool:
        """Whether it has ended waits."""
        ...

    def add(self, lines: Lines, /) -> None:
        """Add the notifies that this rank records of one more channel."""
        ...

    def send(self) -> None:
        """End the waits now."""
        ...

    def behind(self, stream: Stream, /) -> None:
        """End the waits if operations that the stream has by now are cancelled."""
        ...


class CallMaker(Protocol):
    """Makes calls of a group natively, in the calling thread as long as nothing is queued."""

    log: Any  # the entries of the group in the event log; None: the maker makes no calls while a log is written
    is_plain: bool  # whether nothing is queued, so that a call may be made in the calling thread

    def let_go(self) -> None:
        """Release the memory of peers; there are no more calls."""
        ...


class Mails(CallMaker, Protocol):
    """The messages between a rank and the others of its machine; ``sends`` is the direction."""

    def has(self, peer: int, sends: bool, /) -> bool:
        """Return whether messages may go in this direction: ``add_mail`` was called for it."""
        ...

    def run(self, peer: int, sends: bool, memory: Memory, finish: Callable[..., None], /) -> bool:
        """Make a message in this thread; return False if it was not begun, as :meth:`Rounds.run`."""
        ...

    def is_ready(self, peer: int, sends: bool, sizes: Sequence[int], looks_on: bool, /) -> bool:
        """Return whether the next messages, of so many bytes each, would end without waiting for the peer.

        It may look on for as long as :meth:`run` waits in its thread.  False also if that is not known: before the
        first message of a direction, and while messages are queued.
        """
        ...

    def queue(self, peer: int, sends: bool, stream: Stream, timeout_ns: int, memory: Memory, /) -> None:
        """Queue a message."""
        ...

    def queue_begun(self, peer: int, sends: bool, stream: Stream, timeout_ns: int, memory: Memory, /) -> None:
        """Queue the rest of a message that :meth:`run` has begun."""
        ...

    def count(self, peer: int, sends: bool, /) -> int:
        """Count a message that :meth:`run` does not make, and return its number."""
        ...

    def calls(self, peer: int, sends: bool, /) -> int:
        """Return how many messages there were."""
        ...

    def claim(self, peer: int, sends: bool, seconds: float, /) -> bool:
        """Reserve a direction for this thread; return False if another thread still has it."""
        ...

    def release(self, peer: int, sends: bool, /) -> None:
        """Free a direction; a message that :meth:`run` has begun and nobody has queued ends."""
        ...


class CallQueue(Protocol):
    """Queues calls of a group without Python, in the order of the calls that Python queues."""

    def know_mail(self, mails: Any, peer: int, sends: bool, /) -> None:
        """Let it queue messages to a peer, or from it."""
        ...

    def know_words(self, kind: int, size: int, number: int, root: int, checksum: int, text: bytes, /) -> None:
        """Let it queue calls of which ``text`` is posted; numbers are those of ``collectives.call.Call.native``."""
        ...

    def note_last(self, peer: int | None, sends: bool, last: Any, /) -> None:
        """Say which event is the end of the last message of a direction, without a peer of the last collective.

        It records the event anew.  None: these calls are over, and it queues none before there is an event again.
        """
        ...

    def forget_lasts(self) -> None:
        """Say that all calls are over."""
        ...


class Rounds(CallMaker, Protocol):
    """A rank's part in the collectives of the ranks of one machine.

    The numbers of a call are those of ``collectives.call.Call.native``.
    """

    @property
    def is_whole(self) -> bool:
        """Whether it is connected with all peers; before that it makes barriers only."""
        ...

    def connect(self, peer: int, slots: Memory, incoming: Lines, outgoing: Lines, first: int, /) -> None:
        """Connect a peer, once.

        ``slots``: its memory.
        ``incoming``, ``outgoing``: the notifies that it records, and those that this rank records; from ``first`` on,
            ``ROUND_LINES`` of them are for rounds.
        """
        ...

    @property
    def begun(self) -> tuple[int, int, int, int, bool]:
        """The numbers of the collective that :meth:`run` has begun."""
        ...

    @property
    def calls(self) -> int:
        """How many collectives there were."""
        ...

    def run(self, *call: Any) -> bool:
        """Make a collective in this thread; return False if it was not begun.

        The last argument, ``finish``, is called if the collective waits for long.  It has the claim of this thread,
        calls :meth:`queue_begun`, and releases the claim.
        """
        ...

    def queue(self, stream: Stream, timeout_ns: int, /, *call: Any) -> None:
        """Queue a collective."""
        ...

    def queue_begun(self, stream: Stream, timeout_ns: int, dst: Memory | None, src: Memory | None, /) -> None:
        """Queue the rest of a collective that :meth:`run` has begun."""
        ...

    def count(self) -> int:
        """Count a collective that :meth:`run` does not make, and return its number."""
        ...

    def claim(self, seconds: float, /) -> bool:
        """Reserve the collectives for this thread; return False if another thread still has them."""
        ...

    def release(self) -> None:
        """Free the collectives; one that :meth:`run` has begun and nobody has queued ends."""
        ...


class FarEnd(Protocol):
    """An end of a channel to a process of another machine.

    ``memory`` is the number of a memory among those that the peer grants.  ``notify`` is 1 more than the number of a
    notify that is recorded afterwards, or 0 for none.
    """

    @property
    def number(self) -> int: ...

    @property
    def process(self) -> int:
        """The number by which peers know this process."""
        ...

    @property
    def secret(self) -> int: ...

    @property
    def peer_bank(self) -> int:
        """The bank of the peer's notifies in event logs, once the end is open."""
        ...

    def open(self, address: bytes, process: int, number: int, secret: int, peer: int, /) -> None:
        """Connect to the peer's end; RuntimeError, in the engine's words, if there is no route."""
        ...

    def set_blocks(self, blocks: list[list[tuple[int, int, int]]], /) -> None:
        """Set, for the event log, the blocks of the peer's memories, with offsets and sizes."""
        ...

    def transports(self) -> list[str]:
        """Return the names of the engine's transports to the peer."""
        ...

    def write(self, stream: Stream | None, memory: int, at: int, src: Memory, notify: int, /) -> None: ...

    def read(self, stream: Stream | None, dst: Memory, memory: int, at: int, /) -> None: ...

    def reduce(
        self, stream: Stream | None, memory: int, at: int, src: Memory, reduction: int, notify: int, /
    ) -> None: ...

    def write_blocks(
        self, stream: Stream | None, memory: int, at: int, limit: int, src: Memory, table: Any, notify: int, /
    ) -> None:
        """Write blocks; ``table`` has rows of (offset from ``at`` on, below ``limit``; offset in ``src``; bytes)."""
        ...

    def read_blocks(
        self, stream: Stream | None, dst: Memory, memory: int, at: int, limit: int, table: Any, /
    ) -> None:
        """Read blocks; ``table`` has rows of (offset in ``dst``; offset from ``at`` on, below ``limit``; bytes)."""
        ...

    def notify(self, stream: Stream | None, index: int, /) -> None:
        """Record a notify of the peer."""
        ...

    def close(self) -> None:
        """Close the end; the peer learns of it once all operations are over; idempotent."""
        ...


class Notifies(Protocol):
    """The notifies of one direction of a channel, each made when it is first used."""

    @property
    def first_id(self) -> int:
        """The id of the first; the others have the ids behind it.  0: there are none."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Notify: ...

    def unconsumed(self) -> list[int]:
        """Return those that were recorded more often than consumed."""
        ...

    def abandon(self) -> None:
        """Declare that only queued operations will still record them: other waits for them fail with ``PeerLost``."""
        ...

    def close(self) -> None:
        """Close them."""
        ...


class MailLane(NamedTuple):
    """One direction of the messages between a rank and a peer."""

    rank: int  #: ``rank``, ``size``: this rank, and how many ranks the group has
    size: int
    peer: int
    sends: bool  #: whether messages go to the peer
    #: ``sent``, ``taken``: the notifies that the sender records for a piece, and those that the receiver records once
    #: it has taken it, each with the index of the first.
    sent: tuple[Lines, int]
    taken: tuple[Lines, int]
    depth: int  #: how many of either
    slots: Memory  #: as many slots, in the receiver's memory
    pid: int  #: the peer's process


class Ranks(Protocol):
    """The verbs, grouped by purpose."""

    # Banks: cache lines of memory that several processes map.

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

        ``source``: kept alive by the handle.
        ``count``: how many notifies, ranks or leases its lines are for; the handle brings it to the processes that
            open it.
        ``allow``: the pids of the processes that may open it.
        ``observed``: the objects whose export is reported to observers.
        """
        ...

    def open_bank(self, offer: Offer, lines: int) -> Bank:
        """Return the bank that another process offers; ``BadHandle`` if it has fewer lines."""
        ...

    # Notifies of the two ends of a channel.

    def lines_of_notifies(self, kind: int, count: int) -> int:
        """Return how many lines ``count`` notifies of a kind take."""
        ...

    def notifies(self, device: Device, kind: int, count: int, bank: Bank | None) -> Notifies:
        """Return the notifies of one direction: in a bank, or without one for this process alone."""
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
        finish: Callable[..., None],
        number_of: Callable[[str, Any, str], int],
        /,
    ) -> Callable[..., None]:
        """Return a callable that makes a group's calls by ``maker.run``, and leaves the others to ``method``.

        ``finish(call, dst, src)`` or ``finish(call, sends, peer, buffer)`` ends a call that ``run`` has begun.
        ``number_of(call, dtype, op)`` returns a reduction's number.
        """
        ...

    def mails(self, size: int, /) -> Mails:
        """Return a rank's messages in a group of ``size``, none of which can be sent yet."""
        ...

    def add_mail(self, mails: Mails, lane: MailLane, farewell: Farewell, /) -> None:
        """Open a direction of the messages with a peer; the farewell is sent if a message fails or is cancelled."""
        ...

    def barrier_neighbours(self, rank: int, size: int, /) -> Sequence[int]:
        """Return the ranks that a rank signals in a barrier, and waits for."""
        ...

    def rounds(
        self, rank: int, size: int, slots: Memory, pids: Sequence[int], farewell: Farewell, /
    ) -> Rounds:
        """Return a rank's part, which is connected with no peer yet.

        ``slots``: the memory of this rank.
        ``pids``: the processes of the peers in cyclic order, from the one behind this rank on.
        ``farewell``: it is sent if a call fails or is cancelled.
        """
        ...

    def farewell(self, lines: Sequence[Lines], /) -> Farewell:
        """Return a farewell to the peers of channels; ``lines``: those that this rank records, of each channel."""
        ...

    # Fast calls of a channel.

    def channel_type(self, neutral: type[C]) -> type[C]:
        """Return the class of this back-end's channels: the neutral class, or a faster subclass.

        A faster method behaves as the neutral one, errors included.
        """
        ...

    def serve(
        self, channel: Channel, window: Memory | None, incoming: Lines | None, outgoing: Lines | None
    ) -> None:
        """Set up the fast methods of a new channel; an argument that is None leaves its methods off."""
        ...

    def serve_far(self, channel: Channel, end: FarEnd, window: int, nbytes: int, notifies: int) -> None:
        """Set up the fast methods that send to another machine, besides those that `serve` has set up."""
        ...

    def log_channel(
        self,
        channel: Channel,
        incoming: Lines,
        outgoing: Lines | None,
        rank: int,
        peer: int,
        far_bank: int = 0,
        /,
    ) -> None:
        """Log a new channel and its notifies, between two ranks.

        ``outgoing``: None if the peer is on another machine.
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

    def call_queue(
        self,
        rounds: Any,
        mine: Memory,
        theirs: Sequence[Memory | None],
        kept: int,
        entry: int,
        timeout_ns: int,
        /,
    ) -> CallQueue:
        """Return what queues calls of a group without Python.

        ``mine``, ``theirs``: the posts of :class:`peerlane.collectives.agreement.Agreement`, of this rank and by
        rank: ``kept`` calls of ``entry`` bytes each, then as many words of each lane.
        """
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

    def end_waits_with(self, members: Members, recorder: int, bank: Bank) -> None:
        """Let waits for notifies of a bank also end when one of these processes is lost.

        ``recorder``: the rank among them that records the notifies; the waits end when it has left, too.
        """
        ...

    def lines_of_board(self, ranks: int) -> int:
        """Return how many lines the bank of a group has."""
        ...

    def board(self, bank: Bank, rank: int) -> WaitBoard:
        """Return a rank's view of the board, which lies behind the first lines of a group's bank."""
        ...

    def turns(self, bank: Bank, members: Members, rank: int) -> Turns:
        """Return a rank's part in the turns of its group, whose state is in the bank behind the board."""
        ...

    # Late delivery: writes of a channel that arrive some time after their stream has run them.

    @property
    def lateness(self) -> str:
        """Return when a write of a channel arrives.

        ``""``: when its stream reaches it; ``"lazy"``: when the peer waits for a later notify; ``"seeded"``: some
        time later.
        """
        ...

    LATE_LINES: int  #: lines of the bank of a late area
    LATE_ENTRIES: int  #: entries of a late area
    LATE_HEADER: int  #: bytes of a late area behind its entries that are not the sender's

    def late_area(self, bank: Bank) -> LateArea:
        """Return the area of a bank."""
        ...

    def undelivered(self, area: LateArea, memories: Sequence[Memory], receives: bool) -> Undelivered:
        """Return the object that delivers an area's contents to memories; ``receives``: they are this process's."""
        ...

    def deliver_at_waits(self, bank: Bank, undelivered: Undelivered) -> None:
        """Let a wait for a notify of a bank deliver the writes that were staged before its record.

        If the process of the other end ends, the waits deliver all its staged writes.
        """
        ...

    def deliver_to(self, part: Memory) -> None:
        """Deliver the writes that other processes have staged for ``part``, memory that this process lends."""
        ...

    def await_all_to(self, part: Memory, seconds: float) -> None:
        """Wait until other processes have delivered their writes to ``part``, memory that this process lends.

        It takes ``seconds`` at most.
        """
        ...

    def stage(self, stream: Stream | None, undelivered: Undelivered, entry: int) -> None:
        """Stage the bytes of an entry when the stream reaches it.

        The stream fails if the owner has taken the memory back.
        """
        ...

    def record_staged(self, stream: Stream | None, notify: Notify, area: LateArea, entry: int) -> None:
        """Record a notify when the stream reaches it; its consumer delivers the writes that were staged before."""
        ...

    def deliver_source(self, stream: Stream | None, undelivered: Undelivered, source: int) -> None:
        """Deliver all staged writes of a source, when the stream reaches the operation."""
        ...

    def fence_staged(self, stream: Stream | None, undelivered: Undelivered) -> None:
        """Order all staged writes before later notifies of any source, when the stream reaches the operation."""
        ...

    def record_late(self, stream: Stream, notify: Notify, area: LateArea, entry: int) -> None:
        """Record a notify when the stream reaches it; only one of the two processes records it."""
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

        Return this process's address, the file, and its version; or the failed attempts to load a file; or why the
        loaded engine does not start.
        """
        ...

    def far_unreachable(self, seconds: float) -> None:
        """Set after how many seconds of silence a process of another machine is lost."""
        ...

    def far_end(
        self,
        grants: Sequence[Memory],
        lines: Lines,
        withholds: bool,
        members: Members | None,
        peer: int,
        /,
    ) -> FarEnd:
        """Return a new end for rank ``peer``, which may use the memories ``grants`` and record ``lines``.

        Waits for ``lines`` end when any of ``members`` is lost, and all ranks of this machine learn that the peer is.

        If it ``withholds``, the peer's writes arrive when this process waits for a later record.
        """
        ...

    def far_deliver(self) -> None:
        """Let withheld writes arrive."""
        ...

    # Two processes without a group.

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

    def process_memory(self, pid: int, /) -> ProcessMemory:
        """Return what says which addresses of a process, this one or another, are memory."""
        ...

    # Files.

    def file_pieces(
        self,
        reads: bool,
        pieces: Sequence[tuple[int, int, int, int]],
        files: Sequence[tuple[int, int, int]],
        /,
    ) -> FilePieces:
        """Return ``pieces``: a file's descriptor and offset, the memory's address, and bytes.

        ``files`` are the descriptors, and the device and inode of the file that each one is.
        """
        ...
