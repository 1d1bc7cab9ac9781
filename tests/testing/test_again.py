"""A failed test shows a command that runs it again under the same schedule and seeds."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from helpers.again import TITLE
from helpers.inner_pytest import SECONDS, run

pytestmark = pytest.mark.any_schedule

pytest_plugins = ["pytester"]

TESTS = Path(__file__).parents[1]
WITHOUT = (
    "-p",
    "no:anyio",
    "-p",
    "no:html",
    "-p",
    "no:metadata",
)  # half of the time that a pytest takes to start
PLUGINS = ("-p", "helpers.schedules", "-p", "helpers.again", *WITHOUT)
SOURCE = """
    import os, pytest
    from hypothesis import given, strategies as st

    @pytest.fixture
    def broken():
        raise RuntimeError("the fixture")

    @pytest.mark.parametrize("word", ["it's so", "$HOME"])
    def test_plain(word):
        raise RuntimeError(f"{word} under {os.environ['PEERLANE_SCHEDULE']}")

    @given(st.integers(0, 1 << 64))
    def test_drawn(number):
        with open("drawn", "a") as file: print(number, file=file)
        raise RuntimeError("drawn")

    def test_needs(broken): ...
    def test_passes(): ...
"""


@pytest.fixture
def tests_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))


def repeated(output: str) -> list[str]:
    return re.findall(rf"-+ {TITLE} -+\n(.+)\n", output)


def again(pytester: pytest.Pytester, command: str) -> str:
    without = shlex.join(("-p", "no:cacheprovider", *WITHOUT))
    env_of_plugin = f"PYTEST_PLUGINS=helpers.schedules,helpers.again {command} {without}"
    done = subprocess.run(
        env_of_plugin, shell=True, cwd=pytester.path, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.usefixtures("tests_on_path")
@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "a worker"])
def test_command_of_a_failed_test_run_again_fails_alike(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...]
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", "seeded")  # the seed is drawn
    done = run(pytester, SOURCE, *PLUGINS, *workers, anew=True)
    done.assert_outcomes(passed=1, failed=3, errors=1)
    commands = repeated(done.stdout.str())
    names = [shlex.split(each)[4].partition("::")[2] for each in commands]
    assert sorted(names) == ["test_drawn", "test_needs", "test_plain[$HOME]", "test_plain[it's so]"]
    by_name = dict(zip(names, commands, strict=True))

    seed = re.search(r"PEERLANE_SCHEDULE=(seeded:\d+)", done.stdout.str())
    assert seed is not None
    assert all(each.startswith(f"PEERLANE_SCHEDULE={seed[1]} ") for each in commands)
    assert [name for name in names if "--hypothesis-seed=" in by_name[name]] == ["test_drawn"]
    assert f"$HOME under {seed[1]}" in again(pytester, by_name["test_plain[$HOME]"])
    assert f"it's so under {seed[1]}" in again(pytester, by_name["test_plain[it's so]"])

    drawn = pytester.path / "drawn"
    first = drawn.read_text()
    drawn.unlink()
    again(pytester, by_name["test_drawn"])
    assert drawn.read_text() == first


@pytest.mark.usefixtures("tests_on_path")
def test_command_of_a_campaign_selects_it(pytester: pytest.Pytester) -> None:
    source = """
        import pytest
        @pytest.mark.soak
        def test_long(): raise RuntimeError("long")
    """
    pytester.makeini("[pytest]\nmarkers = soak: long\naddopts = -m 'not soak'")
    done = run(pytester, source, *PLUGINS, "-m", "soak")
    (command,) = repeated(done.stdout.str())
    assert "RuntimeError: long" in again(pytester, command)


UNDER_SCHEDULES = """
    import os, pytest

    def test_plain(): raise RuntimeError(os.environ["PEERLANE_SCHEDULE"])

    @pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.any_schedule)])
    def test_of_numbers(number): raise RuntimeError(f"{number} {os.environ['PEERLANE_SCHEDULE']}")

    @pytest.mark.any_schedule
    def test_of_texts(): raise RuntimeError(os.environ["PEERLANE_SCHEDULE"])
