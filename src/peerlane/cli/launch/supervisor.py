"""The process that starts the ranks, shows their output, and ends them all when one fails."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from peerlane.cli.faults import killer_of
from peerlane.cli.stdout import BrokenOutput
from peerlane.errors import Error, Fault
from peerlane.rendezvous import RendezvousServer
from peerlane.rendezvous.reports import LAUNCHED
from peerlane.rendezvous.server import serve_launcher

from . import processes
from .environment import of_all_ranks
from .losses import Losses
from .output import STDERR, STDOUT, Lines, Writer, has_colours, prefix

SETTLE_SECONDS = 0.5  # for processes that end by themselves after their rank
FOLLOW_SECONDS = 8.0  # a lost rank has this long to end: it may serve the others' rendezvous for 5 s more
QUIET_SECONDS = 1.0  # how long outputs may stay open without a byte after all processes have ended
MOST_REPORT = 1 << 16  # bytes of texts that ranks ask launch to show
_CHUNK = 1 << 16

# To the group, as a terminal sends them. Other signals go to the rank alone: its children may not expect them.
_TO_GROUPS = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGCONT, signal.SIGSTOP})
_ENDING = frozenset({signal.SIGTERM, signal.SIGHUP})
_INTERRUPTING = _ENDING | {signal.SIGINT, signal.SIGQUIT}


@dataclass
class _Rank:
    number: int
    pid: int
    lines: dict[int, Lines]
    code: int | None = None

    @property
    def name(self) -> str:
        return f"rank {self.number} (pid {self.pid})"

    @property
    def fate(self) -> str:
        if self.code is not None and self.code < 0:
            fault = killer_of(self.pid) if self.code == -signal.SIGKILL else ""
            return f"was killed by {f'--fault {fault}' if fault else processes.signal_name(-self.code)}"
        return f"exited with {self.code}"


class Supervisor:
    """Starts the ranks and watches them until all have ended.

    Parameters
    ----------
    control : socket
        The socket to the front: a byte is a signal to pass on, its end is the front's death.
    ranks : int
        The number of ranks.
    words : sequence of str
        The words that follow ``python``.
    grace : float
        Seconds between SIGTERM and SIGKILL.
    """

    def __init__(self, control: socket.socket, ranks: int, words: Sequence[str], grace: float) -> None:
        self._control = control
        self._words = words
        self._grace = grace
        self._size = ranks
        self._ranks: dict[int, _Rank] = {}
        self._culprit: _Rank | None = None
        self._losses = Losses()
        self._failed: list[_Rank] = []  # in the order of their ends
        self._named_at = float("inf")  # when the failed rank is named at the latest
        self._passed_on: set[int] = set()
        self._interrupted_at: float | None = None
        self._is_urged = False
        self._kill_at: float | None = None
        self._is_alone = False
        self._has_killed = False
        self._has_spoken = False
        self._has_children = True
        self._settled_at: float | None = None
        self._last_byte = 0.0
        self._is_paused = False
        self._pipes: dict[int, tuple[_Rank, int]] = {}
        self._selector = selectors.DefaultSelector()
        self._wake_end, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)[::-1]

    def run(self) -> int:
        """Start the ranks, wait for their end, and return the exit code."""
        processes.raise_descriptor_limit(2 * self._size + 1024)
        with RendezvousServer(self._size, start=False, follow=False) as server:
            self._server = server
            signal.signal(signal.SIGCHLD, lambda *_: None)  # the byte in the wake-up pipe ends select
            signal.set_wakeup_fd(self._wake_end, warn_on_full_buffer=False)
            self._start_ranks()
            self._writer = Writer(self._wake)  # it starts threads: only after the ranks were forked
            serve_launcher(server, self._show_report, self._losses.add)
            server.start()
            self._selector.register(self._woken, selectors.EVENT_READ, lambda: os.read(self._woken, _CHUNK))
            self._selector.register(self._control, selectors.EVENT_READ, self._on_control)
            try:
                while not self._is_over():
                    for key, _ in self._selector.select(self._patience()):
                        key.data()
                    self._advance()
            finally:
                left = processes.kill_all()
            if left:
                self._say(f"could not end {_listed(left)}")
                self._writer.drain(QUIET_SECONDS)
            return self._exit_code()

    def _start_ranks(self) -> None:
        environment = {**os.environ, **of_all_ranks(self._size, os.environ), LAUNCHED: self._server.address}
        environment.setdefault("PYTHONUNBUFFERED", "1")  # else a killed process loses lines
        command = processes.python_command(self._words)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number in range(self._size):
            # No rank can read a terminal from another session, and two readers of a pipe would share its bytes.
            stdin = nothing if number or os.isatty(0) else 0
            try:
                started = processes.start(command, environment | self._server.environment(number), stdin)
            except OSError as error:
                raise Error(
                    f"cannot start rank {number}: {error.strerror}; ask for fewer processes, or raise the limit "
                    "(ulimit -n, ulimit -u)",
                    fault=Fault.OUT_OF_RESOURCES,
                ) from error
            lines = {where: Lines(prefix(number, coloured=has_colours(where))) for where in (STDOUT, STDERR)}
            rank = self._ranks[started.pid] = _Rank(number, started.pid, lines)
            self._pipes |= {started.stdout: (rank, STDOUT), started.stderr: (rank, STDERR)}
        os.close(nothing)
        for descriptor in self._pipes:
            self._listen_to(descriptor)

    def _listen_to(self, descriptor: int) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, lambda: self._on_output(descriptor))

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_end, b"\0")

    def _on_control(self) -> None:
        numbers = self._control.recv(4096)
        if not numbers:
            self._selector.unregister(self._control)
            self._is_alone = True
            self._kill_at = time.monotonic()
        for number in numbers:
            self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        self._passed_on.add(number)
        if number in _INTERRUPTING:
            self._is_urged = self._interrupted_at is not None
            self._interrupted_at = time.monotonic()
        # A process whose session has no terminal is stopped by SIGSTOP only.
        sent = signal.SIGSTOP if number == signal.SIGTSTP else number
        self._signal_ranks(sent, group=sent in _TO_GROUPS)
        if number in _ENDING:
            self._signal_ranks(signal.SIGCONT)
            self._kill_later()

    def _signal_ranks(self, number: int, *, group: bool = False) -> None:
        for rank in self._ranks.values():
            if rank.code is None:
                processes.send(rank.pid, number, group=group)

    def _kill_later(self) -> None:
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._grace

    def _on_output(self, descriptor: int) -> None:
        rank, where = self._pipes[descriptor]
        lines = rank.lines[where]
        try:
            chunk = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return
        self._last_byte = time.monotonic()
        if chunk:
            self._writer.write(where, lines.feed(chunk))
        else:
            self._hang_up(descriptor)

    def _hang_up(self, descriptor: int) -> None:
        rank, where = self._pipes.pop(descriptor)
        self._writer.write(where, rank.lines[where].finish())
        if not self._is_paused:
            self._selector.unregister(descriptor)
        os.close(descriptor)

    def _advance(self) -> None:
        """Do what is due: reap, name the failed rank, kill, and start or stop reading."""
        self._reap()
        now = time.monotonic()
        if self._failed and self._culprit is None and now >= self._named_at:
            self._look_for_culprit()
        if self._writer.error is not None and self._kill_at is None:
            self._end_ranks()
        if self._has_children and all(rank.code is not None for rank in self._ranks.values()):
            self._end_leftovers(now)
        if self._is_paused and self._kill_at is None and self._is_stuck(now):
            self._end_ranks()  # the ranks may wait for the reader too
        if self._has_children and self._kill_at is not None and now >= self._kill_at:
            self._kill()
        if not self._has_children and not self._is_paused and now - self._last_byte > QUIET_SECONDS:
            for descriptor in list(self._pipes):  # a process that is not a descendant holds it open
                self._hang_up(descriptor)
        self._pause_or_resume()
        if not self._has_children and not self._pipes and not self._has_spoken:
            self._has_spoken = True
            self._show_last_words()

    def _kill(self) -> None:
        if not self._has_killed:
            self._has_killed = True
            left = _listed(processes.children())
            why = "its first process has ended, and these processes are killed"
            self._say(
                f"{why if self._is_alone else f'still there after {self._grace:g} s, and killed'}: {left}"
            )
        processes.signal_children(signal.SIGKILL)

    def _reap(self) -> None:
        ended = processes.reap()
        if ended is None:
            if self._has_children:
                self._has_children = False
                self._last_byte = time.monotonic()
            return
        ranks = []
        for pid, code in ended:
            if pid in self._ranks:
                self._ranks[pid].code = code
                ranks.append(self._ranks[pid])
        # Of ranks that ended together, one killed by a signal is more likely the cause than one with an exit code.
        for rank in sorted(ranks, key=lambda it: ((it.code or 0) >= 0, it.number)):
            self._server.end_rank(rank.number, f"{rank.name} {rank.fate}", lost=rank.code != 0)
            if rank.code != 0:
                self._failed.append(rank)
        if self._failed and self._culprit is None:
            self._look_for_culprit()

    def _look_for_culprit(self) -> None:
        """Name the rank that failed first; if others report a living rank as lost, give it a while to end first."""
        failed = [rank.pid for rank in self._failed if not self._was_asked_to_end(rank)]
        if not failed or self._kill_at is not None or self._passed_on & _INTERRUPTING:
            self._blame(self._failed[0])
            return
        alive = {rank.pid for rank in self._ranks.values() if rank.code is None}
        pid, may_end = self._losses.origin(failed, alive)
        now = time.monotonic()
        if may_end and now < self._named_at:
            self._named_at = min(self._named_at, now + FOLLOW_SECONDS)
        else:
            self._blame(self._ranks[pid])

    def _blame(self, rank: _Rank) -> None:
        self._culprit = rank
        others = [it for it in self._ranks.values() if it.code is None]
        if not self._was_asked_to_end(rank):
            what = f"; ending the others (SIGKILL after {self._grace:g} s)" if others else ""
            self._say(f"{rank.name} {rank.fate}{what}")
        self._end_ranks()

    def _end_ranks(self) -> None:
        at = self._interrupted_at
        # A rank that was interrupted just now may be tidying up; SIGTERM would cut that short.
        if at is None or time.monotonic() > at + self._grace:
            self._signal_ranks(signal.SIGTERM)
            self._signal_ranks(signal.SIGCONT)  # a stopped process would not see SIGTERM
        self._kill_later()

    def _was_asked_to_end(self, rank: _Rank) -> bool:
        """Tell whether a signal passed on, or launch itself, ended a rank; then the rank did not fail."""
        return rank.code is not None and (-rank.code in self._passed_on or self._has_killed)

    def _end_leftovers(self, now: float) -> None:
        """End the processes that the ranks left, after a moment in which helpers of multiprocessing end alone."""
        if self._settled_at is None:
            self._settled_at = now + SETTLE_SECONDS
        elif now >= self._settled_at:
            left = processes.children()
            if left and self._culprit is None:
                self._say(f"the ranks left processes behind, which are ended: {_listed(left)}")
            processes.signal_children(signal.SIGTERM)
            self._settled_at = float("inf")
            self._kill_later()

    def _pause_or_resume(self) -> None:
        if self._writer.is_full == self._is_paused:
            return
        self._is_paused = self._writer.is_full
        for descriptor in self._pipes:
            if self._is_paused:
                self._selector.unregister(descriptor)
            else:
                self._listen_to(descriptor)

    def _patience(self) -> float | None:
        """Return the seconds until something is due, even if no event comes."""
        now = time.monotonic()
        due = [at for at in (self._kill_at, self._settled_at) if at is not None and at > now]
        if self._failed and self._culprit is None:
            due.append(self._named_at)
        if self._kill_at is not None and self._kill_at <= now and self._has_children:
            due.append(now + 0.05)  # the children of killed processes become this process's
        stuck_at = self._stuck_at()
        if stuck_at is not None and stuck_at > now:
            due.append(stuck_at)
        if not self._has_children and self._pipes:
            due.append(self._last_byte + QUIET_SECONDS + 0.01)
        return min(3600.0, max(0.0, min(due) - now)) if due else None

    def _is_over(self) -> bool:
        now = time.monotonic()
        if self._has_children:
            return self._kill_at is not None and now > self._kill_at + processes.KILL_SECONDS
        if self._has_spoken and self._writer.is_idle:
            return True
        # After a signal to end, launch does not wait for a reader that does not read.
        asked = self._is_alone or self._interrupted_at is not None
        return self._is_stuck(now) or (asked and self._kill_at is not None and now >= self._kill_at)

    def _stuck_at(self) -> float | None:
        """Return when launch, after an interrupt, gives up a reader that does not read."""
        if self._interrupted_at is None or self._writer.is_idle:
            return None
        seconds = min(QUIET_SECONDS, self._grace) if self._is_urged else self._grace
        return max(self._interrupted_at, self._last_byte, self._writer.moved_at) + seconds

    def _is_stuck(self, now: float) -> bool:
        at = self._stuck_at()
        return at is not None and now >= at

    def _say(self, text: str) -> None:
        self._writer.write(STDERR, f"peerlane launch: {text}\n".encode(errors="backslashreplace"))

    def _show_report(self, content: bytes) -> None:
        text = content[:MOST_REPORT].decode(errors="backslashreplace")
        self._say("".join(c if c.isprintable() or c == "\n" else "?" for c in text))

    def _show_last_words(self) -> None:
        rank = self._culprit
        if rank is not None and not self._was_asked_to_end(rank):
            words = [line.decode(errors="backslashreplace") for line in rank.lines[STDERR].last]
            said = "last words:" if words else "it wrote nothing to standard error"
            self._say("\n  ".join([f"{rank.name} {rank.fate}; {said}", *words]))

    def _exit_code(self) -> int:
        error = self._writer.error
        if error is not None and error.errno == errno.EPIPE:
            return 128 + signal.SIGPIPE
        if error is not None:
            if self._writer.failed_stdout:
                print(f"peerlane launch: {BrokenOutput(error.strerror or str(error))}", file=sys.stderr)
            return 2
        code = 0 if self._culprit is None else self._culprit.code or 0
        return code if code >= 0 else 128 - code


def _listed(found: dict[int, str]) -> str:
    shown = [f"{pid} ({words[:60]})" for pid, words in list(found.items())[:5]]
    more = len(found) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
