"""The README's examples are programs; they print what their comments say."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from peerlane.testing.procs import run_python

README = (Path(__file__).parents[2] / "README.md").read_text()
NEUTRAL, STREAMS, SHARING, PYACL, HIP = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_neutral_example(tmp_path: Path) -> None:
    program = tmp_path / "demo.py"
    program.write_text(NEUTRAL)
    done = run_python([str(program)], timeout=60)
    assert done.returncode == 1
    assert "kind='staged'" in done.stdout
    assert re.search(
        r"Closed: the buffer of allocation \d+ \(8,388,608 bytes at .* allocated at demo.py:6\)", done.stderr
    )
    assert "freed by Buffer.close() at demo.py:" in done.stderr


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:17"])
def test_the_streams_example(tmp_path: Path, schedule: str) -> None:
    program = tmp_path / "streams.py"
    program.write_text(STREAMS)
    done = run_python([str(program)], timeout=60, env={**os.environ, "PEERLANE_SCHEDULE": schedule})
    assert (done.returncode, done.stdout) == (1, "copied\n")
    assert "BadAddress: operation 5 (copy) of stream 1: source host range of 8 bytes at 0x10" in done.stderr


#: Runs a program again and again, and counts how often its own assertion fails.
_TWENTY = """
import sys
import peerlane as pl
program, failed = compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), 0
for _ in range(20):
    try:
        exec(program, {"__name__": "__main__"})
    except AssertionError:
        failed += 1
    except pl.Error:  # how the whole program ends
        pass
print(failed)
"""


@pytest.mark.parametrize("schedule", ["lazy", "seeded:17"])
def test_the_streams_example_without_its_wait_shows_wrong_bytes(tmp_path: Path, schedule: str) -> None:
    wait = "    t.sync(timeout=5)\n"
    assert STREAMS.count(wait) == 1
    program = tmp_path / "streams.py"
    program.write_text(STREAMS.replace(wait, ""))
    environment = {**os.environ, "PEERLANE_SCHEDULE": schedule}
    done = run_python(["-c", _TWENTY, str(program)], timeout=100, env=environment)
    assert done.returncode == 0, done.stderr
    assert "20" in done.stdout.splitlines()


def test_the_sharing_example(tmp_path: Path) -> None:
    program = tmp_path / "ranks.py"
    program.write_text(SHARING)
    done = run_python(["-m", "peerlane", "launch", "-n", "4", str(program)], timeout=90)
    assert (done.returncode, done.stdout) == (0, "[0] [1 2 3 4]\n"), done.stderr


def test_the_pyacl_example(tmp_path: Path) -> None:
    program = tmp_path / "copy.py"
    program.write_text(PYACL)
    done = run_python(["-m", "peerlane", "run", "--devices", "2", str(program)], timeout=60)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == ["0", r"0 b'\x07\x07\x07\x07'", "107000"]
    assert any("acl.rt.memcpy" in line for line in lines[3:])


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:17"])
def test_the_hip_example(tmp_path: Path, schedule: str) -> None:
    program = tmp_path / "ring.py"
    program.write_text(HIP)
    environment = {**os.environ, "PEERLANE_SCHEDULE": schedule}
    words = ["-m", "peerlane", "run", "--devices", "2", str(program)]
    done = run_python(words, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    said = [line.rpartition("# ")[2] for line in HIP.splitlines() if "# " in line][1:]
    assert done.stdout.splitlines() == said


@pytest.mark.parametrize("page", re.findall(r"\]\(((?!http)[^)#]+)\)", README))
def test_links_lead_somewhere(page: str) -> None:
    assert (Path(__file__).parents[2] / page).exists()
