"""Reductions over several machines: partial results and results cross the network, each once for each machine.

In three stages each rank writes its bytes to those who combine them at its station, combines its own share, and
collects the result.  Machines receive a result in shares, one for each rank, and spread it among themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from peerlane.collectives.pieces import pieces, pipelined
from peerlane.collectives.schedules import operations as ops
from peerlane.collectives.schedules.route import Route, Station, meeting, route_of


class _Job(NamedTuple):
    """A piece to combine.

    Attributes
    ----------
    first, last : int
        Its bytes in this rank's source.
    result : int
        Where they begin in the destination of a rank that wants them.
    root : int or None
        The only rank that wants the result; None: all want it.
    """

    first: int
    last: int
    result: int
    root: int | None


def all_reduce_by_machine(plan: ops.Plan) -> Iterator[ops.Operation]:
    """Combine the sources of all ranks in each of them."""
    return _combine(plan, [_Job(*cut, cut[0], None) for cut in pieces(plan.size, _longest(plan))])


def reduce_by_machine(plan: ops.Plan) -> Iterator[ops.Operation]:
    """Combine the sources of all ranks at the root."""
    return _combine(plan, [_Job(*cut, cut[0], plan.root) for cut in pieces(plan.size, _longest(plan))])


def reduce_scatter_by_machine(plan: ops.Plan) -> Iterator[ops.Operation]:
    """Combine each part of the sources of all ranks at the rank that it is for."""
    at, sizes = plan.parts
    cuts = [pieces(nbytes, _longest(plan)) for nbytes in sizes]
    jobs = []
    for number in range(max(map(len, cuts))):
        for root in range(plan.ranks):
            if number < len(cuts[root]):
                first, last = cuts[root][number]
                jobs.append(_Job(at[root] + first, at[root] + last, first, root))
    return _combine(plan, jobs)


def _longest(plan: ops.Plan) -> int:
    """Return the bytes of a piece: no share is longer than a slot."""
    return plan.slot * plan.machines.fewest


def _combine(plan: ops.Plan, jobs: list[_Job]) -> Iterator[ops.Operation]:
    passing: dict[int, _Passing] = {}

    def hand_out(number: int) -> Iterator[ops.Operation]:
        passing[number] = _Passing(plan, number, jobs[number])
        return passing[number].hand_out()

    def combine(number: int) -> Iterator[ops.Operation]:
        return passing[number].combine()

    def collect(number: int) -> Iterator[ops.Operation]:
        return passing.pop(number).collect()

    return pipelined(len(jobs), hand_out, combine, collect)


class _Part(NamedTuple):
    """Bytes of a piece in a slot.

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
    """

    def __init__(self, plan: ops.Plan, number: int, job: _Job) -> None:
        self._rank, self._machines, self._number, self._job = plan.rank, plan.machines, number, job
        self._route: Route = route_of(plan.machines, number, 0, job.last - job.first, job.root)
        self._final = self._route.stations[-1]

    def hand_out(self) -> Iterator[ops.Operation]:
        """Write this rank's bytes to those who combine them."""
        yield ops.Begin(self._number)
        station = next(each for each in self._route.stations if self._rank in each.sources)
        for peer, share in station.shares.items():
            if peer != self._rank:
                yield ops.WriteAndNotify(self._number, peer, self._source(*share))

    def combine(self) -> Iterator[ops.Operation]:
        """Combine this rank's share, if it has one, and send it on."""
        for number, station in enumerate(self._route.stations):
            if self._rank in station.shares:
                yield from self._fold(number, station)
                # What follows an operation on another machine's memory waits until that machine has answered.
                yield ops.Aside(self._number, tuple(self._send_on(number)))

    def collect(self) -> Iterator[ops.Operation]:
        """Receive the result for this machine, tell its other ranks, and read what they have received."""
        number, root = self._number, self._job.root
        for peer in self._senders(self._rank):
            yield ops.Await(number, peer, ops.Signal.RESULT)
        mine = self._parts_of_result(self._rank)
        for peer in self._machines.beside if mine else ():
            if root in (None, peer):
                yield ops.Notify(number, peer, ops.Signal.RESULT)
        if root in (None, self._rank):
            for part in mine:
                yield ops.Copy(self._result(part), self._slot(part))
            for peer in self._machines.beside:
                parts = self._parts_of_result(peer)
                if parts:
                    yield ops.Await(number, peer, ops.Signal.RESULT)
                for part in parts:
                    yield ops.Read(number, peer, part.slot, self._result(part), part.first - part.begin)
        yield ops.End(number)

    def _fold(self, number: int, station: Station) -> Iterator[ops.Operation]:
        """Combine the bytes of a station's ranks, each part in the slot where the first of its bytes lie."""
        begin, _ = station.shares[self._rank]
        parts, sources = self._parts(number, self._rank), station.sources
        for peer in sources:
            if peer != self._rank:
                yield ops.Await(self._number, peer)
        for part in parts if number else ():
            yield ops.Await(self._number, part.slot)
        for part in parts:
            result, own = self._slot(part), self._source(part.first, part.last)
            if number == 0 and sources[0] == self._rank:
                yield ops.Copy(result, own)
            for each in sources if number else sources[1:]:
                other = self._slot(_Part(part.first, part.last, each, begin))
                yield ops.Combine(result, own if each == self._rank else other)

    def _send_on(self, number: int) -> Iterator[ops.Write | ops.Notify]:
        """Write a partial result to the next station, or the result to its receivers."""
        stations = self._route.stations
        station, is_final = stations[number], number + 1 == len(stations)
        begin, _ = station.shares[self._rank]
        parts = self._parts(number, self._rank)
        receivers = self._route.receivers if is_final else stations[number + 1].shares
        for peer, first, last in meeting(receivers, *station.shares[self._rank]):
            for part in parts:
                low, high = max(first, part.first), min(last, part.last)
                if low < high:
                    yield ops.Write(
                        self._number, peer, self._slot(part._replace(first=low, last=high)), low - begin
                    )
            yield ops.Notify(self._number, peer, ops.Signal.RESULT if is_final else ops.Signal.DATA)

    def _parts(self, number: int, rank: int) -> list[_Part]:
        """Return the parts in which a rank combines its share at a station: as the partial results come to it."""
        stations = self._route.stations
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
            return self._parts(len(self._route.stations) - 1, rank)
        if rank in self._route.receivers:
            return self._from(self._final, *self._route.receivers[rank])
        return []

    def _senders(self, rank: int) -> list[int]:
        """Return who sends the result to a rank of another machine."""
        if rank not in self._route.receivers:
            return []
        return [part.slot for part in self._from(self._final, *self._route.receivers[rank])]

    def _source(self, first: int, last: int) -> ops.Source:
        return ops.Source(self._job.first + first, self._job.first + last)

    def _result(self, part: _Part) -> ops.Result:
        return ops.Result(self._job.result + part.first, self._job.result + part.last)

    def _slot(self, part: _Part) -> ops.Slot:
        return ops.Slot(self._number, part.slot, part.first - part.begin, part.last - part.begin)
