"""The page of a suite: how many tests of each file pass, and why the others do not."""

from __future__ import annotations

import datetime
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version

from cuda_suite.running import CRASHED, FAILED, KERNEL, PASSED, SKIPPED, Outcome
from cuda_suite.suites import Group, Suite

_PAGE = """\
# {title}

`make test-cuda SUITE={name} TESTS=FOLDER VERSION=VERSION` runs these tests on {devices} virtual devices, and writes
this page. They are not part of this repository: `FOLDER` is {source}. They run unmodified.{about}

{date}, tests at {commit}, {wheels}, Python {python}, no GPU.

{groups}

## Those that fail

{failing}

## Those that need a kernel

{kernels}

## Why tests are skipped

{skipped}
"""
_GROUP = """\
## Tests of {about}

| file | pass | fail | need a kernel | are skipped |
|---|---|---|---|---|
{rows}

**Of the {ran} tests that ran and need no kernel, {passed} pass ({percent:.1f} %); {crashed} crashed.**"""


def page_of(
    name: str, suite: Suite, commit: str, results: Mapping[Group, Mapping[str, Sequence[Outcome]]]
) -> str:
    """Return the page of the outcomes of each file of each group."""
    every = [each for files in results.values() for outcomes in files.values() for each in outcomes]
    skipped = Counter(each.text.partition("\n")[0].strip() for each in every if each.kind == SKIPPED)
    return _PAGE.format(
        title=suite.title,
        name=name,
        devices=suite.devices,
        source=suite.source,
        about=f" {suite.about}" if suite.about else "",
        date=datetime.date.today(),
        commit=commit,
        wheels=", ".join(f"{each} {version(each)}" for each in suite.wheels),
        python=platform.python_version(),
        groups="\n\n".join(_group_text(group, files) for group, files in results.items()),
        failing=_grouped(each for each in every if each.kind in (FAILED, CRASHED)),
        kernels=_grouped(each for each in every if each.kind == KERNEL),
        skipped="\n".join(f"* {why} ({count})." for why, count in skipped.most_common()) or "None.",
    )


def counts_of(outcomes: Iterable[Outcome]) -> Counter[str]:
    """Return how many tests ended in each way."""
    return Counter(each.kind for each in outcomes)


def passing_part(counts: Counter[str]) -> tuple[int, int]:
    """Return how many tests pass, of how many that ran and need no kernel."""
    return counts[PASSED], counts[PASSED] + counts[FAILED] + counts[CRASHED]


def row_of(file: str, outcomes: Sequence[Outcome]) -> str:
    """Return the row of a file in a table."""
    counts = counts_of(outcomes)
    failed = counts[FAILED] + counts[CRASHED]
    return f"| `{file}` | {counts[PASSED]} | {failed} | {counts[KERNEL]} | {counts[SKIPPED]} |"


def _group_text(group: Group, files: Mapping[str, Sequence[Outcome]]) -> str:
    counts = counts_of(each for outcomes in files.values() for each in outcomes)
    passed, ran = passing_part(counts)
    return _GROUP.format(
        about=group.about,
        rows="\n".join(row_of(file, outcomes) for file, outcomes in files.items()),
        ran=ran,
        passed=passed,
        percent=100 * passed / max(ran, 1),
        crashed=counts[CRASHED] or "none",
    )


def _grouped(outcomes: Iterable[Outcome]) -> str:
    groups: dict[str, list[str]] = {}
    for each in outcomes:
        groups.setdefault(each.reason or "Not explained yet", []).append(f"`{each.file}::{each.name}`")
    return (
        "\n".join(f"* {reason} ({len(names)}): {', '.join(names)}." for reason, names in groups.items())
        or "None."
    )
