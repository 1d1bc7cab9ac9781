"""While an event log is written, a deadlock tells what came before its waits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers.launched import Launched
from helpers.prepared import run_python

pytestmark = pytest.mark.timeout(120)

_PROGRAM = """
import sys
import peerlane as pl
from peerlane.diagnostics.log.observers import Recorder
from peerlane.diagnostics.log import event_log
from peerlane.errors import PastOperation
if sys.argv[1] == "observer":
    pl.set_observer(Recorder())
if sys.argv[1] == "log":
    event_log.begin(sys.argv[2])
d = pl.devices()[0]
a, b, n = d.allocate(64), d.allocate(64), d.create_notify()
s, t = d.create_stream(), d.create_stream()
n.record()
s.wait(n)
for _ in range(20):
    a.fill(1, stream=s)
pl.copy(b, a, stream=s)
b.fill(2, stream=s)
s.sync()
s.wait(n)
for _ in range(20):
    a.fill(1, stream=s)
e = s.record()
t.wait(e)
try:
    t.sync()
except pl.Deadlock as error:
    text, state = str(error), error.detail
behind, first = state.streams
at = "program.py:{}".format
if sys.argv[1] == "nothing":
    assert not (behind.before or behind.of_awaited or first.before or first.of_awaited), state
    assert "before that" not in text and "last uses" not in text, text
else:
    assert first.before == (
        PastOperation(s.id, 21, "fill", at(17)),
        PastOperation(s.id, 22, "copy", at(18)),
        PastOperation(s.id, 23, "fill", at(19)),
    ), first.before
    assert first.of_awaited == (
        PastOperation(0, 0, "notify", at(14)), PastOperation(s.id, 1, "wait_notify", at(15))
    ), first.of_awaited
    assert behind.before == () and (behind.awaited_stream, behind.awaited_operation) == (s.id, 45)
    told = [
        f"before that stream {s.id} was given: fill at {at(17)}, copy at {at(18)}, fill at {at(19)}",
        f"the last uses of notify {n.id}: recorded at {at(14)} (the host), "
        f"waited for at {at(15)} (stream {s.id}, operation 1)",
    ]
    for each in told:
        assert text.count(each) == 1, (each, text)
n.record()
t.sync(timeout=20)
"""

_RANKS = """
import peerlane as pl
with pl.Group(window=64) as group:
    channel = group.channel(1 - group.rank, notifies=2)
    channel.notify(0)
    channel.wait(0, timeout=30)
    try:
        channel.wait(0)
    except pl.Deadlock as error:
        (wait,) = [each for each in error.detail.streams if each.notify]
        (use,) = wait.of_awaited
        assert (use.kind, use.place) == ("wait_notify", "program.py:6"), use
        assert f"the last uses of {wait.notify_name}: waited for at program.py:6" in str(error), error
        print("told", group.rank, flush=True)
"""


@pytest.mark.any_schedule
@pytest.mark.parametrize("reader", ["nothing", "observer", "log"])
def test_deadlock_with_log_names_what_came_before_its_waits(tmp_path: Path, reader: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    env = {**os.environ, "PEERLANE_SCHEDULE": "eager"}
    done = run_python([str(program), reader, str(tmp_path)], timeout=60, env=env)
    assert done.returncode == 0, done.stderr


@pytest.mark.any_schedule
def test_deadlock_of_ranks_with_log_names_last_uses_of_own_notifies(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_RANKS)
    env = {**os.environ, "PEERLANE_LOG": str(tmp_path)}
    with Launched(["-n", "2", str(program)], env=env, cwd=tmp_path) as started:
        done = started.end(60)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["[0] told 0", "[1] told 1"]), (
        done.stderr
    )
