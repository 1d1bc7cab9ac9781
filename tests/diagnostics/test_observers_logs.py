"""An observer and a recording have logs of their own, beside the checker's and in each process."""

from __future__ import annotations

from pathlib import Path

import pytest

import peerlane as pl
from helpers.logs import run_logged
from helpers.own_logs import own_logs
from helpers.prepared import run_python
from helpers.promises import Node, parked
from peerlane.diagnostics.log import event_log
from peerlane.diagnostics.log.observers import Recorder

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(120)]

_WORK = """
import peerlane as pl
from peerlane.diagnostics.log.observers import Recorder
def work():
    d = pl.devices()[0]
    a, b = d.allocate(64), d.allocate(64)
    with d.create_stream() as s, d.create_stream() as t:
        for part in range(4):
            pl.copy(a[part * 16 : part * 16 + 16], b[part * 16 : part * 16 + 16], stream=s)
        t.wait(s.record())
        pl.fill(a, 1, stream=t)
"""
_OBSERVED = """
seen = Recorder()
pl.set_observer(seen)
with pl.trace.recording() as timeline:
    work()
pl.set_observer(None)
"""
_SEEN = ["copy", "copy", "copy", "copy", "record", "wait", "fill"]


def test_observer_changes_nothing_in_log_of_checker_and_sees_all(tmp_path: Path) -> None:
    plain, observed = tmp_path / "plain", tmp_path / "observed"
    plain.mkdir()
    observed.mkdir()
    check = f"""
assert [each.kind for each in seen.operations("submitted")] == {_SEEN}
assert len(seen.operations("started")) == {len(_SEEN)}
assert [each.kind for each in timeline.operations] == ["copy"] * 4 + ["fill"]
"""
    [without] = run_logged(plain, _WORK + "\nwork()\n")
    [beside] = run_logged(observed, _WORK + _OBSERVED + check)
    facts = [
        [
            (each.kind, each.repeats, each.stream, each.sequence)
            for each in log.events
            if each.kind
            not in ("view", "outside", "evident")  # the last two depend on the time that things take
        ]
        for log in (without, beside)
    ]
    assert facts[0] == facts[1]
    assert ("access", 4) in [(kind, repeats) for kind, repeats, *_ in facts[0]], (
        "repeats are merged all the same"
    )


def test_forked_child_has_logs_of_its_own() -> None:
    program = f"""
import os
{_WORK}
seen = Recorder()
pl.set_observer(seen)
with pl.trace.recording() as timeline:
    pid = os.fork()
    work()
    kinds = [each.kind for each in seen.operations("submitted")]
    assert kinds == {_SEEN}, kinds
    assert len(seen.operations("started")) == {len(_SEEN)}
    assert {{each.process for each in seen.operations("started")}} == {{os.getpid()}}
    assert [each.kind for each in timeline.operations] == ["copy"] * 4 + ["fill"]
    if not pid:
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
"""
    done = run_python(["-c", program], timeout=60)
    assert done.returncode == 0, done.stderr


def test_observer_that_falls_behind_its_log_receives_the_count_of_lost_events(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "DEFAULT_BYTES", 4 << 20)
    d0, _ = node()
    s, a = d0.create_stream(), d0.allocate(64)
    recorder = Recorder()
    gate = parked(s)
    for _ in range(120_000):
        a.fill(1, stream=s)
    pl.set_observer(recorder)
    try:
        gate.record()
        with pytest.warns(RuntimeWarning, match="events lost"):
            s.sync(timeout=60)
            a.fill(2)
            a.fill(3)
    finally:
        pl.set_observer(None)
    started = recorder.operations("started", "fill")
    assert 60_000 < len(started) < 120_000
    assert started[-1].stream == 0, "what comes after the gap is told"
    assert own_logs() == 0


@pytest.mark.parametrize("hook", ["default", "own"])
def test_exception_of_observer_comes_to_unraisablehook_with_its_traceback(hook: str) -> None:
    own = "sys.unraisablehook = lambda what: print('hook', what.exc_type.__name__, what.exc_traceback is not None)"
    program = f"""
import sys
import peerlane as pl
class Raising:
    def submitted(self, operation): raise ZeroDivisionError("in the observer")
    def started(self, operation): pass
    def noticed(self, notice): pass
{own if hook == "own" else ""}
pl.set_observer(Raising())
a = pl.devices()[0].allocate(64)
a.fill(1)
assert bytes(a.view()) == bytes([1] * 64)
"""
    done = run_python(["-c", program], timeout=60)
    assert done.returncode == 0, done.stderr
    if hook == "own":
        assert done.stdout.splitlines() == ["hook ZeroDivisionError True"]
        assert done.stderr == ""
    else:
        assert "ZeroDivisionError: in the observer" in done.stderr
        assert "in submitted" in done.stderr
        assert "TypeError" not in done.stderr
