"""The calls that native code answers without Python: they answer as the dialect does, whatever came before."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from helpers import c_quick_calls
from peerlane.dialects._shared.c_library import Library
from peerlane.dialects._shared.c_names import declarations_of

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]


def answers(*words: str) -> list[str]:
    said = subprocess.run(
        [sys.executable, c_quick_calls.__file__, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        # On a node of its own: what other processes have allocated there decides how a copy beyond memory fails.
        env={
            **os.environ,
            "PEERLANE_NODE": f"name=quick-{os.getpid()},devices=3",
            "PEERLANE_SCHEDULE": "eager",
        },
    )
    assert said.returncode == 0, said.stderr
    return said.stdout.splitlines()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dialect", ["acl", "hip", "cuda", "cudart"])
def test_quick_calls_answer_and_copy_as_the_dialect_does(dialect: str, seed: int) -> None:
    *quick, counts = answers(dialect, str(seed))
    *asked, _ = answers(dialect, str(seed), "asked")
    assert quick == asked
    hot, answered = map(int, counts.split())
    assert answered < 0.95 * hot


def test_a_call_that_worked_returns_success_though_another_thread_ends_its_things_meanwhile() -> None:
    def learn(_: int, words: object) -> None:
        raise KeyError(words)

    library = Library(
        declarations_of("acl"),
        call=lambda _: lambda handle: 0,
        refuse=lambda *_: 1,
        learn={"aclrtDestroyEvent": learn},
    )
    assert library.entry("aclrtDestroyEvent")(7) == 0
