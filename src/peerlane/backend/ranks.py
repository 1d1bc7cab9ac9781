"""What ranks that write into each other's memory need of a back-end, besides memory, streams, notifies and handles.

A back-end that has it offers a :class:`Ranks`.  It is frozen when a second back-end has it; until then it may change.
All objects are opaque: who got one from a back-end gives it back to that back-end only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

# Objects of packages above this one: a Buffer, a Notify, a Stream, a Device; and what `open_handle` returned.
Memory: TypeAlias = Any
Notify: TypeAlias = Any
Queue: TypeAlias = Any
Device: TypeAlias = Any
Offer: TypeAlias = Any

C = TypeVar("C")


class Lent(NamedTuple):
    """Memory of another rank, for texts: whose it is, what it is called, and the call that takes it back."""

    whose: str
    what: str
    how: str


class Bank(Protocol):
    """Lines of memory that several processes have: notifies, leases, or what ranks say of themselves."""

    def let_go(self) -> None:
        """Offer it to nobody any more, and have it opened once less."""
        ...


class Lease(Protocol):
    """Whether memory that was lent to others may still be used."""

    @property
    def id(self) -> int:
        """Return its number, which no other one of this process has."""
        ...

    def begin(self) -> None:
        """Begin it; its owner's, once."""
        ...

    def end_with(self, memory: Memory, /) -> None:
        """End it when the memory is freed; its owner's."""
        ...

    def take_back(self) -> None:
        """End it; its owner's."""
        ...

    def lend(self, memory: Memory, mapped: bool, /) -> None:
        """Refuse uses of a buffer once it has ended; ``mapped``: by address too."""
        ...


class HeldArea(Protocol):
    """Memory that two processes have, for what one of them has given to a channel and not brought.

    It exports its bytes, ``HELD_ENTRIES`` entries first.
    """

    def discard(self) -> None:
        """Give the pages behind the entries back."""
        ...


class Members(Protocol):
    """The processes of a group, which are watched."""


class WaitBoard(Protocol):
    """What the ranks of a group say of themselves while nothing of them can run."""

    def begin(
        self,
        now_ns: int,
        awaited: Sequence[int],
        text: bytes,
        over_store: bool = False,
        has_children: bool = False,
        /,
    ) -> None:
        """Say that this rank waits for these ranks from now on, and how it would tell it.

        ``over_store``: for what children of those ranks could do as well; ``has_children``: it has some.
        """
        ...

    def renew(self, now_ns: int, /) -> None:
        """Say that it was still so at this time."""
        ...

    def withdraw(self) -> None:
        """Say that this rank goes on."""
        ...

    def circle(self, overlap_ns: int, /) -> list[int]:
        """Return ranks, this one included, that wait for each other and did for so long at a time; else none."""
        ...

    def in_vain(self) -> list[int]:
        """Return the ranks whose waits nobody can end."""
        ...

    def reached(self) -> list[int]:
        """Return the ranks that this one waits for, those that they wait for, and so on."""
        ...

    def condemn(self, ranks: Sequence[int], /) -> None:
        """Tell ranks that their waits are in vain."""
        ...

    @property
    def is_condemned(self) -> bool:
        """Return whether this rank was told that."""
        ...

    def acknowledge(self) -> None:
        """Say that this rank knows."""
        ...

    def have_acknowledged(self, ranks: Sequence[int], /) -> bool:
        """Return whether all of them know."""
        ...

    def spell(self, rank: int, /) -> int:
        """Return the number of a rank's wait, unlike that of its others."""
        ...

    def text(self, rank: int, /) -> bytes:
        """Return what a rank said last: any bytes."""
        ...


# What the same back-end has made.
OwnBank: TypeAlias = Any
OwnLease: TypeAlias = Any
OwnArea: TypeAlias = Any
OwnMembers: TypeAlias = Any
OwnChannel: TypeAlias = Any


