"""Slots of scratch memory: each rank has some in the memory of each, for rounds of all ranks and for lanes of two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from peerlane.collectives.peer_channels import Channels
    from peerlane.collectives.schedules.operations import Signal
    from peerlane.memory.buffer import Buffer
    from peerlane.streams.stream import Stream

DEPTH = 3  # rounds or pieces under way at a time: as many as the longest pipeline has stages

#: Indices of the notifies of each channel.  A record is made only when the last one is known to be consumed.
_DONE = 2 * DEPTH  # before it: a signal of each kind for each round under way
_SENT, _TAKEN = 4 * DEPTH, 5 * DEPTH
NOTIFIES = 6 * DEPTH


class Scratch(Protocol):
    """What has the slots: the workspace of a group."""

    rank: int
    size: int
    slot: int
    timeout: float | None
    channels: Channels


class _Slots(dict[tuple[int, int], "Buffer"]):
    """The slots of an area, by rank and number modulo ``DEPTH``; each is cut when it is first used.

    ``nbytes``: of a slot.
    """

    def __init__(self, memory: Buffer, nbytes: int) -> None:
        super().__init__()
        self._memory, self._nbytes = memory, nbytes

    def __missing__(self, of: tuple[int, int]) -> Buffer:
        rank, index = of
        at = (rank * DEPTH + index) * self._nbytes
        slot = self[of] = self._memory[at : at + self._nbytes]
        return slot


class Board:
    """Rounds that all ranks take together: in each, a rank has one slot in the memory of each.

    A rank that begins a round knows only that the others have begun the round ``DEPTH`` before it, and so have
    consumed the records of ``2 * DEPTH`` rounds ago.  For that the end of a round has ``2 * DEPTH`` notifies.
    """

    def __init__(self, work: Scratch, memory: Buffer) -> None:
        self._work, self._slots, self._begun = work, _Slots(memory, work.slot), 0
        self._newest: dict[
            tuple[int, int], tuple[int, int, Buffer]
        ] = {}  # by rank and index: a part of the slot

    def begin(self, stream: Stream | None) -> int:
        """Begin the next round, once its slots are free everywhere; return its number."""
        number = self._begun
        self._begun += 1
        if number >= DEPTH:
            done = _DONE + (number - DEPTH) % (2 * DEPTH)
            for channel in self._work.channels.everyone():
                channel.wait(done, stream=stream, timeout=self._work.timeout)
        return number

    def slot(self, number: int, rank: int, first: int, last: int) -> Buffer:
        """Return bytes of the slot of a rank in this one's memory; the newest part is kept, as calls repeat."""
        index = number % DEPTH
        newest = self._newest.get((rank, index))
        if newest is not None and newest[0] == first and newest[1] == last:
            return newest[2]
        part = self._slots[rank, index][first:last]
        self._newest[rank, index] = first, last, part
        return part

    def _at(self, number: int, rank: int) -> int:
        return (rank * DEPTH + number % DEPTH) * self._work.slot

    def write(self, number: int, peer: int, part: Buffer, at: int, stream: Stream | None) -> None:
        """Write to this rank's slot in a peer's memory, from byte ``at`` on."""
        start = self._at(number, self._work.rank)
        self._work.channels[peer].write(part, at=start + at, stream=stream)

    def write_and_notify(self, number: int, peer: int, part: Buffer, stream: Stream | None) -> None:
        """Write to this rank's slot in a peer's memory, and tell the peer that data is there."""
        at = self._at(number, self._work.rank)
        self._work.channels[peer].write(part, at=at, notify=number % DEPTH, stream=stream)

    def read(self, number: int, peer: int, rank: int, part: Buffer, at: int, stream: Stream | None) -> None:
        """Read a rank's slot in a peer's memory, from byte ``at`` on."""
        self._work.channels[peer].read(part, at=self._at(number, rank) + at, stream=stream)

    def notify(self, number: int, peer: int, signal: Signal, stream: Stream | None) -> None:
        """Tell a peer what was written before."""
        self._work.channels[peer].notify(signal.value * DEPTH + number % DEPTH, stream=stream)

    def wait(self, number: int, peer: int, signal: Signal, stream: Stream | None) -> None:
        """Wait until a peer tells it."""
        notify = signal.value * DEPTH + number % DEPTH
        self._work.channels[peer].wait(notify, stream=stream, timeout=self._work.timeout)

    def end(self, number: int, stream: Stream | None) -> None:
        """Tell all ranks that this one needs no slot of the round any more."""
        done = _DONE + number % (2 * DEPTH)
        for channel in self._work.channels.everyone():
            channel.notify(done, stream=stream)


class Lanes:
    """Lanes from each rank to each other one: ``DEPTH`` slots in the receiver's memory, used in turns.

    The two ends of a lane must move pieces of the same sizes in the same order; lanes know nothing of each other.
    """

    def __init__(self, work: Scratch, memory: Buffer, start: int) -> None:
        self._work, self._slots, self._start = work, _Slots(memory, work.slot), start
        self._sent, self._taken = [0] * work.size, [0] * work.size

    def send(self, peer: int, part: Buffer, stream: Stream | None) -> None:
        """Send a piece of at most a slot, once there is room for it."""
        number, channel = self._sent[peer], self._work.channels[peer]
        self._sent[peer] = number + 1
        index = number % DEPTH
        if number >= DEPTH:
            channel.wait(_TAKEN + index, stream=stream, timeout=self._work.timeout)
        at = self._start + (self._work.rank * DEPTH + index) * self._work.slot
        channel.write(part, at=at, notify=_SENT + index, stream=stream)

    def take(self, peer: int, stream: Stream | None) -> Buffer:
        """Wait for the next piece and return its slot; call :meth:`let_go` before the next call."""
        number = self._taken[peer]
        self._taken[peer] = number + 1
        index = number % DEPTH
        self._work.channels[peer].wait(_SENT + index, stream=stream, timeout=self._work.timeout)
        return self._slots[peer, index]

    def let_go(self, peer: int, stream: Stream | None) -> None:
        """Let the sender use the slot of the last taken piece again."""
        self._work.channels[peer].notify(_TAKEN + (self._taken[peer] - 1) % DEPTH, stream=stream)
