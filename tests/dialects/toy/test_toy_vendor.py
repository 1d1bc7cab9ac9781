"""A vendor that peerlane does not know: all that serves it follows from its folder, named by one variable."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from subprocess import run

import pytest

from helpers.outside_dialects import build_library
from peerlane.testing.procs import Completed, run_python

pytestmark = pytest.mark.any_schedule

FOLDER = Path(__file__).with_name("toy")
ENVIRONMENT = {**os.environ, "PEERLANE_DIALECT_FOLDERS": str(FOLDER), "PEERLANE_NODE": "devices=2"}
SECONDS = 60


def peerlane(*words: str, **environ: str) -> Completed:
    return run_python(["-m", "peerlane", *words], env={**ENVIRONMENT, **environ}, timeout=SECONDS)


def test_run_serves_the_module_to_a_program_and_to_its_children() -> None:
    child = "import toy; print(toy.__name__, toy.toySetDevice(0) or toy.toyMalloc(8)[1])"
    program = f"""
import subprocess, sys, toy
toy.toySetDevice(0)
print(toy.toyMalloc(1 << 60)[1], flush=True)
subprocess.run([sys.executable, "-c", {child!r}], check=True)
"""
    done = peerlane("run", "--dialect", "toy", "-c", program)
    assert (done.returncode, done.stdout) == (0, "2\npeerlane.dialects.toy 0\n"), done.stderr


def test_registered_folder_is_known_to_children_without_the_variable() -> None:
    program = f"""
import subprocess, sys
from peerlane import dialects
dialects.register({str(FOLDER)!r})
dialects.install("toy")
subprocess.run([sys.executable, "-c", "import toy; print(toy.toyGetDeviceCount())"], check=True)
"""
    done = run_python(["-c", program], env={**ENVIRONMENT, "PEERLANE_DIALECT_FOLDERS": ""}, timeout=SECONDS)
    assert (done.returncode, done.stdout) == (0, "(2, 0)\n"), done.stderr


def test_unknown_dialect_is_refused_with_the_toy_among_the_valid_ones() -> None:
    done = peerlane("run", "--dialect", "toys", "-c", "")
    assert done.returncode == 2
    assert (
        "'toys' is not valid (did you mean 'toy'?); valid: toy, acl, cuda, hcomm, hip, mooncake, nixl"
        in done.stderr
    )


def test_check_names_the_toys_calls_in_what_is_missing(tmp_path: Path) -> None:
    program = tmp_path / "two_streams.py"
    program.write_text(
        "import toy\n"
        "toy.toySetDevice(0)\n"
        "memory = toy.toyMalloc(64)[0]\n"
        "first, second = toy.toyStreamCreate()[0], toy.toyStreamCreate()[0]\n"
        "toy.toyMemsetAsync(memory, 1, 64, first)\n"
        "toy.toyMemsetAsync(memory, 2, 64, second)\n"
    )
    done = peerlane("check", "--dialect", "toy", str(program))
    assert done.returncode == 3, done.stdout + done.stderr
    for text in ("two_streams.py:5", "a wait (toyStreamWaitEvent) of", "(toyStreamSynchronize)"):
        assert text in done.stderr


def test_plugin_has_a_fixture_and_the_remedy_for_what_a_test_leaves(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        f"from peerlane import dialects\ndialects.register({str(FOLDER)!r})\n"
    )
    (tmp_path / "test_it.py").write_text(
        "def test_left(toy, peerlane_node):\n"
        "    import toy as same\n"
        "    assert same is toy and toy.toySetDevice(0) == toy.toyMalloc(64)[1] == 0\n"
        "def test_used(toy):\n"
        "    assert toy.toyMalloc(64) == (0, 6)\n"
    )
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", str(tmp_path)]
    done = run_python(words, env={**ENVIRONMENT, "PEERLANE_DIALECT_FOLDERS": ""}, timeout=SECONDS)
    assert done.stdout.count("ERROR at teardown") == 1, done.stdout + done.stderr
    assert "Memory of toyMalloc ends with toyFree, streams with toyStreamDestroy." in done.stdout


def test_program_in_c_finds_the_library_and_the_library_its_dialect(tmp_path: Path) -> None:
    folder = tmp_path / "toy"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    library, source, program = build_library(folder, "toy"), tmp_path / "prog.c", tmp_path / "prog"
    source.write_text(
        "#include <stdint.h>\n#include <stdio.h>\n"
        "int toySetDevice(int), toyMalloc(uint64_t*, uint64_t), toyStreamCreate(uint64_t*);\n"
        "int toyMemsetAsync(uint64_t, int, uint64_t, uint64_t);\n"
        "int main(void) {\n"
        "    uint64_t memory = 0, stream = 0;\n"
        "    int made = toySetDevice(0) || toyMalloc(&memory, 64) || toyStreamCreate(&stream);\n"
        '    printf("%d %d %d\\n", made, toyMemsetAsync(memory, 7, 64, stream), toyMalloc(0, 64));\n'
        "}\n"
    )
    run(["cc", source, "-o", program, f"-L{library.parent}", "-ltoy"], check=True, timeout=SECONDS)
    done = peerlane("run", str(program), PEERLANE_DIALECT_FOLDERS=str(folder))
    assert (done.returncode, done.stdout) == (0, "0 0 1\n"), done.stderr
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent), "PEERLANE_PYTHON": sys.executable}
    environment.pop("PEERLANE_DIALECT_FOLDERS", None)
    refused = run([program], env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (refused.stdout, "no dialect 'toy'; valid are acl" in refused.stderr) == ("1 9 9\n", True), (
        refused.stderr
    )
