"""What schedules are made of: a plan, regions of memory, and the operations of one rank."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from peerlane.collectives.machines import Machines

#: Offsets and bytes, by rank.
Parts: TypeAlias = "tuple[Sequence[int], Sequence[int]]"


class Plan(NamedTuple):
    """What a schedule may know of a call: one rank's view.

    Attributes
    ----------
    rank, ranks : int
        This rank, and how many there are.
    slot : int
        Bytes that one rank can leave in another's memory at a time.
    machines : Machines
        How the ranks lie on machines.
    size : int
        Bytes of the whole, or of one rank's part.
    root : int
        Or the peer of a message.
    parts : Parts
        The ranks' parts of the destination, or of the only side that has parts.
    source_parts : Parts
        The ranks' parts of the source in an all-to-all.
    """

    rank: int
    ranks: int
    slot: int
    machines: Machines
    size: int = 0
    root: int = 0
    parts: Parts = ((), ())
    source_parts: Parts = ((), ())

    @property
    def others(self) -> list[int]:
        """Return the other ranks in cyclic order, from the one after this, so that not all begin with the same."""
        return [(self.rank + step) % self.ranks for step in range(1, self.ranks)]


class Source(NamedTuple):
    """Bytes of this rank's source."""

    first: int
    last: int


class Result(NamedTuple):
    """Bytes of this rank's destination."""

    first: int
    last: int


class Slot(NamedTuple):
    """Bytes of the slot of a rank, in this rank's memory, in a round."""

    round: int
    rank: int
    first: int
    last: int


class Arrived(NamedTuple):
    """Bytes of the piece that was taken last from a peer's lane."""

    peer: int
    first: int
    last: int


Region: TypeAlias = Source | Result | Slot | Arrived


class Signal(enum.Enum):
    """What a rank tells a peer in a round; each once."""

    DATA = 0
    RESULT = 1


# Rounds: each rank has a slot in the memory of each.  A rank may write to its slot in a peer's memory and to all
# slots of its own.  It ends a round when it needs no slot of it any more; once all have done so, the slots are used
# again.  At most three rounds are under way, in order.


class Begin(NamedTuple):
    """Begin a round, once its slots are free at all ranks.  Rounds are counted from 0."""

    round: int


class Write(NamedTuple):
    """Write to this rank's slot in a peer's memory, from byte ``at`` on."""

    round: int
    peer: int
    src: Region
    at: int = 0


class Notify(NamedTuple):
    """Notify a peer of what was written before."""

    round: int
    peer: int
    signal: Signal = Signal.DATA


class Await(NamedTuple):
    """Wait until a peer tells it."""

    round: int
    peer: int
    signal: Signal = Signal.DATA


class WriteAndNotify(NamedTuple):
    """:class:`Write` from byte 0 on, and :class:`Notify` of data."""

    round: int
    peer: int
    src: Region


class Read(NamedTuple):
    """Read the slot of ``rank`` in a peer's memory, from byte ``at`` on."""

    round: int
    peer: int
    rank: int
    dst: Region
    at: int = 0


class End(NamedTuple):
    """Let all ranks use the slots of a round again."""

    round: int


class Aside(NamedTuple):
    """Operations that later ones need not wait for, until the round ends."""

    round: int
    operations: tuple[Write | Notify, ...]


# Lanes: queues of pieces from each rank to each other one.  Both ends must move pieces of the same sizes in the same
# order.  A sender can be three pieces ahead of the receiver, and waits then.


class Send(NamedTuple):
    """Send a piece of at most a slot to a peer, once there is room for it."""

    peer: int
    src: Region


class Take(NamedTuple):
    """Wait for the next piece from a peer: it is ``Arrived`` then."""

    peer: int
    nbytes: int


class LetGo(NamedTuple):
    """Let the peer use the room of the piece that was taken last again."""

    peer: int


class Copy(NamedTuple):
    """Copy in this rank's memory; nothing happens if both are the same bytes."""

    dst: Region
    src: Region


class Combine(NamedTuple):
    """Combine ``src`` into ``dst``."""

    dst: Region
    src: Region


class Arrive(NamedTuple):
    """Tell a peer that this rank has come to the barrier."""

    peer: int


class AwaitArrival(NamedTuple):
    """Wait until a peer has come to the barrier."""

    peer: int


Operation: TypeAlias = (
    Begin
    | Write
    | Notify
    | Await
    | WriteAndNotify
    | Read
    | End
    | Aside
    | Send
    | Take
    | LetGo
    | Copy
    | Combine
    | Arrive
    | AwaitArrival
)


def folded(plan: Plan, round: int, own: Region) -> Iterator[Operation]:
    """Combine what all ranks have written to their slots with this rank's own bytes, in the slot of rank 0.

    Always in the order of ranks, so that floating point gives the same bits with every algorithm.
    """
    nbytes = own.last - own.first
    result = Slot(round, 0, 0, nbytes)
    if plan.rank == 0:
        yield Copy(result, own)
    for each in range(1, plan.ranks):
        yield Combine(result, own if each == plan.rank else Slot(round, each, 0, nbytes))


class Unrolled(NamedTuple):
    """All operations of a call of one rank.

    Attributes
    ----------
    sizes : object
        What they depend on, besides the group.
    operations : tuple of Operation
    lane_bytes : Parts
        Of :func:`lane_bytes`.
    """

    sizes: object
    operations: tuple[Operation, ...]
    lane_bytes: Parts


def lane_bytes(operations: Iterable[Operation], ranks: int) -> Parts:
    """Return the bytes that come from each rank by lanes, and go to each."""
    takes, gives = [0] * ranks, [0] * ranks
    for each in operations:
        if isinstance(each, Send):
            gives[each.peer] += each.src.last - each.src.first
        elif isinstance(each, Take):
            takes[each.peer] += each.nbytes
    return takes, gives
