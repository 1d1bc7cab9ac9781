"""peerlane's own schedules as tasks: their operations on the links of a machine, without bytes.

Where all ranks do the same up to their numbers, those of one machine stand for all: a transfer from rank ``r`` to
rank ``q`` comes with one from ``r + n`` to ``q + n`` for each machine, so it takes the port of ``q`` that its twin
takes.  On one machine a single rank stands for all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from peerlane.collectives.machines import Machines
from peerlane.collectives.schedules import operations as ops
from peerlane.collectives.schedules.one_shot import one_shot
from peerlane.collectives.schedules.reductions_by_machine import all_reduce_by_machine
from peerlane.collectives.schedules.ring import ring
from peerlane.collectives.schedules.two_shot import two_shot
from peerlane.prediction.fluid import Flow, Task, Times, simulate
from peerlane.prediction.machines import COPY_LATENCY, HOST, Link, Machine, across

SLOT = 1 << 20  #: bytes of a piece for a peer
MOST_UNLIKE = 64  #: ranks of a schedule in which each rank has another part

_DEPTH = 3  # rounds, or pieces of a lane, that are under way

Key: TypeAlias = tuple[object, ...]


class Own(NamedTuple):
    """An algorithm of peerlane's own all-reduce."""

    schedule: Callable[[ops.Plan], Iterator[ops.Operation]]
    is_alike: bool  #: whether all ranks do the same up to their numbers


OWN = {
    "one-shot": Own(one_shot, is_alike=True),
    "two-shot": Own(two_shot, is_alike=True),
    "ring-by-rank": Own(ring, is_alike=False),
    "by-machine": Own(all_reduce_by_machine, is_alike=False),
}


def simulated(
    machine: Machine,
    algorithm: str,
    ranks: int,
    nbytes: int,
    *,
    latency: float = COPY_LATENCY,
    period: int | None = None,
) -> Times[Link]:
    """Return the times of an all-reduce's operations, and the use of the links of the ranks that stand for all.

    ``algorithm``: one of :data:`OWN`.
    ``latency``: seconds of each operation that moves bytes.
    ``period``: how many ranks stand for all; by default as few as the schedule allows.
    """
    own = OWN[algorithm]
    if period is None:
        period = ranks if not own.is_alike else machine.devices if ranks > machine.devices else 1
    tasks = _Tasks(machine, ranks, period, latency)
    names = [str(rank // machine.devices) for rank in range(ranks)]
    for rank in range(ranks - period, ranks):
        tasks.add(rank, own.schedule(ops.Plan(rank, ranks, SLOT, Machines(rank, names), nbytes)))
    tasks.join()
    links = {link for task in tasks.tasks for flow in task.flows for link in flow.route}
    return simulate(tasks.tasks, {link: machine.rate(link) for link in links})


class _Tasks:
    """The operations of the last ranks, which stand for all."""

    def __init__(self, machine: Machine, ranks: int, period: int, latency: float) -> None:
        self.tasks: list[Task[Link]] = []
        self._machine, self._ranks, self._period, self._latency = machine, ranks, period, latency
        self._last = -1
        self._beside: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        self._signals: dict[Key, int] = {}
        self._waits: list[tuple[int, Key]] = []
        self._counts: Counter[Key] = Counter()

    def add(self, rank: int, operations: Iterator[ops.Operation]) -> None:
        """Add the operations of a rank, one after the other."""
        self._last = -1
        for each in operations:
            self._add(rank, each)

    def join(self) -> None:
        """Let each wait come behind what it waits for."""
        for task, key in self._waits:
            self.tasks[task].after.append(self._signals[key])

    def _add(self, rank: int, each: ops.Operation) -> None:
        match each:
            case ops.Begin(number):
                self._chain()
                if number >= _DEPTH:
                    self._waits += [
                        (self._last, ("end", number - _DEPTH, other)) for other in range(self._period)
                    ]
            case ops.End(number):
                self._chain(after=self._beside.pop((rank, number), []))
                self._signals["end", number, rank % self._period] = self._last
            case ops.Write(_, peer, src) | ops.WriteAndNotify(_, peer, src):
                self._move(rank, peer, src.last - src.first)
                if isinstance(each, ops.WriteAndNotify):
                    self._signal(ops.Signal.DATA, each.round, rank, peer)
            case ops.Notify(number, peer, signal):
                self._signal(signal, number, rank, peer)
            case ops.Await(number, peer, signal):
                self._wait(signal, number, peer, rank)
            case ops.Read(_, peer, _, dst):
                self._move(peer, rank, dst.last - dst.first)
            case ops.Aside(number, operations):
                before = self._last
                for one in operations:
                    self._add(rank, one)
                self._beside[rank, number].append(self._last)
                self._last = before
            case ops.Send(peer, src):
                number = self._count("send", rank, peer)
                if number >= _DEPTH:
                    self._wait("free", number - _DEPTH, peer, rank)
                self._move(rank, peer, src.last - src.first)
                self._signal("piece", number, rank, peer)
            case ops.Take(peer):
                self._wait("piece", self._count("take", rank, peer), peer, rank)
            case ops.LetGo(peer):
                self._signal("free", self._count("free", rank, peer), rank, peer)
            case ops.Copy(dst, src) if dst != src:
                self._move(rank, rank, dst.last - dst.first)
            case ops.Combine(dst):
                self._move(rank, rank, dst.last - dst.first)
            case _:
                pass

    def _chain(self, *, after: list[int] | None = None, latency: float = 0.0) -> None:
        before = [self._last] if self._last >= 0 else []
        self._last = len(self.tasks)
        self.tasks.append(Task([*before, *(after or [])], latency))

    def _move(self, src: int, dst: int, nbytes: int) -> None:
        self._chain(latency=self._latency)
        route = self._route(src, dst)
        if all(map(self._machine.rate, route)):
            self.tasks[self._last].flows.append(Flow(route, nbytes))

    def _route(self, src: int, dst: int) -> tuple[Link, ...]:
        one, other = src % self._period, dst % self._period
        if src // self._machine.devices != dst // self._machine.devices:
            return across(one, other)
        if src == dst or not self._machine.is_mesh:
            return (
                self._machine.route(one, other) if src == dst else (("out", one, HOST), ("in", other, HOST))
            )
        return (("link", one, (dst - src) % self._machine.devices),)

    def _key(self, what: object, number: int, src: int, dst: int) -> Key:
        """Return what names a signal of two ranks, and of all their twins."""
        return what, number, src % self._period, (dst - src) % self._ranks

    def _signal(self, what: object, number: int, src: int, dst: int) -> None:
        self._chain()
        self._signals[self._key(what, number, src, dst)] = self._last

    def _wait(self, what: object, number: int, src: int, dst: int) -> None:
        self._chain()
        self._waits.append((self._last, self._key(what, number, src, dst)))

    def _count(self, what: str, rank: int, peer: int) -> int:
        key = what, rank, peer
        self._counts[key] += 1
        return self._counts[key] - 1
