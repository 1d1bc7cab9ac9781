"""Running a module as the ranks of ``peerlane check``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 120.0
TESTS = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Checked:
    """A run under ``peerlane check``: its exit code, its findings as in the JSON file, and what it printed."""

    code: int
    findings: tuple[dict[str, Any], ...]
    output: str


def checked(module: str, *words: str, ranks: int, path: Path = TESTS, devices: int = 4) -> Checked:
    """Run a module that lies in ``path`` as so many ranks.

    Raises
    ------
    subprocess.TimeoutExpired
        It did not end in time.
    RuntimeError
        No findings were written.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "findings.json"
        command = [
            "-m",
            "peerlane",
            "check",
            "-n",
            str(ranks),
            "--devices",
            str(devices),
            "--json",
            str(file),
        ]
        paths = [str(path), *filter(None, [os.environ.get("PYTHONPATH")])]
        done = subprocess.run(
            [sys.executable, *command, "-m", module, *words],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        output = done.stdout + done.stderr
        if not file.exists():
            raise RuntimeError(f"{module} {' '.join(words)} ended with {done.returncode}:\n{output}")
        return Checked(done.returncode, tuple(json.loads(file.read_text())["findings"]), output)


def told(findings: Iterable[dict[str, Any]]) -> str:
    """Return the findings, one a line."""
    return "\n".join(
        f"{finding['kind']}{'' if finding['certain'] else ', uncertain'}: "
        + ", ".join(f"{Path(site['file']).name}:{site['line']} ({site['verb']})" for site in finding["sites"])
        for finding in findings
    )
