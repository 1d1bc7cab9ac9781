"""Texts of codes: C gets them also when Python has ended, from tables that the build made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers.c_programs import PROGRAMS, built
from peerlane.support.libraries import folder
from peerlane.testing.procs import run_python

SECONDS = 60
FUNCTIONS = {
    "libcuda.so.1": {"cuGetErrorName": 1, "cuGetErrorString": 1},
    "libcudart.so.13": {"cudaGetErrorName": 0, "cudaGetErrorString": 0},
    "libcudart.so.12": {"cudaGetErrorName": 0, "cudaGetErrorString": 0},
    "libnccl.so.2": {"ncclGetErrorString": 0},
    "libnvidia-ml.so.1": {"nvmlErrorString": 0},
    "libamdhip64.so": {"hipGetErrorName": 0, "hipGetErrorString": 0},
    "libhiprtc.so": {"hiprtcGetErrorString": 0},
    "libhccl.so": {"HcclGetErrorString": 0},
}
PROGRAM = """
import ctypes, os, sys
ctypes.CDLL(sys.argv[1]).ask(os.environ["QUESTIONS"].encode(), sys.argv[2].encode())
"""


@pytest.mark.any_schedule
def test_texts_of_codes_are_the_same_when_python_has_ended(tmp_path: Path) -> None:
    now, late = tmp_path / "now", tmp_path / "late"
    library = built(
        tmp_path, PROGRAMS / "late_texts.c", ("-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"), ()
    )
    rows = [
        f"{folder()}/{name} {function} {writes}"
        for name, functions in FUNCTIONS.items()
        for function, writes in functions.items()
    ]
    (tmp_path / "questions").write_text("\n".join(rows) + "\n")
    done = run_python(
        ["-c", PROGRAM, str(library), str(now)],
        timeout=SECONDS,
        env={**os.environ, "QUESTIONS": str(tmp_path / "questions"), "ANSWERS": str(late)},
    )
    assert done.returncode == 0, done.stderr
    texts = now.read_text().splitlines()
    assert len(texts) == len(rows) * 1051
    assert {each.partition("(")[0] for each in texts if each.endswith(": NULL")} == {
        "cuGetErrorName",
        "cuGetErrorString",
    }
    assert late.read_text().splitlines() == texts
