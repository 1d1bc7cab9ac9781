"""``python -m benchmarks against``: what counts as slower, and how builds are run. No test depends on speed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import builds
from benchmarks.__main__ import main

pytestmark = pytest.mark.any_schedule

SCRIPTED = """#!{python}
import json, pathlib, sys
calls = pathlib.Path({calls!r})
number = len(calls.read_text().split()) if calls.exists() else 0
calls.write_text("x " * (number + 1))
seconds = {seconds!r}
taken = {{"case": seconds[number % len(seconds)]}}
print(json.dumps({{"build": {name!r}, "seconds": taken, "lacking": {lacking!r}}}))
"""

FIVE_TIMES = """#!/bin/sh
exec {python} -c '
import runpy, sys
import peerlane
once = peerlane.copy
peerlane.copy = lambda *ends, **options: [once(*ends, **options) for _ in range(5)]
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
' "$@"
"""


def executable(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def scripted(folder: Path, name: str, seconds: list[float], lacking: dict[str, str] | None = None) -> str:
    """Return a stand-in for a Python: its processes report the given seconds for the case, one after the other."""
    calls = str(folder / f"{name}.calls")
    text = SCRIPTED.format(
        python=sys.executable, calls=calls, seconds=seconds, name=name, lacking=lacking or {}
    )
    return executable(folder / name, text)


def run(monkeypatch: pytest.MonkeyPatch, this: str, *arguments: object) -> int:
    monkeypatch.setattr(builds.sys, "executable", this)
    return main(["against", *map(str, arguments)])


def test_compared_slowdown_within_own_noise_passes() -> None:
    noisy = [(1.0, 1.1), (1.1, 1.0), (1.0, 1.1)]
    comparison = builds.compared("case", [(1.05, 1.15), (1.15, 1.05), (1.05, 1.15)], noisy)
    assert comparison.ratio == pytest.approx(1.0477, abs=1e-4)
    assert comparison.bound == pytest.approx(1.1)
    assert not comparison.is_slower


def test_compared_slowdown_beyond_own_noise_is_slower() -> None:
    quiet = [(1.0, 1.01), (1.01, 1.0), (1.0, 1.01)]
    comparison = builds.compared("case", [(1.05, 1.05)] * 3, quiet)
    assert (comparison.bound, comparison.is_slower) == (pytest.approx(1.01), True)
    assert (comparison.seconds, comparison.other_seconds) == (1.05, pytest.approx(1.005))


def test_compared_faster_build_on_quiet_machine_passes() -> None:
    assert not builds.compared("case", [(0.5, 0.5)] * 3, [(1.0, 1.0)] * 3).is_slower


def test_compared_one_disturbed_process_keeps_bound_narrow() -> None:
    own = [(1.0, 1.0)] * 8 + [(1.0, 9.0)]
    comparison = builds.compared("case", own, [(1.0, 1.0)] * 9)
    assert comparison.ratio == 1.0
    assert comparison.bound < 2.5


def test_against_faster_build_exits_1_and_names_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    this = scripted(tmp_path, "this", [2.0, 2.02])
    other = scripted(tmp_path, "other", [1.0, 1.01])
    result = tmp_path / "result.json"
    assert run(monkeypatch, this, other, "call", "--rounds", 3, "--json", result) == 1
    assert "slower beyond the bound: case" in capsys.readouterr().out
    written = json.loads(result.read_text())
    [case] = written["against"]
    assert case["slower"] is True
    assert case["ratio"] == pytest.approx(2.0)
    assert written["builds"] == {"this build": "this", "the other build": "other"}
    assert written["rounds"] == 3


def test_against_equal_build_exits_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    this, other = (scripted(tmp_path, name, [1.0, 1.02]) for name in ("this", "other"))
    assert run(monkeypatch, this, other, "--rounds", 3) == 0
    assert "not slower beyond the bound in any case" in capsys.readouterr().out


def test_against_runs_two_processes_per_build_and_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    this, other = (scripted(tmp_path, name, [1.0]) for name in ("this", "other"))
    assert run(monkeypatch, this, other, "--rounds", 4) == 0
    assert [len((tmp_path / f"{name}.calls").read_text().split()) for name in ("this", "other")] == [8, 8]


def test_against_build_lacking_subject_skips_it_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    this = scripted(tmp_path, "this", [1.0])
    other = scripted(tmp_path, "other", [1.0], {"channel": "AttributeError: no Group"})
    assert run(monkeypatch, this, other, "--rounds", 3) == 0
    assert "skipped: channel: the other build cannot do all of it: AttributeError: no Group" in (
        capsys.readouterr().out
    )


def test_against_python_without_peerlane_exits_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without = executable(tmp_path / "without", f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    assert run(monkeypatch, sys.executable, without, "call", "--rounds", 3) == 2
    text = capsys.readouterr().err
    assert "cannot time peerlane" in text
    assert "No module named" in text


def test_against_missing_python_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["against", "/nowhere/python", "call", "--rounds", "3"]) == 2
    assert "/nowhere/python" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["lookup"], "against: no subject 'lookup'; valid are copy, call"),
        (["call", "--rounds", "2"], "`against` needs 3 or more"),
    ],
)
def test_against_wrong_words_exit_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["against", sys.executable, *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.takes_long
@pytest.mark.timeout(300)  # four programs that measure for seconds, beside compilers and six other tests
def test_against_finds_build_that_copies_five_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = executable(tmp_path / "slow", FIVE_TIMES.format(python=sys.executable))
    result = tmp_path / "result.json"
    python = sys.executable
    assert run(monkeypatch, slow, python, "call", "--rounds", 3, "--json", result) == 1
    cases = {each["case"]: each for each in json.loads(result.read_text())["against"]}
    assert cases["call copying 8 bytes, neutral"]["slower"] is True
    assert set(cases) == {
        f"call copying 8 bytes, {spelling}" for spelling in ("neutral", "raw", "acl", "hip")
    }


def test_build_sample_times_every_subject(tmp_path: Path) -> None:
    sample = builds._sample("this build", sys.executable, builds.SUBJECTS)
    assert sample.lacking == {}
    assert len(sample.seconds) == 17
    assert all(seconds > 0 for seconds in sample.seconds.values())
