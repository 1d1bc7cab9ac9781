"""Predictions beside what others have measured; ``docs/facts/links.md`` has the sources."""

from __future__ import annotations

import pytest

from peerlane.prediction.collectives import predicted
from peerlane.prediction.fluid import Flow, Task, simulate
from peerlane.prediction.machines import HOST, MACHINES

pytestmark = pytest.mark.any_schedule

MIB, GIB, GB = 1 << 20, 1 << 30, 1e9
WITHIN = 0.20
SIZES = [2 * MIB << step for step in range(13)]  # 2 MiB to 8 GiB

#: facts/links 4: the bus bandwidth of all_reduce on one machine in GB/s, for ``SIZES``.
ALL_REDUCE = {
    "h100-8": "81.93 128.73 172.13 234.45 295.53 361.78 400.61 423.38 438.46 466.35 472.36 475.54 478.87",
    "h200-8": "88.78 138.44 181.94 240.41 300.91 368.11 412.45 432.24 442.72 467.58 472.57 477.41 479.98",
    "gb200-4": "110.43 146.27 253.46 331.09 422.62 550.73 574.19 593.53 618.74 646.87 666.63 673.06 679.61",
    "mi300x": "102.50 135.07 167.06 187.83 226.78 265.11 290.58 303.10 309.04 313.36 314.75 314.58 315.91",
}
#: facts/links 5: a collective, its ranks, bytes and algorithm, and the bus bandwidth in GB/s.
MORE = [
    ("h100-8", "all_reduce", 8, 16 * GIB, "ring", 370.0),
    ("h100-8", "all_reduce", 8, 16 * GIB, "nvls", 480.0),
    ("h100-8", "all_reduce", 8, 128 * MIB, "nvls", 382.99),
    ("h100-8", "all_reduce", 8, 4 * GIB, "nvls", 473.60),
    ("h100-8", "all_gather", 8, 8 * GIB, None, 350.0),
    ("h100-8", "reduce_scatter", 8, 8 * GIB, None, 360.0),
    ("h100-8", "all_to_all", 4, 524_288_000, None, 334.90),
    ("h200-8", "all_reduce", 8, 64 * MIB, None, 346.51),
    ("h200-8", "all_reduce", 8, 1 * GIB, None, 463.58),
    ("h200-8", "all_reduce", 8, 16 * GIB, None, 482.26),
    ("h200-8", "all_reduce", 8, 16 * GIB, "ring", 367.61),
    ("mi300x", "all_reduce", 8, 32 * MIB, None, 230.35),
    ("mi300x", "all_reduce", 8, 1 * GIB, None, 313.92),
    ("mi300x", "all_reduce", 16, 256 * MIB, None, 293.75),
    ("mi300x", "all_reduce", 16, 1 * GIB, None, 340.75),
    ("mi300x", "all_reduce", 16, 16 * GIB, None, 357.46),
    ("ascend-a2", "all_gather", 2, 8 * 10**9, None, 38 / 2),
    ("ascend-a2", "all_gather", 4, 8 * 10**9, None, 64 * 3 / 4),
    ("ascend-a2", "all_gather", 8, 8 * 10**9, None, 149 * 7 / 8),
    ("ascend-a2", "all_reduce", 2, 8 * 10**9, None, 18.0),
    ("ascend-a2", "all_reduce", 4, 8 * 10**9, None, 30 * 3 / 2),
    ("ascend-a2", "all_reduce", 8, 8 * 10**9, None, 72 * 7 / 4),
]
#: facts/links 2, 3: copies at the same time, as pairs of devices, and what they reach together in GB/s.
COPIES = [
    ("h100-8", [(0, 1)], 376.65),
    ("h100-8", [(0, 1), (1, 0)], 783.0),
    ("h100-8", [(0, 1), (1, 0)], 672.0),
    ("h100-8", [(HOST, 0)], 51.0),
    ("h100-8", [(0, HOST)], 52.77),
    ("h200-8", [(0, 1), (1, 0)], 671.0),
    ("h200-8", [(HOST, 0)], 52.0),
    ("gb200-4", [(0, 1), (1, 0)], 1530.0),
    ("gb200-4", [(HOST, 0)], 201.0),
    ("gb200-4", [(0, HOST)], 193.0),
    ("mi300x", [(0, 1)], 50.0),
    ("mi300x", [(HOST, 0)], 55.0),
    ("mi300x", [(0, HOST)], 56.0),
    ("rtx4090-2", [(HOST, 0)], 25.50),
    ("rtx4090-2", [(0, HOST)], 26.77),
    ("ascend-a2", [(0, 1)], 19.37),
    ("ascend-a2", [(0, 1)], 25.74),
    ("ascend-a2", [(0, 8)], 22.60),
]


def bus_factor(name: str, ranks: int) -> float:
    """Return the factor of nccl-tests from bytes a second of the call to those of a link."""
    return (2 if name == "all_reduce" else 1) * (ranks - 1) / ranks


@pytest.mark.parametrize("profile", ALL_REDUCE)
def test_all_reduce_on_one_machine_is_within_20_percent_of_the_published_times(profile: str) -> None:
    machine = MACHINES[profile]
    off = {}
    for nbytes, bus in zip(SIZES, map(float, ALL_REDUCE[profile].split()), strict=True):
        seconds = nbytes * bus_factor("all_reduce", machine.devices) / (bus * GB)
        ours = predicted(machine, "all_reduce", machine.devices, nbytes).seconds
        off[nbytes // MIB] = ours / seconds - 1
    assert all(abs(each) <= WITHIN for each in off.values()), {
        mib: f"{each:+.0%}" for mib, each in off.items()
    }


@pytest.mark.parametrize(("profile", "name", "ranks", "nbytes", "algorithm", "bus"), MORE)
def test_collective_is_within_20_percent_of_a_published_time(
    profile: str, name: str, ranks: int, nbytes: int, algorithm: str | None, bus: float
) -> None:
    seconds = nbytes * bus_factor(name, ranks) / (bus * GB)
    ours = predicted(MACHINES[profile], name, ranks, nbytes, algorithm=algorithm)
    assert ours.seconds == pytest.approx(seconds, rel=WITHIN)


@pytest.mark.parametrize(("profile", "pairs", "rate"), COPIES)
def test_copies_are_within_20_percent_of_published_rates(
    profile: str, pairs: list[tuple[int, int]], rate: float
) -> None:
    machine, nbytes = MACHINES[profile], 1 * GIB
    routes = [machine.route(*pair) for pair in pairs]
    capacity = {link: machine.rate(link) for route in routes for link in route}
    times = simulate([Task(flows=[Flow(route, nbytes)]) for route in routes], capacity)
    assert len(pairs) * nbytes / max(times.end) == pytest.approx(rate * GB, rel=WITHIN)
