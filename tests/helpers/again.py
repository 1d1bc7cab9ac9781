"""A pytest plugin, beside ``helpers.schedules``: the report of a failed test has the command that runs it again.

The seed of Hypothesis is drawn once, before any worker starts.
"""

from __future__ import annotations

import os
import random
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.schedules import under
from peerlane.backends.virtual.node import schedule

TITLE = "to see it again"
_VARIABLES = (schedule.VARIABLE, "PEERLANE_SEED", "PEERLANE_SOAK")


@pytest.hookimpl(tryfirst=True)  # Hypothesis reads its seed when it is configured
def pytest_configure(config: pytest.Config) -> None:
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(random.SystemRandom().randrange(1 << 32))


def pytest_report_header(config: pytest.Config) -> str:
    schedules = config.option.schedules
    which = (
        f"--schedules={','.join(schedules)}"
        if schedules
        else f"{schedule.VARIABLE}={os.environ[schedule.VARIABLE]}"
    )
    return f"schedule: {which}, --hypothesis-seed={config.option.hypothesis_seed}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[pytest.TestReport]:
    report: pytest.TestReport = yield  # type: ignore[assignment]
    if report.failed:
        report.sections.append((TITLE, command(item)))
    return report  # type: ignore[return-value]


def command(item: pytest.Item) -> str:
    """Return the shell command that runs a test as it ran here, from the root of the repository."""
    python = Path(sys.executable)
    if python.is_relative_to(item.config.rootpath):
        python = python.relative_to(item.config.rootpath)
    settings = [f"{name}={os.environ[name]}" for name in _VARIABLES if name in os.environ]
    words = [*settings, str(python), "-m", "pytest", item.nodeid]
    if (wanted := under(item)) is not None:
        words += ["--schedules", wanted]
    if item.get_closest_marker("soak") is not None:
        words += ["-m", "soak"]
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        words.append(f"--hypothesis-seed={item.config.option.hypothesis_seed}")
    return shlex.join(words)
