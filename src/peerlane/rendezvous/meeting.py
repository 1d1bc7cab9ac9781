"""The state of a rendezvous: values, ranks and waiting requests, without sockets and threads."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from peerlane.rendezvous.frames import Operation, Status
from peerlane.rendezvous.reports import Reports

STORE_BYTES = 64 << 20
_ENTRY_BYTES = 512  # charged for an entry besides its key and value

_MOST_NAMED = 8


class Waiter(Protocol):
    """A request that may have to wait."""

    operation: Operation
    rank: int
    key: str
    value: bytes

    def answer(self, status: Status, values: Sequence[bytes], lost: int | None = None) -> None:
        """Answer the request; called once, unless the request is withdrawn."""


class _Presence(enum.Enum):
    EXPECTED = enum.auto()
    ENDED = enum.auto()
    LOST = enum.auto()


@dataclass
class _Rank:
    presence: _Presence = _Presence.EXPECTED
    fate: str = ""
    charged: int = 0
    has_left: bool = False  # it may come again


_Round: TypeAlias = "dict[int, Waiter]"  # the ranks that have come to a barrier or gather
_Loss: TypeAlias = "tuple[int, str]"  # a rank, and a text about its end


def _folder(key: str) -> str:
    return key.rpartition("/")[0]


def cost(key: str, nbytes: int) -> int:
    """Return the bytes that are charged for a value."""
    return len(key.encode()) + nbytes + _ENTRY_BYTES


class Meeting:
    """Values by key, and the waits of ``size`` ranks.

    ``size``: the number of ranks.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.reports = Reports()  #: receives the values that are meant for the launcher
        self._ranks = [_Rank() for _ in range(size)]
        self._folders: dict[
            str, dict[str, tuple[int, bytes]]
        ] = {}  # by folder: keys with their owners and values
        self._wanted: dict[str, list[Waiter]] = {}
        self._rounds: dict[tuple[Operation, str], _Round] = {}
        self._when_left: list[Callable[[], None]] = []

    def charge(self, rank: int, nbytes: int) -> bool:
        """Charge a rank; False if it has no room left.  A negative number returns a charge."""
        if self._ranks[rank].charged + nbytes > STORE_BYTES:
            return False
        self._ranks[rank].charged += nbytes
        return True

    def open(self, rank: int) -> str:
        """Let a process be this rank; return the reason if it cannot be, else an empty text."""
        one = self._ranks[rank]
        if one.presence is _Presence.LOST:
            return f"{one.fate} and stays lost; start all ranks anew with a new rendezvous"
        one.presence, one.has_left = _Presence.EXPECTED, False
        return ""

    def put(self, rank: int, key: str, value: bytes, where: str = "") -> None:
        """Store a value that was charged, and answer the requests that wait for it.

        ``where`` is the name of the rank's machine, empty for the server's.
        """
        if self.reports.hear(key, value, where):
            self.charge(rank, -cost(key, len(value)))
            return
        self.delete(key)
        self._folders.setdefault(_folder(key), {})[key] = rank, value
        for waiter in self._wanted.pop(key, ()):
            waiter.answer(Status.OK, [value])

    def get(self, waiter: Waiter) -> None:
        """Answer with the value of a key: now, or once it is put."""
        entry = self._folders.get(_folder(waiter.key), {}).get(waiter.key)
        if entry is not None:
            waiter.answer(Status.OK, [entry[1]])
        elif loss := self._lost() or self._has_left(waiter) or self._left_alone(waiter):
            _answer_lost([waiter], loss, f"; {waiter.key!r} is not there")
        else:
            self._wanted.setdefault(waiter.key, []).append(waiter)

    def put_all(self, rank: int, entries: Mapping[str, bytes], charged: int, where: str = "") -> bool:
        """Store values for which a rank was charged ``charged`` bytes; False, and nothing done, if it has no room."""
        due = sum(cost(key, len(value)) for key, value in entries.items())
        if not self.charge(rank, due - charged):
            return False
        for key, value in entries.items():
            self.put(rank, key, value, where)
        return True

    def present(self, keys: Sequence[str], most: int) -> list[bytes]:
        """Return a byte for each key, 1 if it has a value, and then these values: at most ``most`` bytes of them."""
        values, flags = list[bytes](), bytearray(len(keys))
        for at, key in enumerate(keys):
            entry = self._folders.get(_folder(key), {}).get(key)
            if entry is not None and len(entry[1]) <= most:
                flags[at], most = 1, most - len(entry[1])
                values.append(entry[1])
        return [bytes(flags), *values]

    def delete(self, key: str) -> None:
        """Delete a value, if there is one, and return its owner's charge."""
        folder = self._folders.get(_folder(key), {})
        if key in folder:
            owner, old = folder.pop(key)
            self.charge(owner, -cost(key, len(old)))
            if not folder:
                del self._folders[_folder(key)]

    def clear(self, folder: str) -> None:
        """Delete all values whose keys are the folder, a slash, and a name without a slash."""
        for key in list(self._folders.get(folder, ())):
            self.delete(key)

    def meet(self, waiter: Waiter) -> None:
        """Add a rank to a barrier or a gather; when the last one comes, answer all."""
        key = waiter.operation, waiter.key
        one = self._rounds.setdefault(key, {})
        if waiter.rank in one:
            self._give_back(waiter)
            text = f"rank {waiter.rank} is waiting there already, in another thread or process"
            waiter.answer(Status.BUSY, [text.encode()])
            return
        one[waiter.rank] = waiter
        if len(one) == self.size:
            del self._rounds[key]
            values = [one[rank].value for rank in range(self.size)]
            for each in one.values():
                self._give_back(each)
                each.answer(Status.OK, values if each.operation is Operation.GATHER else [])
        elif loss := self._lost() or self._ended_without(one):
            self.withdraw(waiter)
            _answer_lost([waiter], loss)

    def _fail(self, one: _Round, loss: _Loss) -> None:
        for waiter in one.values():
            self._give_back(waiter)
        _answer_lost(one.values(), loss)

    def _give_back(self, waiter: Waiter) -> None:
        if waiter.operation is Operation.GATHER:
            self.charge(waiter.rank, -cost(waiter.key, len(waiter.value)))

    def withdraw(self, waiter: Waiter) -> None:
        """Forget a waiting request: it timed out, or its connection was closed."""
        if waiter.operation is Operation.GET:
            waiting = self._wanted.get(waiter.key, [])
            if waiter in waiting:
                waiting.remove(waiter)
            if not waiting:
                self._wanted.pop(waiter.key, None)
            return
        key = waiter.operation, waiter.key
        one = self._rounds.get(key)
        if one is not None and one.get(waiter.rank) is waiter:
            del one[waiter.rank]
            self._give_back(waiter)
            if not one:
                del self._rounds[key]

    def missing(self, waiter: Waiter) -> str:
        """Return a text with what a request still waits for."""
        if waiter.operation is Operation.GET:
            return f"nobody has put {waiter.key!r}"
        return f"{_named(self.awaited(waiter))} of {self.size} did not come to {waiter.key!r}"

    def awaited(self, waiter: Waiter) -> list[int]:
        """Return the ranks that could end a wait."""
        if waiter.operation is Operation.GET:
            return [rank for rank, one in enumerate(self._ranks) if one.presence is _Presence.EXPECTED]
        present = self._rounds[waiter.operation, waiter.key]
        return [rank for rank in range(self.size) if rank not in present]

    def end(self, rank: int, fate: str) -> None:
        """Note that a rank has ended regularly: requests that only it could have answered fail."""
        one = self._ranks[rank]
        if one.presence is _Presence.LOST:
            return
        one.presence, one.fate = _Presence.ENDED, fate
        self._call_if_left()
        for round_key, waits in list(self._rounds.items()):
            if rank not in waits:
                del self._rounds[round_key]
                self._fail(waits, (rank, fate))
        for key, waiting in list(self._wanted.items()):
            for waiter in list(waiting):
                if loss := self._left_alone(waiter):
                    self.withdraw(waiter)
                    _answer_lost([waiter], loss, f"; {key!r} is not there")

    def leave(self, rank: int) -> None:
        """Note that no process has the rendezvous open as this rank: its own requests fail; it may come again."""
        self._ranks[rank].has_left = True
        for key, waiting in list(self._wanted.items()):
            for waiter in [waiter for waiter in waiting if waiter.rank == rank]:
                self.withdraw(waiter)
                _answer_lost([waiter], self._has_left(waiter), f"; {key!r} is not there")
        self._call_if_left()

    def lose(self, rank: int, fate: str) -> None:
        """Note that a rank was lost: all waiting requests fail."""
        self._ranks[rank].presence, self._ranks[rank].fate = _Presence.LOST, fate
        self._call_if_left()
        rounds, self._rounds = self._rounds, {}
        wanted, self._wanted = self._wanted, {}
        for one in rounds.values():
            self._fail(one, (rank, fate))
        for waiting in wanted.values():
            _answer_lost(waiting, (rank, fate))

    def when_left(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once every rank has come, and has closed its client or ended."""
        self._when_left.append(callback)
        self._call_if_left()

    def _call_if_left(self) -> None:
        if all(one.has_left or one.presence is not _Presence.EXPECTED for one in self._ranks):
            callbacks, self._when_left = self._when_left, []
            for each in callbacks:
                each()

    def _lost(self) -> _Loss | None:
        lost = (rank for rank, one in enumerate(self._ranks) if one.presence is _Presence.LOST)
        return next(((rank, self._ranks[rank].fate) for rank in lost), None)

    def _has_left(self, waiter: Waiter) -> _Loss | None:
        """Return a loss if the waiter's own rank has closed the rendezvous."""
        has_left = self._ranks[waiter.rank].has_left
        return (waiter.rank, f"rank {waiter.rank} closed this rendezvous meanwhile") if has_left else None

    def _ended_without(self, one: _Round) -> _Loss | None:
        ended = (rank for rank, it in enumerate(self._ranks) if it.presence is _Presence.ENDED)
        return next(((rank, self._ranks[rank].fate) for rank in ended if rank not in one), None)

    def _left_alone(self, waiter: Waiter) -> _Loss | None:
        """Return a loss if only the waiter's own rank is left, so that no other can put its value."""
        others = [rank for rank in range(self.size) if rank != waiter.rank]
        if not others or any(self._ranks[rank].presence is _Presence.EXPECTED for rank in others):
            return None
        fate = self._ranks[others[0]].fate
        return others[0], fate if len(others) == 1 else f"{fate}, and so have all others"


def _answer_lost(waiters: Iterable[Waiter], loss: _Loss | None, more: str = "") -> None:
    """Answer requests that a rank is lost, with its number."""
    if loss is not None:
        rank, fate = loss
        for waiter in waiters:
            waiter.answer(Status.LOST, [f"{fate}{more}".encode()], rank)


def _named(ranks: Iterable[int]) -> str:
    numbers = [str(rank) for rank in ranks]
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    more = len(numbers) - _MOST_NAMED
    shown = numbers if more <= 0 else [*numbers[:_MOST_NAMED], f"{more} more"]
    return f"ranks {', '.join(shown[:-1])} and {shown[-1]}"
