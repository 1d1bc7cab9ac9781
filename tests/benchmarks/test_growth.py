"""The growth of costs: exponents, the table, and a work in a fresh process."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import growth
from benchmarks.__main__ import main

pytestmark = pytest.mark.any_schedule


@pytest.mark.parametrize(
    ("cost", "exponent", "is_within"),
    [
        (lambda n: n, 1.0, True),
        (lambda n: n * math.log(n), 1.125, True),
        (lambda n: n**1.5, 1.5, False),
        (lambda n: n * n, 2.0, False),
        (lambda n: 1.0, 0.0, True),
    ],
)
def test_growth_of_a_cost_has_its_exponent(
    cost: Callable[[int], float], exponent: float, is_within: bool
) -> None:
    samples = {n: [1e-6 * cost(n), 3e-6 * cost(n), 2e-6 * cost(n)] for n in (10, 100, 1_000, 10_000)}
    grown = growth.grown("a work", samples)
    assert grown.exponent == pytest.approx(exponent, abs=0.001)
    assert grown.is_within is is_within
    assert grown.seconds[10] == pytest.approx((2e-6 * cost(10), 1e-6 * cost(10), 3e-6 * cost(10)))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", [*growth.WORKS])
def test_growth_of_each_work_is_measured_for_few_objects(name: str) -> None:
    assert growth._timed(growth.WORKS[name], 2) > 0


@pytest.mark.timeout(180)
def test_growth_command_prints_a_row_and_writes_json_and_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, picture = tmp_path / "growth.json", tmp_path / "growth.png"
    words = ["--rounds", "1", "--json", str(target), "--plot", str(picture)]
    assert main(["growth", "a transfer of shuffled", *words]) in (0, 1)
    [row] = json.loads(target.read_text())["growth"]
    assert row["work"] == "nixl: a transfer of shuffled descriptors"
    assert {*row["seconds"]} == {"10", "100", "1000", "10000"}
    assert row["exponent"] < 1.6, "twice the descriptors cost more than three times as much"
    assert "exponent" in capsys.readouterr().out
    assert picture.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("more", [[], ["streams"]])
def test_growth_command_without_such_a_work_names_the_valid_ones(
    more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["growth", "no such work", *more]) == 2
    assert "no such work; valid are nixl:" in " ".join(capsys.readouterr().err.split())


def test_growth_picture_has_milliseconds_for_all_objects() -> None:
    figure = growth.picture([growth.grown("a work", {10: [0.002], 100: [0.02]})])
    [axes] = figure.axes
    assert axes.get_title(loc="left").rstrip() == "a work: n^1.00"
    assert "milliseconds of processor time for all objects: lower is better" in [
        each.get_text() for each in axes.texts
    ]
    assert (axes.get_xlabel(), axes.get_yscale()) == ("objects", "log")
    assert axes.lines[0].get_ydata() == pytest.approx([2.0, 20.0])
