"""Folders of commands, and what stays of a command that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from peerlane.support.scratch_folders import scratch_folder

pytestmark = pytest.mark.any_schedule


def test_folder_of_a_killed_process_is_removed_by_the_next(tmp_path: Path) -> None:
    with scratch_folder(tmp_path) as old, scratch_folder(tmp_path) as young:
        pass
    for each in (old, young):
        each.mkdir()
        (each / "1-1.log").write_bytes(b"x")
    os.utime(old, (1, 1))
    with scratch_folder(tmp_path) as held:
        os.utime(held, (1, 1))
        with scratch_folder(tmp_path):
            assert held.exists()
    assert not old.exists() and young.exists()


def test_link_with_the_name_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    with scratch_folder(tmp_path) as name:
        pass
    target = tmp_path / "target"
    target.mkdir()
    (target / "kept").touch()
    os.utime(target, (1, 1))
    name.symlink_to(target)
    with scratch_folder(tmp_path):
        assert (target / "kept").exists()


@pytest.mark.timeout(120)
def test_next_command_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    def run(*options: str) -> int:
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "peerlane",
                "run",
                *options,
                "-c",
                "import peerlane as pl; pl.device(0).allocate(8)",
            ],
            env={**os.environ, "TMPDIR": str(tmp_path)},
            timeout=100,
        ).returncode

    assert run("--fault", "kill:rank=0,op=1") == -signal.SIGKILL
    left = list(tmp_path.glob("peerlane-*"))
    assert left
    for each in left:
        os.utime(each, (1, 1))
    assert run("--fault", "kill:rank=0,op=100000") == 0
    assert not list(tmp_path.glob("peerlane-*"))
