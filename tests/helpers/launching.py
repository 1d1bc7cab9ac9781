"""What the tests of ``peerlane launch`` share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from helpers.launched import Launched, Run, Start
from peerlane.testing.procs import Completed

_OURS = ("PEERLANE", "PYTHONUNBUFFERED", "MASTER_")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    return {**clean, "PEERLANE_RUNTIME_DIR": str(tmp_path / "runtime"), "NO_COLOR": ""}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


@pytest.fixture
def start(env: dict[str, str], here: Path) -> Iterator[Start]:
    """Return a function that starts ``peerlane launch``; the test fails if a process is left at its end."""
    with ExitStack() as stack:

        def call(*words: str, **more: object) -> Launched:
            given = {"env": env, "cwd": here, **more}
            return stack.enter_context(Launched(words, **given))  # type: ignore[arg-type]

        yield call


@pytest.fixture
def run(start: Start) -> Run:
    def call(*words: str, **more: object) -> Completed:
        return start(*words, **more).end()

    return call
