"""Reductions over several machines: partial results and results cross the network, each once for each machine.

In three stages each rank writes its bytes to those who combine them at its station, combines its own share, and
collects the result.  Machines receive a result in shares, one for each rank, and spread it among themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from peerlane.collectives.pieces import pieces, pipelined
from peerlane.collectives.way_of_piece import Station, Way, meeting, way_of
from peerlane.memory.copy import copy

if TYPE_CHECKING:
    from peerlane.collectives.folding import Operation
    from peerlane.collectives.workspace import Step, Workspace
    from peerlane.memory.buffer import Buffer
    from peerlane.streams.event import Event
    from peerlane.streams.stream import Stream


class Job(NamedTuple):
    """A piece to combine.

    Attributes
    ----------
    src : Buffer
        This rank's bytes.
    dst : Buffer or None
        Receives the result; None where this rank does not want it.
    root : int or None
        The only rank that wants the result; None: all want it.
    """

    src: Buffer
    dst: Buffer | None
    root: int | None


def all_reduce_by_machine(
    work: Workspace, dst: Buffer, src: Buffer, operation: Operation, stream: Stream | None
) -> None:
    """Combine the ``src`` of all ranks into ``dst``."""
    cuts = pieces(src.size, _longest(work))
    _combine(work, [Job(src[first:last], dst[first:last], None) for first, last in cuts], operation, stream)


def reduce_by_machine(
    work: Workspace, dst: Buffer | None, src: Buffer, operation: Operation, root: int, stream: Stream | None
) -> None:
    """Combine the ``src`` of all ranks into the root's ``dst``."""
    cuts = pieces(src.size, _longest(work))
    jobs = [Job(src[first:last], None if dst is None else dst[first:last], root) for first, last in cuts]
    _combine(work, jobs, operation, stream)


def reduce_scatter_by_machine(
    work: Workspace,
    dst: Buffer,
    src: Buffer,
    at: list[int],
    sizes: list[int],
    operation: Operation,
    stream: Stream | None,
) -> None:
    """Combine each part of all ranks' ``src`` into its rank's ``dst``; ``at`` has the offsets of parts in ``src``."""
    cuts = [pieces(nbytes, _longest(work)) for nbytes in sizes]
    jobs = []
    for number in range(max(map(len, cuts))):
        for root in range(work.size):
            if number < len(cuts[root]):
                first, last = cuts[root][number]
                into = dst[first:last] if root == work.rank else None
                jobs.append(Job(src[at[root] + first : at[root] + last], into, root))
    _combine(work, jobs, operation, stream)


def _longest(work: Workspace) -> int:
    """Return the bytes of a piece: no share is longer than a slot."""
    return work.slot * work.machines.fewest


def _combine(work: Workspace, jobs: list[Job], operation: Operation, stream: Stream | None) -> None:
    passing: list[_Passing] = []
    sending = work.sending() if stream is not None and work.sends_aside else None

    def hand_out(number: int) -> None:
        job = jobs[number]
        way = way_of(work.machines, number, 0, job.src.size, job.root)
        passing.append(_Passing(work, work.board.begin(stream), way, job, operation, sending))
        passing[-1].hand_out()

    def combine(number: int) -> None:
        passing[number].combine()

    def collect(number: int) -> None:
        passing[number].collect()
        passing[number].end()

    pipelined(len(jobs), hand_out, combine, collect)


class _Part(NamedTuple):
    """Bytes of a piece in this rank's memory.

    Attributes
    ----------
    first, last : int
    slot : int
        The rank in whose slot they lie.
    begin : int
        The byte of the piece with which the slot begins.
    """

    first: int
    last: int
    slot: int
    begin: int


