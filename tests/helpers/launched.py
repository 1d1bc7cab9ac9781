"""``peerlane launch`` in tests: send signals, read output as it comes, check that no process is left."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from peerlane.testing.procs import Completed

Start = Callable[..., "Launched"]
Run = Callable[..., Completed]

MARK = "TEST_MARK"
END_SECONDS = 40.0


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Poll a condition until it holds; fail after that time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, condition
        time.sleep(0.005)


def state(pid: int) -> str:
    """Return the kernel's letter for a process, or nothing if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _read(pid: str, file: str) -> bytes:
    with open(f"/proc/{pid}/{file}", "rb") as opened:  # noqa: PTH123
        return opened.read()


class Launched:
    """A running ``peerlane launch``; its ``with`` block fails the test if a process is left behind.

    Its processes are found by a variable of their environment, whatever session they move to.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
        wrapper: Sequence[str] = (),
    ) -> None:
        self._mark = f"{MARK}={uuid.uuid4().hex}"
        name, _, value = self._mark.partition("=")
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        self._started = time.monotonic()
        self.process = subprocess.Popen(
            [*wrapper, sys.executable, "-m", "peerlane", "launch", *words],
            env={**env, name: value},
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=self._stderr,
            start_new_session=True,
        )
        self.seen = b""

    def __enter__(self) -> Launched:
        return self

    def __exit__(self, *_exception: object) -> None:
        left = self.left_after(0.0 if self.process.poll() is None else END_SECONDS)
        for pid in [*left, self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(10)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._stderr.close()
        assert not left, f"left behind: {left}"

    def expect(self, text: str) -> str:
        """Read standard output until a line has the text; return that line."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.seen += line
            if text.encode() in line:
                return line.decode()
        raise AssertionError(f"{text!r} never came in {self.seen!r}; stderr {self.stderr!r}")

    @property
    def stderr(self) -> str:
        """The standard error so far."""
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="backslashreplace")

    def send(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def end(self, seconds: float = END_SECONDS) -> Completed:
        """Wait for its end, and check that no process is left."""
        rest, _ = self.process.communicate(timeout=seconds)
        left = self.left_after(END_SECONDS)
        assert not left, f"left behind: {left}\n{self.stderr}"
        stdout = (self.seen + (rest or b"")).decode(errors="backslashreplace")
        return Completed(self.process.returncode, stdout, self.stderr, time.monotonic() - self._started)

    def members(self) -> dict[int, str]:
        """Return the living processes that it started, itself included."""
        mark, results = self._mark.encode(), {}
        for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - several scans for each command
            with contextlib.suppress(OSError):
                is_member = mark in _read(name, "environ").split(b"\0")
                if is_member and state(int(name)) not in ("", "Z", "X"):
                    results[int(name)] = _read(name, "cmdline").decode(errors="replace")
        return results

    def left_after(self, seconds: float) -> dict[int, str]:
        """Wait at most that long for all to end; return the processes that are left."""
        deadline = time.monotonic() + seconds
        while (members := self.members()) and (left := deadline - time.monotonic()) > 0:
            poll = select.poll()
            with contextlib.ExitStack() as stack:
                for pid in members:
                    with contextlib.suppress(ProcessLookupError):
                        descriptor = os.pidfd_open(pid)
                        stack.callback(os.close, descriptor)
                        poll.register(descriptor, select.POLLIN)
                poll.poll(left * 1000)
        return members
