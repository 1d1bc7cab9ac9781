"""Running programs under ``peerlane check``."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers import prepared

SECONDS = 120.0
TESTS = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Checked:
    """A run under ``peerlane check``: its exit code, its findings as in the JSON file, and what it printed."""

    code: int
    findings: tuple[dict[str, Any], ...]
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        """Both standard output and standard error."""
        return self.stdout + self.stderr


def checked(
    module: str, *words: str, ranks: int, path: Path = TESTS, devices: int = 4, apart: bool = False
) -> Checked:
    """Run a module that lies in ``path`` as so many ranks, each on a machine of its own if they are ``apart``.

    Raises
    ------
    AssertionError
        It did not end in time, or left processes behind.
    RuntimeError
        No findings were written.
    """
    return _checked(["-m", module, *words], ranks=ranks, path=path, devices=devices, apart=apart)


def checked_program(
    program: Path, *words: str, ranks: int | None = None, devices: int = 4, apart: bool = False
) -> Checked:
    """Run a program, as so many ranks if they are given; otherwise as :func:`checked`."""
    return _checked([str(program), *words], ranks=ranks, path=TESTS, devices=devices, apart=apart)


def _checked(words: list[str], *, ranks: int | None, path: Path, devices: int, apart: bool) -> Checked:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "findings.json"
        words = ["-m", "helpers.apart", *words] if apart else words
        launch = [] if ranks is None else ["-n", str(ranks)]
        command = ["-m", "peerlane", "check", *launch, "--devices", str(devices), "--json", str(file), *words]
        paths = [str(path), str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        done = prepared.run_python(command, timeout=SECONDS, env=env)
        if not file.exists():
            output = done.stdout + done.stderr
            raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}:\n{output}")
        findings = tuple(json.loads(file.read_text())["findings"])
        return Checked(done.returncode, findings, done.stdout, done.stderr)


def described(findings: Iterable[dict[str, Any]]) -> str:
    """Return the findings, one a line."""
    return "\n".join(
        f"{finding['kind']}{'' if finding['certain'] else ', uncertain'}: "
        + ", ".join(f"{Path(site['file']).name}:{site['line']} ({site['verb']})" for site in finding["sites"])
        for finding in findings
    )