class _Passing:
    """What this rank does for a piece.

    The slot of a source of this station begins with the first byte of the share that is combined here.  The slot of a
    rank that sends on a partial result, or the result, begins with the first byte of that rank's own share.

    An operation behind one on another machine's memory waits until that machine has answered.  So what is sent on
    goes by a stream of its own, ``sending``.
    """

    def __init__(
        self,
        work: Workspace,
        step: Step,
        way: Way,
        job: Job,
        operation: Operation,
        sending: Stream | None,
    ) -> None:
        self._rank, self._machines = work.rank, work.machines
        self.step, self._way, self._job, self._operation = step, way, job, operation
        self._final = way.stations[-1]
        self._sending = sending
        self._sent: list[Event] = []

    def hand_out(self) -> None:
        """Write this rank's bytes to those who combine them."""
        station = next(each for each in self._way.stations if self._rank in each.sources)
        for peer, (first, last) in station.shares.items():
            if peer != self._rank:
                self.step.write(peer, self._job.src[first:last])

    def combine(self) -> None:
        """Combine this rank's share, if it has one, and send it on."""
        for number, station in enumerate(self._way.stations):
            if self._rank in station.shares:
                self._fold(number, station)
                self._send_on(number)

    def collect(self) -> None:
        """Receive the result for this machine, tell its other ranks, and read what they have received."""
        for peer in self._senders(self._rank):
            self.step.await_result(peer)
        if self._parts_of_result(self._rank):
            for peer in self._machines.beside:
                if self._job.root in (None, peer):
                    self.step.tell_result(peer)
        if self._job.dst is None:
            return
        for part in self._parts_of_result(self._rank):
            copy(self._job.dst[part.first : part.last], self._bytes_of(part), stream=self.step.stream)
        for peer in self._machines.beside:
            parts = self._parts_of_result(peer)
            if parts:
                self.step.await_result(peer)
            for part in parts:
                into = self._job.dst[part.first : part.last]
                self.step.read(peer, part.slot, into, at=part.first - part.begin)

    def end(self) -> None:
        """Let go of the slots, once what was sent on is out of them."""
        for sent in self._sent:
            assert self.step.stream is not None
            self.step.stream.wait(sent)
        self.step.end()

    def _fold(self, number: int, station: Station) -> None:
        """Combine the bytes of a station's ranks, each part in the slot where the first of its bytes lie."""
        begin, _ = station.shares[self._rank]
        parts, sources = self._parts(number, self._rank), station.sources
        for peer in sources:
            if peer != self._rank:
                self.step.await_data(peer)
        for part in parts if number else ():
            self.step.await_data(part.slot)
        for part in parts:
            result = self._bytes_of(part)
            own = self._job.src[part.first : part.last]
            if number == 0 and sources[0] == self._rank:
                copy(result, own, stream=self.step.stream)
            for each in sources if number else sources[1:]:
                there = _Part(part.first, part.last, each, begin)
                other = own if each == self._rank else self._bytes_of(there)
                self._operation.combine(result, other, self.step.stream)

    def _send_on(self, number: int) -> None:
        """Write a partial result to the next station, or the result to its receivers."""
        station, is_final = self._way.stations[number], number + 1 == len(self._way.stations)
        begin, _ = station.shares[self._rank]
        parts, step = self._parts(number, self._rank), self.step
        if self._sending is not None:
            assert self.step.stream is not None
            self._sending.wait(self.step.stream)
            step = self.step.on(self._sending)
        receivers = self._way.receivers if is_final else self._way.stations[number + 1].shares
        for peer, first, last in meeting(receivers, *station.shares[self._rank]):
            for part in parts:
                low, high = max(first, part.first), min(last, part.last)
                if low < high:
                    sent = self._bytes_of(part._replace(first=low, last=high))
                    step.put(peer, sent, low - begin)
            if is_final:
                step.tell_result(peer)
            else:
                step.tell_data(peer)
        if self._sending is not None:
            self._sent.append(self._sending.record())

    def _parts(self, number: int, rank: int) -> list[_Part]:
        """Return the parts in which a rank combines its share at a station: as the partial results come to it."""
        stations = self._way.stations
        first, last = stations[number].shares[rank]
        if number == 0:
            return [_Part(first, last, stations[0].sources[0], first)]
        return self._from(stations[number - 1], first, last)

    def _from(self, station: Station, first: int, last: int) -> list[_Part]:
        return [
            _Part(low, high, peer, station.shares[peer][0])
            for peer, low, high in meeting(station.shares, first, last)
        ]

    def _parts_of_result(self, rank: int) -> list[_Part]:
        """Return the parts of the result that a rank has: it combined them, or receives them for its machine."""
        if rank in self._final.shares:
            return self._parts(len(self._way.stations) - 1, rank)
        if rank in self._way.receivers:
            return self._from(self._final, *self._way.receivers[rank])
        return []

    def _senders(self, rank: int) -> list[int]:
        """Return who sends the result to a rank of another machine."""
        if rank not in self._way.receivers:
            return []
        return [part.slot for part in self._from(self._final, *self._way.receivers[rank])]

    def _bytes_of(self, part: _Part) -> Buffer:
        return self.step.mine(part.slot, part.last - part.begin)[part.first - part.begin :]
