"""Verbs for ranks that write into each other's memory, besides memory, streams, notifies and handles.

A back-end that has them offers a :class:`Ranks`.  They may change until a second back-end implements them.  All
objects are opaque: they go back to the back-end that made them, and to no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar

# Objects of packages above this one: a Buffer, a Notify, a Stream, a Device, a Handle; the result of `open_handle`.
Memory: TypeAlias = Any
Notify: TypeAlias = Any
Queue: TypeAlias = Any
Device: TypeAlias = Any
Offer: TypeAlias = Any
Handle: TypeAlias = Any

C = TypeVar("C")


class Lent(NamedTuple):
    """Another rank's memory, for texts: the rank, the memory's name, and the call that takes the memory back."""

    whose: str
    what: str
    how: str


class Bank(Protocol):
    """Lines of memory that several processes share: for notifies, leases, or the wait states of ranks."""

    def let_go(self) -> None:
        """Withdraw its handle, and release one hold on it."""
        ...


class Lease(Protocol):
    """The right of other ranks to use memory that was lent to them."""

    @property
    def id(self) -> int:
        """Return its number, unique in the process."""
        ...

    @property
    def has_ended(self) -> bool:
        """Return whether it has ended."""
        ...

    def begin(self) -> None:
        """Begin the lease; its owner calls this once."""
        ...

    def end_with(self, memory: Memory, /) -> None:
        """Let the lease end when the memory is freed; its owner calls this."""
        ...

    def take_back(self, memory: Memory, /) -> None:
        """End the lease of this memory, which may be freed; its owner calls this."""
        ...

    def lend(self, memory: Memory, mapped: bool, /) -> None:
        """Refuse uses of a buffer after the lease's end; ``mapped``: uses by address too."""
        ...


class HeldArea(Protocol):
    """Memory of two processes for writes that one of them has submitted to a channel and holds back.

    It exports its bytes, ``HELD_ENTRIES`` entries first.
    """

    def discard(self) -> None:
        """Return the pages behind the entries to the system."""
        ...


class Undelivered(Protocol):
    """What brings the contents of a held area to the memory that they are for."""

    def bring_all(self) -> None:
        """Bring all that is staged."""
        ...


class Turns(Protocol):
    """A rank's part in the turns of its group, which a schedule may have its ranks take."""

    def join(self, seconds: float, /) -> None:
        """Let the calling thread be this rank from now on, and wait for the others; or take no turns."""
        ...

    def leave(self) -> None:
        """Take no turns any more; idempotent."""
        ...


class Members(Protocol):
    """The watched processes of a group."""


class WaitBoard(Protocol):
    """The shared board on which the ranks of a group report that they can only wait."""

    def begin(
        self,
        now_ns: int,
        awaited: Sequence[int],
        text: bytes,
        over_store: bool = False,
        has_children: bool = False,
        /,
    ) -> None:
        """Report that this rank waits for these ranks from now on; ``text`` has its waits.

        ``over_store``: child processes of those ranks could end the wait too; ``has_children``: this rank has some.
        """
        ...

    def renew(self, now_ns: int, /) -> None:
        """Report that the wait still holds at this time."""
        ...

    def withdraw(self) -> None:
        """Withdraw the report: this rank goes on."""
        ...

    def circle(self, overlap_ns: int, /) -> list[int]:
        """Return ranks, this one included, that have waited for one another at once for ``overlap_ns``; else none."""
        ...

    def in_vain(self) -> list[int]:
        """Return the ranks whose waits no rank can end."""
        ...

    def reached(self) -> list[int]:
        """Return the ranks that this one waits for, directly or through other ranks."""
        ...

    def condemn(self, ranks: Sequence[int], /) -> None:
        """Tell ranks that their waits are in vain."""
        ...

    @property
    def is_condemned(self) -> bool:
        """Return whether this rank was told that its wait is in vain."""
        ...

    def acknowledge(self) -> None:
        """Report that this rank has seen it."""
        ...

    def have_acknowledged(self, ranks: Sequence[int], /) -> bool:
        """Return whether all of these ranks have seen it."""
        ...

    def spell(self, rank: int, /) -> int:
        """Return the number of a rank's present wait; each of its waits has another one."""
        ...

    def text(self, rank: int, /) -> bytes:
        """Return the text of a rank's last report: any bytes."""
        ...


class MessageRings(Protocol):
    """Rings in shared memory: each has one process that sends, and all have one that reads."""

    @property
    def place(self) -> int:
        """Return where the next piece will stand in the held ring."""
        ...

    def hold(self, ring: int, /) -> None:
        """Send by this ring from now on; no other process holds it."""
        ...

    def put(self, name: bytes, text: bytes, more: bool, /) -> bool:
        """Send a piece of a message, which goes on if there is ``more``; False: there is not room enough now."""
        ...

    def take(self) -> tuple[list[tuple[str, bytes, int, int]], int] | None:
        """Return the messages that have come, and how many bytes were none; None if nothing has come.

        A message has the sender's name, its text, its ring, and the place of its last piece.
        """
        ...

    def close(self) -> None:
        """Unmap them; idempotent."""
        ...


