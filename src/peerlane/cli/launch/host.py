"""A machine of ``--hosts``, as the supervisor sees it: by the wire to the part there."""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import peerlane

from . import processes
from .collecting import Received
from .job import Job
from .local_ranks import End, Watcher
from .output import Lines
from .part import Part, become
from .processes import Started
from .wire import BadFrame, Frame, Kind, Wire

ANSWER_SECONDS = 60.0  # for a part's first frame, and then for the one that it is prepared
_LAST_SECONDS = 1.0  # for the exit code and the last words of a command whose outputs have ended
_LINE_SECONDS = 0.5  # for the reason why a machine left the rendezvous
_CODES = range(-127, 256)
_CHUNK = 1 << 16


class HostWatcher(Watcher, Protocol):
    """The reports of machines."""

    def on_ready(self, host: Host) -> None:
        """A part is there, and waits for its job."""

    def on_prepared(self, host: Host) -> None:
        """A part has reached the rendezvous."""

    def on_started(self, host: Host, pids: Mapping[int, int]) -> None:
        """The ranks of a machine were started; their pids."""

    def on_lost(self, host: Host) -> None:
        """A machine cannot be used, or no more; its `Host.why` says why."""

    def on_words(self, content: bytes) -> None:
        """A command wrote lines to its standard error."""


def start_command(command: Sequence[str]) -> tuple[Started, int]:
    """Start the command of another machine; return it, and the writing end of its standard input.

    Call it while there is no other thread.
    """
    theirs, ours = os.pipe()
    try:
        return processes.start(command, os.environ, theirs), ours
    finally:
        os.close(theirs)


def fork_part(close: Callable[[], None]) -> tuple[Started, int]:
    """Start the part of this machine; return it, and the writing end of its wire.

    Call it while there is no other thread, and before there are other parts.

    ``close``: called in the part: closes what is not the part's.
    """
    theirs, ours = os.pipe()
    reports, reports_end = os.pipe()
    errors, errors_end = os.pipe()
    stdin = None if os.isatty(0) else 0
    pid = os.fork()
    if pid == 0:
        for descriptor in (ours, reports, errors):
            os.close(descriptor)
        os.dup2(errors_end, 2)
        os.close(errors_end)
        close()
        become(lambda: Part(theirs, reports_end, None, stdin).run())
    for descriptor in (theirs, reports_end, errors_end):
        os.close(descriptor)
    for descriptor in (reports, errors):
        os.set_blocking(descriptor, False)
    return Started(pid, reports, errors), ours


