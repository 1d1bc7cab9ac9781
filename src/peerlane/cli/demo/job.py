"""The demo's job from the first byte to the last check, and its result."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from functools import partial

import peerlane as pl
from peerlane.backends.virtual.node import NodeConfig
from peerlane.cli import machine
from peerlane.cli.demo import concurrent, rank, ranks, transfer, workers
from peerlane.cli.outputs import show_progress
from peerlane.cli.weights import Tensor, Weights

ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Arrival:
    """The arrival of the weights on one device.

    Attributes
    ----------
    device : str
        Its name.
    route : Route
        How the bytes came.
    nbytes : int
        Bytes of all tensors.
    seconds : float
        Of the copies alone, median over the rounds.
    ratio : float or None
        Speed relative to one thread's memcpy of the same sizes; None for the device that was loaded.
    mismatched : tuple of str
        The tensors whose digest differs from the file's.
    """

    device: str
    route: pl.Route
    nbytes: int
    seconds: float
    ratio: float | None
    mismatched: tuple[str, ...]

    @property
    def rate(self) -> float:
        """Bytes per nanosecond, which is GB/s."""
        return self.nbytes / self.seconds / 1e9


@dataclass(frozen=True, slots=True)
class Result:
    """The whole result of the demo.

    Attributes
    ----------
    ways : sequence of Way
        The same moves, with and without streams.
    timeline : Trace or None
        The trace of the moves on streams.
    sharing : Sharing or None
        The sharing with worker processes, if there were any.
    deliveries : sequence of Delivery
        The deliveries to worker processes.
    """

    source: str
    node: NodeConfig
    tensors: Sequence[Tensor]
    digests: Sequence[str]
    arrivals: Sequence[Arrival]
    ways: Sequence[concurrent.Way]
    timeline: pl.trace.Trace | None
    sharing: workers.Sharing | None
    deliveries: Sequence[ranks.Delivery]

    @property
    def is_verified(self) -> bool:
        wrong = [arrival.mismatched for arrival in self.arrivals]
        for found in (*(way.mismatched for way in self.ways), *(each.mismatched for each in self.deliveries)):
            wrong += (found or {}).values()
        is_shared = self.sharing is None or self.sharing.is_verified
        return is_shared and not any(wrong)


def distribute(weights: Weights, node: NodeConfig, *, count: int, with_timeline: bool) -> Result:
    """Load the weights to device 0, copy them to each other device of ``node``, and verify each copy.

    Then ``count`` worker processes share device 0's weights, and afterwards each gets its own copy.

    Raises
    ------
    InvalidValue, OutOfMemory
        There are too few devices, or there is not enough memory; nothing was copied.
    PeerLost, WaitTimeout
        A worker process died, or did not answer in time.
    """
    tensors = [tensor for tensor in weights.tensors if tensor.nbytes]
    _check_room(weights, tensors, node, count)
    with ExitStack() as stack:
        devices = pl.enter_node(node.spec)
        stack.callback(pl.leave_node)
        host = pl.Host()
        staging = stack.enter_context(host.allocate(transfer.STAGING))
        scratch = stack.enter_context(host.allocate(transfer.packed_bytes(tensors)))
        scratch.fill(0)
        pinned = [scratch[start : start + size] for start, size in transfer.places(tensors)]
        progress = stack.enter_context(show_progress())
        task = progress.add_task("", total=_passes(len(devices), count) * weights.nbytes)

        def begin(phase: str) -> transfer.Advance:
            progress.update(task, description=phase)
            return lambda nbytes: progress.advance(task, nbytes)

        def differing(replica: transfer.Replica, wanted: Sequence[str]) -> tuple[str, ...]:
            found = transfer.read_back(replica, staging, begin(f"verify {replica.device.name}"))
            return tuple(t.name for t, want, got in zip(tensors, wanted, found, strict=True) if want != got)

        def wrong(replica: transfer.Replica) -> tuple[str, ...]:
            return differing(replica, digests)

        physical = stack.enter_context(_one_block(devices[0], tensors))
        first, whole = transfer.hold_in_one(physical, tensors, stack)
        others = [transfer.hold(device, tensors, stack) for device in devices[1:]]
        replicas = [first, *others]
        seconds, digests = transfer.load(weights, first, staging, begin(f"load to {first.device.name}"))
        timings: list[tuple[float, float | None]] = [(seconds, None)]
        for other in others:
            open_route(first.device, other.device)
            timings.append(_copy_rounds(first, other, pinned, begin(f"copy to {other.device.name}")))
        arrivals = []
        for replica, (seconds, ratio) in zip(replicas, timings, strict=True):
            origin = staging if replica is first else first.buffers[0]
            route = origin.route_to(replica.buffers[0])
            arrivals.append(
                Arrival(replica.device.name, route, weights.nbytes, seconds, ratio, wrong(replica))
            )
        # The rounds above have left the tensors in pinned memory.
        pipeline = concurrent.Pipeline(pinned, replicas, stack)
        of_ways = concurrent.measure(pipeline, begin)
        with pl.trace.recording() if with_timeline else nullcontext() as timeline:
            if timeline is not None:
                pipeline.label(timeline)
            ways = concurrent.ways(pipeline, of_ways, concurrent.check(pipeline, wrong, begin))
        sharing, deliveries = None, []
        if count:
            changed = transfer.inverted_digest(weights, tensors[0], staging)
            begin(f"start {count} workers")
            with ExitStack() as staff:
                team = workers.Team(physical, node, count, staff)
                sharing = workers.share(team, first, physical, digests, changed, differing, begin)
                written = [changed, *digests[1:]]
                memcpy = partial(transfer.memcpy_seconds, first, pinned)
                deliveries = ranks.deliver(team, first, whole, written, memcpy, differing, begin)
        return Result(weights.path, node, tensors, digests, arrivals, ways, timeline, sharing, deliveries)


def _one_block(device: pl.Device, tensors: Sequence[Tensor]) -> pl.Physical:
    whole = -(-transfer.packed_bytes(tensors) // device.granularity)
    return pl.Physical(device, whole * device.granularity)


def _passes(devices: int, count: int) -> int:
    """Return how often all weights are moved or hashed."""
    one_device_at_a_time = 2 + (devices - 1) * (ROUNDS + 1)
    on_streams = devices * (3 * concurrent.ROUNDS + 2 * 2)
    in_workers = 3 * count + 2 + 2 * ranks.ROUNDS if count else 0
    return one_device_at_a_time + on_streams + in_workers


def open_route(a: pl.Device, b: pl.Device) -> None:
    """Enable peer access between two devices, in the first direction that the node allows."""
    for origin, target in ((a, b), (b, a)):
        if origin.can_access(target):
            with suppress(pl.OutOfMemory):  # its profile allows no more peers; the other end may have room
                origin.peers.add(target)
                return


def _copy_rounds(
    src: transfer.Replica, dst: transfer.Replica, pinned: Sequence[pl.Buffer], advance: transfer.Advance
) -> tuple[float, float]:
    """Return the median seconds, and the median of each round's speed relative to memcpy."""
    seconds, ratios = [], []
    for _ in range(ROUNDS):
        reference = transfer.memcpy_seconds(src, pinned)
        seconds.append(transfer.deliver(src, dst, advance))
        ratios.append(reference / seconds[-1])
    return statistics.median(seconds), statistics.median(ratios)


