"""What a terminal of 80 columns is shown, and what a pipe is not."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_schedule

SECONDS = 60.0
RACE = """
import peerlane as pl
a, s = pl.devices()[0].allocate(4096), pl.devices()[0].create_stream()
a.fill(1, stream=s)
assert bytes(a) is not None
s.sync()
"""


def shown(*words: str, until: Callable[[str], bool] = lambda _: False, **environ: str) -> str:
    """Return what a command writes to a terminal of 80 columns; it is interrupted once ``until`` holds."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 80, 0, 0))
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")
    }
    child = subprocess.Popen(
        [sys.executable, "-m", "peerlane", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**env, "TERM": "xterm", **environ},
        start_new_session=True,
    )
    os.close(theirs)
    text, deadline = b"", time.monotonic() + SECONDS
    try:
        while select.select([ours], [], [], max(0.0, deadline - time.monotonic()))[0]:
            try:
                text += os.read(ours, 1 << 16)
            except OSError:  # the last process that has the terminal has ended
                break
            if until(text.decode(errors="replace")):
                child.send_signal(signal.SIGINT)
                until = lambda _: False  # noqa: E731
        else:
            pytest.fail(f"still there after {SECONDS} s: {text!r}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        os.close(ours)
    return text.decode()


def lines_of(text: str) -> list[str]:
    """Return the lines without colours and without lines that a progress bar took back."""
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text.replace("\r\n", "\n"))
    return [line.rpartition("\r")[2] for line in text.splitlines()]


@pytest.mark.parametrize(
    "words",
    [
        ["topo", "--devices", "8", "--profile", "mi300x"],
        ["topo", "--devices", "40", "--switch", "8"],
        ["ps"],
        ["doctor"],
        ["bench", "call", "--rounds", "1"],
        ["help"],
        ["check", "-c", RACE],
    ],
    ids=lambda words: " ".join(words[:2]),
)
@pytest.mark.timeout(180)
def test_screen_of_a_command_fits_80_columns_and_cuts_nothing(words: list[str]) -> None:
    lines = lines_of(shown(*words))
    assert lines and max(map(len, lines)) <= 80
    assert not any("\u2026" in line for line in lines)
    assert not any("Traceback" in line for line in lines)


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "TERM=dumb"])
@pytest.mark.parametrize("words", [["topo"], ["check", "-c", RACE]], ids=lambda words: words[0])
def test_colours_are_turned_off(words: list[str], environ: dict[str, str]) -> None:
    assert re.search(r"\x1b\[[0-9;]*3[0-9]m", shown(*words))
    assert not re.search(r"\x1b\[[0-9;]*[349][0-9]m", shown(*words, **environ))


def test_progress_is_for_terminals_only() -> None:
    words = ["bench", "call", "--rounds", "1"]
    assert "call copying 8 bytes" in shown(*words).partition("figures")[0]
    done = subprocess.run(
        [sys.executable, "-m", "peerlane", *words],
        capture_output=True,
        timeout=SECONDS,
        env={**os.environ, "FORCE_COLOR": "1"},
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_check_of_many_schedules_shows_a_terminal_the_number_of_the_run() -> None:
    words = ["check", "--schedules", "2", "-c", "import peerlane; peerlane.devices()"]
    assert [line for line in lines_of(shown(*words)) if "run " in line] == [
        "peerlane check: run 1 of at most 2",
        "peerlane check: run 2 of at most 2",
    ]
    done = subprocess.run([sys.executable, "-m", "peerlane", *words], capture_output=True, timeout=SECONDS)
    assert b"run 1 of" not in done.stderr


def test_launch_shows_a_terminal_the_machine_that_it_waits_for(tmp_path: Path) -> None:
    command = tmp_path / "never"
    command.write_text("#!/bin/sh\nexec sleep 100\n")
    command.chmod(0o755)
    words = [
        "launch",
        "--hosts",
        "far:1,farther:1",
        "--ssh",
        str(command),
        "--address",
        "127.0.0.1",
        "-c",
        "pass",
    ]
    text = shown(*words, until=lambda text: "waiting for" in text)
    assert "peerlane launch: waiting for far, farther" in text
