"""Runs PyTorch's own tests that its wheel does not have, on the device, and writes a page of their outcomes.

``python -m torch_suite.in_tree run FOLDER RESULTS FILE ...`` runs files of a folder, and adds a line of JSON for each
test to a file.  ``python -m torch_suite.in_tree page RESULTS PAGE`` writes the page.  The folder is PyTorch's own, or
the copy that a library for another device keeps, which ``--name`` names (``xpu``, ``npu``).  It is not a part of
peerlane.  The files are copied, and the copy says ``cuda`` or ``peerlane`` instead.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_SECONDS = 120  # for a test
_DEVICES = 4
_IN_NAMES = {"cuda": "CUDA", "peerlane": "PRIVATEUSE1"}  # of torch's helpers, as onlyCUDA
_BACK_ENDS = {"cuda": "nccl", "npu": "hccl", "xpu": "xccl", "peerlane": "peerlane"}

# What a library's helpers are called that only name its device or its back-end.
_STAND_INS = {
    "__init__.py": "",
    "testing/__init__.py": "",
    "testing/testcase.py": "from torch.testing._internal.common_utils import TestCase, run_tests\n",
    "testing/common_utils.py": "def SupportedDevices(*_):\n    return lambda test: test\n",
    "testing/common_distributed.py": "from torch.testing._internal.common_distributed import skip_if_lt_x_gpu\n"
    "skipIfUnsupportMultiNPU = skip_if_lt_x_gpu\n",
    "testing/_internal/__init__.py": "",
    "testing/_internal/common_fsdp.py": "from torch.testing._internal.common_fsdp import FSDPTest\n"
    "FSDPNPUTest = FSDPTest\n",
}

# The processes of a test are forks of one that has imported PyTorch and has used no device; PyTorch would
# start each anew.
_CONFTEST = """\
import json, os
import torch
from torch.testing._internal.common_distributed import MultiProcessTestCase

def start(test):
    context = torch.multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["peerlane.torch", "torch.testing._internal.common_fsdp"])
    test._start_processes(context.Process)

MultiProcessTestCase._spawn_processes = start

def pytest_runtest_setup(item):
    if getattr(item.cls, "poison_pill", False):  # PyTorch would skip the tests of a class behind one that fails
        for each in item.cls.processes:
            each.kill()
            each.join()
        item.cls.poison_pill = item.cls._processes_spawned = False

def pytest_collection_modifyitems(items):
    items[:] = items[int(os.environ["FIRST"]) :: int(os.environ["EVERY"])]

def pytest_runtest_logreport(report):
    if "PYTEST_XDIST_WORKER" not in os.environ and (report.when != "setup" or not report.passed):
        if report.when != "teardown" or report.failed:
            with open(os.environ["RESULTS"], "a") as file:
                text = report.capstderr + report.longreprtext  # the errors of other processes are in the first
                line = {"name": report.nodeid, "outcome": report.outcome, "text": text[-20_000:]}
                print(json.dumps(line), file=file)
"""

_PAGE = """\
# PyTorch's tests from its tree

{head}

| file | tests | pass | fail | are skipped |
|---|---|---|---|---|
{files}

## Those that fail

