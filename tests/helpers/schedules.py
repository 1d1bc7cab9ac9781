"""A pytest plugin: ``--schedules eager,lazy,seeded`` runs each test under each of these schedules, in one run.

A test with the mark ``any_schedule`` runs under the first of them alone.  Seeds are drawn once, before any worker
starts.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from peerlane.backends.virtual.node import schedule

_ARGUMENT, _MARK = "schedule_of_the_test", "any_schedule"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--schedules",
        type=lambda text: text.split(","),
        default=[],
        metavar="NAME,...",
        help="run each test under each of these, instead of under PEERLANE_SCHEDULE",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    options, of_a_worker = config.option, getattr(config, "workerinput", {})
    options.schedules = of_a_worker.get("schedules") or [_with_seed(each) for each in options.schedules]
    first = os.environ.get(schedule.VARIABLE) or "eager"
    os.environ[schedule.VARIABLE] = options.schedules[0] if options.schedules else _with_seed(first)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_configure_node(node: Any) -> None:
    node.workerinput["schedules"] = node.config.option.schedules


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    schedules = metafunc.config.option.schedules
    if schedules and metafunc.definition.get_closest_marker(_MARK) is None:
        metafunc.fixturenames.append(_ARGUMENT)
        metafunc.parametrize(_ARGUMENT, schedules, ids=[each.partition(":")[0] for each in schedules])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put one schedule behind the other, so that no fixture of a module serves tests of two."""
    schedules = config.option.schedules
    if schedules:
        again = {each for each in items if _is_marked(each) and under(each) not in (None, schedules[0])}
        config.hook.pytest_deselected(items=again)
        kept = [each for each in items if each not in again]
        items[:] = sorted(kept, key=lambda item: schedules.index(under(item) or schedules[0]))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    before = os.environ[schedule.VARIABLE]
    os.environ[schedule.VARIABLE] = under(item) or before
    try:
        return (yield)  # type: ignore[return-value]
    finally:
        os.environ[schedule.VARIABLE] = before


def under(item: pytest.Item) -> str | None:
    """Return the schedule that ``--schedules`` gives a test, or None."""
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get(_ARGUMENT)


def _is_marked(item: pytest.Item) -> bool:
    return item.get_closest_marker(_MARK) is not None


def _with_seed(text: str) -> str:
    wanted = schedule.parse(text, schedule.VARIABLE)
    if wanted.name == "seeded" and wanted.seed is None:
        wanted = wanted._replace(seed=random.SystemRandom().randrange(1 << 32))
    return str(wanted)
