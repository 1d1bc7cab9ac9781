"""How long a collective would take, the vendor's or peerlane's own, for any number of ranks, without its bytes.

Each step has a latency and the bytes of its busiest link.  The latencies and efficiencies of protocols are those by
which NCCL itself chooses (facts/links 6), and the fastest of the possible algorithms counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from peerlane.errors import BadArgument, InvalidValue, Unsupported
from peerlane.prediction import own_schedules, schedules
from peerlane.prediction.machines import Machine, name_of
from peerlane.prediction.schedules import Schedule, Shape, Step
from peerlane.support.records import dataclass

MOST_RANKS = 1 << 20
_MOST_OWN_RANKS = 4096


class _Protocol(NamedTuple):
    """How a library moves pieces: times in seconds, and the part of a link's bandwidth that it gets.

    ``is_small``: all links of a device together get at most ``Machine.small``.
    """

    name: str
    start: float
    hop: float
    network_hop: float
    efficiency: float
    is_small: bool = False


_US = 1e-6
_RING = (
    _Protocol("LL", 6.6 * _US, 0.6 * _US, 2.7 * _US, 0.5, is_small=True),
    _Protocol("LL128", 14.0 * _US, 1.9 * _US, 4.0 * _US, 0.92),
    _Protocol("Simple", 8.4 * _US, 3.4 * _US, 14.0 * _US, 1.0),
)
_TREE = (
    _Protocol("LL", 6.8 * _US, 0.6 * _US, 5.0 * _US, 0.5, is_small=True),
    _Protocol("LL128", 14.0 * _US, 1.25 * _US, 8.5 * _US, 0.92),
    _Protocol("Simple", 8.4 * _US, 4.0 * _US, 14.0 * _US, 1.0),
)
_SWITCH = (_Protocol("Simple", 25.0 * _US, 0.0, 18.0 * _US, 1.0),)

# Pieces of a collective in the switch: how long they are, unless there are fewer than so many of the next length.
_PIECES = ((128 << 10, 64), (64 << 10, 8), (32 << 10, 2), (16 << 10, 0))
_SWITCH_CHANNELS = 16
_SWITCH_STAGES = 3  # into the library's memory, through the switch, and out of that memory


class _Algorithm(NamedTuple):
    schedule: Schedule
    protocols: tuple[_Protocol, ...]
    needs_switch: bool = False
    needs_machines: int = 1

    def missing(self, machine: Machine, shape: Shape) -> str:
        """Return what the algorithm needs and does not have, in words; empty if it can run."""
        if shape.machines < self.needs_machines:
            return f"it is for {self.needs_machines} machines or more"
        if self.needs_switch and not machine.reducing_switch:
            return "it needs a switch that reduces, which the machine lacks"
        return "it is predicted on one machine only" if self.needs_switch and shape.machines > 1 else ""


_ONCE = {"ring": _Algorithm(schedules.ring_once, _RING)}
_ALGORITHMS: dict[str, dict[str, _Algorithm]] = {
    "all_reduce": {
        "ring": _Algorithm(schedules.ring_all_reduce, _RING),
        "tree": _Algorithm(schedules.tree_all_reduce, _TREE, needs_machines=2),
        "nvls": _Algorithm(schedules.switch_all_reduce, _SWITCH, needs_switch=True),
    },
    "all_gather": _ONCE,
    "reduce_scatter": _ONCE,
    "broadcast": {"chain": _Algorithm(schedules.chain_broadcast, _RING)},
    "all_to_all": {"direct": _Algorithm(schedules.direct, _RING[2:])},
}

#: The collectives whose time is predicted.
COLLECTIVES = tuple(_ALGORITHMS)


def algorithms_of(name: str) -> tuple[str, ...]:
    """Return the algorithms of a collective: the vendor's, and for an all-reduce peerlane's own."""
    return (*_ALGORITHMS[name], *(own_schedules.OWN if name == "all_reduce" else ()))


@dataclass(frozen=True, slots=True)
class CollectiveTime:
    """The predicted time of a collective."""

    #: Bytes as nccl-tests counts them: of one rank, or for ``all_gather`` and ``reduce_scatter`` of all.
    nbytes: int
    seconds: float
    algorithm: str  #: ``algorithm``, ``protocol``: the fastest ones
    protocol: str
    #: ``latency``, or the kind of the link that takes longest.  Of peerlane's own algorithms the link itself, or
    #: ``waits`` if none is busy half of the time.
    bottleneck: str
    #: ``algorithm_bandwidth``, ``bus_bandwidth``: bytes a second, as nccl-tests defines them.
    algorithm_bandwidth: float
    bus_bandwidth: float


def predicted(
    machine: Machine, name: str, ranks: int, nbytes: int, *, algorithm: str | None = None
) -> CollectiveTime:
    """Return the predicted time of a collective of all ranks.

    ``name``: one of :data:`COLLECTIVES`.
    ``ranks``: 2 or more; beyond the devices of one machine, a multiple of them.
    ``nbytes``: as :attr:`CollectiveTime.nbytes` counts.
    ``algorithm``: only this one, of :func:`algorithms_of`; by default the vendor's fastest.
    Raises InvalidValue: there is no such collective, algorithm or number of ranks.
    Raises Unsupported: the machine has no published rate for it.
    """
    _check(machine, name, ranks, nbytes, algorithm)
    shape = schedules.shape_of(machine, ranks)
    if algorithm in own_schedules.OWN:
        return _own_time(machine, algorithm, shape, nbytes)
    return _fastest(machine, name, shape, nbytes, algorithm)


def _fastest(machine: Machine, name: str, shape: Shape, nbytes: int, only: str | None) -> CollectiveTime:
    times = list(_times(machine, name, shape, nbytes, only))
    if times:
        return min(times, key=lambda each: each.seconds)
    needs = _ALGORITHMS[name][only].missing(machine, shape) if only else ""
    raise _unsupported(machine, only or name, shape, needs)


def _unsupported(machine: Machine, what: str, shape: Shape, needs: str = "") -> Unsupported:
    if needs:
        why = f"{needs}; take another algorithm"
    elif shape.machines > 1:
        why = f"no rate is published for its network; use up to {machine.devices} ranks, or another profile"
    else:
        why = "no rate is published for its links; use another profile"
    return Unsupported(
        f"predict: {what} of {shape.ranks:,} ranks on {machine.profile}: {why}",
        call="predict",
        detail=BadArgument("ranks", shape.ranks, most=machine.devices),
    )


def seconds_of(machine: Machine, name: str, counts: Sequence[int], nbytes: int) -> float | None:
    """Return the time of a collective of a log, whose bytes are those of its larger end; None if it has no rate.

    ``counts``: how many ranks each machine has.  It has no rate if they differ, or are more than the devices.
    """
    ranks = sum(counts)
    if ranks < 2 or not nbytes:
        return 0.0
    try:
        if len(counts) == 1:
            return predicted(machine, name, ranks, nbytes).seconds
        if name not in _ALGORITHMS or len(set(counts)) > 1 or counts[0] > machine.devices:
            return None
        return _fastest(machine, name, schedules.shape_of(machine, ranks, counts[0]), nbytes, None).seconds
    except (InvalidValue, Unsupported):
        return None


def _check(machine: Machine, name: str, ranks: int, nbytes: int, algorithm: str | None) -> None:
    problem, most = None, _most_ranks(algorithm)
    if name not in _ALGORITHMS:
        problem = BadArgument("collective", name, choices=COLLECTIVES)
    elif algorithm is not None and algorithm not in algorithms_of(name):
        problem = BadArgument("algorithm", algorithm, choices=algorithms_of(name))
    elif not 2 <= ranks <= most:
        problem = BadArgument("ranks", ranks, least=2, most=most)
    elif ranks > machine.devices and ranks % machine.devices:
        problem = BadArgument("ranks", ranks, multiple=machine.devices)
    elif nbytes < 1:
        problem = BadArgument("nbytes", nbytes, least=1)
    if problem is None:
        return
    valid = ", ".join(map(str, problem.choices)) or (
        f"a multiple of {problem.multiple}, as each machine of {machine.profile} has {machine.devices} devices"
        if problem.multiple
        else f"{problem.least} to {problem.most:,}"
        if problem.most
        else f"{problem.least} or more"
    )
    raise InvalidValue(
        f"predict: {problem.name} is {problem.given!r}; valid: {valid}", call="predict", detail=problem
    )


def _most_ranks(algorithm: str | None) -> int:
    own = own_schedules.OWN.get(algorithm or "")
    if own is None:
        return MOST_RANKS
    return _MOST_OWN_RANKS if own.is_alike else own_schedules.MOST_UNLIKE


def _own_time(machine: Machine, algorithm: str, shape: Shape, nbytes: int) -> CollectiveTime:
    if not machine.peer or (shape.machines > 1 and not machine.network):
        raise _unsupported(machine, algorithm, shape)
    times = own_schedules.simulated(machine, algorithm, shape.ranks, nbytes)
    seconds = max(times.end)
    busiest = max(times.busy, key=lambda link: times.busy[link])
    bandwidth = nbytes / seconds
    return CollectiveTime(
        nbytes,
        seconds,
        algorithm,
        "copies",
        name_of(busiest) if times.busy[busiest] > seconds / 2 else "waits",
        bandwidth,
        bandwidth * _bus_factor("all_reduce", shape.ranks),
    )


def _times(
    machine: Machine, name: str, shape: Shape, nbytes: int, only: str | None
) -> Iterator[CollectiveTime]:
    for algorithm, each in _ALGORITHMS[name].items():
        if only not in (None, algorithm) or each.missing(machine, shape):
            continue
        steps = each.schedule(shape)
        for protocol in each.protocols:
            rates = _rates(machine, protocol, shape)
            if all(rates[kind] for step in steps for kind in rates if getattr(step, kind)):
                yield _time(name, shape, nbytes, (algorithm, protocol), steps, rates)


def _rates(machine: Machine, protocol: _Protocol, shape: Shape) -> dict[str, float]:
    peer = machine.collective * protocol.efficiency
    if protocol.is_small and machine.small:
        peer = min(peer, machine.small / shape.lanes)
    return {
        schedules.PEER: peer,
        schedules.NETWORK: machine.network * protocol.efficiency,
        schedules.SWITCH: machine.reducing_switch,
    }


def _time(
    name: str,
    shape: Shape,
    nbytes: int,
    chosen: tuple[str, _Protocol],
    steps: list[Step],
    rates: dict[str, float],
) -> CollectiveTime:
    algorithm, protocol = chosen
    latency = protocol.start + sum(
        step.repeats * (protocol.network_hop if step.hops_network else protocol.hop) for step in steps
    )
    moving = {
        kind: sum(step.repeats * getattr(step, kind) for step in steps) * nbytes / rate
        for kind, rate in rates.items()
        if rate
    }
    seconds = latency + sum(
        step.repeats * max(getattr(step, kind) * nbytes / rate for kind, rate in rates.items() if rate)
        for step in steps
    )
    if algorithm == "nvls":
        seconds += _filling(shape, nbytes) / nbytes * moving[schedules.SWITCH]
    slowest = max(moving, key=lambda kind: moving[kind])
    bandwidth = nbytes / seconds
    return CollectiveTime(
        nbytes,
        seconds,
        algorithm,
        protocol.name,
        "latency" if latency > moving[slowest] else slowest,
        bandwidth,
        bandwidth * _bus_factor(name, shape.ranks),
    )


def _filling(shape: Shape, nbytes: int) -> float:
    """Return for how many bytes the stages before the last one work while the last one still has nothing."""
    at_once = _SWITCH_CHANNELS * shape.ranks
    piece = next(length for length, fewest in _PIECES if nbytes >= fewest * at_once * length)
    return min(piece * at_once, nbytes) * (_SWITCH_STAGES - 1)


def _bus_factor(name: str, ranks: int) -> float:
    if name == "broadcast":
        return 1.0
    return (2 if name == "all_reduce" else 1) * (ranks - 1) / ranks
