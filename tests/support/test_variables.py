"""Variables of the environment with values that they cannot have: each is refused or told in one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import peerlane as pl
from helpers.launcher_variables import without_launcher
from peerlane.support.variables import is_set

pytestmark = pytest.mark.any_schedule

PROGRAM = "import peerlane as pl; pl.devices()[0].allocate(8).close(); print('went on')"


def _run(variables: dict[str, str], program: str = PROGRAM) -> subprocess.CompletedProcess[str]:
    environ = {
        name: value for name, value in without_launcher().items() if not name.startswith("PEERLANE_LOG")
    }
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"PEERLANE_LOG_BYTES": "9" * 20}, f"PEERLANE_LOG_BYTES is '{'9' * 20}'; valid are 1MiB to 1TiB"),
        ({"PEERLANE_LOG_BYTES": "1025GiB"}, "PEERLANE_LOG_BYTES is '1025GiB'; valid are 1MiB to 1TiB"),
        ({"PEERLANE_LOG_BYTES": "1k"}, "PEERLANE_LOG_BYTES is '1k'; valid are 1MiB to 1TiB"),
        ({"PEERLANE_LEAKS": "maybe"}, "PEERLANE_LEAKS is 'maybe'; valid are 0 and 1"),
        ({"PEERLANE_LEAKS": "true"}, "PEERLANE_LEAKS is 'true'; valid are 0 and 1"),
    ],
)
def test_impossible_value_is_refused_by_name(
    tmp_path: Path, variables: dict[str, str], sentence: str
) -> None:
    done = _run({"PEERLANE_LOG": str(tmp_path), **variables})
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"peerlane.errors.InvalidValue: {sentence}")
    assert "went on" not in done.stdout


def test_log_that_is_a_file_or_missing_is_reported_and_the_program_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for path in (file, tmp_path / "missing"):
        done = _run({"PEERLANE_LOG": str(path)})
        assert (done.returncode, done.stdout) == (0, "went on\n")
        assert done.stderr.count("RuntimeWarning") == 1
        assert f"PEERLANE_LOG='{path}' has no effect: it is not a directory" in done.stderr


def test_folder_of_a_check_that_has_ended_is_missing_without_a_word(tmp_path: Path) -> None:
    done = _run({"PEERLANE_LOG": str(tmp_path / "peerlane-check-x1y2")})
    assert (done.returncode, done.stdout, done.stderr) == (0, "went on\n", "")


@pytest.mark.parametrize(
    "variables",
    [
        {"PEERLANE_SCHEDULE": "seeded:3", "PEERLANE_SCHEDULE_REPORT": ""},
        {"PEERLANE_FAULT": "kill:rank=0,op=99999", "RANK": "0", "PEERLANE_FAULT_REPORT": ""},
    ],
    ids=["schedule", "fault"],
)
def test_report_that_cannot_be_written_is_reported_at_the_end(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    name = next(each for each in variables if each.endswith("REPORT"))
    path = tmp_path / "missing" / "report"
    done = _run({**variables, name: str(path)})
    assert (done.returncode, done.stdout) == (0, "went on\n")
    assert f"{name}='{path}' has no effect: nothing can be written there: No such file" in done.stderr


def test_variable_of_0_or_1_is_read_as_such() -> None:
    assert [is_set("X", environ) for environ in ({}, {"X": ""}, {"X": "0"}, {"X": "1"})] == [False] * 3 + [
        True
    ]
    with pytest.raises(pl.InvalidValue, match="X is 'yes'; valid are 0 and 1") as caught:
        is_set("X", {"X": "yes"})
    assert caught.value.fault is pl.Fault.BAD_CONFIG


@pytest.mark.parametrize("value", ["", "0"])
def test_leaks_are_not_reported_unless_asked_for(value: str) -> None:
    done = _run({"PEERLANE_LEAKS": value}, "import peerlane as pl; kept = pl.devices()[0].allocate(8)")
    assert (done.returncode, done.stderr) == (0, "")
