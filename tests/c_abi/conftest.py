"""What the tests of programs in C share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers import prepared
from helpers.c_programs import PROGRAMS, Ended, Run, compiled


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs words in a folder of the test's own, those of Python in a prepared process."""

    def call(*words: str | Path, **variables: str) -> Ended:
        command, env = (
            [str(word) for word in words],
            {**os.environ, "PEERLANE_NODE": "devices=3", **variables},
        )
        if command[0] == sys.executable:
            return prepared.run_python(command[1:], timeout=90, cwd=tmp_path, env=env)
        return subprocess.run(
            command, capture_output=True, text=True, timeout=90, check=False, cwd=tmp_path, env=env
        )

    return call


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that compiles a program of `programs`."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "c-programs"
    folder.mkdir(exist_ok=True)
    return lambda name, dialect="acl", *flags: compiled(folder, PROGRAMS / name, dialect, *flags)
