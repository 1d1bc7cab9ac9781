"""Orders of which peerlane sees one part only: a right program is never accused with certainty, and a racy one is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from checker.checking import TESTS, Checked, checked_program
from checker.edge_programs.three_ranks import LOGGED
from peerlane.testing.procs import run_python

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]

#: The order of the hops, the one that peerlane sees, and what ranks 0 and 1 do.
RACY = [
    *(("socket-seen", hop, "Deregistered") for hop in LOGGED),
    *(("seen-socket", hop, "Deregistered") for hop in LOGGED),
    *(("socket-seen", "notify", "Read"), ("socket-seen", "notify", "StreamedRead")),
]
#: Memory can carry an order at any time.
OPEN = [("mapped-seen", "barrier", "Deregistered"), ("mapped-seen", "notify", "StreamedRead")]


def run(order: str, hop: str, use: str, mode: str, folder: Path) -> Checked:
    program = TESTS / "checker" / "edge_programs" / "three_ranks.py"
    return checked_program(program, order, hop, use, mode, str(folder), ranks=3)


@pytest.mark.parametrize(("order", "hop", "use"), [*RACY, *OPEN])
def test_order_by_hops_is_never_accused_with_certainty(
    order: str, hop: str, use: str, tmp_path: Path
) -> None:
    done = run(order, hop, use, "right", tmp_path)
    assert done.code == 0, done.output
    assert [each for each in done.findings if each["certain"]] == [], done.output
    assert "not complete" not in done.output


@pytest.mark.parametrize("mode", ["early", "late"])
@pytest.mark.parametrize(("order", "hop", "use"), RACY)
def test_race_of_ranks_whose_hops_came_too_early_is_certain(
    order: str, hop: str, use: str, mode: str, tmp_path: Path
) -> None:
    done = run(order, hop, use, mode, tmp_path)
    kind = "use-after-free" if use == "Deregistered" else "race"
    assert done.code == 3, done.output
    assert {(each["kind"], each["certain"]) for each in done.findings} == {(kind, True)}, done.output


@pytest.mark.parametrize("mode", ["right", "early"])
@pytest.mark.parametrize("hop", LOGGED)
@pytest.mark.parametrize(("teller", "use"), [("writer", "Deregistered"), ("relay", "StreamedRead")])
def test_threads_that_signal_each_other_by_variable_are_never_accused_with_certainty(
    teller: str, use: str, hop: str, mode: str, tmp_path: Path
) -> None:
    program = TESTS / "checker" / "edge_programs" / "threads_signal.py"
    done = checked_program(program, teller, hop, use, mode, str(tmp_path), ranks=3)
    assert "not complete" not in done.output
    kind = "use-after-free" if use == "Deregistered" else "race"
    reported = [(each["kind"], each["certain"]) for each in done.findings]
    assert set(reported) <= {(kind, mode == "early")}, done.output
    assert mode == "right" or reported, done.output


LOOKS = """
import os, pathlib, subprocess, sys
import peerlane as pl
from peerlane import _core
from peerlane.diagnostics.log import event_log
from peerlane.ranks.deadlock import wait_state

def look():
    event_log.post((9, 9))
    log.take(True)
    has_children = wait_state._has_children()
    event_log.post((9, 9))  # behind what came in before
    return has_children, [event_log.KINDS["post"] == each[0] for each in log.take(True)]

[path] = pathlib.Path(os.environ["PEERLANE_LOG"]).glob(f"{os.getpid()}-*.log")
log = _core.LogReader(str(path))
without = look()
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
print(without, look())
child.communicate()
"""


def test_look_for_children_of_a_rank_that_waits_is_no_message_to_it(tmp_path: Path) -> None:
    done = run_python(["-c", LOOKS], timeout=60, env={**os.environ, "PEERLANE_LOG": str(tmp_path)})
    assert (done.returncode, done.stdout) == (0, "(False, [True]) (True, [True])\n"), done.stderr
