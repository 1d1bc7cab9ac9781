"""``run_python``, which runs a child under a deadline and kills the processes that the child leaves."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from peerlane.testing import procs
from peerlane.testing.procs import run_python

pytestmark = pytest.mark.any_schedule

FOREVER = "import signal, sys; signal.pause()"
START = f"import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', {FOREVER!r}]);"
REPORT = "print('child', child.pid, flush=True);"


def state(pid: int) -> str:
    stat = Path(f"/proc/{pid}/stat")
    return stat.read_text().rpartition(")")[2].split()[0] if stat.exists() else "gone"


def child_in(text: str) -> int:
    matched = re.search(r"child (\d+)", text)
    assert matched, text
    return int(matched[1])


def test_run_python_child_ends_returns_code_output_and_time() -> None:
    done = run_python(
        ["-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"], timeout=20
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
    assert 0 < done.seconds < 20


def test_run_python_child_killed_by_signal_returns_its_negative() -> None:
    done = run_python(["-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"], timeout=20)
    assert done.returncode == -signal.SIGKILL


def test_run_python_input_environment_and_folder_reach_child(tmp_path: Path) -> None:
    done = run_python(
        ["-c", "import os, sys; print(sys.stdin.read(), os.environ['HERE'], os.getcwd())"],
        timeout=20,
        env={**os.environ, "HERE": "yes"},
        input="é",
        cwd=tmp_path,
    )
    assert done.stdout == f"é yes {tmp_path.resolve()}\n"


def test_run_python_without_input_child_reads_end_of_file() -> None:
    assert run_python(["-c", "import sys; print(repr(sys.stdin.read()))"], timeout=20).stdout == "''\n"


def test_run_python_past_deadline_kills_session_and_shows_output() -> None:
    program = START + REPORT + "print('bad', file=sys.stderr, flush=True); child.wait()"
    with pytest.raises(AssertionError) as caught:
        run_python(["-c", program], timeout=10)
    text = str(caught.value)
    assert f"{sys.executable}" in text and "did not end within 10 s" in text and "bad" in text
    assert state(child_in(text)) in ("gone", "Z")


def test_run_python_survivors_are_killed_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procs, "SETTLE_SECONDS", 0.1)
    with pytest.raises(AssertionError) as caught:
        run_python(["-c", START + REPORT], timeout=20)
    text = str(caught.value)
    pid = child_in(text)
    assert "ended with 0 and left processes behind" in text
    assert f"{{{pid}: " in text and "signal.pause()" in text
    assert state(pid) in ("gone", "Z")


def test_run_python_survivor_outside_its_group_is_killed_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procs, "SETTLE_SECONDS", 0.1)
    program = START.replace("'-c',", "'-c', 'import os; os.setpgid(0, 0);' +") + REPORT
    with pytest.raises(AssertionError, match="left processes behind") as caught:
        run_python(["-c", program], timeout=20)
    assert state(child_in(str(caught.value))) in ("gone", "Z")


def test_run_python_children_that_end_soon_are_not_survivors() -> None:
    program = "import multiprocessing as m; m.get_context('forkserver').Process(target=print).start()"
    assert run_python(["-c", program], timeout=20).returncode == 0


class InterruptsStart(subprocess.Popen[bytes]):
    """A child whose start is interrupted: it runs, and its ``Popen`` was not returned yet."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGUSR1)


@pytest.mark.parametrize("when", ["it runs", "it starts"])
def test_run_python_interrupted_while_waiting_kills_child(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupted)
    sessions: list[int] = []
    kill = procs._kill_session
    monkeypatch.setattr(procs, "_kill_session", lambda session: sessions.append(session) or kill(session))
    program = "import signal; signal.pause()"
    if when == "it starts":
        monkeypatch.setattr(subprocess, "Popen", InterruptsStart)
    else:
        program = f"import os; os.kill(os.getppid(), {int(signal.SIGUSR1)}); {program}"
    try:
        with pytest.raises(KeyboardInterrupt):
            run_python(["-c", program], timeout=20)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert state(sessions[0]) == "gone"


def test_run_python_child_cannot_start_raises_os_error() -> None:
    with pytest.raises(FileNotFoundError):
        run_python(["-c", "pass"], timeout=20, cwd="/nowhere")