class Mails(Protocol):
    """The messages between a rank and the others of its machine."""

    @property
    def is_plain(self) -> bool:
        """Whether :meth:`run` may make messages: nothing is queued."""
        ...

    @is_plain.setter
    def is_plain(self, value: bool, /) -> None: ...

    #: What logs its messages; without one :meth:`run` makes none while an event log is written.
    log: Any

    def has(self, peer: int, sends: bool, /) -> bool:
        """Return whether messages can go to a peer, or come from it."""
        ...

    def run(self, peer: int, sends: bool, memory: Memory, go_on: Callable[[], None], /) -> bool:
        """Make a message in this thread if nothing is unusual, as :meth:`Rounds.run`."""
        ...

    def queue_begun(self, peer: int, sends: bool, stream: Queue, timeout_ns: int, keep: object, /) -> None:
        """Queue what :meth:`run` has begun."""
        ...

    def queue(self, peer: int, sends: bool, stream: Queue, timeout_ns: int, memory: Memory, /) -> None:
        """Queue a message."""
        ...

    def count(self, peer: int, sends: bool, /) -> int:
        """Count a message that :meth:`run` does not make, and return its number."""
        ...

    def calls(self, peer: int, sends: bool, /) -> int:
        """Return how many messages there were."""
        ...

    def claim(self, peer: int, sends: bool, seconds: float, /) -> bool:
        """Take the turn of one way, which one thread has at a time; False: another one has it still."""
        ...

    def release(self, peer: int, sends: bool, /) -> None:
        """Give the turn back; what :meth:`run` has begun in it and was not queued ends."""
        ...

    def let_go(self) -> None:
        """Let go of what peers' memory is mapped here; there are no more messages."""
        ...


class Farewell(Protocol):
    """What the peers of channels are told when this rank will not do what they wait for: their waits end."""

    def behind(self, stream: Queue, /) -> None:
        """Tell them if what the stream has been given so far is cancelled."""
        ...

    def say(self) -> None:
        """Tell them now."""
        ...

    @property
    def is_said(self) -> bool:
        """Return whether they were told."""
        ...


class Rounds(Protocol):
    """A rank's part in the collectives of the ranks of one machine.

    A call has a kind (``Kind`` of `peerlane.diagnostics.ranks.collective_calls`), buffers or None, a root, and the
    number of its reduction or -1.  ``at`` and ``sizes`` have the ranks' parts if they may differ, ``given_at`` and
    ``given`` those of the source, if they are others than those of the destination.
    """

    @property
    def is_plain(self) -> bool:
        """Whether :meth:`run` may make calls: nothing is queued."""
        ...

    @is_plain.setter
    def is_plain(self, value: bool, /) -> None: ...

    #: What logs its calls; without one :meth:`run` makes none while an event log is written.
    log: Any

    def run(
        self,
        kind: int,
        dst: Memory | None,
        src: Memory | None,
        root: int,
        number: int,
        at: Sequence[int],
        sizes: Sequence[int],
        given_at: Sequence[int],
        given: Sequence[int],
        go_on: Callable[[], None],
        /,
    ) -> bool:
        """Make a call in this thread if nothing is unusual; False: it was not begun.

        If it waits for long, ``go_on`` is called, which has the turn: it calls :meth:`queue_begun` and gives the turn
        back.
        """
        ...

    def queue_begun(self, stream: Queue, timeout_ns: int, dst: Memory | None, src: Memory | None, /) -> None:
        """Queue what :meth:`run` has begun."""
        ...

    def queue(
        self,
        stream: Queue,
        timeout_ns: int,
        kind: int,
        dst: Memory | None,
        src: Memory | None,
        root: int,
        number: int,
        at: Sequence[int],
        sizes: Sequence[int],
        given_at: Sequence[int],
        given: Sequence[int],
        /,
    ) -> None:
        """Queue a call whose arguments are valid."""
        ...

    @property
    def begun(self) -> tuple[int, int, int, int, bool]:
        """Return what :meth:`run` has begun: kind, size, number of the reduction, root, and whether parts differ."""
        ...

    def let_go(self) -> None:
        """Let go of what peers' memory is mapped here; there are no more calls."""
        ...

    def claim(self, seconds: float, /) -> bool:
        """Take the turn, which one thread has at a time; False: another one has it still."""
        ...

    def release(self) -> None:
        """Give the turn back; what :meth:`run` has begun in it and was not queued ends."""
        ...

    def count(self) -> int:
        """Count a call that :meth:`run` does not make, and return its number."""
        ...

    @property
    def calls(self) -> int:
        """Return the number of the last call."""
        ...


