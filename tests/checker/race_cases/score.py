"""Run cases under ``peerlane check`` and compare its findings with the races."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checker.checking import checked, described

from . import CASES, Case

#: What the checker must reach.
PRECISION, RECALL = 0.98, 0.96


@dataclass(frozen=True)
class Verdict:
    """What the checker said of a case.

    Attributes
    ----------
    case : Case
    is_found : bool
        A race was reported with both lines.
    unearned : tuple of finding
        What was reported and is not so.
    """

    case: Case
    is_detected: bool
    unearned: tuple[dict[str, Any], ...]

    @property
    def is_right(self) -> bool:
        return self.is_detected == (self.case.race is not None) and not self.unearned


def findings_of(case: Case, *, apart: bool = False) -> tuple[dict[str, Any], ...]:
    """Run a case under ``peerlane check`` and return the findings; ``apart``: its ranks are on different machines.

    Raises
    ------
    RuntimeError
        The program failed.
    """
    done = checked("checker.race_cases", case.name, ranks=case.ranks, apart=apart)
    if done.code not in (0, 3):
        raise RuntimeError(f"{case.name} ended with {done.code}:\n{done.output}")
    return done.findings


def judged(case: Case, findings: Iterable[dict[str, Any]]) -> Verdict:
    """Compare the findings of a case with its race."""
    is_detected = False
    unearned = []
    for finding in findings:
        lines = {(Path(site["file"]).name, site["line"]) for site in finding["sites"]}
        if finding["kind"] == "race" and case.race and lines == case.lines:
            is_detected = True
        elif finding["kind"] not in case.also:
            unearned.append(finding)
    return Verdict(case, is_detected, tuple(unearned))


def summary(verdicts: Sequence[Verdict]) -> tuple[float, float, str]:
    """Return precision and recall, and a line that tells them.

    A case with findings that it did not earn is one false alarm, also if its race was found.
    """
    racy = [verdict for verdict in verdicts if verdict.case.race]
    detected = sum(verdict.is_detected for verdict in racy)
    alarms = sum(bool(verdict.unearned) for verdict in verdicts)
    precision = detected / (detected + alarms) if detected else 0.0
    recall = detected / len(racy) if racy else 1.0
    score = 2 * precision * recall / (precision + recall) if detected else 0.0
    counts = f"{detected} of {len(racy)} races found, {alarms} cases with a false alarm"
    return precision, recall, f"{counts}: precision {precision:.3f}, recall {recall:.3f}, F1 {score:.3f}"


def main(names: Sequence[str]) -> int:
    """Print the score of these cases, or of all; return 1 if it is below what the checker must reach."""
    cases = [CASES[name] for name in names] or list(CASES.values())
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        findings = list(pool.map(findings_of, cases))
    verdicts = [judged(case, each) for case, each in zip(cases, findings, strict=True)]
    certain = [
        judged(case, (finding for finding in each if finding["certain"]))
        for case, each in zip(cases, findings, strict=True)
    ]
    for verdict in verdicts:
        if not verdict.is_right:
            missed = "missed, " if verdict.case.race and not verdict.is_detected else ""
            print(
                f"{verdict.case.name} ({verdict.case.body.__name__}): {missed}{len(verdict.unearned)} unearned"
            )
            print(textwrap.indent(described(verdict.unearned), "    "))
    pairs = zip(verdicts, certain, strict=True)
    unsure = [one.case.name for one, sure in pairs if one.is_detected and not sure.is_detected]
    if unsure:
        print(f"found by uncertain findings alone: {', '.join(unsure)}")
    precision, recall, line = summary(verdicts)
    print(f"{len(cases)} cases, all findings: {line}")
    print(f"{len(cases)} cases, certain findings: {summary(certain)[2]}")
    return 0 if precision >= PRECISION and recall >= RECALL else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
