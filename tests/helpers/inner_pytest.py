"""A pytest inside a test: it runs a file of tests in its own process, with a deadline."""

from __future__ import annotations

import textwrap

import pytest

SECONDS = 120.0
FILE = "test_it.py"
HEAD = """
import os, subprocess, sys, time
import multiprocessing
import pytest
import peerlane as pl

kept = []
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
"""


def run(pytester: pytest.Pytester, source: str, *words: str) -> pytest.RunResult:
    """Run a test file; without Hypothesis, which starts slowly, unless ``words`` name a plugin."""
    pytester.makepyfile(test_it=textwrap.dedent(source))
    without = [] if "-p" in words else ["-p", "no:hypothesispytest"]
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *without, *words, timeout=SECONDS)


def passes(pytester: pytest.Pytester, source: str, *words: str, passed: int = 1) -> pytest.RunResult:
    """Run a test file whose tests all pass."""
    done = run(pytester, source, *words)
    assert done.ret == 0
    done.assert_outcomes(passed=passed)
    return done


def here(pytester: pytest.Pytester, mark: str = "here") -> str:
    """Return the place of the line of that file whose comment is ``mark``, alone or before a semicolon."""
    lines = (pytester.path / FILE).read_text().splitlines()
    comments = [line.partition("# ")[2].partition(";")[0] for line in lines]
    assert comments.count(mark) == 1
    return f"{FILE}:{comments.index(mark) + 1}"