class Ranks(Protocol):
    """The verbs, by what they are for."""

    # Whether this process may use devices.

    def check_usable(self) -> None:
        """Raise ``Closed`` in the child of a fork that may use none."""
        ...

    # Lines that several processes have.

    def create_bank(self, lines: int) -> Bank:
        """Return a new bank, all of whose lines are 0; ``OutOfMemory``."""
        ...

    def open_bank(self, offer: Offer, lines: int) -> Bank:
        """Return the bank that another process offers; ``BadHandle`` if it has not so many lines."""
        ...

    # Notifies of the two ends of a channel.

    def lines_of_notifies(self, kind: int, count: int) -> int:
        """Return how many lines so many notifies of a kind take."""
        ...

    def notifies(self, device: Device, kind: int, count: int, bank: OwnBank | None) -> list[Notify]:
        """Return the notifies of one end, in a bank, or of this process alone."""
        ...

    def line(self, device: Device, kind: int, bank: OwnBank, index: int) -> Notify:
        """Return one notify of a bank; closing it leaves the bank as it is."""
        ...

    def record(self, notify: Notify) -> None:
        """Record it now, without asking whether it is open."""
        ...

    def record_on(self, stream: Queue, notify: Notify) -> None:
        """Record it when the stream comes to it, without asking whether the notify is open."""
        ...

    def abandon(self, notify: Notify) -> None:
        """Say that only what is queued already will record it: waits in vain fail with ``PeerLost``."""
        ...

    # Calls of a channel that cost no more than they must.

    def channel_type(self, neutral: type[C]) -> type[C]:
        """Return the class of this back-end's channels: the neutral one, or one of its own that inherits from it.

        What it does faster does what the neutral methods do, errors included.
        """
        ...

    def serve(
        self, channel: OwnChannel, window: Memory | None, incoming: list[Notify], outgoing: list[Notify]
    ) -> None:
        """Let the faster ways serve a new channel; what they need is given, and what is None or empty they leave."""
        ...

    def serve_nothing(self, channel: OwnChannel) -> None:
        """Let all calls of a channel come to the neutral methods."""
        ...

    def put(self, stream: Queue | None, dst: Memory, at: int, src: Memory, /) -> None:
        """Copy all of ``src`` to ``dst`` from byte ``at`` on."""
        ...

    def get(self, stream: Queue | None, dst: Memory, src: Memory, at: int, /) -> None:
        """Copy from byte ``at`` of ``src`` on to all of ``dst``."""
        ...

    def copy_blocks(self, stream: Queue | None, dst: Memory, src: Memory, table: Any, /) -> None:
        """Copy rows of (first byte in ``dst``, first byte in ``src``, bytes), as one operation."""
        ...

    # Memory that is lent.

    def lease(self) -> Lease:
        """Return a lease of this process alone."""
        ...

    def lease_in(self, bank: OwnBank, line: int, number: int) -> Lease:
        """Return the lease of a line, while that has this number."""
        ...

    def name_lease(self, lease: OwnLease, lent: Lent) -> None:
        """Let refusals name what is lent so."""
        ...

    def forget_lease(self, lease: int) -> None:
        """Forget the names of the lease with this number."""
        ...

    # Who of a group lives, and what its ranks wait for.

    def watch(self, bank: OwnBank, others: Sequence[tuple[int, int, int]]) -> Members:
        """Watch processes (rank, pid, start time); rank i records line i of the bank when it leaves."""
        ...

    def end_waits_with(self, members: OwnMembers, bank: OwnBank) -> None:
        """Let waits for notifies of a bank end too when one of these processes is lost."""
        ...

    def lines_of_board(self, ranks: int) -> int:
        """Return how many lines the bank of a group has."""
        ...

    def board(self, bank: OwnBank, rank: int) -> WaitBoard:
        """Return a rank's view of the board that lies behind the first lines of a group's bank."""
        ...

    # What a channel may put off.

    @property
    def is_late(self) -> bool:
        """Return whether what is given to a channel may come later than its stream says (``schedule=seeded``)."""
        ...

    HELD_LINES: int  #: of the bank of a held area
    HELD_ENTRIES: int  #: of a held area

    def held_area(self, bank: OwnBank) -> HeldArea:
        """Return the area of a bank."""
        ...

    def bring(self, bank: OwnBank, held: OwnBank, memories: Sequence[Memory]) -> None:
        """Bring what the other end holds back, for these memories, if its process ends: it records in ``bank``."""
        ...

    def record_held(self, stream: Queue, notify: Notify, area: OwnArea, entry: int) -> None:
        """Record a notify once, whichever of the two processes does it, when the stream comes to it."""
        ...

    def write_word(self, stream: Queue, memory: Memory, value: int, /) -> None:
        """Write 8 bytes when the stream comes to it."""
        ...

    def follow(self, stream: Queue, before: Queue, operations: int) -> None:
        """Let so many operations of a stream come after all that another one was given, unless that fails."""
        ...
