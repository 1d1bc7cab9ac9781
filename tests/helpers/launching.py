"""What the tests of ``peerlane launch`` share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from helpers.far_machine import like_ssh
from helpers.launched import MARK, Launched, Run, Start
from peerlane.testing.procs import Completed

FAR = "far.example"
_OURS = ("PEERLANE", "PYTHONUNBUFFERED", "MASTER_")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    return {**clean, "PEERLANE_RUNTIME_DIR": str(tmp_path / "runtime"), "NO_COLOR": ""}


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    folder = tmp_path / "cwd"
    folder.mkdir()
    return folder


#: Runs a test of ``launch -n N`` a second time, with all ranks on another machine.
also_far = pytest.mark.parametrize("where", ["near", "far"], indirect=True)


@pytest.fixture
def where(request: pytest.FixtureRequest) -> str:
    """Return where the ranks of ``-n N`` are."""
    return str(getattr(request, "param", "near"))


@pytest.fixture
def ssh(tmp_path: Path, env: dict[str, str]) -> str:
    """Return a command that runs words as if on another machine."""
    return like_ssh(tmp_path, MARK, env["PEERLANE_RUNTIME_DIR"])


@pytest.fixture
def start(env: dict[str, str], cwd: Path, where: str, ssh: str) -> Iterator[Start]:
    """Return a function that starts ``peerlane launch``; the test fails if a process is left at its end."""
    with ExitStack() as stack:

        def call(*words: str, **more: object) -> Launched:
            options = {"env": env, "cwd": cwd, **more}
            if where == "far":
                assert words[0] == "-n"
                words = ("--ssh", ssh, "--hosts", f"{FAR}:{words[1]}", *words[2:])
            return stack.enter_context(Launched(words, **options))  # type: ignore[arg-type]

        yield call


@pytest.fixture
def run(start: Start) -> Run:
    def call(*words: str, **more: object) -> Completed:
        return start(*words, **more).end()

    return call
