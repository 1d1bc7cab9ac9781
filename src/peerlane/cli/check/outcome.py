"""Runs a program under the checker: starts it, passes signals on, and reads its logs meanwhile."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peerlane.checker import Checker
from peerlane.cli.faults import Fate
from peerlane.cli.launch import processes
from peerlane.cli.outputs import show_step
from peerlane.diagnostics.log import event_log
from peerlane.errors import Error, Fault

_COMMAND = len(("-m", "peerlane", "launch"))
_POLL_SECONDS = 0.05
_PASSED_ON = frozenset(
    (
        *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM),
        *(signal.SIGTSTP, signal.SIGCONT),
    )
)
_ENDING = frozenset((signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM))
_SI_KERNEL = 0x80  # the terminal sent it, to the program too
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Outcome:
    """A run that is over."""

    code: int  #: the program's exit code, 128 + n for signal n
    #: What the checker found, as ``docs/design/checker.md`` has it, without the exit code.
    report: dict[str, Any]
    logs: Path  #: the folder with the logs of all processes
    is_interrupted: bool = False  #: whether a signal came that was to end the program
    faults: tuple[Fate, ...] = ()  #: what became of the faults of ``--fault``
    deadlocks: tuple[str, ...] = ()  #: Reports on deadlocks of ranks, for people


@dataclass(frozen=True)
class Wanted:
    """A program to run under the checker."""

    words: Sequence[str]  #: the words that follow ``python``
    are_ranks: bool = False  #: whether the first three words are those of ``peerlane launch``
    #: Whether the logs are read again after the run; else what was read makes room for what comes.
    keep: bool = False
    #: Whether logs of other machines come when the program has ended, so that none is read before.
    comes_last: bool = False

    @contextmanager
    def run(self, variables: Mapping[str, str] | None = None) -> Iterator[Outcome]:
        """Run the program to its end; the logs are there while the block runs.

        ``variables``: variables of the environment to change.
        Raises Error: the program cannot be started.
        """
        with event_log.folder() as folder:
            environment = {**os.environ, **(variables or {}), event_log.VARIABLE: str(folder)}
            deadlocks = folder / "deadlocks.json"
            held = ["--hold-deadlocks", str(deadlocks)] if self.are_ranks else []
            words = [*self.words[:_COMMAND], *held, *self.words[_COMMAND:]]
            with _signals_held() as before:
                pid = _start(processes.python_command(words), environment, before)
                is_read_live = not (self.keep or self.comes_last)
                checker = Checker(folder, give_back=is_read_live)
                came: set[int] = set()
                with _watched(pid) as its_end:
                    while (status := _ended(pid)) is None:
                        if is_read_live:
                            checker.poll()
                        select.select([its_end], [], [], _POLL_SECONDS)
                        came |= _pass_on(pid)
            code = os.waitstatus_to_exitcode(status)
            with show_step("peerlane check: reading the event logs"):
                report = checker.finish()
            yield Outcome(
                code if code >= 0 else 128 - code,
                report,
                folder,
                bool(came & _ENDING),
                deadlocks=tuple(json.loads(deadlocks.read_text())) if deadlocks.exists() else (),
            )


@contextmanager
def _signals_held() -> Iterator[set[signal.Signals]]:
    """Keep signals until :func:`_pass_on` takes them; give the mask that the program is to have."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    # Where this signal is ignored, nobody learns how a child ended.
    handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield {each for each in before if isinstance(each, signal.Signals)}
    finally:
        signal.signal(signal.SIGCHLD, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(command: Sequence[str], environment: Mapping[str, str], mask: set[signal.Signals]) -> int:
    """Start a process that dies with this one; call it while there is no other thread."""
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        raise Error(f"cannot start the program: {error.strerror}", fault=Fault.OUT_OF_RESOURCES) from error
    if pid:
        return pid
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == parent:  # else it died before that call
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.execve(command[0], list(command), event_log.with_outputs(environment))
    except OSError as error:
        os.write(2, f"peerlane check: cannot start {command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _ended(pid: int) -> int | None:
    ended_pid, status = os.waitpid(pid, os.WNOHANG)
    return status if ended_pid else None


@contextmanager
def _watched(pid: int) -> Iterator[int]:
    """Give a descriptor that is readable when a child has ended."""
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _pass_on(pid: int) -> set[int]:
    """Send a child that was not waited for the signals that came for it; return them."""
    came: set[int] = set()
    # With a time to wait, CPython returns what lies on its stack when the process was stopped meanwhile.
    while (seen := signal.sigtimedwait(_PASSED_ON, 0)) is not None:
        came.add(seen.si_signo)
        if seen.si_code != _SI_KERNEL:
            os.kill(pid, seen.si_signo)
        if seen.si_signo == signal.SIGTSTP:
            os.kill(os.getpid(), signal.SIGSTOP)
    return came
