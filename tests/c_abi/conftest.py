"""What the tests of programs in C share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers import prepared
from helpers.c_programs import PROGRAMS, Ended, Run, compiled, folder_of_programs


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
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of compiled programs."""
    return folder_of_programs(tmp_path_factory)


@pytest.fixture(scope="session")
def compiled_program(programs: Path) -> Callable[..., Path]:
    """Return a function that compiles a program of `programs`."""
    return lambda name, dialect="acl", *flags: compiled(programs, PROGRAMS / name, dialect, *flags)
