"""Programs of NVIDIA's wheels ``cuda-core`` and ``cuda-bindings``, unmodified; ``make test-cuda`` installs these."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.documented import programs
from peerlane.testing.procs import Completed, run_python

pytest.importorskip("cuda.core", reason="the wheel cuda-core is not installed")

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "cuda.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
PROGRAM, GRAPH = (
    next(each for each in PROGRAMS if each.startswith(f"# {name}.py\n")) for name in ("prog", "graph")
)
RACE = re.findall(r"```text\n(.*?)\n```", GUIDE.read_text(), re.DOTALL)[0]
SECONDS = 120


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "prog.py"
    path.write_text(PROGRAM)
    return path


def peerlane(command: str, program: Path, *words: str) -> Completed:
    return run_python(
        ["-m", "peerlane", command, "--dialect", "cuda", "--devices", "2", str(program), *words],
        timeout=SECONDS,
    )


def test_program_of_the_guide_copies_between_two_devices(program: Path) -> None:
    done = peerlane("run", program)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_program_of_the_guide_is_refused_without_access_to_the_pool(program: Path) -> None:
    program.write_text(PROGRAM.replace("first.memory_resource.peer_accessible_by = [second]\n", ""))
    done = peerlane("run", program)
    assert done.returncode == 1
    assert "CUDA_ERROR_INVALID_VALUE" in done.stderr


def test_check_finds_nothing_in_the_program_of_the_guide(program: Path) -> None:
    done = peerlane("check", program)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["run", "check"])
def test_program_of_the_guide_captures_and_launches_a_graph(program: Path, command: str) -> None:
    program.write_text(GRAPH)
    done = peerlane(command, program)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_check_names_the_race_of_the_guide_without_its_wait(program: Path) -> None:
    program.write_text(PROGRAM.replace("other.wait(copied)\n", ""))
    done = peerlane("check", program)
    assert done.returncode == 3, done.stderr
    text = done.stdout + done.stderr
    assert RACE in text and "prog.py:14" in text and "prog.py:20" in text


def test_bindings_call_the_driver_and_name_its_codes(tmp_path: Path) -> None:
    program = tmp_path / "bindings.py"
    program.write_text(
        "from cuda.bindings import driver as cu\n"
        "print(cu.cuDeviceGetCount()[0].name)\n"
        "cu.cuInit(0)\n"
        "print(cu.cuDeviceGetCount()[1], cu.cuMemAlloc(64)[0].name)\n"
        "cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(1)[1])\n"
        "error, memory = cu.cuMemAlloc(64)\n"
        "print(error.name, cu.cuMemsetD8(memory, 3, 64)[0].name, cu.cuModuleLoadData(b'')[0].name)\n"
        "back = bytearray(64)\n"
        "print(cu.cuMemcpyDtoH(back, memory, 64)[0].name, set(back))\n"
    )
    done = peerlane("run", program)
    assert done.stdout.splitlines() == [
        "CUDA_ERROR_NOT_INITIALIZED",
        "2 CUDA_ERROR_INVALID_CONTEXT",
        "CUDA_SUCCESS CUDA_SUCCESS CUDA_ERROR_NOT_SUPPORTED",
        "CUDA_SUCCESS {3}",
    ], done.stderr


def test_program_of_the_tutorial_copies_and_without_its_event_has_a_race(tmp_path: Path) -> None:
    page = GUIDE.parents[1] / "tutorial" / "two-devices.md"
    [program] = [each for each in programs(page.read_text()) if "cuda" in each.words]
    path = tmp_path / program.name
    path.write_text(program.code)
    done = peerlane("check", path)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    lines = program.code.splitlines(keepends=True)
    path.write_text(
        "".join(line for line in lines if "(filled, first)" not in line and "(second, filled" not in line)
    )
    done = peerlane("check", path)
    assert done.returncode == 3
    assert "race (certain): cudaMemsetAsync writes, cudaMemcpyPeerAsync reads the same bytes" in done.stderr
