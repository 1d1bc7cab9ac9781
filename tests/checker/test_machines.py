"""The checker sees what ranks of different machines do as it sees ranks of one machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.checking import TESTS, checked, checked_program, described
from checker.race_cases import CASES
from checker.race_cases.score import findings_of, judged
from checker.test_orders import INTO_1, OWN, RACE, THERE, A, World
from helpers.absent import needs_engine

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(300), needs_engine]

MEMORY_ENDS = TESTS / "checker" / "programs" / "memory_ends.py"
#: A write, a read, blocks, a reduction, a fence, three ranks, a wait that is missing, and a record for nobody.
SHORT = ["conflict-002", "conflict-014", "conflict-027", "conflict-042", "sync-004", "sync-008", "misc-014"]


@pytest.mark.any_schedule
@pytest.mark.parametrize("name", SHORT)
def test_race_case_between_machines_is_judged_as_on_one_machine(name: str) -> None:
    verdict = judged(CASES[name], findings_of(CASES[name], apart=True))
    assert verdict.is_right, f"found: {verdict.is_detected}; unearned:\n{described(verdict.unearned)}"


@pytest.mark.soak
@pytest.mark.any_schedule
@pytest.mark.timeout(1800)
def test_all_race_cases_between_machines_are_judged_as_on_one_machine() -> None:
    verdicts = {name: judged(case, findings_of(case, apart=True)) for name, case in CASES.items()}
    assert [name for name, verdict in verdicts.items() if not verdict.is_right] == []


@pytest.mark.any_schedule
@pytest.mark.parametrize("schedule", ["lazy", "seeded:1"])
def test_late_delivery_between_machines_changes_no_finding(
    schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    assert findings_of(CASES["sync-007"], apart=True) == ()
    assert judged(CASES["conflict-002"], findings_of(CASES["conflict-002"], apart=True)).is_detected


@pytest.mark.any_schedule
@pytest.mark.parametrize(
    ("use", "kinds"),
    [
        ("racy write deregister", ["use-after-free"]),
        ("racy read close", ["use-after-free"]),
        ("racy stream", ["use-after-free"]),
        ("notified write deregister", []),
        ("barrier read", []),
    ],
)
def test_memory_that_ends_while_another_machine_uses_it(use: str, kinds: list[str], tmp_path: Path) -> None:
    done = checked_program(MEMORY_ENDS, use, str(tmp_path), ranks=2, apart=True)
    assert ([each["kind"] for each in done.findings], done.code) == (kinds, 3 if kinds else 0), done.output
    assert all(each["certain"] for each in done.findings)


@pytest.mark.any_schedule
def test_notify_that_is_recorded_again_before_its_wait_is_lost_between_machines_too(tmp_path: Path) -> None:
    (tmp_path / "doubled.py").write_text("""
import peerlane as pl
with pl.Group(window=64, timeout=60) as group, group.channel(1 - group.rank, notifies=1) as channel:
    if group.rank == 0:
        channel.notify(0)
        channel.notify(0)
    group.barrier()
    if group.rank == 1:
        channel.wait(0, timeout=30)
    group.barrier()
""")
    done = checked("doubled", ranks=2, path=tmp_path, apart=True)
    (finding,) = done.findings
    assert (finding["kind"], finding["certain"], done.code) == ("lost-notify", True, 3), done.output
    assert [site["line"] for site in finding["sites"]] == [5, 6]


# Logs that are written by hand.


@pytest.mark.any_schedule
@pytest.mark.parametrize("stream", [0, 4])
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("is_waited", [True, False])
def test_record_whose_number_stands_in_the_other_log_orders_as_one_with_a_number(
    stream: int, is_first: bool, is_waited: bool, tmp_path: Path
) -> None:
    world = World(tmp_path)
    zero, one = world.logs
    if not is_first:  # by clocks that differ the other log's time can be earlier
        world.clock.now += 1_000_000
    zero.copy(THERE, A, line=10, stream=stream, channel=7)
    sequence = zero.notify_far(INTO_1, 0, line=11, stream=stream)
    if not is_first:
        world.clock.now -= 900_000
    one.come(INTO_1, stream, sequence, 1)
    if is_waited:
        one.wait(INTO_1, 0, 1, line=12)
    one.host_reads(THERE, line=20)
    assert world.pairs() == ([] if is_waited else RACE)
    assert world.stats["unexplained"] == 0


@pytest.mark.any_schedule
def test_log_entries_of_records_that_nobody_submitted_are_left_out(tmp_path: Path) -> None:
    world = World(tmp_path)
    _, one = world.logs
    for bank, stream, sequence in ((INTO_1, 0, 99), (INTO_1, 77, 1), (12345, 0, 1), (1 << 63, 1 << 63, 0)):
        one.come(bank, stream, sequence, 1)
    one.host_reads(OWN, line=20)
    assert world.pairs() == []
    assert world.stats["events"] > 10
