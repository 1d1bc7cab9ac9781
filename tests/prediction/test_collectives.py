"""Predicted times of collectives: what they depend on, and what is refused."""

from __future__ import annotations

import time

import pytest

from peerlane.errors import BadArgument, InvalidValue, Unsupported
from peerlane.prediction.collectives import COLLECTIVES, predicted
from peerlane.prediction.machines import MACHINES

pytestmark = pytest.mark.any_schedule

H100, GIB = MACHINES["h100-8"], 1 << 30


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("profile", ["h100-8", "gb200-4", "mi300x"])
def test_more_bytes_never_take_less_time(profile: str, name: str) -> None:
    machine = MACHINES[profile]
    times = [predicted(machine, name, machine.devices, 1 << step).seconds for step in range(35)]
    assert times == sorted(times)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collective_of_4096_ranks_is_predicted_at_once(name: str) -> None:
    begun = time.thread_time()
    few, many = (predicted(H100, name, ranks, GIB) for ranks in (16, 4096))
    assert time.thread_time() - begun < 1
    assert few.seconds < many.seconds < 30 * few.seconds


def test_large_all_reduce_of_one_machine_goes_through_the_switch_that_reduces() -> None:
    time_of = predicted(H100, "all_reduce", 8, GIB)
    assert (time_of.algorithm, time_of.protocol, time_of.bottleneck) == ("nvls", "Simple", "switch")
    assert time_of.seconds < predicted(H100, "all_reduce", 8, GIB, algorithm="ring").seconds
    assert time_of.algorithm_bandwidth == pytest.approx(GIB / time_of.seconds)
    assert time_of.bus_bandwidth == pytest.approx(time_of.algorithm_bandwidth * 2 * 7 / 8)


def test_small_collective_is_bound_by_latency_and_a_large_one_of_several_machines_by_their_network() -> None:
    assert predicted(H100, "all_reduce", 8, 8).bottleneck == "latency"
    assert predicted(H100, "all_to_all", 64, 4 * GIB).bottleneck == "network"


@pytest.mark.parametrize(
    ("name", "ranks", "nbytes", "algorithm", "detail"),
    [
        ("gossip", 8, 1, None, BadArgument("collective", "gossip", choices=COLLECTIVES)),
        ("all_gather", 8, 1, "tree", BadArgument("algorithm", "tree", choices=("ring",))),
        ("all_reduce", 1, 1, None, BadArgument("ranks", 1, least=2, most=1 << 20)),
        ("all_reduce", 12, 1, None, BadArgument("ranks", 12, multiple=8)),
        ("all_reduce", 8, 0, None, BadArgument("nbytes", 0, least=1)),
    ],
)
def test_impossible_collective_is_refused_with_what_is_valid(
    name: str, ranks: int, nbytes: int, algorithm: str | None, detail: BadArgument
) -> None:
    with pytest.raises(InvalidValue) as caught:
        predicted(H100, name, ranks, nbytes, algorithm=algorithm)
    assert caught.value.detail == detail


@pytest.mark.parametrize(
    ("profile", "ranks", "algorithm", "why"),
    [
        ("gb200-4", 8, None, "no rate is published for its network; use up to 4 ranks, or another profile"),
        ("gb200-4", 8, "one-shot", "no rate is published for its network; use up to 4 ranks"),
        ("rtx4090-2", 2, None, "no rate is published for its links; use another profile"),
        ("h100-8", 16, "nvls", "it is predicted on one machine only; take another algorithm"),
        ("h100-8", 8, "tree", "it is for 2 machines or more; take another algorithm"),
        ("mi300x", 8, "nvls", "it needs a switch that reduces, which the machine lacks"),
    ],
)
def test_collective_without_published_rates_or_what_its_algorithm_needs_is_refused(
    profile: str, ranks: int, algorithm: str | None, why: str
) -> None:
    with pytest.raises(Unsupported) as caught:
        predicted(MACHINES[profile], "all_reduce", ranks, GIB, algorithm=algorithm)
    assert why in str(caught.value)
