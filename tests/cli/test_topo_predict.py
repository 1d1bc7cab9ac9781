"""``peerlane topo --predict``: its table, its JSON and what it refuses."""

from __future__ import annotations

import argparse
import json

import pytest

from peerlane.cli import topo
from peerlane.errors import BadArgument, InvalidValue, Unsupported
from peerlane.prediction.collectives import COLLECTIVES, predicted
from peerlane.prediction.machines import MACHINES

pytestmark = pytest.mark.any_schedule

MIB = 1 << 20


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PEERLANE_NODE", raising=False)


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    topo.add_arguments(parser)
    return topo.run(parser.parse_args(arguments))


def test_json_has_the_predicted_time_of_each_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--profile", "h100-8", "--predict", "all_reduce", "--sizes", "1M:4M", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["collective"], result["profile"], result["ranks"]) == ("all_reduce", "h100-8", 8)
    assert [each["nbytes"] for each in result["times"]] == [MIB, 2 * MIB, 4 * MIB]
    for each in result["times"]:
        expected = predicted(MACHINES["h100-8"], "all_reduce", 8, each["nbytes"])
        assert each["seconds"] == expected.seconds
        assert (each["algorithm"], each["bottleneck"]) == (expected.algorithm, expected.bottleneck)


def test_table_has_a_row_for_each_size_and_lists_what_is_not_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("--profile", "mi300x", "--predict", "all_gather", "--sizes", "64K,1G", "--ranks", "4096") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "all_gather of 4,096 ranks on 512 machines mi300x, predicted"
    assert [line.split()[:2] for line in lines[3:5]] == [["64", "KiB"], ["1", "GiB"]]
    assert lines[-1].startswith("Not known: ")


def test_devices_of_the_node_are_the_ranks_and_an_algorithm_can_be_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = (
        "--profile",
        "h200-8",
        "--devices",
        "4",
        "--predict",
        "all_reduce",
        "--sizes",
        "1G",
        "--json",
    )
    assert run(*arguments, "--algorithm", "ring") == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["ranks"], result["times"][0]["algorithm"]) == (4, "ring")


def test_own_schedule_names_the_link_that_is_busy(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (
        "--profile",
        "mi300x",
        "--predict",
        "all_reduce",
        "--algorithm",
        "one-shot",
        "--sizes",
        "64M",
    )
    assert run(*arguments, "--json") == 0
    (time_of,) = json.loads(capsys.readouterr().out)["times"]
    expected = predicted(MACHINES["mi300x"], "all_reduce", 8, 64 * MIB, algorithm="one-shot")
    assert (time_of["protocol"], time_of["bottleneck"]) == ("copies", expected.bottleneck)
    assert time_of["seconds"] == expected.seconds


def test_options_of_predictions_need_one_and_unknown_names_are_refused() -> None:
    with pytest.raises(InvalidValue) as caught:
        run("--sizes", "1M")
    assert caught.value.detail == BadArgument("--predict", None, choices=COLLECTIVES)
    with pytest.raises(InvalidValue) as caught:
        run("--profile", "h100-8", "--predict", "gossip")
    assert caught.value.detail == BadArgument("collective", "gossip", choices=COLLECTIVES)
    with pytest.raises(InvalidValue):
        run("--profile", "h100-8", "--predict", "all_reduce", "--dialect", "cuda")
    with pytest.raises(InvalidValue):
        run("--profile", "h100-8", "--predict", "all_reduce", "--sizes", "1M:much")
    for no_range in ("1G:1M", "1M,2M:1G"):
        with pytest.raises(InvalidValue) as caught:
            run("--profile", "h100-8", "--predict", "all_reduce", "--sizes", no_range)
        assert (caught.value.detail.name, caught.value.detail.given) == ("--sizes", no_range)
    with pytest.raises(Unsupported) as unsupported:
        run("--predict", "all_reduce")
    assert unsupported.value.detail == BadArgument("profile", "default", choices=tuple(MACHINES))
