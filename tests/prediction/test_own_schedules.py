"""peerlane's own schedules: a few ranks that stand for all take as long as all ranks, and move the same bytes."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peerlane.errors import BadArgument, InvalidValue
from peerlane.prediction.collectives import predicted
from peerlane.prediction.machines import MACHINES, Machine
from peerlane.prediction.own_schedules import OWN, simulated

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]

ALIKE = sorted(name for name, own in OWN.items() if own.is_alike)
#: Copies within a device take no time: the first rank makes one more of them than the others.
MACHINE = st.builds(
    lambda devices, is_mesh, network: Machine("any", devices, is_mesh, 3e9, 3e9, 1e9, network=network),
    st.sampled_from([2, 3, 4]),
    st.booleans(),
    st.sampled_from([1e9, 5e9]),
)


@settings(max_examples=40)
@given(MACHINE, st.integers(1, 3), st.sampled_from(ALIKE), st.integers(1, 40_000))
def test_ranks_that_stand_for_all_take_as_long_as_all(
    machine: Machine, machines: int, algorithm: str, lines: int
) -> None:
    ranks = machines * machine.devices
    nbytes = lines * 64 * ranks  # equal shares: of other sizes the last ranks have less to do
    few = simulated(machine, algorithm, ranks, nbytes, latency=0.0)
    everyone = simulated(machine, algorithm, ranks, nbytes, latency=0.0, period=ranks)
    assert len(few.end) < len(everyone.end)
    assert max(few.end) == pytest.approx(max(everyone.end), rel=1e-6)


@pytest.mark.parametrize("algorithm", ["two-shot", "one-shot", "ring-by-rank", "by-machine"])
def test_own_all_reduce_moves_the_bytes_of_its_algorithm(algorithm: str) -> None:
    nbytes, ranks = 8 << 20, 8
    out = simulated(MACHINES["h100-8"], algorithm, ranks, nbytes, period=ranks).moved
    each = [out["out", rank, -1] / nbytes for rank in range(ranks)]
    expected = {
        "two-shot": [2 * 7 / 8] * 8,  # its bytes of the other shares, and its result to the others
        "one-shot": [7.0] * 8,
        "ring-by-rank": [2.0] * 6
        + [1.0] * 2,  # up, and round again from the last one, but for the end of the round
        "by-machine": [2 * 7 / 8] * 8,
    }[algorithm]
    assert each == pytest.approx(expected)


def test_no_link_moves_more_than_it_can() -> None:
    times = simulated(MACHINES["mi300x"], "two-shot", 16, 32 << 20)
    for link, nbytes in times.moved.items():
        assert nbytes <= MACHINES["mi300x"].rate(link) * times.busy[link] * (1 + 1e-9)
        assert times.busy[link] <= max(times.end)


def test_two_shot_is_slower_than_the_vendors_ring_and_faster_than_one_shot_for_large_calls() -> None:
    def seconds(algorithm: str) -> float:
        return predicted(MACHINES["h100-8"], "all_reduce", 8, 256 << 20, algorithm=algorithm).seconds

    assert seconds("ring") < seconds("two-shot") < seconds("one-shot")


def test_all_reduce_of_4096_ranks_takes_seconds_to_predict() -> None:
    begun = time.thread_time()
    time_of = predicted(MACHINES["h100-8"], "all_reduce", 4096, 64 << 20, algorithm="two-shot")
    assert (
        time_of.seconds
        > predicted(MACHINES["h100-8"], "all_reduce", 64, 64 << 20, algorithm="two-shot").seconds
    )
    assert time.thread_time() - begun < 60


@pytest.mark.parametrize(
    ("algorithm", "ranks", "most"), [("two-shot", 8192, 4096), ("ring-by-rank", 128, 64)]
)
def test_own_schedule_of_too_many_ranks_is_refused(algorithm: str, ranks: int, most: int) -> None:
    with pytest.raises(InvalidValue) as caught:
        predicted(MACHINES["h100-8"], "all_reduce", ranks, 1 << 20, algorithm=algorithm)
    assert caught.value.detail == BadArgument("ranks", ranks, least=2, most=most)
