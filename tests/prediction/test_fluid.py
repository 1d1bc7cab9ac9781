"""Max-min fair shares and the simulation of tasks, against a reference in fractions that recomputes everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerlane.prediction.fluid import Flow, Task, fair_rates, simulate

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

LINKS = "abcd"
ROUTES = st.lists(st.sampled_from(LINKS), min_size=1, max_size=3, unique=True).map(tuple)
CAPACITIES = st.fixed_dictionaries({link: st.integers(1, 9) for link in LINKS})


@st.composite
def task_lists(draw: st.DrawFn) -> list[Task]:
    """Draw up to seven tasks; each may be after some of those before it."""
    tasks: list[Task] = []
    for number in range(draw(st.integers(1, 7))):
        after = draw(st.lists(st.integers(0, number - 1), max_size=3)) if number else []
        flows = draw(st.lists(st.builds(Flow, ROUTES, st.integers(0, 20)), max_size=2))
        tasks.append(Task(after, draw(st.integers(0, 3)), flows))
    return tasks


def filled_together(routes: Sequence[tuple[str, ...]], capacity: Mapping[str, int]) -> list[Fraction]:
    """Return max-min fair rates: all flows grow together, and stop one after the other at full links."""
    rates, growing = [Fraction(0)] * len(routes), set(range(len(routes)))
    while growing:
        used = {
            link: sum((rates[i] for i, route in enumerate(routes) if link in route), Fraction(0))
            for link in capacity
        }
        counts = Counter(link for i in growing for link in routes[i])
        grow = min((capacity[link] - used[link]) / Fraction(count) for link, count in counts.items())
        for i in growing:
            rates[i] += grow
        full = {link for link, count in counts.items() if used[link] + grow * count == capacity[link]}
        growing = {i for i in growing if not full & set(routes[i])}
    return rates


def reference_ends(tasks: Sequence[Task], capacity: Mapping[str, int]) -> list[Fraction]:
    """Return when tasks end; each event looks at all tasks again."""
    ends: list[Fraction | None] = [None] * len(tasks)
    starts: list[Fraction | None] = [None] * len(tasks)
    left = [[Fraction(flow.nbytes) for flow in task.flows] for task in tasks]
    now = Fraction(0)
    while None in ends:
        changed = True
        while changed:  # what begins and ends now
            changed = False
            for i, task in enumerate(tasks):
                if starts[i] is None and all(ends[each] is not None for each in task.after):
                    starts[i], changed = now, True
                start = starts[i]
                if (
                    ends[i] is None
                    and start is not None
                    and now >= start + Fraction(task.latency)
                    and not any(left[i])
                ):
                    ends[i], changed = now, True
        moving = [
            (i, at)
            for i, task in enumerate(tasks)
            for at in range(len(task.flows))
            if (start := starts[i]) is not None and now >= start + Fraction(task.latency) and left[i][at]
        ]
        rates = filled_together([tasks[i].flows[at].route for i, at in moving], capacity)
        due = [
            start + Fraction(tasks[i].latency) - now
            for i, start in enumerate(starts)
            if start is not None and start + Fraction(tasks[i].latency) > now
        ]
        done = [left[i][at] / rate for (i, at), rate in zip(moving, rates, strict=True)]
        if not due and not done:
            continue
        step = min([*due, *done])
        for (i, at), rate in zip(moving, rates, strict=True):
            left[i][at] -= rate * step
        now += step
    return [end for end in ends if end is not None]


@given(st.lists(ROUTES, min_size=1, max_size=8), CAPACITIES)
def test_fair_rates_are_those_of_flows_that_grow_together(
    routes: list[tuple[str, ...]], capacity: dict[str, int]
) -> None:
    assert fair_rates(routes, capacity) == pytest.approx(
        [float(each) for each in filled_together(routes, capacity)]
    )


@given(st.lists(ROUTES, min_size=1, max_size=8), CAPACITIES)
def test_fair_rates_fill_a_link_of_each_flow_and_overfill_none(
    routes: list[tuple[str, ...]], capacity: dict[str, int]
) -> None:
    rates = fair_rates(routes, capacity)
    used = {link: sum(r for r, route in zip(rates, routes, strict=True) if link in route) for link in LINKS}
    assert all(used[link] <= capacity[link] * (1 + 1e-9) for link in LINKS)
    for rate, route in zip(rates, routes, strict=True):
        full = [link for link in route if used[link] >= capacity[link] * (1 - 1e-9)]
        assert any(
            rate >= other * (1 - 1e-9)
            for link in full
            for other in [max(r for r, o in zip(rates, routes, strict=True) if link in o)]
        )


@given(task_lists(), CAPACITIES)
def test_simulated_ends_are_those_of_the_reference(tasks: list[Task], capacity: dict[str, int]) -> None:
    times = simulate(tasks, capacity)
    assert times.end == pytest.approx([float(each) for each in reference_ends(tasks, capacity)])


@given(task_lists(), CAPACITIES)
def test_simulated_links_move_all_bytes_and_no_more_than_they_can(
    tasks: list[Task], capacity: dict[str, int]
) -> None:
    times = simulate(tasks, capacity)
    asked: Counter[str] = Counter()
    for task in tasks:
        for flow in task.flows:
            asked.update(dict.fromkeys(flow.route, flow.nbytes))
    for link in LINKS:
        assert times.moved[link] == pytest.approx(asked[link])
        assert times.moved[link] <= times.busy[link] * capacity[link] * (1 + 1e-9)
        assert times.busy[link] <= max(times.end) * (1 + 1e-9)


def test_flows_that_share_a_link_take_twice_as_long_and_a_third_one_takes_the_rest() -> None:
    tasks = [
        Task(flows=[Flow(("a",), 10)]),
        Task(flows=[Flow(("a", "b"), 10)]),
        Task(flows=[Flow(("b",), 30)]),
    ]
    assert simulate(tasks, {"a": 10, "b": 20}).end == pytest.approx([2.0, 2.0, 2.0])
