"""Python children of tests: none outlives its deadline, and none is left behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

SETTLE_SECONDS = 5.0
KILL_SECONDS = 5.0


@dataclass(frozen=True)
class Completed:
    """The end of a child.

    Attributes
    ----------
    returncode : int
        The exit code, or minus the signal that ended it.
    stdout, stderr : str
        The output of the child and of its children.
    seconds : float
        How long it ran.
    """

    returncode: int
    stdout: str
    stderr: str
    seconds: float


def run_python(
    args: Sequence[str],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    input: str | None = None,
    cwd: str | os.PathLike[str] | None = None,
) -> Completed:
    """Run ``sys.executable`` with ``args`` in its own session, and wait for its end.

    However this call ends, no process of that session is left: those that still run are killed first.  Children
    that the program leaves behind have five seconds to end (those of ``multiprocessing`` need a moment).  A process
    that moves to another session is not found.

    Parameters
    ----------
    args : sequence of str
        The arguments for Python.
    timeout : float
        The seconds that the child may take.
    env : mapping, optional
        The whole environment; by default this process's.
    input : str, optional
        The child's standard input; by default empty.
    cwd : path, optional
        The folder in which it runs; by default the present one.

    Raises
    ------
    AssertionError
        The child ran longer than ``timeout``, or left processes behind; the text has the command, those processes
        and the output so far.
    """
    command = [sys.executable, *args]

    def begin(stdin: int, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command, stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=cwd, start_new_session=True
        )

    return run_in_session(command, begin, timeout=timeout, input=input)


class Child(Protocol):
    """A child that is the first process of its session."""

    @property
    def pid(self) -> int:
        """Its number."""

    def wait(self, timeout: float, /) -> int:
        """Wait for its end; return the exit code, or minus the signal that ended it.

        Raises
        ------
        subprocess.TimeoutExpired
            It still runs.
        """


def run_in_session(
    command: Sequence[str],
    begin: Callable[[int, int, int], Child],
    *,
    timeout: float,
    input: str | None = None,
) -> Completed:
    """Do what ``run_python`` does with a child that ``begin`` starts.

    Parameters
    ----------
    command : sequence of str
        The words that name the child in an error.
    begin : callable
        Starts the child in its own session, with these descriptors as its input, output and error output.
    timeout : float
        The seconds that the child may take.
    input : str, optional
        The child's standard input; by default empty.

    Raises
    ------
    AssertionError
        The child ran longer than ``timeout``, or left processes behind.
    """
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        stdin.write((input or "").encode())
        stdin.seek(0)
        started = time.monotonic()
        # Files, because a survivor that holds a pipe open would keep this call reading until the deadline.
        start = _Start(begin, stdin.fileno(), out.fileno(), err.fileno())
        fault, code = "", 0
        left: dict[int, str] = {}
        try:
            process = start.process()
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            fault = f"did not end within {timeout:g} s"
        else:
            await_session_end(process.pid, SETTLE_SECONDS)
        finally:
            seconds = time.monotonic() - started
            if (begun := start.begun()) is not None:
                left = _kill_session(begun.pid)
                code = begun.wait(KILL_SECONDS)
        done = Completed(code, _text(out), _text(err), seconds)
    if left and not fault:
        fault = f"ended with {done.returncode} and left processes behind"
    if fault:
        raise AssertionError(
            f"{list(command)} {fault}; killed: {left or 'nothing'}\n"
            f"--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}"
        )
    return done


class _Start:
    """Starts a child in a thread, so that no signal handler, which may raise, runs between the fork and the pid."""

    def __init__(self, begin: Callable[[int, int, int], Child], *descriptors: int) -> None:
        self._asked, self._process_future = False, Future[Child]()
        self._thread = threading.Thread(target=self._run, args=(begin, *descriptors))

    def _run(self, begin: Callable[[int, int, int], Child], *descriptors: int) -> None:
        try:
            self._process_future.set_result(begin(*descriptors))
        except BaseException as error:  # noqa: BLE001 - raised where it was asked for
            self._process_future.set_exception(error)

    def process(self) -> Child:
        """Start the child; an error of its start is raised here."""
        self._asked = True
        self._thread.start()
        return self._process_future.result()

    def begun(self) -> Child | None:
        """Return the child if it exists, also after an interrupted start."""
        if not self._asked or self._process_future.exception(KILL_SECONDS) is not None:
            return None
        return self._process_future.result()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="backslashreplace")


def _members(session: int) -> dict[int, str]:
    """Return the living processes of a session, with their command lines."""
    members = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - a scan for each child that a test starts
        with contextlib.suppress(ProcessLookupError, PermissionError, FileNotFoundError):  # ended, or hidden
            if name.isdigit() and os.getsid(int(name)) == session and (words := _living(Path("/proc", name))):
                members[int(name)] = words
    return members


def _living(entry: Path) -> str:
    """Return the command line of a process, or nothing if it has ended."""
    name, _, rest = (entry / "stat").read_text(errors="replace").rpartition(")")
    if rest.split()[0] in "ZX":
        return ""
    words = (entry / "cmdline").read_text(errors="replace").replace("\0", " ").strip()
    return words or name.partition("(")[2]


def await_session_end(session: int, seconds: float) -> dict[int, str]:
    """Wait until a session is empty; return the processes left after so many seconds, with their command lines."""
    deadline = time.monotonic() + seconds
    while members := _members(session):
        poll = select.poll()
        with contextlib.ExitStack() as stack:
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    descriptor = os.pidfd_open(pid)
                    stack.callback(os.close, descriptor)
                    poll.register(descriptor, select.POLLIN)
            left = deadline - time.monotonic()
            if left <= 0:
                break
            poll.poll(left * 1000)
    return members


def _kill_session(session: int) -> dict[int, str]:
    """Kill all processes of a session, also those that start meanwhile; return them."""
    killed: dict[int, str] = {}
    deadline = time.monotonic() + KILL_SECONDS
    while members := _members(session):
        if time.monotonic() > deadline:
            raise AssertionError(f"could not kill {members}")
        killed |= members
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await_session_end(session, 0.1)
    return killed
