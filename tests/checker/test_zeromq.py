"""Messages of ZeroMQ order what two processes do, if pyzmq sends and receives them."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.checking import TESTS, checked_program, described
from checker.edge_programs.zeromq_messages import SHAPES

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]

PROGRAM = TESTS / "checker" / "edge_programs" / "zeromq_messages.py"


@pytest.mark.parametrize("shape", SHAPES)
def test_messages_of_zeromq_order_the_uses_of_memory_between_them(shape: str, tmp_path: Path) -> None:
    done = checked_program(PROGRAM, shape, "right", str(tmp_path), ranks=2)
    assert done.code == 0, done.output
    assert done.findings == (), described(done.findings)


@pytest.mark.parametrize("shape", SHAPES)
def test_message_of_zeromq_that_is_sent_too_early_leaves_a_race(shape: str, tmp_path: Path) -> None:
    done = checked_program(PROGRAM, shape, "racy", str(tmp_path), ranks=2)
    assert {each["kind"] for each in done.findings} == {"race"}, done.output


def test_parts_that_libzmq_makes_itself_are_no_messages_of_another_process(tmp_path: Path) -> None:
    done = checked_program(PROGRAM, "none", "racy", str(tmp_path), ranks=2)
    assert {each["kind"] for each in done.findings} == {"race"}, done.output
