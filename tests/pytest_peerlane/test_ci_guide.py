"""The guide docs/guides/ci-without-devices.md: its files run as they stand, and print what it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.inner_pytest import WITHOUT, run_in_process

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "ci-without-devices.md").read_text()
FILES = {
    text.split()[1]: text
    for text in re.findall(r"```(?:python|toml)\n(# \w+\.\w+\n.*?)```", GUIDE, re.DOTALL)
}
(LEAKS,) = re.findall(r"```text\n(.*?)```", GUIDE, re.DOTALL)


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    for name, text in FILES.items():
        (pytester.path / name).write_text(text)
    return pytester


def run(project: pytest.Pytester, *words: str) -> pytest.RunResult:
    return run_in_process(project, "-p", "no:cacheprovider", *WITHOUT, *words)


def test_ci_guide_files_all_exist() -> None:
    assert set(FILES) == {
        *(
            "pyproject.toml",
            "conftest.py",
            "exchange.py",
            "test_exchange.py",
            "test_neutral.py",
            "test_leaky.py",
            "test_checked.py",
        )
    }
    assert len(FILES) == len(re.findall("```(?:python|toml)", GUIDE))


def test_ci_guide_setup_takes_at_most_ten_lines() -> None:
    new = [*FILES["pyproject.toml"].splitlines(), *FILES["conftest.py"].splitlines()]
    assert len([line for line in new if line and not line.startswith("#")]) <= 10


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:17"])
def test_ci_guide_tests_pass_under_each_schedule(project: pytest.Pytester, schedule: str) -> None:
    done = run(project, "test_exchange.py", "test_neutral.py", "-n", "2", f"--peerlane-schedule={schedule}")
    done.assert_outcomes(passed=4)


def test_ci_guide_tests_of_wrong_exchange_fail(project: pytest.Pytester) -> None:
    wrong = FILES["exchange.py"].replace("(second, spare)", "(second, first)")
    assert wrong != FILES["exchange.py"]
    (project.path / "exchange.py").write_text(wrong)
    run(project, "test_exchange.py").assert_outcomes(passed=1, failed=1)


def test_ci_guide_leak_list_is_what_plugin_prints(project: pytest.Pytester) -> None:
    done = run(project, "test_leaky.py")
    done.assert_outcomes(passed=1, errors=1)
    shown = re.sub(r"process \d+ \(python", "process * (*python", LEAKS)
    done.stdout.fnmatch_lines(shown.splitlines())


def test_ci_guide_race_fails_the_test_with_both_lines(project: pytest.Pytester) -> None:
    done = run(project, "test_checked.py", "--peerlane-schedule=eager")
    done.assert_outcomes(passed=1, errors=1)
    done.stdout.fnmatch_lines(
        ["race (certain): *", "* | block.fill(3, stream=stream)", "* | assert block.view()*"]
    )


@pytest.mark.parametrize("link", re.findall(r"\]\(((?!http)[^)#]+)", GUIDE))
def test_ci_guide_link_leads_to_a_file(link: str) -> None:
    assert (ROOT / "docs" / "guides" / link).exists()
