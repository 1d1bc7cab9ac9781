"""Processes that begin with peerlane imported, which saves 0.3 to 0.7 s for each.

A server imports peerlane, its dialects and pytest, uses nothing of them, and forks.  The forked process is a child of
the process that asked, in its own session, with the environment that was asked for; it ends as an interpreter does.
It differs from a new interpreter in this: modules are imported already, exit handlers of the program run before those
of peerlane, neither objects that the imports made nor the interpreter's own are freed at its end, and its command
line in ``/proc`` is that of the server.  Of ``peerlane check`` and ``launch`` the processes of the program begin so,
too (``helpers.anew``).
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from helpers.anew import are_plain, at_start
from peerlane.testing import procs
from peerlane.testing.procs import Completed

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_START_SECONDS, _END_SECONDS = 60.0, 5.0

_SERVING = """
import importlib, json, sys
from multiprocessing.connection import Connection
folder, module, name, args = sys.argv[1:]
sys.path.insert(0, folder)
getattr(importlib.import_module(module), name)(Connection(0), *json.loads(args))
"""
_SERVER = Path(__file__).with_name("prepared_server.py")


class Process:
    """A process that was started here; any code can wait for its pid without this object."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._ended: int | None = None

    def wait(self, seconds: float) -> int:
        """Wait for its end; return the exit code, or minus the signal that ended it."""
        if self._ended is None:
            descriptor = os.pidfd_open(self.pid)
            try:
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
                if not poll.poll(seconds * 1000):
                    raise subprocess.TimeoutExpired(f"process {self.pid}", seconds)
            finally:
                os.close(descriptor)
            self._ended = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._ended

    def kill(self) -> None:
        """Kill it if it still runs, and wait for its end."""
        if self._ended is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait(_START_SECONDS)


class _Server:
    def __init__(self) -> None:
        self.owner, self.at_start = os.getpid(), at_start(os.environ)
        self._line, theirs = socket.socketpair()
        self._line.settimeout(_START_SECONDS)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(_SERVER), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # the process that forks has one thread
            )

    def start(self, request: Mapping[str, object], fds: list[int]) -> Process:
        text = json.dumps(request).encode()
        with _adopting():
            self._line.sendmsg(
                [len(text).to_bytes(8, "little")],
                [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))],
            )
            self._line.sendall(text)
            pid = int.from_bytes(self._line.recv(8, socket.MSG_WAITALL), "little")
        assert pid, f"no process came of {str(request['args'])[:200]}"
        return Process(pid)

    def close(self) -> None:
        self._line.close()
        self._process.wait(_START_SECONDS)


@contextmanager
def _adopting() -> Iterator[None]:
    """Become the parent of descendants whose parent ends."""
    libc, before = ctypes.CDLL(None, use_errno=True), ctypes.c_int()
    libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


_lock = threading.Lock()
_servers: list[_Server] = []


def _server() -> _Server:
    if not _servers or _servers[-1].owner != os.getpid():
        _servers.append(_Server())
    return _servers[-1]


@contextmanager
def server() -> Iterator[None]:
    """Run a server during all tests of this process, so that no single test starts it."""
    with _lock:
        _servers.append(_Server())
    yield
    with _lock:
        _servers.pop().close()


def start(
    args: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | os.PathLike[str] | None = None,
    stdin: int,
    stdout: int,
    stderr: int = 2,
) -> Process:
    """Run a program as Python does, in its own session.

    Parameters
    ----------
    args : sequence of str
        The arguments for Python: ``-c CODE``, ``-m MODULE`` or a script, then those of the program.
    env : mapping
        The whole environment.
    cwd : path, optional
        The folder in which it runs; by default the present one.
    stdin, stdout, stderr : int
        Descriptors.
    """
    with _lock:
        server = _server()
        request = {
            "args": list(args),
            "env": dict(env),
            "cwd": str(Path.cwd() if cwd is None else Path(cwd).absolute()),
        }
        return server.start(request, [stdin, stdout, stderr])


@contextmanager
def serving(module: str, name: str, *args: object, **variables: str) -> Iterator[tuple[Connection, Process]]:
    """Let another process call a function of a module of ``tests`` with a connection to this one; then end it.

    Parameters
    ----------
    module, name : str
    *args : object
        Further arguments of the function, plain values.
    **variables : str
        Environment variables of the process.
    """
    near, there = Pipe()
    with there:
        words = ["-c", _SERVING, str(_SERVER.parents[1]), module, name, json.dumps(args)]
        process = start(words, env={**os.environ, **variables}, stdin=there.fileno(), stdout=1)
    try:
        yield near, process
    finally:
        near.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
        process.kill()


def run_python(
    args: Sequence[str],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    input: str | None = None,
    cwd: str | os.PathLike[str] | None = None,
) -> Completed:
    """Do as ``peerlane.testing.procs.run_python`` does, in a process that begins with peerlane imported.

    A new interpreter runs the program if it gets options, or variables that an interpreter reads when it starts.
    """
    environ = dict(os.environ if env is None else env)
    with _lock:
        alike = at_start(environ) == _server().at_start
    if not alike or not are_plain(args):
        return procs.run_python(args, timeout=timeout, env=env, input=input, cwd=cwd)

    def begin(stdin: int, stdout: int, stderr: int) -> Process:
        return start(args, env=environ, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr)

    return procs.run_in_session([sys.executable, *args], begin, timeout=timeout, input=input)
