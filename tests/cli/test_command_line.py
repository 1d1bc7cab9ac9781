"""How each command ends when its output cannot be written, its reader has gone, or Ctrl-C comes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.interrupts import INTERRUPTS
from peerlane.testing.procs import Completed, run_python

pytestmark = pytest.mark.any_schedule

TIMEOUT = 60.0
PEERLANE = f"{sys.executable} -m peerlane"


def shell(line: str) -> Completed:
    """Run a line of shell in a session of its own."""
    return run_python(
        ["-c", f"import subprocess, sys; sys.exit(subprocess.run(['sh', '-c', {line!r}]).returncode)"],
        timeout=TIMEOUT,
    )


@pytest.mark.parametrize("words", ["topo", "topo --json", "ps", "bench call --rounds 1 --json -"])
@pytest.mark.parametrize(
    ("target", "reason"), [(">/dev/full", "No space left on device"), (">&-", "it is closed")]
)
def test_command_stdout_not_writable_prints_one_line_and_exits_2(
    words: str, target: str, reason: str
) -> None:
    done = shell(f"{PEERLANE} {words} {target} 2>{os.devnull}")
    assert done.returncode == 2
    done = shell(f"{PEERLANE} {words} 2>&1 {target}")
    last = done.stdout.splitlines()[-1]
    assert last.startswith(f"peerlane {words.split()[0]}: standard output cannot be written: {reason}")
    assert "Traceback" not in done.stdout and "Exception ignored" not in done.stdout


def test_command_reader_gone_exits_141_silently() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-m", "peerlane", "topo"], stdout=write_end, stderr=subprocess.PIPE, timeout=TIMEOUT
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (141, b"")


def test_collected_output_printed_before_error_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    from peerlane import InvalidValue
    from peerlane.cli.stdout import collected_output

    def fail() -> None:
        with collected_output():
            print("a table")
            raise InvalidValue("then this")

    with pytest.raises(InvalidValue):
        fail()
    assert capsys.readouterr().out == "a table\n"


INTERRUPTED = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Finder())
sys.argv = ["peerlane", *{words!r}]
import runpy
runpy.run_module("peerlane", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    "name", ["peerlane.cli", "peerlane.cli.bench", "peerlane.cli.bench.plan", "rich.console"]
)
def test_command_ctrl_c_during_imports_exits_130(name: str) -> None:
    words = ["bench", "call", "--rounds", "1"]
    done = run_python(["-c", INTERRUPTED.format(name=name, words=words)], timeout=TIMEOUT)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr in ("peerlane: interrupted\n", "peerlane bench: interrupted\n")


WAITS_FOR_A_CHILD = """
import os, signal, sys, threading
from peerlane.cli.children import Child
def never_answer(pipe):
    try: pipe.recv(); threading.Event().wait()
    except EOFError: pass
if __name__ == "__main__":
    with Child(never_answer) as child:
        child.send("anything")
        try:
            threading.Timer(0.2, lambda: {}).start()
            child.answer(timeout={})
        except KeyboardInterrupt: print("interrupted")
"""


@pytest.mark.parametrize("timeout", [None, 50])
@pytest.mark.parametrize("how", INTERRUPTS)
def test_child_answer_ctrl_c_ends_the_wait(how: str, timeout: float | None, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(WAITS_FOR_A_CHILD.format(INTERRUPTS[how], timeout))
    done = run_python(["a.py"], timeout=TIMEOUT, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")
    assert done.seconds < 40


@pytest.mark.parametrize("inner", ["-m peerlane run a.py", "-m peerlane topo --json"])
def test_run_of_peerlane_itself_warns_of_nothing(inner: str, tmp_path: Path) -> None:
    """The program starts as the console script does, with ``peerlane.__main__`` imported already."""
    (tmp_path / "a.py").write_text("print('[1]')")
    program = f"import sys; sys.argv = 'peerlane run {inner}'.split(); "
    program += "from peerlane.__main__ import main; sys.exit(main())"
    done = run_python(["-c", program], timeout=TIMEOUT, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)
