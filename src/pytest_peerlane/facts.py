"""The facts of a test that reports show: they are its ``user_properties``, so that JUnit XML has them too."""

from __future__ import annotations

import pytest

_PREFIX = "peerlane_"
NODE = f"{_PREFIX}node"
SCHEDULE = f"{_PREFIX}schedule"
REPEAT = f"{_PREFIX}repeat"
LEFT_BEHIND = f"{_PREFIX}left_behind"
FINDINGS = f"{_PREFIX}findings"
UNCERTAIN = f"{_PREFIX}uncertain_findings"


def begin(item: pytest.Item) -> None:
    """Drop the facts of an earlier run of the test, which a plugin for flaky tests runs again."""
    item.user_properties[:] = [each for each in item.user_properties if not each[0].startswith(_PREFIX)]


def add(item: pytest.Item, name: str, text: str) -> None:
    """Add a fact to the reports of the test from its present phase on."""
    item.user_properties.append((name, text))


def of(report: pytest.TestReport) -> dict[str, str]:
    """Return the facts of a report by name; empty for a test that used no node."""
    return {name: str(text) for name, text in report.user_properties if name.startswith(_PREFIX)}
