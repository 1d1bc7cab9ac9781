"""The process that starts the ranks, shows their output, and ends them all when one fails."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from peerlane.backends.virtual.node import faults
from peerlane.cli.stdout import BrokenOutput
from peerlane.diagnostics.log import event_log
from peerlane.errors import Error, Fault
from peerlane.rendezvous import RendezvousServer
from peerlane.rendezvous.reports import LAUNCHED
from peerlane.rendezvous.server import serve_launcher

from . import processes
from .environment import master, of_all_ranks, of_machine
from .host import Host, fork_part, start_command
from .hosts import Hosts, at, is_local
from .job import Job
from .local_ranks import QUIET_SECONDS, End, LocalRanks, Machine
from .losses import Losses
from .output import STDERR, STDOUT, Lines, Writer, has_colours, prefix

NOTICE_SECONDS = 2.0  # then a terminal shows for which machines launch waits
SETTLE_SECONDS = 3.0  # for processes that end by themselves after their rank
FOLLOW_SECONDS = 8.0  # a lost rank has this long to end: it may serve the others' rendezvous for 5 s more
ALIKE_SECONDS = 1.0  # after the traceback of one rank, in which others may end with the same
LEAVE_SECONDS = 2.0  # for the commands of other machines, once nothing is left there
MOST_HELD = 16  # reports that are kept for the end
MOST_REPORT = 1 << 16  # bytes of texts that ranks ask launch to show
LOST_CODE = 2  # the exit code if a machine is lost
_CHUNK = 1 << 16

# To the group, as a terminal sends them. Other signals go to the rank alone: its children may not expect them.
_TO_GROUPS = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGCONT, signal.SIGSTOP})
_ENDING = frozenset({signal.SIGTERM, signal.SIGHUP})
_INTERRUPTING = _ENDING | {signal.SIGINT, signal.SIGQUIT}
_MAY_BE_IGNORED = (*_INTERRUPTING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP)  # by `nohup` and the like


@dataclass(frozen=True)
class Plan:
    """What is launched."""

    size: int  #: the number of ranks
    words: Sequence[str]  #: the words that follow ``python``
    grace: float  #: seconds between SIGTERM and SIGKILL
    hosts: Hosts | None = None  #: the machines; None for this one alone
    json: str | None = None  #: a file for how each rank ended
    #: A file for the reports of deadlocks; None to show them at once.  Then the last words of the rank that failed
    #: are left out if there is a report, which says more.
    deadlocks: str | None = None


class _Failed(Protocol):
    """A rank or a machine that failed."""

    @property
    def name(self) -> str: ...

    @property
    def fate(self) -> str: ...

    @property
    def exit_code(self) -> int: ...

    @property
    def last_words(self) -> deque[bytes]: ...


@dataclass
class _Rank:
    number: int
    lines: dict[int, Lines]
    host: str = ""  # empty on this machine
    pid: int = 0
    code: int | None = None
    fault: str = ""
    is_lost: bool = False  # with its machine
    begun_at: float | None = None
    ended_at: float | None = None

    @property
    def key(self) -> tuple[str, int]:
        return self.host, self.pid

    @property
    def has_ended(self) -> bool:
        return self.is_lost or self.code is not None

    @property
    def name(self) -> str:
        return f"rank {self.number} (pid {self.pid}{f' on {self.host}' if self.host else ''})"

    @property
    def fate(self) -> str:
        if self.code is not None and self.code < 0:
            return f"was killed by {f'--fault {self.fault}' if self.fault else processes.signal_name(-self.code)}"
        return f"exited with {self.code}"

    @property
    def exit_code(self) -> int:
        return self.code or 0

    @property
    def last_words(self) -> deque[bytes]:
        return self.lines[STDERR].last

    def as_json(self) -> dict[str, object]:
        has_code = self.code is not None and self.code >= 0
        ran = self.begun_at is not None and self.ended_at is not None
        return {
            "rank": self.number,
            "host": self.host or None,
            "pid": self.pid or None,
            "exit": self.code if has_code else None,
            "signal": None if has_code or self.code is None else processes.signal_name(-self.code),
            "fault": self.fault or None,
            "lost": self.is_lost,
            "seconds": round(self.ended_at - self.begun_at, 3) if ran else None,  # type: ignore[operator]
        }


@dataclass(frozen=True)
class _LostHost:
    host: Host

    @property
    def name(self) -> str:
        return f"host {self.host.name}"

    @property
    def fate(self) -> str:
        return self.host.fate

    @property
    def exit_code(self) -> int:
        return LOST_CODE

    @property
    def last_words(self) -> deque[bytes]:
        return self.host.lines.last


class Supervisor:
    """Starts the ranks and watches them until all have ended.

    ``control``: the socket to the front: a byte is a signal to pass on, its end is the front's death.
    """

    def __init__(self, control: socket.socket, plan: Plan) -> None:
        self._control = control
        self._plan = plan
        self._grace = plan.grace
        self._ranks: dict[int, _Rank] = {}
        self._machines: list[Machine] = []
        self._hosts: list[Host] = []
        self._have_begun = False
        self._notice_at = float("inf")  # when to show for which machines it waits
        self._lost_connections: deque[tuple[str, str]] = (
            deque()
        )  # machines whose connection to the rendezvous is lost, and why
        self._ended: deque[tuple[int, bytes]] = deque()  # ranks, and the tracebacks with which they end
        self._tracebacks: dict[bytes, set[int]] = {}  # of these, what is not shown yet
        self._show_at = float("inf")  # when to show it
        self._culprit: _Failed | None = None
        self._losses: Losses[tuple[str, int]] = Losses()  # by machine and pid
        self._failed: list[_Rank] = []  # in the order of their ends
        self._named_at = float("inf")  # when the failed rank is named at the latest
        self._passed_on: set[int] = set()
        self._interrupted_at: float | None = None
        self._is_urged = False
        self._kill_at: float | None = None
        self._is_alone = False
        self._has_killed = False
        self._has_spoken = False
        self._held: list[str] = []
        self._settled_at: float | None = None
        self._last_byte = 0.0
        self._is_paused = False
        self._selector = selectors.DefaultSelector()
        self._wake_end, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)[::-1]

    def run(self) -> int:
        """Start the ranks, wait for their end, and return the exit code."""
        plan, hosts = self._plan, self._plan.hosts
        processes.raise_descriptor_limit(2 * plan.size + 1024)
        started = {} if hosts is None else self._fork_part(hosts)  # before there are other parts, or sockets
        for number in range(plan.size):
            lines = {where: Lines(prefix(number, coloured=has_colours(where))) for where in (STDOUT, STDERR)}
            self._ranks[number] = _Rank(number, lines)
        where = {} if hosts is None else {"secret": hosts.secret, "unreachable": hosts.unreachable}
        with RendezvousServer(
            plan.size,
            start=False,
            follow=False,
            machines=None if hosts is None else hosts.listens_at(),
            **where,  # type: ignore[arg-type]
        ) as server:
            self._server = server
            signal.signal(signal.SIGCHLD, lambda *_: None)  # the byte in the wake-up pipe ends select
            signal.set_wakeup_fd(self._wake_end, warn_on_full_buffer=False)
            if hosts is None:
                self._start_ranks()
            else:
                self._start_hosts(hosts, started)
            self._writer = Writer(self._wake)  # it starts threads: only after the ranks were forked
            serve_launcher(server, self._show_report, self._lose, self._end, self._lose_connection)
            server.start()
            self._selector.register(self._woken, selectors.EVENT_READ, lambda: os.read(self._woken, _CHUNK))
            self._selector.register(self._control, selectors.EVENT_READ, self._on_control)
            try:
                while not self._is_over():
                    for key, _ in self._selector.select(self._patience()):
                        key.data()
                    self._advance()
            finally:
                self._leave_hosts()
                self._await_hosts()
                left = processes.kill_all()
            self._write_held()
            if left:
                self._print(f"could not end {_listed(left)}")
                self._writer.drain(QUIET_SECONDS)
            return self._exit_code()

    def _start_ranks(self) -> None:
        size = self._plan.size
        environment = {**os.environ, **of_all_ranks(size, os.environ), LAUNCHED: self._server.address}
        environment.setdefault("PYTHONUNBUFFERED", "1")  # else a killed process loses lines
        ranks = LocalRanks(self._selector, self)
        ranks.start(
            processes.python_command(self._plan.words),
            environment,
            {number: self._server.environment(number) for number in range(size)},
            # No rank can read a terminal from another session, and two readers of a pipe would share its bytes.
            None if os.isatty(0) else 0,
        )
        self._note_begun(ranks.pids)
        self._machines.append(ranks)
        self._have_begun = True

    def _fork_part(self, hosts: Hosts) -> dict[str, tuple[processes.Started, int]]:
        def close() -> None:
            self._control.close()
            self._selector.close()
            for descriptor in (self._wake_end, self._woken):
                os.close(descriptor)

        return {host: fork_part(close) for host in hosts.counts if is_local(host)}

    def _start_hosts(self, hosts: Hosts, started: dict[str, tuple[processes.Started, int]]) -> None:
        if os.isatty(STDERR):
            self._notice_at = time.monotonic() + NOTICE_SECONDS
        first = 0
        for name, count in hosts.counts.items():
            try:
                it, outgoing = started.get(name) or start_command(hosts.command_for(name))
            except OSError as error:
                raise Error(
                    f"cannot start the command for host {name}: {error.strerror}; name fewer hosts, or raise the "
                    "limit (ulimit -n, ulimit -u)",
                    fault=Fault.OUT_OF_RESOURCES,
                ) from error
            host = Host(
                name,
                range(first, first + count),
                is_local=name in started,
                started=it,
                outgoing=outgoing,
                selector=self._selector,
                watcher=self,
                lines=Lines(f"[{name}] ".encode()),
            )
            for number in host.ranks:
                self._ranks[number].host = host.where
            self._hosts.append(host)
            first += count
        self._machines += self._hosts

    def on_ready(self, _host: Host) -> None:
        """Let all machines reach the rendezvous once each has a part."""
        hosts = self._plan.hosts
        if hosts is None or not all(host.is_ready for host in self._hosts) or self._kill_at is not None:
            return
        leader = self._hosts[0]
        address = (
            next((hosts.address_for(each.ssh) for each in self._hosts if not each.is_local), "127.0.0.1")
            if leader.is_local
            else hosts.address_of(leader.name, leader.ssh)
        )
        common = master(address, leader.port, os.environ)
        ignored = [number for number in _MAY_BE_IGNORED if signal.getsignal(number) is signal.SIG_IGN]
        for number, host in enumerate(self._hosts):
            host.prepare(
                Job(
                    host=host.name,
                    first=host.ranks.start,
                    count=len(host.ranks),
                    size=self._plan.size,
                    flags=subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined]
                    words=self._plan.words,
                    folder=hosts.folder,
                    environment={
                        **({} if host.is_local else hosts.environment),
                        **common,
                        **of_machine(len(host.ranks), number, len(self._hosts)),
                    },
                    server=self._server.address if host.is_local else self._address_for(hosts, host),
                    secret="" if host.is_local else hosts.secret.hex(),
                    unreachable=hosts.unreachable,
                    dialects=() if host.is_local else hosts.dialects,
                    shadow_real=hosts.shadow_real,
                    ignored=ignored,
                    logs=hosts.logs,
                    log_bytes=os.environ.get(event_log.SIZE_VARIABLE, ""),
                    faults=os.environ.get(faults.VARIABLE, ""),
                )
            )

    def _address_for(self, hosts: Hosts, host: Host) -> str:
        assert self._server.machines is not None  # there is another machine
        return at(hosts.address_for(host.ssh), self._server.machines[1])

    def on_prepared(self, _host: Host) -> None:
        """Let all machines start their ranks once each has reached the rendezvous."""
        if self._kill_at is None and all(host.is_prepared for host in self._hosts):
            self._have_begun = True
            for host in self._hosts:
                host.start()

    def on_started(self, host: Host, pids: Mapping[int, int]) -> None:
        self._note_begun(pids)

    def _note_begun(self, pids: Mapping[int, int]) -> None:
        now = time.monotonic()
        for number, pid in pids.items():
            self._ranks[number].pid, self._ranks[number].begun_at = pid, now

    def _lose(self, where: str, pid: int, lost: int) -> None:
        """Note that a rank lost another one; the server's thread calls it."""
        self._losses.add((where, pid), (where, lost))

    def _end(self, rank: int, traceback: bytes) -> None:
        """Note the traceback with which a rank ends; the server's thread calls it."""
        self._ended.append((rank, traceback[:MOST_REPORT]))
        self._wake()

    def _lose_connection(self, name: str, why: str) -> None:
        """Note that the line to a machine is lost; the server's thread calls it."""
        self._lost_connections.append((name, why))
        self._wake()

    def on_lost(self, host: Host) -> None:
        """End all ranks: a machine cannot be used, or no more."""
        for number in host.ranks:
            rank = self._ranks[number]
            self._finish_lines(rank)
            if not rank.has_ended:
                rank.is_lost, rank.ended_at = True, time.monotonic()
                self._server.end_rank(
                    number, f"{rank.name} is lost with host {host.name}: {host.why}", lost=True
                )
        if self._culprit is None:
            self._blame(_LostHost(host))
        else:
            self._print(f"host {host.name} {host.fate}")
        if not self._have_begun:
            self._leave_hosts()

    def _finish_lines(self, rank: _Rank) -> None:
        for where, lines in rank.lines.items():
            self._writer.write(where, lines.finish())

    def on_words(self, content: bytes) -> None:
        """Show what the command of a machine wrote to its standard error."""
        self._writer.write(STDERR, content)

    @property
    def _has_processes(self) -> bool:
        return any(machine.has_processes for machine in self._machines)

    @property
    def _has_output(self) -> bool:
        return any(machine.has_output for machine in self._machines)

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
        if self._have_begun:
            for machine in self._machines:
                machine.signal(number, group=group)

    def _kill_later(self) -> None:
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._grace

    def on_output(self, number: int, where: int, chunk: bytes) -> None:
        """Show what a rank wrote."""
        lines = self._ranks[number].lines[where]
        if chunk:
            self._last_byte = time.monotonic()
        self._writer.write(where, lines.feed(chunk) if chunk else lines.finish())

    def _advance(self) -> None:
        """Do what is due: reap, name the failed rank, kill, and start or stop reading."""
        self._take_lost_connections()
        for machine in self._machines:
            machine.advance()
        now = time.monotonic()
        self._take_tracebacks(now)
        if now >= self._notice_at and not self._have_begun and self._kill_at is None:
            self._notice_at = float("inf")
            late = [host.name for host in self._hosts if not host.is_prepared]
            self._print(f"waiting for {', '.join(late)}")
        if self._failed and self._culprit is None and now >= self._named_at:
            self._look_for_culprit()
        if self._writer.error is not None and self._kill_at is None:
            self._end_ranks()
        if self._has_processes and all(rank.has_ended for rank in self._ranks.values()):
            self._end_leftovers(now)
        if self._is_paused and self._kill_at is None and self._is_reader_late(now):
            self._end_ranks()  # the ranks may wait for the reader too
        if self._has_processes and self._kill_at is not None and now >= self._kill_at:
            self._kill()
        self._pause_or_resume()
        if not self._has_processes and not self._has_output and not self._has_spoken:
            self._has_spoken = True
            self._show_last_words()

    def _take_tracebacks(self, now: float) -> None:
        while self._ended:
            number, traceback = self._ended.popleft()
            if number in self._ranks:
                self._tracebacks.setdefault(traceback, set()).add(number)
                self._show_at = min(self._show_at, now + ALIKE_SECONDS)
        if now < self._show_at and any(not rank.has_ended for rank in self._ranks.values()):
            return
        for traceback, numbers in self._tracebacks.items():
            lines = Lines(prefix(*numbers, coloured=has_colours(STDERR)))
            self._writer.write(STDERR, lines.feed(traceback) + lines.finish())
            for number in numbers:
                self._ranks[number].lines[STDERR].last.extend(lines.last)
        self._tracebacks.clear()
        self._show_at = float("inf")

    def _take_lost_connections(self) -> None:
        while self._lost_connections:
            name, why = self._lost_connections.popleft()
            for host in self._hosts:
                if host.name == name and not host.is_local:
                    host.lose_connection(why)

    def _kill(self) -> None:
        self._has_killed = True
        for machine in self._machines:
            if machine.has_processes:
                machine.kill()

    def on_kill(self, commands: Mapping[int, str], host: str = "") -> None:
        """Show which processes are killed."""
        why = f"still there after {self._grace:g} s, and killed"
        if self._is_alone:
            why = "its first process has ended, and these processes are killed"
        self._print(f"{why}: {_listed(commands, host)}")

    def on_ends(self, ends: Sequence[End]) -> None:
        """Tell the rendezvous of ranks that ended, and look for the one that failed first."""
        # Of ranks that ended together, one killed by a signal is more likely the cause than one with an exit code.
        for number, code, fault in sorted(ends, key=lambda end: (end.code >= 0, end.rank)):
            rank = self._ranks[number]
            rank.code, rank.fault, rank.ended_at = code, fault, time.monotonic()
            self._server.end_rank(number, f"{rank.name} {rank.fate}", lost=code != 0)
            if code != 0:
                self._failed.append(rank)
        if self._failed and self._culprit is None:
            self._look_for_culprit()

    def _look_for_culprit(self) -> None:
        """Name the rank that failed first; if others report a living rank as lost, give it a while to end first."""
        failed = {rank.key: rank for rank in self._failed if not self._was_asked_to_end(rank)}
        if not failed or self._kill_at is not None or self._passed_on & _INTERRUPTING:
            self._blame(self._failed[0])
            return
        alive = {rank.key for rank in self._ranks.values() if not rank.has_ended}
        origin, may_end = self._losses.origin(list(failed), alive)
        now = time.monotonic()
        if may_end and now < self._named_at:
            self._named_at = min(self._named_at, now + FOLLOW_SECONDS)
        else:
            self._blame(failed[origin])

    def _blame(self, failed: _Failed) -> None:
        self._culprit = failed
        others = [it for it in self._ranks.values() if it.pid and not it.has_ended]
        if not self._was_asked_to_end(failed):
            what = f"; ending the others (SIGKILL after {self._grace:g} s)" if others else ""
            self._print(f"{failed.name} {failed.fate}{what}")
        self._end_ranks()

    def _end_ranks(self) -> None:
        at = self._interrupted_at
        # A rank that was interrupted just now may be tidying up; SIGTERM would cut that short.
        if at is None or time.monotonic() > at + self._grace:
            self._signal_ranks(signal.SIGTERM)
            self._signal_ranks(signal.SIGCONT)  # a stopped process would not see SIGTERM
        self._kill_later()

    def _was_asked_to_end(self, failed: _Failed) -> bool:
        """Return whether a signal passed on, or launch itself, ended a rank; then the rank did not fail."""
        if not isinstance(failed, _Rank):
            return False
        return failed.code is not None and (-failed.code in self._passed_on or self._has_killed)

    def _end_leftovers(self, now: float) -> None:
        """End the processes that the ranks left, after a moment in which helpers of multiprocessing end alone."""
        if self._settled_at is None:
            self._settled_at = now + SETTLE_SECONDS
        elif now >= self._settled_at:
            for machine in self._machines:
                if machine.has_processes:
                    machine.end_leftovers()
            self._settled_at = float("inf")
            self._kill_later()

    def on_leftovers(self, commands: Mapping[int, str], host: str = "") -> None:
        """Show which processes the ranks left."""
        if commands and self._culprit is None:
            self._print(f"the ranks left processes behind, which are ended: {_listed(commands, host)}")

    def _pause_or_resume(self) -> None:
        if self._writer.is_full == self._is_paused:
            return
        self._is_paused = self._writer.is_full
        for machine in self._machines:
            (machine.pause if self._is_paused else machine.resume)()

    def _patience(self) -> float | None:
        """Return the seconds until something is due, even if no event comes."""
        now = time.monotonic()
        due = [at for at in (self._kill_at, self._settled_at) if at is not None and at > now]
        due.append(self._show_at)
        due += [machine.due() for machine in self._machines]
        if not self._have_begun and now < self._notice_at < float("inf"):
            due.append(self._notice_at)
        if self._failed and self._culprit is None:
            due.append(self._named_at)
        if self._kill_at is not None and self._has_processes:
            due.append(self._kill_at + processes.KILL_SECONDS + 0.01)
        reader_deadline = self._reader_deadline()
        if reader_deadline is not None and reader_deadline > now:
            due.append(reader_deadline)
        earliest = min(due, default=float("inf"))
        return min(3600.0, max(0.0, earliest - now)) if earliest < float("inf") else None

    def _is_over(self) -> bool:
        now = time.monotonic()
        if not self._have_begun and (self._is_alone or self._interrupted_at is not None):
            return True
        if self._has_processes:
            return self._kill_at is not None and now > self._kill_at + processes.KILL_SECONDS
        if self._has_spoken and self._writer.is_idle:
            return True
        # After a signal to end, launch does not wait for a reader that does not read.
        asked = self._is_alone or self._interrupted_at is not None
        return self._is_reader_late(now) or (asked and self._kill_at is not None and now >= self._kill_at)

    def _leave_hosts(self) -> None:
        for host in self._hosts:
            host.leave()

    def _await_hosts(self) -> None:
        until = time.monotonic() + LEAVE_SECONDS
        for host in self._hosts:
            host.await_end(until)

    def _reader_deadline(self) -> float | None:
        """Return when launch, after an interrupt, gives up the reader of its output."""
        if self._interrupted_at is None or self._writer.is_idle:
            return None
        seconds = min(QUIET_SECONDS, self._grace) if self._is_urged else self._grace
        return max(self._interrupted_at, self._last_byte, self._writer.moved_at) + seconds

    def _is_reader_late(self, now: float) -> bool:
        at = self._reader_deadline()
        return at is not None and now >= at

    def _print(self, text: str) -> None:
        self._writer.write(STDERR, f"peerlane launch: {text}\n".encode(errors="backslashreplace"))

    def _show_report(self, content: bytes) -> None:
        text = content[:MOST_REPORT].decode(errors="backslashreplace")
        text = "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
        if self._plan.deadlocks is None or len(self._held) >= MOST_HELD:
            self._print(text)
        else:
            self._held.append(text)

    def _write_held(self) -> None:
        if self._plan.deadlocks is None or not self._held:
            return
        try:
            Path(self._plan.deadlocks).write_text(json.dumps(self._held))
        except OSError:
            for text in self._held:
                self._print(text)
            self._writer.drain(QUIET_SECONDS)

    def _show_last_words(self) -> None:
        failed = self._culprit
        if failed is not None and not self._was_asked_to_end(failed) and not self._held:
            words = [line.decode(errors="backslashreplace") for line in failed.last_words]
            remark = "last words:" if words else "it wrote nothing to standard error"
            self._print("\n  ".join([f"{failed.name} {failed.fate}; {remark}", *words]))

    def as_json(self, code: int) -> dict[str, object]:
        """Return how the ranks ended, and which failed first; ``code`` is the exit code of launch."""
        failed = self._culprit
        if failed is not None and self._was_asked_to_end(failed):
            failed = None
        where: dict[str, object] = {}
        if isinstance(failed, _Rank):
            where["rank"] = failed.number
        elif isinstance(failed, _LostHost):
            where["host"] = failed.host.name
        return {
            "version": 1,
            "exit": code,
            "failed": failed
            and {
                **where,
                "fate": failed.fate,
                "last_words": [line.decode(errors="backslashreplace") for line in failed.last_words],
            },
            "interrupted_by": [
                processes.signal_name(each) for each in sorted(self._passed_on & _INTERRUPTING)
            ],
            "ranks": [rank.as_json() for rank in self._ranks.values()],
        }

    def _exit_code(self) -> int:
        error = self._writer.error
        if error is not None and error.errno == errno.EPIPE:
            return 128 + signal.SIGPIPE
        if error is not None:
            if self._writer.failed_stdout:
                print(f"peerlane launch: {BrokenOutput(error.strerror or str(error))}", file=sys.stderr)
            return 2
        code = 0 if self._culprit is None else self._culprit.exit_code
        if not self._have_begun and self._culprit is None:
            return 128 + max(self._passed_on & _INTERRUPTING, default=0)
        return code if code >= 0 else 128 - code


def _listed(commands: Mapping[int, str], host: str = "") -> str:
    shown = [f"{pid} ({words[:60]})" for pid, words in list(commands.items())[:5]]
    more = len(commands) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "") + (f" on {host}" if host else "")
