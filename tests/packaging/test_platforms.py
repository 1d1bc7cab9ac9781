"""Platforms and interpreters that peerlane is not written for are refused, at the import and at the build."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from peerlane.testing.procs import run_python

pytestmark = pytest.mark.any_schedule

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("pretence", "sentence"),
    [
        (
            "sys.platform = 'win32'",
            "peerlane runs on Linux alone, and this is win32; on Windows install it in WSL 2",
        ),
        (
            "sys.platform = 'darwin'",
            "peerlane runs on Linux alone, and this is darwin; on macOS use a Linux virtual machine or container",
        ),
        ("sys.platform = 'freebsd14'", "peerlane runs on Linux alone, and this is freebsd14"),
        (
            "os.uname = lambda: types.SimpleNamespace(machine='riscv64')",
            "peerlane runs on 64-bit x86-64 and AArch64, and this is a 64-bit Python on riscv64",
        ),
        (
            "os.uname = lambda: types.SimpleNamespace(machine='x86_64'); sys.maxsize = 2**31 - 1",
            "peerlane runs on 64-bit x86-64 and AArch64, and this is a 32-bit Python on x86_64",
        ),
        ("sys.implementation.name = 'pypy'", "peerlane needs CPython with the GIL, and this is pypy"),
        ("sys.abiflags = 't'", "peerlane needs CPython with the GIL, and this is its free-threaded build"),
    ],
)
def test_import_on_another_platform_is_refused_in_one_sentence(pretence: str, sentence: str) -> None:
    done = run_python(["-c", f"import os, sys, types; {pretence}; import peerlane"], timeout=40)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"ImportError: {sentence}"


@pytest.mark.parametrize(
    ("system", "processor", "sentence"),
    [
        (
            "Windows",
            "AMD64",
            "peerlane runs on Linux alone, and this is Windows. On Windows install it in WSL 2.",
        ),
        ("Darwin", "arm64", "this is Darwin. On macOS use a Linux virtual machine or container."),
        ("Linux", "riscv64", "peerlane runs on 64-bit x86-64 and AArch64; the compiler is for riscv64"),
    ],
)
def test_build_on_another_platform_is_refused_in_one_sentence(
    system: str, processor: str, sentence: str, tmp_path: Path
) -> None:
    cmake = shutil.which("cmake")
    assert cmake is not None, "the dependency group `build` brings cmake"
    words = [f"-DCMAKE_SYSTEM_NAME={system}", f"-DCMAKE_SYSTEM_PROCESSOR={processor}"]
    done = subprocess.run(
        [cmake, "-S", ROOT, "-B", tmp_path, *words],
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ,
        check=False,
    )
    assert done.returncode != 0
    assert sentence in " ".join(done.stderr.split())
