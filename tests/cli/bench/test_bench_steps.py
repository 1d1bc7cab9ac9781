"""The present step of a measurement, where standard error is no terminal."""

from __future__ import annotations

import re

import pytest

from peerlane.cli.outputs import show_steps

pytestmark = pytest.mark.any_schedule


def test_steps_without_a_terminal_are_lines_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with show_steps(every=0) as show:
        show("all-reduce of 8 bytes, round 1 of 9")
        show("all-reduce of 8 bytes, round 2 of 9")
    out, lines = capsys.readouterr()
    assert out == ""
    assert re.findall(r"^(.*) \(after \d+ s\)$", lines, re.MULTILINE) == [
        "all-reduce of 8 bytes, round 1 of 9",
        "all-reduce of 8 bytes, round 2 of 9",
    ]


def test_steps_of_less_than_a_minute_print_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with show_steps(every=3600) as show:
        show("all-reduce of 8 bytes, round 1 of 9")
    assert capsys.readouterr() == ("", "")
