"""The examples in the docstrings of the public names are programs that run, and print what they show."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import peerlane as pl
from helpers.promises import Node
from peerlane.testing import collective_check

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(60)]

NAMES = {name: getattr(pl, name) for name in pl.__all__} | {
    "CollectiveCheck": collective_check.CollectiveCheck
}


def examples_of(name: str) -> list[doctest.DocTest]:
    """Return the examples of an object and of its attributes."""
    public: Any = NAMES[name]
    examples = doctest.DocTestFinder(exclude_empty=True).find(public, name, globs={"pl": pl, "np": np})
    return [each for each in examples if each.examples]


@pytest.mark.parametrize("name", sorted(NAMES))
def test_examples_of_a_public_name_run_and_print_what_they_show(
    node: Node, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # some write files
    node("devices=2")
    tests = examples_of(name)
    assert tests, f"{name} has no example"
    printed: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for each in tests:
        runner.run(each, out=printed.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(printed)
