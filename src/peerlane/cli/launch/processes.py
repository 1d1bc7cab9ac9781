"""Starts the process of a rank, and ends all processes below this one."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from peerlane.backends.virtual.node import NodeConfig
from peerlane.backends.virtual.node.state import tidy
from peerlane.diagnostics.log import event_log
from peerlane.errors import Error
from peerlane.rendezvous.reports import LAUNCHED_STDERR, identity

_libc = ctypes.CDLL(None, use_errno=True)
_limits = resource.getrlimit(resource.RLIMIT_NOFILE)  # as the user had set it
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

KILL_SECONDS = 10.0  # until processes that got SIGKILL must have ended


@dataclass(frozen=True)
class Started:
    """A process that was just started."""

    pid: int
    stdout: int  #: ``stdout``, ``stderr``: the reading ends of its outputs, nonblocking
    stderr: int


def adopt_orphans() -> None:
    """Make this process the parent of all later orphans among its descendants."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot adopt orphaned processes")


def python_command(words: Sequence[str]) -> list[str]:
    """Return the command that runs a program with this interpreter and its options."""
    return [sys.executable, *subprocess._args_from_interpreter_flags(), *words]  # type: ignore[attr-defined]


def start(command: Sequence[str], environment: Mapping[str, str], stdin: int) -> Started:
    """Start a process in a session of its own, which is killed when this process dies.

    Call it from the main thread, while there is no other thread: the child runs Python before it becomes the
    command, and the kernel kills it when the calling *thread* ends.
    """
    out, out_end = os.pipe()
    err, err_end = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(command, environment, (stdin, out_end, err_end), parent)
    os.close(out_end)
    os.close(err_end)
    for descriptor in (out, err):
        os.set_blocking(descriptor, False)
    return Started(pid, out, err)


def _become(
    command: Sequence[str], environment: Mapping[str, str], outputs: tuple[int, int, int], parent: int
) -> None:
    try:
        os.setsid()
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before prctl was called
            os._exit(1)
        resource.setrlimit(resource.RLIMIT_NOFILE, _limits)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        for number, descriptor in enumerate(outputs):
            os.dup2(descriptor, number)
        with_outputs = {**event_log.with_outputs(environment), LAUNCHED_STDERR: identity(2)}
        os.execve(command[0], list(command), with_outputs)
    except OSError as error:
        os.write(2, f"peerlane launch: cannot start {command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def raise_descriptor_limit(wanted: int) -> None:
    """Allow this process ``wanted`` descriptors, if the hard limit does; its children get the old limit."""
    soft, hard = _limits
    enough = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < enough:
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))


def children() -> dict[int, str]:
    """Return the living children of this process, adopted ones included, with their command lines.

    The folder of the program is left out, as the text may be cut.
    """
    commands = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it ended meanwhile
                name, _, rest = (entry / "stat").read_text(errors="replace").rpartition(")")
                state, parent = rest.split()[:2]
                if int(parent) == os.getpid() and state not in "ZX":
                    program, *words = (entry / "cmdline").read_text(errors="replace").split("\0")
                    command = " ".join([program.rpartition("/")[2], *words]).strip()
                    commands[int(entry.name)] = command or name.partition("(")[2]
    return commands


def signal_children(number: int) -> None:
    """Send a signal to each child.

    Only this process reaps its children, so none of their pids can belong to another process.  When a child dies,
    its children become children of this process: to end them all, send SIGKILL until no child is left.
    """
    for pid in children():
        send(pid, number)


def send(pid: int, number: int, *, group: bool = False) -> None:
    """Send a signal to a child that was not reaped yet, or to its process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        (os.killpg if group else os.kill)(pid, number)


def kill_all() -> dict[int, str]:
    """Kill and reap every process below this one; return those that could not be killed."""
    deadline = time.monotonic() + KILL_SECONDS
    while reap() is not None:
        signal_children(signal.SIGKILL)
        left = children()
        if time.monotonic() > deadline:
            return left
        poll = select.poll()
        with contextlib.ExitStack() as stack:
            for pid in left:
                descriptor = os.pidfd_open(pid)
                stack.callback(os.close, descriptor)
                poll.register(descriptor, select.POLLIN)
            poll.poll(100)
    return {}


def reap() -> list[tuple[int, int]] | None:
    """Return pid and exit code (negative for a signal) of each child that has ended; None if no child is left."""
    ended: list[tuple[int, int]] = []
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return ended
            ended.append((pid, os.waitstatus_to_exitcode(status)))
    except ChildProcessError:
        return ended or None


def tidy_node() -> None:
    """Remove what killed ranks left in the runtime directory; a failure does not change the exit code."""
    with contextlib.suppress(Error, OSError):
        tidy(NodeConfig.from_environment())


def signal_name(number: int) -> str:
    """Return ``"SIGTERM"`` for 15; real-time signals have numbers only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
