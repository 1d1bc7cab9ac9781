"""The vocabulary of schedules: the plan of a call, regions of memory, and the operations of one rank."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from peerlane.collectives.machines import Machines

#: Offsets and bytes, by rank.
Parts: TypeAlias = "tuple[Sequence[int], Sequence[int]]"


class Plan(NamedTuple):
    """A call as one rank knows it; a schedule gets nothing else.

    Attributes
    ----------
    rank, ranks : int
        This rank, and the number of ranks.
    slot : int
        Bytes of a slot.
    machines : Machines
        Which ranks are on which machine.
    size : int
        Bytes of the whole, or of one rank's part if there are parts.
    root : int
        The root of the collective, or the peer of a message.
    parts : Parts
        The ranks' parts of the destination, or of the source if it alone has parts.
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
    """The meaning of a notify to a peer; a rank sends each at most once in a round."""

    DATA = 0
    RESULT = 1


# Rounds: in the memory of each rank there is a slot for each rank.  A rank may write to its slot in a peer's memory,
# and to all slots in its own.  It ends a round when it needs no slot of it any more.  Once all ranks have done so,
# later rounds use the slots again.  At most three rounds are under way, in order.


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
    """Notify a peer; it then sees the bytes that this rank wrote to its memory before."""

    round: int
    peer: int
    signal: Signal = Signal.DATA


class Await(NamedTuple):
    """Wait for a peer's notify."""

    round: int
    peer: int
    signal: Signal = Signal.DATA


class WriteAndNotify(NamedTuple):
    """:class:`Write` from byte 0 on, then :class:`Notify` with ``Signal.DATA``."""

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
    """End a round: this rank needs none of its slots any more."""

    round: int


class Aside(NamedTuple):
    """Operations that run beside the later ones; the end of the round waits for them."""

    round: int
    operations: tuple[Write | Notify, ...]


# Lanes: queues of pieces from each rank to each other one.  Both ends must move pieces of the same sizes in the same
# order.  A sender can be three pieces ahead of the receiver, and waits then.


class Send(NamedTuple):
    """Send a piece of at most a slot to a peer, once there is room for it."""

    peer: int
    src: Region


class Take(NamedTuple):
    """Wait for the next piece from a peer; ``Arrived`` then names its bytes."""

    peer: int
    nbytes: int


class LetGo(NamedTuple):
    """Give the room of the piece that was taken last back to the peer."""

    peer: int


class Copy(NamedTuple):
    """Copy in this rank's memory, unless both are the same bytes."""

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
    """All operations of one rank in a call.

    Attributes
    ----------
    sizes : object
        The call's sizes, root and parts: with the group they determine the operations.
    operations : tuple of Operation
    lane_bytes : Parts
        Of :func:`lane_bytes`.
    """

    sizes: object
    operations: tuple[Operation, ...]
    lane_bytes: Parts


def lane_bytes(operations: Iterable[Operation], ranks: int) -> Parts:
    """Return how many bytes come by lanes from each rank, and how many go to each."""
    takes, gives = [0] * ranks, [0] * ranks
    for each in operations:
        if isinstance(each, Send):
            gives[each.peer] += each.src.last - each.src.first
        elif isinstance(each, Take):
            takes[each.peer] += each.nbytes
    return takes, gives