"""


@pytest.mark.usefixtures("tests_on_path")
@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])
def test_schedules_run_each_test_under_each_and_a_marked_one_under_the_first(
    pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    pytester.makeini("[pytest]\nmarkers = any_schedule: once")
    done = run(pytester, UNDER_SCHEDULES, *PLUGINS, "--schedules", "lazy,eager,seeded", *workers, anew=True)
    done.assert_outcomes(failed=8)
    seed = re.search(r"--schedules=lazy,eager,(seeded:\d+)", done.stdout.str())
    assert seed is not None
    plain = ["lazy", "eager", seed[1]]
    expected = [*plain, *(f"1 {each}" for each in plain), "2 lazy", "lazy"]
    raised = re.findall(r"^E +RuntimeError: (.+)$", done.stdout.str(), re.MULTILINE)
    assert sorted(raised) == sorted(expected)

    (command,) = [each for each in repeated(done.stdout.str()) if "test_of_numbers[seeded-1]" in each]
    assert f"RuntimeError: 1 {seed[1]}\n" in again(pytester, command)


IN_TURN = """
    import os, pytest

    pytestmark = pytest.mark.schedules_in_turn

    @pytest.fixture(params=["eager", "lazy"])
    def each_schedule(request): os.environ["PEERLANE_SCHEDULE"] = request.param

    def said(*words):
        with open("said", "a") as file: print(*words, os.environ["PEERLANE_SCHEDULE"].partition(":")[0], file=file)

    @pytest.mark.parametrize("letter", "xy")
    @pytest.mark.parametrize("number", [1, 2])
    def test_many_cases(number, letter): said("many", number, letter)

    @pytest.mark.parametrize("number", [1, 2, pytest.param(3, marks=pytest.mark.soak)])
    def test_few_cases(number): said("few", number)

    def test_one_case(): said("one")

    def test_another_case(): said("one")

    def test_last_case(): said("one")

    @pytest.mark.parametrize("number", [1, 2, 3, *(pytest.param(n, marks=pytest.mark.any_schedule) for n in (4, 5))])
    def test_some_cases_once(number): said("some", number)

    @pytest.mark.any_schedule
    @pytest.mark.parametrize("number", [1, 2, 3])
    def test_own_schedules(each_schedule, number): said("own", number)

    @pytest.mark.any_schedule
    @pytest.mark.parametrize(("number", "schedule"), [(1, "eager"), (2, "lazy"), (3, "eager"), (3, "lazy")])
    def test_given_schedules(number, schedule): said("given", number, schedule)
"""


@pytest.mark.usefixtures("tests_on_path")
@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])
def test_in_turn_each_case_runs_once_and_cases_of_a_file_under_each_schedule(
    pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    pytester.makeini(
        "[pytest]\naddopts = -m 'not soak'\nmarkers =\n any_schedule: once\n soak: long\n schedules_in_turn: in turn"
    )
    words = ("--schedules", "lazy,eager,seeded", "--in-turn", *workers)
    done = run(pytester, IN_TURN, *PLUGINS, *words, anew=True)
    done.assert_outcomes(passed=4 + 2 + 3 + 5 + 3 + 3)

    lines = [each.split() for each in (pytester.path / "said").read_text().splitlines()]
    under = {
        name: [words[1:] for words in lines if words[0] == name]
        for name in ("many", "few", "one", "some", "own", "given")
    }
    assert sorted(words[:-1] for words in under["many"]) == [["1", "x"], ["1", "y"], ["2", "x"], ["2", "y"]]
    assert {words[-1] for words in under["many"]} == {"lazy", "eager", "seeded"}
    assert sorted(words[0] for words in under["few"]) == ["1", "2"]
    assert len({words[-1] for words in under["few"]}) == 2
    assert {words[-1] for words in under["one"]} == {"lazy", "eager", "seeded"}
    assert sorted(words[0] for words in under["some"]) == ["1", "2", "3", "4", "5"]
    assert {words[1] for words in under["some"] if words[0] in "45"} == {"lazy"}
    assert sorted(words[0] for words in under["own"]) == ["1", "2", "3"]
    assert {words[-1] for words in under["own"]} == {"eager", "lazy"}
    node_ids = [tuple(words[:2]) for words in under["given"]]
    assert sorted(number for number, _ in node_ids) == ["1", "2", "3"] and {
        ("1", "eager"),
        ("2", "lazy"),
    } <= set(node_ids)
