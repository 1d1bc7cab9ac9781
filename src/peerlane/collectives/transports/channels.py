"""Schedules over channels: any algorithm, between ranks of one machine or several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from peerlane.collectives.schedules import operations as ops
from peerlane.memory.copy import copy

if TYPE_CHECKING:
    from peerlane.collectives.call import Call
    from peerlane.collectives.workspace import Workspace
    from peerlane.memory.buffer import Buffer
    from peerlane.streams.event import Event
    from peerlane.streams.stream import Stream

_RECENT = 8  # regions whose buffers are kept
_UNROLLED = 256  # pieces, one of each rank counted, of the longest call whose operations are kept
_LONG = 4 << 20  # bytes; from this size on waits are long too, and a stream waits better than a call


class OverChannels:
    """Carries out a schedule through scratch memory, over the channels of a group.

    Parameters
    ----------
    schedule : callable
        Yields the operations of a plan.
    by_lanes : bool
        Whether its bytes go by lanes, which messages use too: then each pair of ranks compares how many it moves.

    Attributes
    ----------
    schedule : callable
    """

    def __init__(
        self, schedule: Callable[[ops.Plan], Iterator[ops.Operation]], *, by_lanes: bool = False
    ) -> None:
        self.schedule, self._by_lanes = schedule, by_lanes

    def start(self, work: Workspace, call: Call, finish: Callable[[], None]) -> bool:
        """Return False: what peers have to agree on is not written yet."""
        return False

    def run_in_thread(self, work: Workspace, call: Call, before: Sequence[Event]) -> bool:
        """Make a short call in this thread."""
        if call.nbytes >= _LONG:
            return False
        for event in before:
            event.sync()
        self._run(work, call, None)
        return True

    def queue(self, work: Workspace, call: Call, stream: Stream) -> None:
        """Queue a call; peers learn when it is cancelled."""
        self._run(work, call, stream)
        work.end_with(stream, call.root if call.lane else None)

    def _run(self, work: Workspace, call: Call, stream: Stream | None) -> None:
        unrolled = self._unrolled(work, call)
        operations = self.schedule(_plan(work, call)) if unrolled is None else unrolled.operations
        _Run(work, call, stream).all_of(operations)

    def lane_bytes(self, work: Workspace, call: Call) -> ops.Parts | None:
        """Return the bytes that come from each rank by lanes, and go to each; None: none do in any rank."""
        if not self._by_lanes:
            return None
        if (unrolled := self._unrolled(work, call)) is not None:
            return unrolled.lane_bytes
        return ops.lane_bytes(self.schedule(_plan(work, call)), work.size)

    def _unrolled(self, work: Workspace, call: Call) -> ops.Unrolled | None:
        """Return the operations of a short call, or None; those of the newest are kept, as programs repeat calls."""
        if call.nbytes * work.size > _UNROLLED * work.slot:
            return None
        sizes = call.size, call.root, call.parts, call.source_parts
        unrolled = work.newest.get(self)
        if unrolled is None or unrolled.sizes != sizes:
            operations = tuple(self.schedule(_plan(work, call)))
            unrolled = ops.Unrolled(sizes, operations, ops.lane_bytes(operations, work.size))
            work.newest[self] = unrolled
        return unrolled


def _plan(work: Workspace, call: Call) -> ops.Plan:
    parts = call.parts
    if not parts[1]:
        parts = [rank * call.size for rank in range(work.size)], [call.size] * work.size
    source_parts = call.source_parts if call.source_parts[1] else parts
    return ops.Plan(work.rank, work.size, work.slot, work.machines, call.size, call.root, parts, source_parts)


class _Run:
    """Carries out the operations of one call."""

    def __init__(self, work: Workspace, call: Call, stream: Stream | None) -> None:
        self._work, self._call, self._stream = work, call, stream
        self._board, self._lanes = work.board, work.lanes
        self._rounds: dict[int, int] = {}  # the board's numbers of the schedule's rounds
        self._arrived: dict[int, Buffer] = {}
        self._aside: dict[int, list[Event]] = {}
        self._barrier: int | None = None
        self._recent: dict[int, tuple[ops.Region, Buffer]] = {}  # by identity: one region is often used again

    def all_of(self, operations: Iterable[ops.Operation]) -> None:
        for each in operations:
            _DO[type(each)](self, each)

    def _bytes(self, region: ops.Region) -> Buffer:
        first, last = region.first, region.last
        if isinstance(region, ops.Slot):
            return self._board.slot(self._rounds[region.round], region.rank, first, last)
        known = self._recent.get(id(region))
        if known is not None:
            return known[1]
        whole: Buffer | None
        if isinstance(region, ops.Source):
            whole = self._call.src
        elif isinstance(region, ops.Result):
            whole = self._call.dst
        else:
            whole = self._arrived[region.peer]
        assert whole is not None
        if not first and last == whole.size:
            return whole
        part = whole[first:last]
        if len(self._recent) == _RECENT:
            self._recent.clear()
        self._recent[id(region)] = region, part
        return part

    def _begin(self, each: ops.Begin) -> None:
        self._rounds[each.round] = self._board.begin(self._stream)

    def _write(self, each: ops.Write) -> None:
        self._board.write(self._rounds[each.round], each.peer, self._bytes(each.src), each.at, self._stream)

    def _write_and_notify(self, each: ops.WriteAndNotify) -> None:
        self._board.write_and_notify(self._rounds[each.round], each.peer, self._bytes(each.src), self._stream)

    def _notify(self, each: ops.Notify) -> None:
        self._board.notify(self._rounds[each.round], each.peer, each.signal, self._stream)

    def _await(self, each: ops.Await) -> None:
        self._board.wait(self._rounds[each.round], each.peer, each.signal, self._stream)

    def _read(self, each: ops.Read) -> None:
        number, part = self._rounds[each.round], self._bytes(each.dst)
        self._board.read(number, each.peer, each.rank, part, each.at, self._stream)

    def _end(self, each: ops.End) -> None:
        for sent in self._aside.pop(each.round, ()):
            assert self._stream is not None
            self._stream.wait(sent)
        self._board.end(self._rounds.pop(each.round), self._stream)

    def _beside(self, each: ops.Aside) -> None:
        stream = self._stream
        if stream is None or not self._work.sends_aside:
            self.all_of(each.operations)
            return
        sending = self._work.sending()
        sending.wait(stream)
        self._stream = sending
        try:
            self.all_of(each.operations)
        finally:
            self._stream = stream
        self._aside.setdefault(each.round, []).append(sending.record())

    def _send(self, each: ops.Send) -> None:
        self._lanes.send(each.peer, self._bytes(each.src), self._stream)

    def _take(self, each: ops.Take) -> None:
        self._arrived[each.peer] = self._lanes.take(each.peer, self._stream)
        self._recent.clear()  # it may have bytes of the piece before

    def _let_go(self, each: ops.LetGo) -> None:
        del self._arrived[each.peer]
        self._lanes.let_go(each.peer, self._stream)

    def _copy(self, each: ops.Copy) -> None:
        dst, src = self._bytes(each.dst), self._bytes(each.src)
        if dst.address != src.address:
            copy(dst, src, stream=self._stream)

    def _combine(self, each: ops.Combine) -> None:
        assert self._call.operation is not None
        self._call.operation.combine(self._bytes(each.dst), self._bytes(each.src), self._stream)

    def _arrive(self, each: ops.Arrive) -> None:
        if self._barrier is None:
            self._barrier = self._work.next_barrier()
        self._work.channels[each.peer].notify(self._barrier, stream=self._stream)

    def _await_arrival(self, each: ops.AwaitArrival) -> None:
        assert self._barrier is not None
        channel = self._work.channels[each.peer]
        channel.wait(self._barrier, stream=self._stream, timeout=self._work.timeout)


_DO: dict[type, Callable[[_Run, Any], None]] = {
    ops.Begin: _Run._begin,
    ops.Write: _Run._write,
    ops.WriteAndNotify: _Run._write_and_notify,
    ops.Notify: _Run._notify,
    ops.Await: _Run._await,
    ops.Read: _Run._read,
    ops.End: _Run._end,
    ops.Aside: _Run._beside,
    ops.Send: _Run._send,
    ops.Take: _Run._take,
    ops.LetGo: _Run._let_go,
    ops.Copy: _Run._copy,
    ops.Combine: _Run._combine,
    ops.Arrive: _Run._arrive,
    ops.AwaitArrival: _Run._await_arrival,
}
