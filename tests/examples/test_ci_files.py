"""The files in ``examples/ci``: their commands pass in a project with a right transfer, and catch a wrong one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / "examples" / "ci" / "peerlane.yml"
GITLAB = ROOT / "examples" / "ci" / "peerlane.gitlab-ci.yml"
GUIDE = (ROOT / "docs" / "guides" / "ci-without-devices.md").read_text()
SECONDS = 200.0
Commands: TypeAlias = Callable[[str], list[str]]
SCHEDULES = ["eager", "lazy", "seeded:1", "seeded:2", "seeded:3", "seeded"]

TRANSFER = """
def send(cache, block, stream):
    cache.copy_from(block, stream=stream)
    stream.sync(timeout=20)
"""
TEST = """
from transfer import send

def test_send(peerlane_node):
    d0, d1 = peerlane_node
    with d0.allocate(4096) as block, d1.allocate(4096) as cache, d0.create_stream() as stream:
        block.fill(7)
        send(cache, block, stream)
        first = int(cache.view()[0])
        assert first in (0, 7)
        stream.sync()
"""


def _github() -> dict[str, Any]:
    return yaml.safe_load(GITHUB.read_text())["jobs"]["test"]


def _github_commands(schedule: str) -> list[str]:
    commands = [step["run"] for step in _github()["steps"] if "run" in step]
    assert all("${{" not in each.replace("${{ matrix.schedule }}", "") for each in commands)
    return [each.replace("${{ matrix.schedule }}", schedule) for each in commands]


def _gitlab_commands(schedule: str) -> list[str]:
    commands: list[str] = yaml.safe_load(GITLAB.read_text())["peerlane"]["script"]
    return [f"SCHEDULE={schedule}; {each}" for each in commands]


def _run(commands: list[str], folder: Path) -> Iterator[subprocess.CompletedProcess[str]]:
    """Run commands as a runner does: each by a shell that ends at the first error, in a fresh folder."""
    environment = {
        **{
            name: value for name, value in os.environ.items() if not name.startswith(("PEERLANE_", "PYTEST_"))
        },
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PIP_NO_INDEX": "1",  # what pip would install is there
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PEERLANE_RUNTIME_DIR": str(folder / "runtime"),
    }
    for command in commands:
        shell = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", command]
        yield subprocess.run(
            shell, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS
        )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "transfer.py").write_text(TRANSFER)
    (tmp_path / "test_transfer.py").write_text(TEST)
    return tmp_path


def test_ci_file_commands_pass_for_a_right_transfer_and_write_reports(project: Path) -> None:
    for done in _run(_github_commands("seeded"), project):
        assert done.returncode == 0, done.stdout + done.stderr
    page = (project / "report.html").read_text()
    assert (
        "--peerlane-schedule=seeded:" in page and "peerlane_schedule" in (project / "report.xml").read_text()
    )


@pytest.mark.parametrize(
    ("commands", "schedule"),
    [(_github_commands, "eager"), (_gitlab_commands, "seeded:1")],
    ids=["github", "gitlab"],
)
def test_ci_file_commands_catch_a_missing_wait(commands: Commands, schedule: str, project: Path) -> None:
    (project / "transfer.py").write_text(TRANSFER.replace("    stream.sync(timeout=20)\n", ""))
    *before, tested = _run(commands(schedule), project)
    assert [each.returncode for each in before] == [0, 0]
    assert tested.returncode == 1, tested.stdout
    page = (project / "report.html").read_text()
    assert "race (certain)" in page
    for line in ("cache.copy_from(block, stream=stream)", "first = int(cache.view()[0])"):
        assert line in tested.stdout and line in page


def test_ci_files_run_all_schedules_and_keep_reports_of_failures() -> None:
    job = _github()
    matrix = job["strategy"]["matrix"]["include"]
    assert [each["schedule"] for each in matrix] == SCHEDULES
    # An artifact's name must not have a colon, and each job needs one of its own.
    names = {each["name"] for each in matrix}
    assert len(names) == len(matrix) and all(re.fullmatch(r"[\w-]+", name) for name in names)
    assert job["strategy"]["fail-fast"] is False and job["timeout-minutes"] <= 30
    upload = job["steps"][-1]
    assert upload["if"] == "${{ !cancelled() }}" and upload["with"]["path"].split() == [
        "report.html",
        "report.xml",
    ]
    gitlab = yaml.safe_load(GITLAB.read_text())["peerlane"]
    assert gitlab["parallel"]["matrix"] == [{"SCHEDULE": SCHEDULES}]
    assert gitlab["artifacts"]["when"] == "always"


def test_ci_files_run_the_same_commands() -> None:
    same = [
        each.removeprefix("SCHEDULE=lazy; ").replace("$SCHEDULE", "lazy") for each in _gitlab_commands("lazy")
    ]
    assert _github_commands("lazy") == same


def test_ci_files_build_the_wheel_once_and_install_it_in_each_test_job() -> None:
    jobs = yaml.safe_load(GITHUB.read_text())["jobs"]
    builds = [step.get("run", "") for step in jobs["build"]["steps"]]
    assert jobs["test"]["needs"] == "build" and "matrix" not in jobs["build"].get("strategy", {})
    kept, fetched = (
        next(step["with"] for step in jobs[job]["steps"] if f"/{action}-artifact@" in step.get("uses", ""))
        for job, action in (("build", "upload"), ("test", "download"))
    )
    assert kept == fetched
    gitlab = yaml.safe_load(GITLAB.read_text())
    assert gitlab["peerlane"]["needs"] == ["peerlane-wheel"]
    assert gitlab["peerlane-wheel"]["artifacts"]["paths"] == [kept["path"]]
    [command] = gitlab["peerlane-wheel"]["script"]
    assert command in builds and f"--wheel-dir={kept['path']}" in command
    for commands in (_github_commands("lazy"), _gitlab_commands("lazy")):
        assert sum(f"pip install --find-links={kept['path']} peerlane" in each for each in commands) == 1


def test_ci_guide_shows_the_files_as_they_are() -> None:
    assert re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL) == [GITHUB.read_text(), GITLAB.read_text()]
