"""Memory that its owner frees or deregisters while a peer may use it, in real programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.checking import TESTS, checked_program, described

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]

PROGRAM = TESTS / "checker" / "programs" / "memory_ends.py"
USES = ("read", "write")
VERBS = {"close": "free", "with": "free", "deregister": "deregister"}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("end", sorted(VERBS))
def test_use_that_nothing_orders_before_the_end_is_reported(use: str, end: str, tmp_path: Path) -> None:
    done = checked_program(PROGRAM, f"racy {use} {end}", str(tmp_path), ranks=2)
    assert done.code == 3, done.output
    (finding,) = done.findings
    assert (finding["kind"], finding["certain"]) == ("use-after-free", True)
    assert [(site["rank"], site["verb"]) for site in finding["sites"]] == [
        (0, f"Channel.{use}"),
        (1, VERBS[end]),
    ]
    assert all(site["file"] == str(PROGRAM) for site in finding["sites"])


@pytest.mark.parametrize("case", ["racy stream", "racy barrier"])
def test_use_in_a_stream_that_nothing_orders_before_the_end_is_reported(case: str, tmp_path: Path) -> None:
    done = checked_program(PROGRAM, case, str(tmp_path), ranks=2)
    assert (done.code, [each["kind"] for each in done.findings]) == (3, ["use-after-free"]), done.output


def test_bytes_that_are_read_before_the_memory_is_taken_back_are_a_race(tmp_path: Path) -> None:
    done = checked_program(PROGRAM, "racy write, read back", str(tmp_path), ranks=2)
    assert (done.code, [each["kind"] for each in done.findings]) == (3, ["race"]), done.output
    assert [each["kind"] for each in done.findings[0]["consequences"]] == ["use-after-free"], done.output


@pytest.mark.parametrize("end", ["close", "deregister"])
def test_use_that_races_with_the_end_is_reported_if_the_ranks_are_threads(end: str, tmp_path: Path) -> None:
    done = checked_program(PROGRAM, f"racy read {end}", str(tmp_path), "threads")
    assert [each["kind"] for each in done.findings] == ["use-after-free"], done.output
    assert [site["rank"] for site in done.findings[0]["sites"]] == [0, 1]


@pytest.mark.parametrize("end", ["close", "deregister"])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("ranks", [2, None])
def test_use_that_the_owner_was_notified_of_is_right(
    use: str, end: str, ranks: int | None, tmp_path: Path
) -> None:
    words = [] if ranks else ["threads"]
    done = checked_program(PROGRAM, f"notified {use} {end}", str(tmp_path), *words, ranks=ranks)
    assert (done.code, described(done.findings)) == (0, ""), done.output


@pytest.mark.parametrize(
    "case",
    [
        *("barrier read", "barrier write", "barrier drain", "barrier write, read back"),
        *("replaced", "queued", "racy read collect"),
    ],
)
def test_end_that_is_in_order_or_of_no_line_is_right(case: str, tmp_path: Path) -> None:
    done = checked_program(PROGRAM, case, str(tmp_path), ranks=2)
    assert (done.code, described(done.findings)) == (0, ""), done.output


def test_owner_may_free_what_another_process_opened_by_handle(tmp_path: Path) -> None:
    done = checked_program(PROGRAM.with_name("freed_by_owner.py"))
    assert (done.code, described(done.findings)) == (0, ""), done.output
