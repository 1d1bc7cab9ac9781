"""The table of docs/reference/node.md, which mistakes each schedule shows, with a program for each row."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import peerlane as pl
from helpers.promises import Node, filled

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(60)]

PAGE = (Path(__file__).parents[3] / "docs/reference/node.md").read_text()
EVERY, SOME, NEVER = "shows every time", "shows for some seeds", "does not show"
CHANCE = "shows by chance"  # a test can assert nothing about it
SCHEDULES = ("eager", "lazy", "seeded")
NBYTES = 64
RUNS, SEEDS = 3, 24
NEW = b"\2" * NBYTES

Program = Callable[[pl.Device, pl.Device, pl.Stream, pl.Stream], bool]


def _look_before_the_wait(d0: pl.Device, _d1: pl.Device, s: pl.Stream, _t: pl.Stream) -> bool:
    a = filled(d0, NBYTES, 1)
    a.fill(2, stream=s)
    return bytes(a) == NEW


def _source_changed_by_the_host(d0: pl.Device, d1: pl.Device, s: pl.Stream, _t: pl.Stream) -> bool:
    a, b = filled(d0, NBYTES, 2), filled(d1, NBYTES, 0)
    b.copy_from(a, stream=s)
    a.view()[:] = 9
    s.sync()
    return bytes(b) == NEW


def _no_wait_between_streams(d0: pl.Device, d1: pl.Device, s: pl.Stream, t: pl.Stream) -> bool:
    a, b = filled(d0, NBYTES, 1), filled(d1, NBYTES, 0)
    a.fill(2, stream=s)
    b.copy_from(a, stream=t)
    t.sync()
    return bytes(b) == NEW


def _no_wait_between_streams_that_are_synchronized(
    d0: pl.Device, d1: pl.Device, s: pl.Stream, t: pl.Stream
) -> bool:
    a, b = filled(d0, NBYTES, 1), filled(d1, NBYTES, 0)
    a.fill(2, stream=s)
    b.copy_from(a, stream=t)
    s.sync()
    t.sync()
    return bytes(b) == NEW


def _source_changed_by_another_stream(d0: pl.Device, d1: pl.Device, s: pl.Stream, t: pl.Stream) -> bool:
    a, b = filled(d0, NBYTES, 2), filled(d1, NBYTES, 0)
    b.copy_from(a, stream=s)
    a.fill(9, stream=t)
    t.sync()
    s.sync()
    return bytes(b) == NEW


def _event_recorded_before_its_data(d0: pl.Device, d1: pl.Device, s: pl.Stream, t: pl.Stream) -> bool:
    a, b = filled(d0, NBYTES, 1), filled(d1, NBYTES, 0)
    done = s.record()
    a.fill(2, stream=s)
    t.wait(done)
    b.copy_from(a, stream=t)
    t.sync()
    return bytes(b) == NEW


def _notify_recorded_before_its_data(d0: pl.Device, d1: pl.Device, s: pl.Stream, t: pl.Stream) -> bool:
    a, b, ready = filled(d0, NBYTES, 1), filled(d1, NBYTES, 0), d0.create_notify()
    s.notify(ready)
    a.fill(2, stream=s)
    t.wait(ready)
    b.copy_from(a, stream=t)
    t.sync()
    return bytes(b) == NEW


def _notify_dropped(d0: pl.Device, _d1: pl.Device, _s: pl.Stream, t: pl.Stream) -> bool:
    t.wait(d0.create_notify())
    t.sync(timeout=0.2)
    return True


def _binary_notify_doubled(d0: pl.Device, _d1: pl.Device, s: pl.Stream, t: pl.Stream) -> bool:
    ready = d0.create_notify("binary")
    s.notify(ready)
    s.notify(ready)
    s.sync()
    t.wait(ready)
    t.sync(timeout=20)
    return True


def _strict_notify_doubled(d0: pl.Device, _d1: pl.Device, s: pl.Stream, t: pl.Stream) -> bool:
    ready = d0.create_notify("strict")
    s.notify(ready)
    s.notify(ready)
    t.wait(ready)
    t.sync(timeout=20)
    s.sync(timeout=20)
    return True


def _range_beyond_the_allocation(d0: pl.Device, d1: pl.Device, s: pl.Stream, _t: pl.Stream) -> bool:
    a, b = filled(d0, NBYTES, 2), filled(d1, NBYTES, 0)
    pl.raw.copy(b.address + 8, a.address, NBYTES, stream=s)
    return True


def _wrong_offset_inside_the_allocation(d0: pl.Device, d1: pl.Device, s: pl.Stream, _t: pl.Stream) -> bool:
    a, b = filled(d0, NBYTES, 2), filled(d1, 2 * NBYTES, 0)
    b[8 : 8 + NBYTES].copy_from(a, stream=s)  # byte 0 was meant
    s.sync()
    return bytes(b)[8:][:NBYTES] == NEW  # peerlane did what was asked; only the program knows what it meant


def _freed_in_use(d0: pl.Device, d1: pl.Device, s: pl.Stream, _t: pl.Stream) -> bool:
    a, b = filled(d0, NBYTES, 2), filled(d1, NBYTES, 0)
    b.copy_from(a, stream=s)
    a.close()
    filled(d0, NBYTES, 9)
    s.sync()
    return bytes(b) == NEW


#: The row's words: its program, and what each schedule of SCHEDULES shows.
ROWS: dict[str, tuple[Program, tuple[str, str, str]]] = {
    "The host looks at memory, and has not waited for the stream that writes it": (
        _look_before_the_wait,
        (NEVER, EVERY, SOME),
    ),
    "The host changes the source of a queued copy": (_source_changed_by_the_host, (NEVER, EVERY, SOME)),
    "A stream reads memory that another one writes and does not wait for it; the host waits for the reader alone": (
        _no_wait_between_streams,
        (NEVER, EVERY, SOME),
    ),
    "The same; the host waits for the writer, then for the reader": (
        _no_wait_between_streams_that_are_synchronized,
        (NEVER, NEVER, SOME),
    ),
    "A stream changes the source of another stream's copy; the host waits for the one that changes it first": (
        _source_changed_by_another_stream,
        (NEVER, EVERY, SOME),
    ),
    "An event is recorded before the data is written": (
        _event_recorded_before_its_data,
        (NEVER, EVERY, SOME),
    ),
    "A notify is recorded before the data is written": (
        _notify_recorded_before_its_data,
        (NEVER, CHANCE, SOME),
    ),
    "A stream waits for a notify that is never recorded": (_notify_dropped, (EVERY, EVERY, EVERY)),
    "A strict notify is recorded twice and waited for once": (_strict_notify_doubled, (EVERY, CHANCE, SOME)),
    "A binary notify is recorded twice and waited for once": (_binary_notify_doubled, (NEVER, NEVER, NEVER)),
    "A copy goes beyond its allocation": (_range_beyond_the_allocation, (EVERY, EVERY, EVERY)),
    "A copy goes to a wrong place inside its allocation": (
        _wrong_offset_inside_the_allocation,
        (NEVER, NEVER, NEVER),
    ),
    "Memory is freed while queued operations use it": (_freed_in_use, (NEVER, NEVER, NEVER)),
}


def _is_shown(node: Node, schedule: str, program: Program) -> bool:
    """Run a program on a fresh node; tell whether wrong bytes or an error show its mistake."""
    d0, d1 = node(f"devices=2,schedule={schedule}")
    s, t = d0.create_stream(), d1.create_stream()
    try:
        return not program(d0, d1, s, t)
    except pl.Error:
        return True
    finally:
        for stream in (s, t):
            stream.abort()
        pl.leave_node()


CELLS = [
    (mistake, schedule, expected)
    for mistake, (_, cells) in ROWS.items()
    for schedule, expected in zip(SCHEDULES, cells, strict=True)
    if expected != CHANCE
]


@pytest.mark.parametrize(("mistake", "schedule", "expected"), CELLS)
def test_schedule_shows_each_mistake_as_the_table_lists(
    node: Node, mistake: str, schedule: str, expected: str
) -> None:
    program, _ = ROWS[mistake]
    runs = [f"seeded:{seed}" for seed in range(SEEDS)] if schedule == "seeded" else [schedule] * RUNS
    if program is _notify_dropped:
        runs = runs[:RUNS]
    shown = [_is_shown(node, each, program) for each in runs]
    outcome = EVERY if all(shown) else SOME if any(shown) else NEVER
    assert outcome == expected, shown
    if schedule == "seeded":
        assert [_is_shown(node, each, program) for each in runs[:4]] == shown[:4]  # a seed repeats


def test_node_page_table_matches_this_table() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    table = {row[0]: row[1:] for row in rows if row[0] in ROWS}
    assert table == {mistake: cells for mistake, (_, cells) in ROWS.items()}