class ProcessCopies(Protocol):
    """Copies between this process's memory and another's, by the system; they may be run many times."""

    @property
    def size(self) -> int:
        """Return the bytes."""
        ...

    def __call__(self) -> int:
        """Copy; return 0, or the number of the system's error."""
        ...


class FarEnd(Protocol):
    """An end of a channel to a process of another machine.

    On a stream an operation is queued; if it is None, the operation is over on return.  The peer's memories and
    notifies have numbers; ``notify`` is a number plus 1, or 0 for none.
    """

    @property
    def number(self) -> int:
        """Return the number that frames for this end name."""
        ...

    @property
    def process(self) -> int:
        """Return the number of this process, which its peers know."""
        ...

    @property
    def secret(self) -> int:
        """Return what frames for this end must know."""
        ...

    @property
    def why_lost(self) -> str:
        """Return why the peer is lost, in the words of the engine or of the protocol; empty if it is not."""
        ...

    @property
    def peer_bank(self) -> int:
        """Return what event logs call the notifies of the peer's end, once it is open."""
        ...

    def set_places(self, places: list[list[tuple[int, int, int]]], /) -> None:
        """Tell where the peer's memories lie, for the event log: blocks, offsets and sizes."""
        ...

    def places(self, memory: int, at: int, size: int, /) -> list[tuple[int, int, int]]:
        """Return the same of a part of a memory; nothing if it was not told."""
        ...

    def open(self, address: bytes, process: int, number: int, secret: int, peer: int, /) -> None:
        """Connect it with the peer's end; RuntimeError if there is no way.  Refusals name the peer by ``peer``."""
        ...

    def close(self) -> None:
        """Close it: the peer is told when all operations of this end are over; idempotent."""
        ...

    def transports(self) -> list[str]:
        """Return the ways to the peer, in the engine's words."""
        ...

    def write(self, stream: Queue | None, memory: int, at: int, src: Memory, notify: int, /) -> None: ...
    def read(self, stream: Queue | None, dst: Memory, memory: int, at: int, /) -> None: ...
    def reduce(
        self, stream: Queue | None, memory: int, at: int, src: Memory, number: int, notify: int, /
    ) -> None: ...
    def write_blocks(
        self, stream: Queue | None, memory: int, at: int, limit: int, src: Memory, table: Any, notify: int, /
    ) -> None: ...
    def read_blocks(
        self, stream: Queue | None, dst: Memory, memory: int, at: int, limit: int, table: Any, /
    ) -> None: ...
    def notify(self, stream: Queue | None, index: int, /) -> None: ...


# Objects that the same back-end made.
OwnBank: TypeAlias = Any
OwnLease: TypeAlias = Any
OwnArea: TypeAlias = Any
OwnUndelivered: TypeAlias = Any
OwnMembers: TypeAlias = Any
OwnFarewell: TypeAlias = Any
OwnChannel: TypeAlias = Any