def _check_room(weights: Weights, tensors: Sequence[Tensor], node: NodeConfig, count: int) -> None:
    if node.devices < 2:
        raise pl.InvalidValue(
            f"the demo copies between devices and node {node.name!r} has {node.devices}; give --devices 2 or more"
        )
    charge = transfer.least_charge(tensors)
    taken = rank.charges(transfer.packed_bytes(tensors), count + 1 if count else 0, node.devices)
    for ordinal, (capacity, more) in enumerate(zip(node.memory, taken, strict=True)):
        if charge > capacity:
            raise pl.OutOfMemory(
                f"the weights need {charge:,} bytes on each of {node.devices} devices, and virtual:{ordinal} has "
                f"{capacity:,}; give the devices more (--node memory=...) or smaller --weights"
            )
        if charge + more > capacity:
            raise pl.OutOfMemory(
                f"virtual:{ordinal} has {capacity:,} bytes; the weights need {charge:,} there, and {more:,} more for "
                f"those of the owner and {count} workers; give the devices more (--node memory=...), "
                "take fewer --workers, or smaller --weights"
            )
    need = weights.nbytes * (node.devices + 1) + transfer.STAGING + count * workers.WORKER_BYTES + sum(taken)
    if need > machine.room():
        raise pl.OutOfMemory(
            f"{weights.nbytes:,} bytes of weights on {node.devices} devices, and {count} workers, need {need:,} "
            f"bytes of memory, of which {machine.room():,} are free; use fewer --devices or --workers, or smaller "
            "--weights"
        )
