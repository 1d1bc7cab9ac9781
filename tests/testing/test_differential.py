"""Programs compared with a vendor whose outcome may vary."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from helpers.differential import ALONE, Outcomes, compare, repeat_differing

pytestmark = pytest.mark.any_schedule

OURS = {0: ["a -> 0", "sum"], 1: ["b -> 0", "sum"]}


def _answers(*texts: str) -> Callable[[int], Outcomes]:
    left = list(texts)
    return lambda seed: {seed: [left.pop(0), "sum"]}


def test_repeat_differing_with_one_of_several_outcomes_accepts_it(capsys: pytest.CaptureFixture[str]) -> None:
    theirs = {0: ["a -> 0", "sum"], 1: ["b -> 7", "sum"]}
    varying = repeat_differing(theirs, OURS, _answers("b -> -1", "b -> 7", "b -> 0"))
    assert (theirs, varying) == (OURS, {1})
    assert compare(theirs, OURS, 2, "", varying) == 0
    assert "0 differ; 1 had several outcomes" in capsys.readouterr().out


def test_repeat_differing_with_an_outcome_that_the_vendor_never_has_is_a_difference() -> None:
    theirs = {0: ["a -> 0", "sum"], 1: ["b -> 7", "sum"]}
    texts = ["b -> -1", "b -> 7"] * (ALONE // 2)
    varying = repeat_differing(theirs, OURS, _answers(*texts))
    assert varying == {1}
    assert compare(theirs, OURS, 2, "", varying) == 1


def test_repeat_differing_with_a_disturbed_outcome_counts_those_of_the_process_alone() -> None:
    theirs = {0: ["a -> 5", "sum"], 1: ["b -> 0", "sum"]}
    assert repeat_differing(theirs, OURS, _answers("a -> 0")) == set()
    assert theirs == OURS