class Ranks(Protocol):
    """The verbs, grouped by purpose."""

    # Whether this process may use devices.

    def check_usable(self) -> None:
        """Raise ``Closed`` in the child of a fork that may not use devices."""
        ...

    # Lines that several processes share.

    def create_bank(self, lines: int) -> Bank:
        """Return a new bank whose lines are 0; raise ``OutOfMemory``."""
        ...

    def offer_bank(
        self,
        source: object,
        device: Device,
        bank: OwnBank,
        count: int,
        allow: Iterable[int] | str,
        told: Iterable[object] = (),
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
        told : iterable of object
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

    def notifies(self, device: Device, kind: int, count: int, bank: OwnBank | None) -> list[Notify]:
        """Return the notifies of one end: in a bank, or without one for this process alone."""
        ...

    def line(self, device: Device, kind: int, bank: OwnBank, index: int) -> Notify:
        """Return one notify of a bank; closing it leaves the bank as it is."""
        ...

    def record(self, notify: Notify) -> None:
        """Record a notify now, without checking that it is open."""
        ...

    def record_on(self, stream: Queue, notify: Notify) -> None:
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
        farewell: OwnFarewell,
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
        farewell: OwnFarewell,
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
        self, channel: OwnChannel, window: Memory | None, incoming: list[Notify], outgoing: list[Notify]
    ) -> None:
        """Set up the fast methods of a new channel; an argument that is None or empty leaves its methods off."""
        ...

    def serve_far(self, channel: OwnChannel, end: FarEnd, window: int, nbytes: int, notifies: int) -> None:
        """Set up the fast methods that send to another machine, besides those that `serve` has set up."""
        ...

    def log_channel(
        self,
        channel: OwnChannel,
        incoming: list[Notify],
        outgoing: list[Notify],
        rank: int,
        peer: int,
        far_bank: int = 0,
        /,
    ) -> None:
        """Tell the event log of a new channel and its notifies, between two ranks.

        ``far_bank`` is what it calls the peer's notifies, if they are on another machine.
        """
        ...

    def serve_nothing(self, channel: OwnChannel) -> None:
        """Switch the fast methods of a channel off: all its calls take the neutral ones."""
        ...

    def put(self, stream: Queue | None, dst: Memory, at: int, src: Memory, /) -> None:
        """Copy all of ``src`` to ``dst`` from byte ``at`` on."""
        ...

    def get(self, stream: Queue | None, dst: Memory, src: Memory, at: int, /) -> None:
        """Copy from byte ``at`` of ``src`` on to all of ``dst``."""
        ...

    def copy_blocks(self, stream: Queue | None, dst: Memory, src: Memory, table: Any, /) -> None:
        """Copy blocks, as one operation; ``table`` has rows of (offset in ``dst``, offset in ``src``, bytes)."""
        ...

    # Lent memory.

    def lease(self) -> Lease:
        """Return a lease of this process alone."""
        ...

    def lease_in(self, bank: OwnBank, line: int, number: int) -> Lease:
        """Return the lease of a line, valid while the line has this number."""
        ...

    def name_lease(self, lease: OwnLease, lent: Lent) -> None:
        """Let refusals name the memory that the lease is for."""
        ...

    def forget_lease(self, lease: int) -> None:
        """Forget the names of a lease, given by its number."""
        ...

    # The processes of a group, and what its ranks wait for.

    def watch(
        self, bank: OwnBank, others: Sequence[tuple[int, int, int]], far: Sequence[tuple[int, int]]
    ) -> Members:
        """Watch processes (rank, pid, start time); rank i records line i of the bank when it leaves.

        ``far``: ranks of other machines, with their numbers in :mod:`peerlane.diagnostics.ranks.losses`.
        """
        ...

    def end_waits_with(self, members: OwnMembers, bank: OwnBank) -> None:
        """Let waits for notifies of a bank also end when one of these processes is lost."""
        ...

    def lines_of_board(self, ranks: int) -> int:
        """Return how many lines the bank of a group has."""
        ...

    def board(self, bank: OwnBank, rank: int) -> WaitBoard:
        """Return a rank's view of the board, which lies behind the first lines of a group's bank."""
        ...

    def turns(self, bank: OwnBank, members: OwnMembers, rank: int) -> Turns:
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

    def held_area(self, bank: OwnBank) -> HeldArea:
        """Return the area of a bank."""
        ...

    def undelivered(self, held: OwnArea, memories: Sequence[Memory], receives: bool) -> Undelivered:
        """Return what brings the contents of an area to these memories; ``receives``: of this process."""
        ...

    def bring(self, bank: OwnBank, undelivered: OwnUndelivered) -> None:
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

    def stage(self, stream: Queue | None, undelivered: OwnUndelivered, entry: int) -> None:
        """Say that the bytes of an entry are there, when the stream reaches it.

        The stream fails if the owner has taken the memory back.
        """
        ...

    def record_staged(self, stream: Queue | None, notify: Notify, area: OwnArea, entry: int) -> None:
        """Record a notify when the stream reaches it; who consumes it brings what was staged before."""
        ...

    def bring_of(self, stream: Queue | None, undelivered: OwnUndelivered, source: int) -> None:
        """Bring all that a source has staged, when the stream reaches it."""
        ...

    def fence_staged(self, stream: Queue | None, undelivered: OwnUndelivered) -> None:
        """Let all that is staged come before the later notifies of any source, when the stream reaches it."""
        ...

    def record_held(self, stream: Queue, notify: Notify, area: OwnArea, entry: int) -> None:
        """Record a notify when the stream reaches it; of the two processes only one does so."""
        ...

    def write_word(self, stream: Queue, memory: Memory, value: int, /) -> None:
        """Write 8 bytes when the stream reaches the operation."""
        ...

    def follow(self, stream: Queue, before: Queue, operations: int) -> None:
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
        members: OwnMembers | None,
        peer: int,
        /,
    ) -> FarEnd:
        """Return a new end for rank ``peer``, which may use the memories ``grants`` and record ``lines``.

        Waits for ``lines`` end when any of ``members`` is lost, and all ranks of this machine learn that the peer is.

        If it ``withholds``, what the peer writes is in its place when this process waits for a later record.
        """
        ...

    def far_bring(self) -> None:
        """Let what was written and is withheld be in its place."""
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
