"""What the tests of programs in C share."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from helpers.c_programs import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs words in a folder of the test's own."""

    def call(*words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(word) for word in words],
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "PEERLANE_NODE": "devices=3", **variables},
        )

    return call
