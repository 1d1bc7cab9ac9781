"""Runs files of a suite on virtual devices."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from cuda_suite.kernel_refusals import PROPERTY
from cuda_suite.suites import KERNELS, Suite

_MOST_SECONDS = 900.0
_TEST_SECONDS = 60
#: How a test can end; one that needs a kernel fails, and is counted by itself.
PASSED, FAILED, KERNEL, SKIPPED, CRASHED = KINDS = ("passed", "failed", "kernel", "skipped", "crashed")


class Outcome(NamedTuple):
    """How a test ended: one of `KINDS`, what it ended with, what was refused in it, and why it failed.

    Attributes
    ----------
    refused : str
        The calls of the test that peerlane refused for their kernels.
    reason : str
        Empty: it is not known.
    """

    file: str
    name: str
    kind: str
    text: str
    refused: str = ""
    reason: str = ""


def outcomes(suite: Suite, folder: Path, file: str) -> list[Outcome]:
    """Run a file of tests in a process of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        command = [
            sys.executable,
            "-m",
            "peerlane",
            "run",
            "--dialect",
            "cuda",
            "--devices",
            str(suite.devices),
        ]
        command += ["-m", "pytest", file, "-q", "--junitxml", str(report), f"--timeout={_TEST_SECONDS}"]
        for plugin in ("cacheprovider", "randomly", "rerunfailures"):
            command += ["-p", f"no:{plugin}"]
        command += ["-p", "cuda_suite.kernel_refusals"]
        own = Path(__file__).parent
        paths = map(str, (own.parent, own / "children", *filter(None, [os.environ.get("PYTHONPATH")])))
        environment = {**os.environ, **suite.environment, "PYTHONPATH": os.pathsep.join(paths)}
        try:
            done = subprocess.run(
                [*command, *suite.options],
                check=False,
                cwd=folder,
                env=environment,
                timeout=_MOST_SECONDS,
                capture_output=True,
            )
            output = (done.stdout + done.stderr).decode(errors="replace")
        except subprocess.TimeoutExpired as error:
            output = f"It runs longer than {error.timeout} s"
        if not report.exists():
            return [_explained(suite, Outcome(file, file, CRASHED, output[-2000:]))]
        cases = ElementTree.parse(report).getroot().iter("testcase")
        return [
            _explained(suite, Outcome(file, _name_of(case, folder), *_end_of(case), _refused_in(case)))
            for case in cases
        ]


def _name_of(case: ElementTree.Element, folder: Path) -> str:
    """Return the name of a test; a path in its parameters is relative to the folder of the tests."""
    last = case.get("classname", "").rpartition(".")[2]
    return f"{last}::" * last.startswith("Test") + case.get("name", "").replace(f"{folder}{os.sep}", "")


def _end_of(case: ElementTree.Element) -> tuple[str, str]:
    for tag, kind in (("error", FAILED), ("failure", FAILED), ("skipped", SKIPPED)):
        element = case.find(tag)
        if element is not None:
            return kind, f"{element.get('message', '')}\n{element.text or ''}"
    return PASSED, ""


def _refused_in(case: ElementTree.Element) -> str:
    properties = {each.get("name"): each.get("value", "") for each in case.iter("property")}
    return properties.get(PROPERTY, "")


def _explained(suite: Suite, outcome: Outcome) -> Outcome:
    if outcome.kind not in (FAILED, CRASHED):
        return outcome
    text = f"{outcome.file}::{outcome.name}\n{outcome.text}"
    for reasons, kind in ((suite.reasons, outcome.kind), ({**suite.kernels, **KERNELS}, KERNEL)):
        for pattern, reason in reasons.items():
            if re.search(pattern, text):
                return outcome._replace(kind=kind, reason=reason)
    if outcome.refused:
        return outcome._replace(kind=KERNEL, reason=f"It needs a kernel: `{outcome.refused}` is refused")
    return outcome
