"""Channels and all-reduces between machines, against a bare TCP connection and other libraries.

The two machines are two network namespaces that a virtual cable joins.  Where they cannot be made, they are two names
that `PEERLANE_MACHINE` gives, over the loopback.  UCX takes TCP in both: on one machine it would find shared memory.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from peerlane.cli.bench import rival_processes as rivals
from peerlane.cli.bench.bars import BETWEEN_MACHINES, ONE_WAY, PEERLANE, TCP
from peerlane.cli.bench.machine_rank import STREAMED
from peerlane.cli.bench.measure import SPEED, TIME, Figure, Samples, Skip, figure
from peerlane.cli.bench.networks import NoNetwork, other_network
from peerlane.cli.bench.plan import Plan
from peerlane.cli.bench.rival_libraries import ALL_REDUCE, MESSAGE, RIVALS, WRITE
from peerlane.cli.bench.rival_processes import Place
from peerlane.support.sizes import UNITS, format_size

_STREAM = "stream"
_LARGE = STREAMED
_STREAMS = (64 * UNITS["KiB"], UNITS["MiB"], 16 * UNITS["MiB"])
_MESSAGES, _TIMES = 10_000, 8
#: How a rival moves many bytes: gloo has no writes.
_WRITES = {"nixl": WRITE, "gloo": MESSAGE}
_SECRET = "a secret that only a bench needs"


def measure(plan: Plan) -> tuple[list[Figure], list[Skip]]:
    """Start the ranks of each contender anew in each round, on two machines."""
    names, skips = rivals.present(*_WRITES.values(), ALL_REDUCE)
    names = [name for name in names if name in _WRITES]
    skips = [skip for skip in skips if skip.case.removeprefix("rival ") in _WRITES]
    figures: list[Figure] = []
    with contextlib.ExitStack() as stack:
        try:
            machines = stack.enter_context(_networks())
        except NoNetwork as none:
            skips.append(Skip("two networks; the loopback instead", str(none)))
            machines = [_Machine("127.0.0.1", "lo")] * 2
        for part in (_one_way, _large, _all_reduce):
            more, left = part(plan, names, machines)
            figures += more
            skips += left
    return figures, skips


class _Machine(NamedTuple):
    master: str
    interface: str
    prefix: tuple[str, ...] = ()


@contextlib.contextmanager
def _networks() -> Iterator[list[_Machine]]:
    with other_network() as network:
        here, there = network.interfaces
        yield [_Machine(network.here, here), _Machine(network.here, there, tuple(network.prefix))]


def _places(machines: Sequence[_Machine], ranks: int) -> list[Place]:
    """Return the places of so many ranks on each machine."""
    return [
        Place(
            machine.prefix,
            {
                "MASTER_ADDR": machine.master,
                "PEERLANE_MACHINE": f"machine {number}",
                "PEERLANE_INTERFACE": machine.interface,
                "PEERLANE_SECRET": _SECRET,
                "LOCAL_RANK": str(local),
                "LOCAL_WORLD_SIZE": str(ranks),
                "TORCHELASTIC_RUN_ID": f"bench {os.getpid()}",
                "UCX_TLS": "tcp,self",
                "UCX_NET_DEVICES": machine.interface,
                "GLOO_SOCKET_IFNAME": machine.interface,
            },
        )
        for number, machine in enumerate(machines)
        for local in range(ranks)
    ]


_Part = tuple[list[Figure], list[Skip]]


def _one_way(plan: Plan, names: Sequence[str], machines: Sequence[_Machine]) -> _Part:
    contenders = dict.fromkeys((TCP, PEERLANE, *names), (MESSAGE, 8))
    samples, skips = _samples(plan, contenders, _MESSAGES, _places(machines, 1))
    return _compared(samples, f"{ONE_WAY}, {BETWEEN_MACHINES}", PEERLANE, (TCP, *names), TIME), skips


def _large(plan: Plan, names: Sequence[str], machines: Sequence[_Machine]) -> _Part:
    """Time the same bytes in one write, and in many on a stream."""
    streams = [f"{PEERLANE}, {format_size(nbytes)} at a time" for nbytes in _STREAMS]
    contenders = {TCP: (WRITE, _LARGE), PEERLANE: (WRITE, _LARGE)}
    contenders |= {name: (_WRITES[name], _LARGE) for name in names}
    contenders |= {name: (_STREAM, nbytes) for name, nbytes in zip(streams, _STREAMS, strict=True)}
    samples, skips = _samples(plan, contenders, _TIMES, _places(machines, 1))
    case = f"{format_size(_LARGE)}, {BETWEEN_MACHINES}"
    figures = _compared(samples, case, PEERLANE, (TCP, *names), SPEED)
    for stream in streams:
        figures += _compared(samples, case, stream, (TCP, streams[-1]), SPEED)
    return figures, skips


def _all_reduce(plan: Plan, names: Sequence[str], machines: Sequence[_Machine]) -> _Part:
    names = [name for name in names if ALL_REDUCE in RIVALS[name].tasks]
    contenders = dict.fromkeys((PEERLANE, *names), (ALL_REDUCE, _LARGE))
    samples, skips = _samples(plan, contenders, _TIMES, _places(machines, 2))
    case = f"all-reduce {format_size(_LARGE)} over 2 machines of 2 ranks"
    return _compared(samples, case, PEERLANE, names, SPEED), skips


def _samples(
    plan: Plan, contenders: Mapping[str, tuple[str, int]], times: int, places: Sequence[Place]
) -> tuple[Samples, list[Skip]]:
    found, skips = rivals.in_turns(
        {
            name: partial(rivals.run_apart, name.partition(",")[0], task, [(nbytes, times)], places)
            for name, (task, nbytes) in contenders.items()
        },
        plan.rounds,
        lambda words: plan.say(f"{BETWEEN_MACHINES}: {words}"),
    )
    return {name: tasks[contenders[name][0]][0] for name, tasks in found.items()}, skips


def _compared(
    samples: Samples, case: str, contender: str, references: Sequence[str], kind: str
) -> list[Figure]:
    return [
        figure(samples, case, contender, name, kind)
        for name in references
        if name != contender and {name, contender} <= {*samples}
    ]
