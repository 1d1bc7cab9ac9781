"""The owner's side of the deliveries: a broadcast of the weights to the workers, and an all-gather of their parts."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import peerlane as pl
from peerlane.cli.demo import rank, transfer, worker
from peerlane.cli.demo.transfer import Advance, Replica
from peerlane.cli.demo.workers import Team, differing

ROUNDS = 3

Begin = Callable[[str], Advance]
Check = Callable[[Replica, Sequence[str]], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Delivery:
    """A collective by which each process got its own copy of the weights, and its figures.

    Attributes
    ----------
    name : str
    ranks : int
        The number of processes, the owner included.
    nbytes : int
        The bytes that all ranks together got from other ranks.
    seconds : float
        From the first rank's call to the last rank's end, median over the rounds.
    ratio : float
        Speed relative to one thread's memcpy of as many bytes, median of the rounds' ratios.
    mismatched : dict of str to tuple of str
        By process, the tensors whose digest differed from the owner's after the last round.
    """

    name: str
    ranks: int
    nbytes: int
    seconds: float
    ratio: float
    mismatched: dict[str, tuple[str, ...]]

    @property
    def rate(self) -> float:
        """Bytes per nanosecond, which is GB/s."""
        return self.nbytes / self.seconds / 1e9


class Ranks:
    """The ranks of the deliveries: the owner is rank 0, and each worker is one rank.

    Parameters
    ----------
    team : Team
    owned : Replica
        The weights, at their places from the start of ``whole``.
    whole : Buffer
        The owner's memory that contains them.
    memcpy : callable
        Returns the seconds of one thread's memcpy of all tensors.
    stack : ExitStack
        Owns the owner's rank.
    """

    def __init__(
        self,
        team: Team,
        owned: Replica,
        whole: pl.Buffer,
        memcpy: Callable[[], float],
        stack: ExitStack,
    ) -> None:
        self._team, self._tensors, self._memcpy = team, owned.tensors, memcpy
        self._places = transfer.places(owned.tensors)
        self._weights = whole[: transfer.packed_bytes(owned.tensors)]
        self.count = 1 + len(team.names)
        team.invite(self.count, self._weights.size)
        self._own = rank.Rank(rank.ROOT, self.count, team.exchange, self._weights.size, stack, owned.device)
        team.have_come()
        self._target = transfer.replica_at(self._own.whole, owned.device, owned.tensors)

    def broadcast(self, digests: Sequence[str], begin: Begin) -> Delivery:
        """Bring the owner's weights to all workers."""
        moved = self._weights.size * (self.count - 1)
        seconds, ratios = self._rounds(
            worker.BROADCAST, moved, lambda: self._own.broadcast(self._weights), begin
        )
        wrong = self._differing(digests, begin)
        return Delivery(worker.BROADCAST, self.count, moved, seconds, ratios, wrong)

    def gather(self, digests: Sequence[str], read_back: Check, begin: Begin) -> Delivery:
        """Let each rank keep one part and get all others by an all-gather."""
        pl.copy(self._own.whole[: self._weights.size], self._weights)
        moved = self._own.whole.size * (self.count - 1)
        seconds, ratios = self._rounds(worker.ALL_GATHER, moved, self._own.gather, begin)
        wrong = {"owner": read_back(self._target, digests), **self._differing(digests, begin)}
        return Delivery(worker.ALL_GATHER, self.count, moved, seconds, ratios, wrong)

    def _rounds(
        self, name: str, moved: int, own: Callable[[], rank.Span], begin: Begin
    ) -> tuple[float, float]:
        """Return the median seconds, and the median of each round's speed relative to memcpy."""
        advance = begin(f"{name} to {self.count - 1} workers")
        seconds, ratios = [], []
        for _ in range(ROUNDS):
            reference = self._memcpy() * moved / self._weights.size
            self._team.begin(name)
            spans = [own(), *self._team.ended(self._own.seconds)]
            seconds.append(max(end for _, end in spans) - min(start for start, _ in spans))
            ratios.append(reference / seconds[-1])
            advance(self._weights.size)
        return statistics.median(seconds), statistics.median(ratios)

    def _differing(self, digests: Sequence[str], begin: Begin) -> dict[str, tuple[str, ...]]:
        found = self._team.digests(self._places, begin("verify in the workers"), arrived=True)
        return {
            name: differing(self._tensors, digests, each)
            for name, each in zip(self._team.names, found, strict=True)
        }


def deliver(
    team: Team,
    owned: Replica,
    whole: pl.Buffer,
    digests: Sequence[str],
    memcpy: Callable[[], float],
    read_back: Check,
    begin: Begin,
) -> list[Delivery]:
    """Broadcast the weights to the workers, then all-gather them; each process verifies its copy after each.

    Parameters
    ----------
    digests : sequence of str
        The right digest of each tensor.
    read_back : callable
        Returns the tensors of the owner that differ from given digests.

    The other parameters are those of :class:`Ranks`.

    Raises
    ------
    Error
        A rank died, did not answer in time, or raised an error.
    """
    begin("let the ranks meet")
    with team.blamed(), ExitStack() as stack:
        ranks = Ranks(team, owned, whole, memcpy, stack)
        return [ranks.broadcast(digests, begin), ranks.gather(digests, read_back, begin)]
