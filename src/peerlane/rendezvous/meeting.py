"""The state of a rendezvous: values, ranks, and who waits for what.  No sockets, no threads."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from peerlane.rendezvous.frames import Operation, Status

STORE_BYTES = 64 << 20
_ENTRY_BYTES = 512  # charged for an entry besides its key and value

_MOST_NAMED = 8

REPORT_KEY = "peerlane.report."  #: what the ranks let their launcher show has a key that begins so
LAUNCHED = "PEERLANE_LAUNCHED"  #: in the environment of ranks: the address of the launcher that shows it


class Waiter(Protocol):
    """A request that may have to wait."""

    operation: Operation
    rank: int
    key: str
    value: bytes

    def answer(self, status: Status, values: Sequence[bytes]) -> None:
        """End the request; called once, unless it is withdrawn."""


class _Presence(enum.Enum):
    EXPECTED = enum.auto()
    ENDED = enum.auto()
    LOST = enum.auto()


@dataclass
class _Rank:
    presence: _Presence = _Presence.EXPECTED
    fate: str = ""
    charged: int = 0
    has_left: bool = False  # and may come again


_Round: TypeAlias = "dict[int, Waiter]"  # one barrier or gather: the ranks that have come


def cost(key: str, nbytes: int) -> int:
    """Return the bytes that a value is charged with."""
    return len(key.encode()) + nbytes + _ENTRY_BYTES


class Meeting:
    """Values by key, and the waits of ``size`` ranks.

    Parameters
    ----------
    size : int
        The number of ranks.

    Attributes
    ----------
    on_report : callable, optional
        Called with what is put under a key that begins with ``REPORT_KEY``, for the first time.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.on_report: Callable[[bytes], None] | None = None
        self._ranks = [_Rank() for _ in range(size)]
        self._values: dict[str, tuple[int, bytes]] = {}
        self._wanted: dict[str, list[Waiter]] = {}
        self._rounds: dict[tuple[Operation, str], _Round] = {}
        self._when_left: list[Callable[[], None]] = []

    def charge(self, rank: int, nbytes: int) -> bool:
        """Charge a rank, or return False if it has no room left; a negative number gives back."""
        if self._ranks[rank].charged + nbytes > STORE_BYTES:
            return False
        self._ranks[rank].charged += nbytes
        return True

    def open(self, rank: int) -> str:
        """Let a process be this rank, or return why it cannot."""
        one = self._ranks[rank]
        if one.presence is _Presence.LOST:
            return f"{one.fate} and stays lost; start all ranks anew with a new rendezvous"
        one.presence, one.has_left = _Presence.EXPECTED, False
        return ""

    def put(self, rank: int, key: str, value: bytes) -> None:
        """Keep a value, charged already, and answer who waits for it."""
        if key in self._values:
            owner, old = self._values[key]
            self.charge(owner, -cost(key, len(old)))
        elif self.on_report is not None and key.startswith(REPORT_KEY):
            self.on_report(value)
        self._values[key] = rank, value
        for waiter in self._wanted.pop(key, ()):
            waiter.answer(Status.OK, [value])

    def get(self, waiter: Waiter) -> None:
        """Answer with the value of a key, now or when it is there."""
        if waiter.key in self._values:
            waiter.answer(Status.OK, [self._values[waiter.key][1]])
        elif fate := self._lost() or self._has_left(waiter) or self._left_alone(waiter):
            waiter.answer(Status.LOST, [f"{fate}; {waiter.key!r} is not there".encode()])
        else:
            self._wanted.setdefault(waiter.key, []).append(waiter)

    def meet(self, waiter: Waiter) -> None:
        """Let a rank come to a barrier or a gather, whose last rank answers for all."""
        place = waiter.operation, waiter.key
        one = self._rounds.setdefault(place, {})
        if waiter.rank in one:
            self._give_back(waiter)
            text = f"rank {waiter.rank} is waiting there already, in another thread or process"
            waiter.answer(Status.BUSY, [text.encode()])
            return
        one[waiter.rank] = waiter
        if len(one) == self.size:
            del self._rounds[place]
            self._end(one, Status.OK, [one[rank].value for rank in range(self.size)])
        elif fate := self._lost() or self._ended_without(one):
            self.withdraw(waiter)
            waiter.answer(Status.LOST, [fate.encode()])

    def _end(self, one: _Round, status: Status, values: list[bytes]) -> None:
        for waiter in one.values():
            self._give_back(waiter)
            waiter.answer(status, values if waiter.operation is Operation.GATHER or status else [])

    def _give_back(self, waiter: Waiter) -> None:
        if waiter.operation is Operation.GATHER:
            self.charge(waiter.rank, -cost(waiter.key, len(waiter.value)))

    def withdraw(self, waiter: Waiter) -> None:
        """Forget a waiter: its time is over, or it has gone."""
        if waiter.operation is Operation.GET:
            waiting = self._wanted.get(waiter.key, [])
            if waiter in waiting:
                waiting.remove(waiter)
            if not waiting:
                self._wanted.pop(waiter.key, None)
            return
        place = waiter.operation, waiter.key
        one = self._rounds.get(place)
        if one is not None and one.get(waiter.rank) is waiter:
            del one[waiter.rank]
            self._give_back(waiter)
            if not one:
                del self._rounds[place]

    def missing(self, waiter: Waiter) -> str:
        """Say what a waiter still waits for."""
        if waiter.operation is Operation.GET:
            return f"nobody has put {waiter.key!r}"
        present = self._rounds[waiter.operation, waiter.key]
        absent = [rank for rank in range(self.size) if rank not in present]
        return f"{_named(absent)} of {self.size} did not come to {waiter.key!r}"

    def end(self, rank: int, fate: str) -> None:
        """Note that a rank has ended as it should: who waits for it, or is left alone, fails."""
        one = self._ranks[rank]
        if one.presence is _Presence.LOST:
            return
        one.presence, one.fate = _Presence.ENDED, fate
        self._tell_if_left()
        for place, waits in list(self._rounds.items()):
            if rank not in waits:
                del self._rounds[place]
                self._end(waits, Status.LOST, [fate.encode()])
        for key, waiting in list(self._wanted.items()):
            for waiter in [waiter for waiter in waiting if self._left_alone(waiter)]:
                self.withdraw(waiter)
                text = f"{self._left_alone(waiter)}; {key!r} is not there"
                waiter.answer(Status.LOST, [text.encode()])

    def leave(self, rank: int) -> None:
        """Note that nobody has the rendezvous open as this rank: its own waits for values fail; it may come again."""
        self._ranks[rank].has_left = True
        for key, waiting in list(self._wanted.items()):
            for waiter in [waiter for waiter in waiting if waiter.rank == rank]:
                self.withdraw(waiter)
                waiter.answer(Status.LOST, [f"{self._has_left(waiter)}; {key!r} is not there".encode()])
        self._tell_if_left()

    def lose(self, rank: int, fate: str) -> None:
        """Note that a rank was lost: all who wait fail."""
        self._ranks[rank].presence, self._ranks[rank].fate = _Presence.LOST, fate
        self._tell_if_left()
        rounds, self._rounds = self._rounds, {}
        wanted, self._wanted = self._wanted, {}
        for one in rounds.values():
            self._end(one, Status.LOST, [fate.encode()])
        for waiter in (waiter for waiting in wanted.values() for waiter in waiting):
            waiter.answer(Status.LOST, [fate.encode()])

    def when_left(self, told: Callable[[], None]) -> None:
        """Call ``told`` once every rank was here, and has closed or ended."""
        self._when_left.append(told)
        self._tell_if_left()

    def _tell_if_left(self) -> None:
        if all(one.has_left or one.presence is not _Presence.EXPECTED for one in self._ranks):
            told, self._when_left = self._when_left, []
            for each in told:
                each()

    def _lost(self) -> str:
        return next((one.fate for one in self._ranks if one.presence is _Presence.LOST), "")

    def _has_left(self, waiter: Waiter) -> str:
        """Return a text if the waiter's own rank has closed the rendezvous."""
        has_left = self._ranks[waiter.rank].has_left
        return f"rank {waiter.rank} closed this rendezvous meanwhile" if has_left else ""

    def _ended_without(self, one: _Round) -> str:
        ended = (rank for rank, it in enumerate(self._ranks) if it.presence is _Presence.ENDED)
        return next((self._ranks[rank].fate for rank in ended if rank not in one), "")

    def _left_alone(self, waiter: Waiter) -> str:
        """Return a text if nobody but the waiter's own rank is left to put what it waits for."""
        others = [one for rank, one in enumerate(self._ranks) if rank != waiter.rank]
        if not others or any(one.presence is _Presence.EXPECTED for one in others):
            return ""
        return others[0].fate if len(others) == 1 else f"{others[0].fate}, and so have all others"


def _named(ranks: Iterable[int]) -> str:
    numbers = [str(rank) for rank in ranks]
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    more = len(numbers) - _MOST_NAMED
    shown = numbers if more <= 0 else [*numbers[:_MOST_NAMED], f"{more} more"]
    return f"ranks {', '.join(shown[:-1])} and {shown[-1]}"
