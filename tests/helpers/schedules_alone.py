"""Runs the schedules of all ranks in one thread, without processes, channels or devices."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from peerlane.collectives.machines import Machines
from peerlane.collectives.schedules import operations as ops
from peerlane.collectives.slots import DEPTH

Schedule = Callable[[ops.Plan], Iterator[ops.Operation]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass
class Rank:
    """One rank: its memory, and how far it is."""

    plan: ops.Plan
    src: Bytes
    dst: Bytes
    slots: Bytes  # by turn and rank
    operations: Iterator[ops.Operation]
    next: ops.Operation | None = None
    ended: int = 0  # rounds
    arrived: dict[int, Bytes] = field(default_factory=dict)


class Together:
    """All ranks of one call.

    Parameters
    ----------
    schedule : callable
    plans : list of Plan
    src, dst : list of bytes
        By rank; ``dst`` receives the results.
    dtype : str
        Of the elements that are summed.
    """

    def __init__(
        self,
        schedule: Schedule,
        plans: list[ops.Plan],
        src: list[Bytes],
        dst: list[Bytes],
        dtype: str = "uint8",
    ) -> None:
        count, slot = len(plans), plans[0].slot
        self.dtype = dtype
        self.ranks = [
            Rank(plan, src[rank], dst[rank], np.full((DEPTH, count, slot), 0xEE, np.uint8), schedule(plan))
            for rank, plan in enumerate(plans)
        ]
        self.recorded: dict[
            tuple[int, int, Any, int], int
        ] = {}  # from, to, signal, turn: records nobody waited for
        self.lanes: dict[tuple[int, int], list[Bytes]] = {}
        self.untaken: dict[tuple[int, int], int] = {}
        self.met: dict[tuple[int, int], int] = {}
        for each in self.ranks:
            each.next = next(each.operations, None)

    def run(self, drawn: random.Random) -> None:
        """Let ranks go on in a drawn order; AssertionError if all that are left wait."""
        while left := [rank for rank, each in enumerate(self.ranks) if each.next is not None]:
            drawn.shuffle(left)
            eager = drawn.random() < 0.5  # else one operation each
            moved = False
            for rank in left:
                while self._step(rank):
                    moved = True
                    if not eager:
                        break
            waits = {rank: self.ranks[rank].next for rank in left}
            assert moved, f"nobody sends what these ranks wait for: {waits}"
        left_over = {what: count for what, count in self.recorded.items() if count}
        assert not left_over, f"nobody waits for {left_over}"
        assert not any(self.lanes.values())

    def _step(self, rank: int) -> bool:
        each = self.ranks[rank]
        if each.next is None or not self._do(rank, each.next):
            return False
        each.next = next(each.operations, None)
        return True

    def _bytes(self, rank: int, region: ops.Region) -> Bytes:
        mine = self.ranks[rank]
        match region:
            case ops.Source(first, last):
                whole = mine.src
            case ops.Result(first, last):
                whole = mine.dst
            case ops.Slot(number, of, first, last):
                assert number >= mine.ended, f"rank {rank} uses a slot of round {number}, which it has ended"
                whole = mine.slots[number % DEPTH, of]
            case ops.Arrived(peer, first, last):
                whole = mine.arrived[peer]
        assert 0 <= first <= last <= len(whole), f"{region} is outside of {len(whole)} bytes"
        return whole[first:last]

    def _do(self, rank: int, each: ops.Operation) -> bool:
        """Do an operation; False: it has to wait."""
        mine = self.ranks[rank]
        match each:
            case ops.Begin(number):
                return all(other.ended > number - DEPTH for other in self.ranks)
            case ops.End(number):
                assert number == mine.ended
                mine.ended += 1
            case ops.Write(number, peer, src, at):
                self._write(rank, number, peer, src, at)
            case ops.WriteAndNotify(number, peer, src):
                self._write(rank, number, peer, src, 0)
                self._record(rank, peer, ops.Signal.DATA, number)
            case ops.Notify(number, peer, signal):
                self._record(rank, peer, signal, number)
            case ops.Await(number, peer, signal):
                key = (peer, rank, signal, number % DEPTH)
                if not self.recorded.get(key):
                    return False
                self.recorded[key] -= 1
            case ops.Read(number, peer, of, dst, at):
                into = self._bytes(rank, dst)
                assert mine.ended <= number, f"rank {rank} reads round {number}, which it has ended"
                into[:] = self.ranks[peer].slots[number % DEPTH, of][at : at + len(into)]
            case ops.Aside(_, operations):
                assert all(self._do(rank, one) for one in operations)
            case ops.Send(peer, src):
                lane = self.lanes.setdefault((rank, peer), [])
                if len(lane) + self.untaken.get((rank, peer), 0) >= DEPTH:
                    return False
                lane.append(self._bytes(rank, src).copy())
            case ops.Take(peer, nbytes):
                if not self.lanes.get((peer, rank)):
                    return False
                piece = self.lanes[peer, rank].pop(0)
                assert len(piece) == nbytes
                assert peer not in mine.arrived
                self.untaken[peer, rank] = 1
                mine.arrived[peer] = piece
            case ops.LetGo(peer):
                del mine.arrived[peer]
                self.untaken[peer, rank] = 0
            case ops.Copy(dst, src):
                self._bytes(rank, dst)[:] = self._bytes(rank, src)
            case ops.Combine(dst, src):
                into = self._bytes(rank, dst).view(self.dtype)
                into += self._bytes(rank, src).view(self.dtype)
            case ops.Arrive(peer):
                self.met[rank, peer] = 1
            case ops.AwaitArrival(peer):
                return (peer, rank) in self.met
        return True

    def _write(self, rank: int, number: int, peer: int, src: ops.Region, at: int) -> None:
        part = self._bytes(rank, src)
        assert at + len(part) <= self.ranks[peer].plan.slot
        assert all(other.ended > number - DEPTH for other in self.ranks)
        self.ranks[peer].slots[number % DEPTH, rank][at : at + len(part)] = part

    def _record(self, rank: int, peer: int, signal: ops.Signal, number: int) -> None:
        key = (rank, peer, signal, number % DEPTH)
        assert not self.recorded.get(key), f"rank {peer} has not waited for the last {key}"
        self.recorded[key] = 1


def plans(placed: str, slot: int, **details: Any) -> list[ops.Plan]:
    """Return the plans of ranks that lie on the machines that the letters name."""
    return [
        ops.Plan(rank, len(placed), slot, Machines(rank, placed), **details) for rank in range(len(placed))
    ]
