"""The processes of the ranks on this machine: started, read, signalled, and reaped."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from peerlane.cli.faults import killer_of
from peerlane.errors import Error, Fault

from . import processes
from .output import STDERR, STDOUT

QUIET_SECONDS = 1.0  # how long outputs may stay open without a byte after all processes have ended
_KILL_AGAIN_SECONDS = 0.05  # the children of killed processes become this process's
_CHUNK = 1 << 16


class End(NamedTuple):
    """How the process of a rank ended."""

    rank: int
    code: int  #: its exit code; negative for a signal
    fault: str  #: the fault of ``--fault`` that killed it, or nothing


class Machine(Protocol):
    """The processes of the ranks on one machine.

    ``has_processes``: whether any process is left there.
    ``has_output``: whether more output may come from there.
    """

    @property
    def has_processes(self) -> bool: ...

    @property
    def has_output(self) -> bool: ...

    def signal(self, number: int, *, group: bool = False) -> None:
        """Send a signal to the ranks, or to their process groups."""

    def end_leftovers(self) -> None:
        """End the processes that the ranks left, and report them."""

    def kill(self) -> None:
        """Kill all processes there until none is left, and report them; idempotent."""

    def pause(self) -> None:
        """Stop reading output."""

    def resume(self) -> None:
        """Read output again."""

    def advance(self) -> None:
        """Do what is due."""

    def due(self) -> float:
        """Return when something is due even if no event comes, in seconds of the monotonic clock."""


class Watcher(Protocol):
    """Is called with the events of ranks."""

    def on_output(self, rank: int, where: int, chunk: bytes) -> None:
        """A rank wrote; no bytes at the end of the output."""

    def on_ends(self, ends: Sequence[End]) -> None:
        """Ranks ended; those whose ends were seen together come in one call."""

    def on_leftovers(self, commands: Mapping[int, str], host: str = "") -> None:
        """Processes that ranks left are ended: command lines by pid; without a host on this machine."""

    def on_kill(self, commands: Mapping[int, str], host: str = "") -> None:
        """Processes are killed: command lines by pid; without a host on this machine."""


class LocalRanks:
    """The ranks that this process starts."""

    def __init__(self, selector: selectors.BaseSelector, watcher: Watcher) -> None:
        self._selector, self._watcher = selector, watcher
        self.pids: dict[int, int] = {}  #: by rank
        self.has_processes = True  #: whether this process has children
        self._living: dict[int, int] = {}  # ranks by pid
        self._pipes: dict[int, tuple[int, int]] = {}
        self._emptied_at = float("inf")
        self._is_paused = False
        self._is_killing = False

    @property
    def has_output(self) -> bool:
        return bool(self._pipes)

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        of_ranks: Mapping[int, Mapping[str, str]],
        stdin: int | None,
        between: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the ranks, while this process has no thread.

        ``environment``: the variables of all.
        ``of_ranks``: the variables of each.
        ``stdin``: the standard input of the first one; all others have an empty one.
        ``between``: called after each.
        Raises Error: ``OUT_OF_RESOURCES``: there cannot be so many processes.
        """
        nothing = os.open(os.devnull, os.O_RDONLY)
        for rank, own in of_ranks.items():
            read = nothing if stdin is None or self.pids else stdin
            try:
                started = processes.start(command, {**environment, **own}, read)
            except OSError as error:
                raise Error(
                    f"cannot start rank {rank}: {error.strerror}; ask for fewer processes, or raise the limit "
                    "(ulimit -n, ulimit -u)",
                    fault=Fault.OUT_OF_RESOURCES,
                ) from error
            self.pids[rank] = started.pid
            self._living[started.pid] = rank
            self._pipes |= {started.stdout: (rank, STDOUT), started.stderr: (rank, STDERR)}
            between()
        os.close(nothing)
        for descriptor in self._pipes:
            self._listen_to(descriptor)

    def signal(self, number: int, *, group: bool = False) -> None:
        for pid in self._living:
            processes.send(pid, number, group=group)

    def end_leftovers(self) -> None:
        self._watcher.on_leftovers(processes.children())
        processes.signal_children(signal.SIGTERM)

    def kill(self) -> None:
        if not self._is_killing:
            self._is_killing = True
            self._watcher.on_kill(processes.children())
            processes.signal_children(signal.SIGKILL)

    def pause(self) -> None:
        self._is_paused = True
        for descriptor in self._pipes:
            self._selector.unregister(descriptor)

    def resume(self) -> None:
        self._is_paused = False
        for descriptor in self._pipes:
            self._listen_to(descriptor)

    def advance(self) -> None:
        self._reap()
        if self._is_killing and self.has_processes:
            processes.signal_children(signal.SIGKILL)
        if not self.has_processes and not self._is_paused and time.monotonic() > self._quiet_at():
            for descriptor in list(self._pipes):  # a process that is not a descendant holds it open
                self._hang_up(descriptor)

    def due(self) -> float:
        if self._is_killing and self.has_processes:
            return time.monotonic() + _KILL_AGAIN_SECONDS
        return self._quiet_at() + 0.01 if self._pipes else float("inf")

    def _quiet_at(self) -> float:
        return self._emptied_at + QUIET_SECONDS

    def _listen_to(self, descriptor: int) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, lambda: self._on_output(descriptor))

    def _on_output(self, descriptor: int) -> None:
        try:
            chunk = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return
        if not chunk:
            self._hang_up(descriptor)
            return
        if not self.has_processes:
            self._emptied_at = time.monotonic()
        self._watcher.on_output(*self._pipes[descriptor], chunk)

    def _hang_up(self, descriptor: int) -> None:
        rank, where = self._pipes.pop(descriptor)
        if not self._is_paused:
            self._selector.unregister(descriptor)
        os.close(descriptor)
        self._watcher.on_output(rank, where, b"")

    def _reap(self) -> None:
        ended = processes.reap()
        if ended is None:
            if self.has_processes:
                self.has_processes = False
                self._emptied_at = time.monotonic()
            return
        ranks = [(self._living.pop(pid), pid, code) for pid, code in ended if pid in self._living]
        if ranks:
            self._watcher.on_ends(
                [
                    End(rank, code, killer_of(pid) if code == -signal.SIGKILL else "")
                    for rank, pid, code in ranks
                ]
            )
