"""A pytest inside a test: it runs a file of tests in its own process, with a deadline."""

from __future__ import annotations

import itertools
import os
import tempfile
import textwrap
import time
from pathlib import Path
from typing import IO

import pytest

from helpers import prepared

SECONDS = 120.0
FILE = "test_it.py"
#: Plugins of other packages, which take twice as long to start as all else that an inner pytest does.
WITHOUT = tuple(
    word for name in ("hypothesispytest", "anyio", "html", "metadata") for word in ("-p", f"no:{name}")
)
HEAD = """
import os, subprocess, sys, time
import multiprocessing
import pytest
import peerlane as pl

kept = []
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
"""


def run(pytester: pytest.Pytester, source: str, *words: str, anew: bool = False) -> pytest.RunResult:
    """Run a test file; without the plugins of :data:`WITHOUT`, unless ``words`` name a plugin.

    With ``anew`` a new interpreter runs it, else a process in which pytest and peerlane are imported already.
    """
    pytester.makepyfile(test_it=textwrap.dedent(source))
    without = () if "-p" in words else WITHOUT
    words = ("-p", "no:cacheprovider", *without, *words)
    return (
        pytester.runpytest_subprocess(*words, timeout=SECONDS) if anew else run_in_process(pytester, *words)
    )


def run_in_process(pytester: pytest.Pytester, *words: str) -> pytest.RunResult:
    """Run pytest on the present folder, in a process in which pytest and peerlane are imported already."""
    args = ["-m", "pytest", f"--basetemp={_new_folder(pytester)}", *words]
    with (
        Path(os.devnull).open("rb") as stdin,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        started = time.monotonic()
        descriptors = {"stdin": stdin.fileno(), "stdout": out.fileno(), "stderr": err.fileno()}
        ended = prepared.start(args, env=os.environ, **descriptors).wait(SECONDS)
        seconds = time.monotonic() - started
        lines = [_lines(out), _lines(err)]
    print("\n".join(each for output in lines for each in output))
    return pytest.RunResult(ended, *lines, seconds)


def _new_folder(pytester: pytest.Pytester) -> Path:
    return next(path for n in itertools.count() if not (path := pytester.path / f"inner-{n}").exists())


def _lines(file: IO[bytes]) -> list[str]:
    file.seek(0)
    return file.read().decode(errors="backslashreplace").splitlines()


def passes(
    pytester: pytest.Pytester, source: str, *words: str, passed: int = 1, anew: bool = False
) -> pytest.RunResult:
    """Run a test file whose tests all pass."""
    done = run(pytester, source, *words, anew=anew)
    assert done.ret == 0
    done.assert_outcomes(passed=passed)
    return done


def marked_line(pytester: pytest.Pytester, mark: str = "here") -> str:
    """Return the place of the line of that file whose comment is ``mark``, alone or before a semicolon."""
    lines = (pytester.path / FILE).read_text().splitlines()
    comments = [line.partition("# ")[2].partition(";")[0] for line in lines]
    assert comments.count(mark) == 1
    return f"{FILE}:{comments.index(mark) + 1}"