| the error | tests | which |
|---|---|---|
{failures}
"""


def copied(folder: Path, into: Path, theirs: str, ours: str) -> None:
    """Copy tests, with our name of the device in place of theirs."""
    shutil.copytree(folder, into)
    word = re.compile(rf"(?<!torch_)(?<!allow_)(?<![A-Za-z]){theirs}(?![A-Za-z])")
    in_name = re.compile(rf"\b(only|dtypesIf|skip){theirs.upper()}")
    for file in into.rglob("*.py"):
        text = file.read_text().replace(f"torch_{theirs}.{theirs}", f"torch.{theirs}")
        text = re.sub(rf"\b{_BACK_ENDS[theirs]}\b", _BACK_ENDS[ours], text)
        text = in_name.sub(rf"\g<1>{_IN_NAMES[ours]}", word.sub(ours, text))
        text = re.sub(
            r"^(?=(?:import|from) torch)", "import peerlane.torch\n", text, count=1, flags=re.MULTILINE
        )
        file.write_text(text)
    for path, source in _STAND_INS.items():
        stand_in = into / f"torch_{theirs}" / path
        stand_in.parent.mkdir(parents=True, exist_ok=True)
        stand_in.write_text(source)
    (into / "conftest.py").write_text(_CONFTEST)


def run(options: argparse.Namespace) -> None:
    """Run files, each for a limited time."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "tests"
        copied(options.folder, root, options.name, options.ours)
        named = ["--torch-cuda"] if options.ours == "cuda" else []
        served = [sys.executable, "-m", "peerlane", "run", *named, "--devices", str(_DEVICES), "-m", "pytest"]
        quiet = ["-q", "-p", "no:cacheprovider", "-p", "no:peerlane", "--timeout", str(_SECONDS)]
        quiet += ["-n", str(options.workers)]
        env = {
            **os.environ,
            "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": str(_SECONDS),
            "RESULTS": str(options.results.resolve()),
            "EVERY": str(options.every),
            "FIRST": str(options.first),
            "OMP_NUM_THREADS": "1",
        }
        for file in options.files:
            words = ["-k", options.chosen] if options.chosen else []
            folders = [str(root), str((root / file).parent), os.environ.get("PYTHONPATH", "")]
            env["PYTHONPATH"] = os.pathsep.join(folders)
            child = subprocess.Popen(
                [*served, file, *quiet, *words], cwd=root, env=env, start_new_session=True
            )
            try:
                child.wait(options.seconds)
            except subprocess.TimeoutExpired:
                print(f"{file}: not over after {options.seconds} s")
                os.killpg(child.pid, 15)
                child.wait(30)


def _error(text: str) -> str:
    """Return the last error that a report has."""
    errors = re.findall(
        r"^(?:E\s+)?((?:\w+\.)*\w*(?:Error|Exception|Failure)\b.*)$", text, flags=re.MULTILINE
    )
    last = errors[-1] if errors else (text.strip().splitlines() or ["the process has ended"])[-1]
    last = re.sub(r"0x[0-9a-f]+|\b\d[\d.,]*\b", "N", last)
    return str(last[:160]).replace("|", "/")


def page(options: argparse.Namespace) -> None:
    """Write the page from the results, of which the last of a test counts."""
    lines = [json.loads(line) for line in options.results.read_text().splitlines()]
    last = {line["name"]: line for line in lines}
    files: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    causes = collections.defaultdict(list)
    for name, line in last.items():
        file, _, test = name.partition("::")
        files[file][line["outcome"]] += 1
        if line["outcome"] == "failed":
            causes[_error(line["text"])].append(test.replace("::", "."))
    rows = [
        f"| `{name}` | {counts.total()} | {counts['passed']} | {counts['failed']} | {counts['skipped']} |"
        for name, counts in sorted(files.items())
    ]
    failures = []
    for cause, names in sorted(causes.items(), key=lambda each: -len(each[1])):
        shown = ", ".join(map(_shown, names[:8])) + (", ..." if len(names) > 8 else "")
        failures.append(f"| {cause} | {len(names)} | {shown} |")
    head = options.head.read_text().strip() if options.head else ""
    options.page.write_text(_PAGE.format(head=head, files="\n".join(rows), failures="\n".join(failures)))


def _shown(test: str) -> str:
    """Return a test and its class, if it has one, in two parts between which a line may end."""
    of, _, name = test.rpartition(".")
    return f"`{name}` of `{of}`" if of else f"`{name}`"


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts = parser.add_subparsers(required=True)
    running = parts.add_parser("run")
    running.add_argument("folder", type=Path)
    running.add_argument("results", type=Path)
    running.add_argument("files", nargs="+")
    running.add_argument(
        "--name", choices=("cuda", "npu", "xpu"), default="cuda", help="the device in the files"
    )
    running.add_argument("--as", dest="ours", choices=_IN_NAMES, default="cuda", help="our name of it")
    running.add_argument("--every", type=int, default=1, help="run each n-th test")
    running.add_argument("--first", type=int, default=0, help="the number of the first test that runs")
    running.add_argument(
        "--workers", type=int, default=2, help="0: the process of pytest runs the tests itself"
    )
    running.add_argument("--seconds", type=float, default=600, help="for a file")
    running.add_argument("--chosen", default="", help="which tests, as -k of pytest")
    running.set_defaults(do=run)
    writing = parts.add_parser("page")
    writing.add_argument("results", type=Path)
    writing.add_argument("page", type=Path)
    writing.add_argument("--head", type=Path, help="text above the table")
    writing.set_defaults(do=page)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
