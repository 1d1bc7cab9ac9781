"""A pytest plugin: ``--schedules eager,lazy,seeded`` runs each test under each of these schedules, in one run.

A test with the mark ``any_schedule`` runs under the first of them alone.  With ``--in-turn`` each case of a test with
the mark ``schedules_in_turn`` runs under one of them, and the next such case of the file under the next one.  Seeds,
and the schedule of the first case, are drawn once, before any worker starts.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import pytest

from peerlane.backends.virtual.node import schedule

Case: TypeAlias = "tuple[tuple[str, int], ...]"

_ARGUMENT, _MARK = "schedule_of_the_test", "any_schedule"
_MARK_IN_TURN = "schedules_in_turn"
_OWN = ("schedule", "each_schedule")  # arguments and fixtures of tests that bring schedules


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--schedules",
        type=lambda text: text.split(","),
        default=[],
        metavar="NAME,...",
        help="run each test under each of these, instead of under PEERLANE_SCHEDULE",
    )
    parser.addoption(
        "--in-turn",
        action="store_true",
        help=f"run each case of a test that is marked {_MARK_IN_TURN} under one of its schedules",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    options, of_a_worker = config.option, getattr(config, "workerinput", {})
    options.schedules = of_a_worker.get("schedules") or [_with_seed(each) for each in options.schedules]
    options.first_turn = of_a_worker.get("first_turn", random.SystemRandom().randrange(1 << 32))
    first = os.environ.get(schedule.VARIABLE) or "eager"
    os.environ[schedule.VARIABLE] = options.schedules[0] if options.schedules else _with_seed(first)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_configure_node(node: Any) -> None:
    node.workerinput["schedules"] = node.config.option.schedules
    node.workerinput["first_turn"] = node.config.option.first_turn


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    schedules = metafunc.config.option.schedules
    if schedules and metafunc.definition.get_closest_marker(_MARK) is None:
        metafunc.fixturenames.append(_ARGUMENT)
        metafunc.parametrize(_ARGUMENT, schedules, ids=[each.partition(":")[0] for each in schedules])


@pytest.hookimpl(trylast=True)  # of the items that ``-m`` leaves
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put one schedule behind the other, so that no fixture of a module serves tests of two."""
    schedules = config.option.schedules
    if config.option.in_turn:
        others = _out_of_turn(items, config.option.first_turn)
        config.hook.pytest_deselected(items=others)
        items[:] = [each for each in items if each not in others]
    if schedules:
        again = {each for each in items if _is_marked(each) and under(each) not in (None, schedules[0])}
        config.hook.pytest_deselected(items=again)
        kept = [each for each in items if each not in again]
        items[:] = sorted(kept, key=lambda item: schedules.index(under(item) or schedules[0]))


def _out_of_turn(items: Sequence[pytest.Item], first: int) -> set[pytest.Item]:
    """Return the items to leave out so that each case runs under one schedule, and the cases of a file under each."""
    cases: dict[tuple[str, Case], list[tuple[pytest.Item, str]]] = {}
    for item in items:
        params = dict(item.callspec.params) if hasattr(item, "callspec") else {}
        arguments = _OWN if _is_marked(item) else (*_OWN, _ARGUMENT)
        argument = next((each for each in arguments if each in params), None)
        if argument is not None and item.get_closest_marker(_MARK_IN_TURN) is not None:
            chosen = params.pop(argument)
            case = tuple((name, id(value)) for name, value in params.items())
            cases.setdefault((item.nodeid.partition("[")[0], case), []).append((item, chosen))
    others = set()
    turns: Counter[str] = Counter()  # of each file, so far
    for (name, _), rows in cases.items():
        file, schedules = name.partition("::")[0], list(dict.fromkeys(chosen for _, chosen in rows))
        turn = schedules[(first + turns[file]) % len(schedules)]
        turns[file] += 1
        others |= {item for item, chosen in rows if chosen != turn}
    return others


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
