"""Runs NVIDIA's tests of cuda.core on virtual devices, and writes a page of what passes and what does not.

``python -m cuda_suite FOLDER PAGE COMMIT``: ``FOLDER`` is ``cuda_core/tests`` of NVIDIA/cuda-python at a commit.  The
exit code is 1 if fewer than 95 % of the tests that ran pass, if a process crashed, or if a failure has no reason in
`REASONS`.
"""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

GOAL = 0.95
DEVICES = 3
_MOST_SECONDS = 900.0
_TEST_SECONDS = 60

#: The files about memory, copies, streams, events, devices, contexts, pools, peers and sharing.
FILES = (
    "test_buffer*.py",
    "test_context.py",
    "test_device.py",
    "test_event.py",
    "test_managed_memory_warning.py",
    "test_memory*.py",
    "test_multiprocessing_warning.py",
    "test_stream.py",
    "memory/test_*.py",
    "memory_ipc/test_*.py",
)

#: Why tests fail: a pattern of what they fail with, or of their names.
REASONS = {
    r"libnvrtc": "It compiles a kernel, and `libnvrtc` is not part of peerlane",
    r"process C did not signal": (
        "It closes a buffer that the thread of a queue still has to pickle, and waits for the other end; NVIDIA "
        "marks it as flaky"
    ),
    r"test_package_contents": "It lists the names of a module of an earlier cuda.core",
}

_PAGE = """\
# NVIDIA's tests of cuda.core

`make test-cuda CUDA_CORE_TESTS=FOLDER CUDA_CORE_COMMIT=COMMIT` runs NVIDIA's tests of cuda.core on {devices} virtual
devices, and writes this page. The tests are not part of this repository: `FOLDER` is `cuda_core/tests` of a checkout
of NVIDIA/cuda-python. They run unmodified; `tests/cuda_suite/moved_names.py` adds the private names that a newer
cuda.core has elsewhere. These are the files about memory, copies, streams, events, devices, contexts, pools, peers
and sharing.

{date}, tests at {commit}, cuda-core {core}, cuda-bindings {bindings}, Python {python}, no GPU:

| file | pass | fail | are skipped |
|---|---|---|---|
{rows}

**Of the {ran} tests that ran, {passed} pass ({percent:.1f} %); {crashed} crashed.**

## Those that fail

{failing}

## Why tests are skipped

{skipped}
"""


class Outcome(NamedTuple):
    """How a test ended: "passed", "failed", "skipped" or "crashed", and why."""

    file: str
    name: str
    kind: str
    why: str


def _name_of(case: ElementTree.Element) -> str:
    last = case.get("classname", "").rpartition(".")[2]
    return f"{last}::" * last.startswith("Test") + case.get("name", "")


def _kind_of(case: ElementTree.Element) -> tuple[str, str]:
    for tag, kind in (("error", "failed"), ("failure", "failed"), ("skipped", "skipped")):
        found = case.find(tag)
        if found is not None:
            return kind, f"{found.get('message', '')}\n{found.text or ''}"
    return "passed", ""


def outcomes(folder: Path, file: str) -> list[Outcome]:
    """Run a file of tests in a process of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        command = [sys.executable, "-m", "peerlane", "run", "--dialect", "cuda", "--devices", str(DEVICES)]
        command += ["-m", "pytest", file, "-q", "--junitxml", str(report), "-p", "cuda_suite.moved_names"]
        command += [
            "-p",
            "no:cacheprovider",
            "-p",
            "no:randomly",
            "-p",
            "no:rerunfailures",
            f"--timeout={_TEST_SECONDS}",
        ]
        own = Path(__file__).parent
        paths = map(str, (own.parent, own / "children", *filter(None, [os.environ.get("PYTHONPATH")])))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        done = subprocess.run(
            command, check=False, cwd=folder, env=environment, timeout=_MOST_SECONDS, capture_output=True
        )
        if not report.exists():
            return [
                Outcome(file, file, "crashed", (done.stdout + done.stderr).decode(errors="replace")[-2000:])
            ]
        cases = ElementTree.parse(report).getroot().iter("testcase")
        return [Outcome(file, _name_of(case), *_kind_of(case)) for case in cases]


def reason_of(outcome: Outcome) -> str:
    """Return why a test fails; "" where `REASONS` has nothing."""
    text = f"{outcome.file}::{outcome.name}\n{outcome.why}"
    return next((reason for pattern, reason in REASONS.items() if re.search(pattern, text)), "")


def _grouped(pairs: Iterable[tuple[str, Outcome]]) -> str:
    groups: dict[str, list[str]] = {}
    for reason, each in pairs:
        groups.setdefault(reason or "Not explained yet", []).append(f"`{each.file}::{each.name}`")
    return (
        "\n".join(f"* {reason} ({len(names)}): {', '.join(names)}." for reason, names in groups.items())
        or "None."
    )


def _skip_of(outcome: Outcome) -> str:
    return outcome.why.partition("\n")[0].strip()


def main(folder: Path, page: Path, commit: str) -> int:
    """Run, count, write."""
    files = sorted({str(path.relative_to(folder)) for pattern in FILES for path in folder.glob(pattern)})
    every: list[Outcome] = []
    rows = []
    for file in files:
        mine = outcomes(folder, file)
        every += mine
        counts = Counter(each.kind for each in mine)
        rows.append(
            f"| `{file}` | {counts['passed']} | {counts['failed'] + counts['crashed']} | {counts['skipped']} |"
        )
        print(rows[-1], flush=True)
    of_kind = {
        kind: [each for each in every if each.kind == kind]
        for kind in ("passed", "failed", "skipped", "crashed")
    }
    bad = of_kind["failed"] + of_kind["crashed"]
    passed, ran = len(of_kind["passed"]), len(of_kind["passed"]) + len(bad)
    reasons = Counter(map(_skip_of, of_kind["skipped"]))
    page.write_text(
        _PAGE.format(
            devices=DEVICES,
            date=datetime.date.today(),
            commit=commit,
            core=version("cuda-core"),
            bindings=version("cuda-bindings"),
            python=platform.python_version(),
            rows="\n".join(rows),
            ran=ran,
            passed=passed,
            percent=100 * passed / max(ran, 1),
            crashed=len(of_kind["crashed"]) or "none",
            failing=_grouped((reason_of(each), each) for each in bad),
            skipped="\n".join(f"* {why} ({count})." for why, count in reasons.most_common()) or "None.",
        )
    )
    unexplained = [each for each in bad if not reason_of(each)]
    for each in unexplained:
        print(f"{each.file}::{each.name} {each.kind}:\n{each.why[-1500:]}")
    print(f"{passed} of {ran} tests that ran pass; {page} has the others")
    return int(passed < GOAL * ran or bool(of_kind["crashed"]) or bool(unexplained))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3]))
