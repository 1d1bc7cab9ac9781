"""Transfers as fluids: those that share a link get fair shares of it, and one starts when others have ended."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

L = TypeVar("L", bound=Hashable)  #: a link

_LEAST = 1e-15  # seconds, and parts of a byte: less than that is nothing


@dataclass(slots=True)
class Flow(Generic[L]):
    """Bytes on a route."""

    route: tuple[L, ...]  #: the links that it crosses at once
    nbytes: float


@dataclass(slots=True)
class Task(Generic[L]):
    """Something that takes time."""

    after: list[int] = field(default_factory=list)  #: the numbers of the tasks that must end before
    latency: float = 0.0  #: seconds before its flows begin
    #: They run at the same time; the task ends when all have ended.
    flows: list[Flow[L]] = field(default_factory=list)


@dataclass(slots=True)
class Times(Generic[L]):
    """When tasks began and ended, and what the links did, in seconds and bytes."""

    start: list[float]
    end: list[float]
    moved: dict[L, float] = field(default_factory=lambda: defaultdict(float))
    busy: dict[L, float] = field(default_factory=lambda: defaultdict(float))


def fair_rates(routes: Sequence[tuple[L, ...]], capacity: Mapping[L, float]) -> list[float]:
    """Return the max-min fair rates of flows: no rate can grow without taking from one that is not larger.

    The link with the smallest share for each of its flows is filled first; its flows then keep that rate.
    """
    rates = [0.0] * len(routes)
    left = {link: capacity[link] for route in routes for link in route}
    waiting = Counter(link for route in routes for link in route)
    on_link: dict[L, list[int]] = {}
    for number, route in enumerate(routes):
        for link in route:
            on_link.setdefault(link, []).append(number)
    open_flows = set(range(len(routes)))
    while waiting:
        tight = min(waiting, key=lambda link: left[link] / waiting[link])
        share = left[tight] / waiting[tight]
        for number in [each for each in on_link[tight] if each in open_flows]:
            open_flows.remove(number)
            rates[number] = share
            for link in routes[number]:
                left[link] = max(0.0, left[link] - share)
                waiting[link] -= 1
                if not waiting[link]:
                    del waiting[link]
    return rates


def simulate(tasks: Sequence[Task[L]], capacity: Mapping[L, float]) -> Times[L]:
    """Return when each task begins and ends.

    ``tasks``: a task comes behind those that it is after.
    ``capacity``: bytes a second of each link on a route.
    """
    return _Simulation(tasks, capacity).run()


class _Simulation(Generic[L]):
    def __init__(self, tasks: Sequence[Task[L]], capacity: Mapping[L, float]) -> None:
        self._tasks, self._capacity = tasks, capacity
        self._times: Times[L] = Times([0.0] * len(tasks), [0.0] * len(tasks))
        self._lacking = [len(set(task.after)) for task in tasks]
        self._behind: list[list[int]] = [[] for _ in tasks]
        for number, task in enumerate(tasks):
            for before in set(task.after):
                self._behind[before].append(number)
        self._now = 0.0
        self._flowing: dict[tuple[int, int], float] = {}  # bytes left, by the task and its flow
        self._open = [0] * len(tasks)  # flows of a task that have not ended
        self._due: list[tuple[float, int]] = []  # ends of latencies
        self._ready: deque[int] = deque()  # tasks whose latency is over

    def run(self) -> Times[L]:
        for number, lacking in enumerate(self._lacking):
            if not lacking:
                self._begin(number)
        self._let_flow()
        while self._due or self._flowing:
            self._advance()
            self._let_flow()
        return self._times

    def _begin(self, number: int) -> None:
        self._times.start[number] = self._now
        if self._tasks[number].latency > 0:
            heapq.heappush(self._due, (self._now + self._tasks[number].latency, number))
        else:
            self._ready.append(number)

    def _let_flow(self) -> None:
        while self._ready:  # an end makes others ready
            self._flow(self._ready.popleft())

    def _flow(self, number: int) -> None:
        flows = self._tasks[number].flows
        self._open[number] = sum(flow.nbytes > 0 and bool(flow.route) for flow in flows)
        for at, flow in enumerate(flows):
            if flow.nbytes > 0 and flow.route:
                self._flowing[number, at] = flow.nbytes
        if not self._open[number]:
            self._end(number)

    def _end(self, number: int) -> None:
        self._times.end[number] = self._now
        for behind in self._behind[number]:
            self._lacking[behind] -= 1
            if not self._lacking[behind]:
                self._begin(behind)

    def _advance(self) -> None:
        keys = [*self._flowing]
        routes = [self._tasks[number].flows[at].route for number, at in keys]
        rates = fair_rates(routes, self._capacity)
        ends = [self._flowing[key] / rate for key, rate in zip(keys, rates, strict=True)]
        step = min([*ends, *([self._due[0][0] - self._now] if self._due else ())])
        self._pass(step, keys, routes, rates)
        self._now += step
        for key, end in zip(keys, ends, strict=True):
            if end - step <= max(_LEAST, 1e-12 * end):
                del self._flowing[key]
                self._open[key[0]] -= 1
                if not self._open[key[0]]:
                    self._end(key[0])
        while self._due and self._due[0][0] <= self._now + _LEAST:
            self._ready.append(heapq.heappop(self._due)[1])

    def _pass(
        self, step: float, keys: list[tuple[int, int]], routes: list[tuple[L, ...]], rates: list[float]
    ) -> None:
        for key, route, rate in zip(keys, routes, rates, strict=True):
            nbytes = min(rate * step, self._flowing[key])
            self._flowing[key] -= nbytes
            for link in route:
                self._times.moved[link] += nbytes
        for link in dict.fromkeys(link for route in routes for link in route):
            self._times.busy[link] += step