class Host:
    """A machine, and its ranks.

    ``is_here``: whether it is the launcher's machine.
    ``started``: the command that runs its part.
    ``outgoing``: the writing end of the part's standard input.
    ``lines``: of the command's standard error.
    """

    def __init__(
        self,
        name: str,
        ranks: range,
        *,
        is_local: bool,
        started: Started,
        outgoing: int,
        selector: selectors.BaseSelector,
        watcher: HostWatcher,
        lines: Lines,
    ) -> None:
        self.name, self.ranks, self.is_local, self.lines = name, ranks, is_local, lines
        #: Whether its part is there, and whether it has reached the rendezvous.
        self.is_ready = self.is_prepared = False
        #: ``port``: a port that was free there; 0 if none was.
        #: ``ssh``: ``SSH_CONNECTION`` there.
        self.port, self.ssh = 0, ""
        self._received = Received(ranks.start)
        self.why = ""  #: why it cannot be used, or can no longer be used; empty as long as it can
        self.has_processes = self.has_output = True  #: as `Machine` has them
        self._pid, self._stderr = started.pid, started.stderr
        self._code: int | None = None
        self._selector, self._watcher = selector, watcher
        self._has_begun = False
        self._answer_by = time.monotonic() + ANSWER_SECONDS
        self._ending: str | None = None
        self._ended_by = float("inf")
        self._is_killing = False
        self._wire = Wire(selector, started.stdout, outgoing, self._hear, self._on_wire_end, is_part=True)
        selector.register(self._stderr, selectors.EVENT_READ, self._on_words)

    @property
    def where(self) -> str:
        """Its name for texts; empty on the launcher's machine."""
        return "" if self.is_local else self.name

    @property
    def fate(self) -> str:
        """What became of it, for texts behind its name."""
        return f"{'is lost' if self._has_begun else 'cannot be used'}: {self.why}"

    def prepare(self, job: Job) -> None:
        """Let the part reach the rendezvous."""
        self._answer_by = time.monotonic() + ANSWER_SECONDS
        self._wire.send_json(Kind.PREPARE, job.as_json())

    def start(self) -> None:
        """Let the part start its ranks."""
        self._has_begun = True
        self._answer_by = float("inf")
        self._wire.send(Kind.START)

    def signal(self, number: int, *, group: bool = False) -> None:
        self._wire.send(Kind.SIGNAL, number, bytes([group]))

    def end_leftovers(self) -> None:
        self._wire.send(Kind.LEFTOVERS)

    def kill(self) -> None:
        if not self._is_killing:
            self._is_killing = True
            self._wire.send(Kind.KILL)

    def pause(self) -> None:
        self._wire.send(Kind.PAUSE)

    def resume(self) -> None:
        self._wire.send(Kind.RESUME)

    def lose(self, why: str) -> None:
        """Give the machine up; its part ends everything there when it sees the end of the wire."""
        if not self.why and self.has_output:
            self.why = why
            self.has_processes = self.has_output = False
            if self._has_begun and not self.is_local:
                self._received.lose()
            self._ended_by = self._answer_by = float("inf")
            self._wire.close()
            self._watcher.on_lost(self)

    def lose_connection(self, why: str) -> None:
        """Give the machine up, which has left the rendezvous, unless its part or its command says more."""
        if self._ending is None and not self.why and self.has_output:
            self._ending = why
            self._ended_by = time.monotonic() + _LINE_SECONDS

    def leave(self) -> None:
        """Close the wire, so that the part ends."""
        self.has_processes = self.has_output = False
        self._wire.close()

    def await_end(self, until: float) -> None:
        """Wait for the end of the command, at most until a time of the monotonic clock."""
        if self._reaped() is not None:
            return
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(self._pid)
            try:
                select.select([pidfd], [], [], max(0.0, until - time.monotonic()))
            finally:
                os.close(pidfd)

    def advance(self) -> None:
        now = time.monotonic()
        if self._ending is not None and (self._reaped() is not None or now >= self._ended_by):
            self.lose(self._with_exit_code(self._ending))
        elif now >= self._answer_by:
            self.lose(
                f"its {'part' if self.is_ready else 'command'} said nothing within {ANSWER_SECONDS:g} s"
            )

    def due(self) -> float:
        return min(self._ended_by, self._answer_by)

    def _reaped(self) -> int | None:
        """Return the exit code of the command; None as long as it runs."""
        if self._code is None:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self._pid, os.WNOHANG)
                if pid:
                    self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def _with_exit_code(self, why: str) -> str:
        if self._code is None or (self._code == 0 and self.is_ready):
            return why
        what = "its part" if self.is_local else "its command"
        if self._code < 0:
            return f"{what} was killed by {processes.signal_name(-self._code)}"
        return f"{what} exited with {self._code}"

    def _on_words(self) -> None:
        try:
            chunk = os.read(self._stderr, _CHUNK)
        except BlockingIOError:
            return
        if not chunk:
            self._selector.unregister(self._stderr)
            os.close(self._stderr)
        self._watcher.on_words(self.lines.feed(chunk) if chunk else self.lines.finish())

    def _show_noise(self) -> None:
        if noise := bytes(self._wire.noise).strip():
            self._watcher.on_words(self.lines.feed(noise) + self.lines.finish())

    def _on_wire_end(self, why: str) -> None:
        if self.has_output:
            self._show_noise()
            self._ending = why
            self._ended_by = time.monotonic() + _LAST_SECONDS

    def _hear(self, frame: Frame) -> None:
        if frame.kind is Kind.READY and not self.is_ready:
            self._on_ready(frame.json())
        elif not self.is_ready:
            raise BadFrame(f"{frame.kind.name} comes before READY")
        elif frame.kind is Kind.PREPARED and not self.is_prepared:
            self.is_prepared, self._answer_by = True, float("inf")
            self._watcher.on_prepared(self)
        elif frame.kind is Kind.FAILED:
            self.lose(frame.body.decode(errors="backslashreplace"))
        elif not self._has_begun:
            raise BadFrame(f"{frame.kind.name} comes before START")
        elif frame.kind is Kind.STARTED:
            self._watcher.on_started(self, self._pids(frame.json()))
        elif frame.kind is Kind.OUTPUT and frame.body[:1] in (b"\1", b"\2"):
            self._watcher.on_output(self._checked(frame.number), frame.body[0], frame.body[1:])
        elif frame.kind is Kind.ENDED:
            self._watcher.on_ends(self._ends(frame.json()))
        elif frame.kind is Kind.LEFT:
            self._watcher.on_leftovers(_listed(frame.json()), self.where)
        elif frame.kind is Kind.KILLED:
            self._watcher.on_kill(_listed(frame.json()), self.where)
        elif frame.kind is Kind.FILE:
            self._received.take(frame.body)
        elif frame.kind is Kind.EMPTY:
            self.has_processes = False
        elif frame.kind is Kind.GONE:
            self.leave()
        else:
            raise BadFrame(f"{frame.kind.name} is not for a launcher")

    def _on_ready(self, message: Any) -> None:
        if not isinstance(message, dict):
            raise BadFrame("READY says nothing")
        if message.get("version") != peerlane.__version__:
            self.lose(
                f"peerlane there is version {str(message.get('version'))[:40]}, and here {peerlane.__version__}; "
                f"install the same version on all machines"
            )
            return
        port, ssh = message.get("port"), message.get("ssh")
        if not isinstance(port, int) or not isinstance(ssh, str):
            raise BadFrame("READY says neither port nor ssh")
        self.is_ready, self.port, self.ssh = True, port, ssh
        self._show_noise()
        self._watcher.on_ready(self)

    def _checked(self, rank: Any) -> int:
        if not isinstance(rank, int) or rank not in self.ranks:
            raise BadFrame(f"rank {str(rank)[:20]} is not of this machine")
        return rank

    def _pids(self, message: Any) -> dict[int, int]:
        try:
            return {self._checked(int(rank)): int(pid) for rank, pid in message.items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise BadFrame(f"STARTED has no pids: {error}") from None

    def _ends(self, message: Any) -> list[End]:
        try:
            ends = [End(self._checked(rank), int(code), str(fault)) for rank, code, fault in message]
        except (TypeError, ValueError) as error:
            raise BadFrame(f"ENDED has no ends: {error}") from None
        for end in ends:
            if end.code not in _CODES:
                raise BadFrame(f"ENDED has the exit code {end.code}")
        return ends


def _listed(message: Any) -> dict[int, str]:
    try:
        return {int(pid): str(words) for pid, words in message.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise BadFrame(f"a list of processes is none: {error}") from None
