"""How the score of the race cases is counted."""

from __future__ import annotations

from typing import Any

import pytest

from checker.race_cases import CASES
from checker.race_cases.score import judged, summary

RACY, CLEAN, RACY_WITH_LEFT_NOTIFY = CASES["conflict-002"], CASES["conflict-001"], CASES["sync-008"]


def _race(*lines: tuple[str, int], kind: str = "race") -> dict[str, Any]:
    return {"kind": kind, "sites": [{"file": f"/somewhere/{file}", "line": line} for file, line in lines]}


def test_race_cases_are_those_with_a_counterpart() -> None:
    folders = [name.partition("-")[0] for name in CASES]
    assert {folder: folders.count(folder) for folder in folders} == {
        "conflict": 38,
        "sync": 12,
        "misc": 18,
        "hybrid": 22,
    }
    assert sum(case.race is not None for case in CASES.values()) == 56


def test_judged_case_whose_two_lines_are_named_is_right() -> None:
    assert judged(RACY, [_race(*RACY.lines)]).is_right


def test_judged_case_with_one_wrong_line_is_missed_and_a_false_alarm() -> None:
    line, other = sorted(RACY.lines)
    verdict = judged(RACY, [_race(line, (other[0], other[1] + 1))])
    assert (verdict.is_detected, len(verdict.unearned)) == (False, 1)


def test_judged_case_without_a_race_is_right_only_without_findings() -> None:
    assert judged(CLEAN, []).is_right
    assert not judged(CLEAN, [_race(("conflict.py", 1), ("conflict.py", 2))]).is_right


def test_judged_case_that_earns_another_kind_is_right_with_it() -> None:
    race, left = _race(*RACY_WITH_LEFT_NOTIFY.lines), _race(("sync.py", 1), kind="unconsumed-notify")
    assert judged(RACY_WITH_LEFT_NOTIFY, [race, left]).is_right
    assert not judged(RACY, [_race(*RACY.lines), left]).is_right


def test_summary_of_one_detected_one_missed_and_one_false_alarm_counts_each() -> None:
    alarm = _race(("conflict.py", 1), ("conflict.py", 2))
    verdicts = [judged(RACY, [_race(*RACY.lines)]), judged(RACY_WITH_LEFT_NOTIFY, []), judged(CLEAN, [alarm])]
    precision, recall, line = summary(verdicts)
    assert (precision, recall) == pytest.approx((0.5, 0.5))
    assert line == "1 of 2 races found, 1 cases with a false alarm: precision 0.500, recall 0.500, F1 0.500"
