"""The part of launch on one of several machines: it does there what the launcher says, and tells what happens.

``python -m peerlane.cli.launch`` runs it on another machine.  It is two processes, as launch is.  The *guard*, which
the command started, adopts orphans, and ends all other processes when the other one dies.  The *part*, its child,
starts the ranks.  The end of its standard input ends everything.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import peerlane
from peerlane.cli.native import set_library_path
from peerlane.diagnostics.log import event_log
from peerlane.dialects import install
from peerlane.errors import Error
from peerlane.rendezvous import RendezvousRelay
from peerlane.rendezvous.relay import watch_server
from peerlane.rendezvous.reports import LAUNCHED
from peerlane.rendezvous.serving import variables_of_rank

from . import collecting, processes
from .environment import free_port
from .job import Job
from .local_ranks import End, LocalRanks
from .output import STDERR
from .wire import BadFrame, Frame, Kind, Wire

_MOST_WORDS, _MOST_NAMED = 100, 10_000  # characters of a command line, and processes, in a report
_MOST_UNSENT = 1 << 20  # bytes; with more, the ranks are not read
_FAREWELL_SECONDS = 1.0  # for the last frames
_SERVE_SECONDS = 0.05  # between two looks at a connection whose relay has no thread
_SERVER_SECONDS = 15.0  # until the launcher's rendezvous must have answered
_OF_MACHINE = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


class Part:
    """Starts the ranks of a machine, and watches them until the launcher closes the wire.

    ``incoming``, ``outgoing``: descriptors of the wire to the launcher.
    ``guard``: its end is the guard's death.
    ``stdin``: the standard input of rank 0, if this machine has it.
    """

    def __init__(
        self, incoming: int, outgoing: int, guard: socket.socket | None, stdin: int | None = None
    ) -> None:
        self._stdin = stdin
        self._selector = selectors.DefaultSelector()
        self._job: Job | None = None
        self._ranks: LocalRanks | None = None
        self._relay: RendezvousRelay | None = None
        self._is_over = False
        self._must_pause = self._is_paused = False
        self._has_sent = {Kind.EMPTY: False, Kind.GONE: False}
        self._lost: str | None = None
        self._ends = contextlib.ExitStack()
        self._files: Path | None = None  # the folder with what the ranks leave for the launcher
        self._sending: Iterator[bytes] | None = None
        self._wire = Wire(self._selector, incoming, outgoing, self._hear, self._end, is_part=False)
        self._wake_end, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)[::-1]
        self._selector.register(self._woken, selectors.EVENT_READ, lambda: os.read(self._woken, 4096))
        if guard is not None:
            self._selector.register(guard, selectors.EVENT_READ, self._end)

    def run(self) -> None:
        """Obey the launcher until it closes the wire or its rendezvous is lost."""
        signal.signal(signal.SIGCHLD, lambda *_: None)  # the byte in the wake-up pipe ends select
        signal.set_wakeup_fd(self._wake_end, warn_on_full_buffer=False)
        self._wire.begin()
        self._wire.send_json(
            Kind.READY,
            {
                "version": peerlane.__version__,
                "port": free_port(),
                "ssh": os.environ.get("SSH_CONNECTION", ""),
            },
        )
        try:
            while not self._is_over:
                self._dispatch(self._patience())
                self._advance()
            until = time.monotonic() + _FAREWELL_SECONDS
            while self._wire.unsent and not self._wire.is_closed and (left := until - time.monotonic()) > 0:
                self._dispatch(left)
        finally:
            self._ends.close()
            if self._relay is not None:
                self._relay.close()

    def _dispatch(self, seconds: float | None) -> None:
        for key, _ in self._selector.select(seconds):
            key.data()

    def _end(self, _why: str = "") -> None:
        self._is_over = True

    def _hear(self, frame: Frame) -> None:
        try:
            if frame.kind is Kind.PREPARE and self._job is None:
                self._prepare(Job.from_json(frame.json()))
            elif frame.kind is Kind.START and self._job is not None and self._ranks is None:
                self._start(self._job)
            elif self._ranks is None:
                raise BadFrame(f"{frame.kind.name} comes too early")
            else:
                self._do(frame, self._ranks)
        except (Error, OSError) as error:
            self._fail(str(error))

    def _do(self, frame: Frame, ranks: LocalRanks) -> None:
        if frame.kind is Kind.SIGNAL:
            ranks.signal(frame.number, group=frame.body == b"\1")
        elif frame.kind in (Kind.PAUSE, Kind.RESUME):
            self._must_pause = frame.kind is Kind.PAUSE
        elif frame.kind is Kind.LEFTOVERS:
            ranks.end_leftovers()
        elif frame.kind is Kind.KILL:
            ranks.kill()

    def _fail(self, text: str) -> None:
        self._wire.send(Kind.FAILED, 0, text.encode(errors="backslashreplace"))
        self._is_over = True

    def _prepare(self, job: Job) -> None:
        """Set up this process as the ranks need it, and reach the rendezvous."""
        os.environ.update(job.environment)
        os.environ.setdefault("PEERLANE_MACHINE", job.host)
        os.environ.setdefault("PYTHONUNBUFFERED", "1")  # else a killed process loses lines
        os.chdir(job.folder)
        for name in job.dialects:
            install(name, shadow_real=job.shadow_real)
        set_library_path()
        for number in job.ignored:
            signal.signal(number, signal.SIG_IGN)
        processes.raise_descriptor_limit(2 * job.count + 1024)
        if not job.is_local and (job.logs or job.faults):
            self._files = self._ends.enter_context(event_log.folder())
            os.environ.update(collecting.variables(self._files, job.faults, job.log_bytes))
        if not job.is_local:
            self._relay = RendezvousRelay(
                job.server,
                secret=bytes.fromhex(job.secret),
                timeout=_SERVER_SECONDS,
                unreachable=job.unreachable,
                name=job.host,
                start=False,
            )
            watch_server(self._relay, self._lose_server)
        self._job = job
        self._wire.send(Kind.PREPARED)

    def _start(self, job: Job) -> None:
        address = job.server if self._relay is None else self._relay.address
        self._ranks = LocalRanks(self._selector, self)
        self._ranks.start(
            [sys.executable, *job.flags, *job.words],
            {**os.environ, LAUNCHED: address},
            {
                job.first + number: variables_of_rank(address, job.first + number, job.size, number)
                for number in range(job.count)
            },
            None if job.first else self._stdin,
            self._serve_now,
        )
        if self._relay is not None:
            self._relay.start()
        self._wire.send_json(Kind.STARTED, {str(rank): pid for rank, pid in self._ranks.pids.items()})

    def _serve_now(self) -> None:
        """Serve the connection to the rendezvous while its relay has no thread: silence would count as a loss."""
        if self._relay is not None:
            self._relay.serve_now()

    def _lose_server(self, why: str) -> None:
        """Note that the rendezvous is lost; any thread calls it."""
        self._lost = why
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_end, b"\0")

    def _advance(self) -> None:
        if self._lost is not None and not self._is_over:
            self._fail(f"it has lost the launcher: {self._lost}")
        if self._ranks is None:
            self._serve_now()
        if self._ranks is None or self._is_over:
            return
        self._ranks.advance()
        must_pause = self._must_pause or self._wire.unsent > _MOST_UNSENT
        if must_pause != self._is_paused:
            self._is_paused = must_pause
            (self._ranks.pause if must_pause else self._ranks.resume)()
        if not self._ranks.has_processes:
            self._send_once(Kind.EMPTY)
            if not self._ranks.has_output and self._has_sent_files():
                self._send_once(Kind.GONE)

    def _has_sent_files(self) -> bool:
        """Send the ranks' files, as far as the launcher reads them; return whether all are sent."""
        if self._files is None or self._job is None:
            return True
        if self._sending is None:
            self._sending = collecting.pieces(self._files, logs=self._job.logs)
        for piece in self._sending:
            self._wire.send(Kind.FILE, 0, piece)
            if self._wire.unsent > _MOST_UNSENT:
                return False
        return True

    def _send_once(self, kind: Kind) -> None:
        if not self._has_sent[kind]:
            self._has_sent[kind] = True
            self._wire.send(kind)

    def _patience(self) -> float | None:
        if self._ranks is None:
            return None if self._relay is None else _SERVE_SECONDS
        due = self._ranks.due()
        return min(3600.0, max(0.0, due - time.monotonic())) if due < float("inf") else None

    def on_output(self, rank: int, where: int, chunk: bytes) -> None:
        self._wire.send(Kind.OUTPUT, rank, bytes([where]) + chunk)

    def on_ends(self, ends: Sequence[End]) -> None:
        self._wire.send_json(Kind.ENDED, ends)

    def on_leftovers(self, commands: Mapping[int, str], host: str = "") -> None:
        self._wire.send_json(Kind.LEFT, _shortened(commands))

    def on_kill(self, commands: Mapping[int, str], host: str = "") -> None:
        self._wire.send_json(Kind.KILLED, _shortened(commands))


def _shortened(commands: Mapping[int, str]) -> dict[int, str]:
    return {pid: commands[pid][:_MOST_WORDS] for pid in list(commands)[:_MOST_NAMED]}


def become(run: Callable[[], None]) -> NoReturn:
    """Run a part in this process, which was just forked, and end it and all processes below it."""
    code = 2
    try:
        processes.adopt_orphans()
        run()
        code = 0
    except Error as error:
        print(f"peerlane launch: {error}", file=sys.stderr)
    except BaseException:  # noqa: BLE001  # nothing of the process that forked may run in this one
        sys.excepthook(*sys.exc_info())
    finally:
        processes.kill_all()
        processes.tidy_node()
        os._exit(code)


def serve_standard_streams() -> int:
    """Be the guard of a part whose wire is the standard streams."""
    if sys.stdin is None or sys.stdout is None or os.isatty(0):
        print(
            "peerlane launch: this part is started by `peerlane launch --hosts`, not by hand", file=sys.stderr
        )
        return 2
    incoming, outgoing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(STDERR, 1)  # what is printed by accident is not taken for a frame
    processes.adopt_orphans()
    ours, theirs = socket.socketpair()
    for number in _OF_MACHINE:
        signal.signal(number, signal.SIG_IGN)
    part = os.fork()
    if part == 0:
        ours.close()
        for number in _OF_MACHINE:
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        become(lambda: Part(incoming, outgoing, theirs).run())
    for descriptor in (incoming, outgoing):
        os.close(descriptor)
    theirs.close()
    _, status = os.waitpid(part, 0)
    processes.kill_all()  # only a killed part leaves any
    if (code := os.waitstatus_to_exitcode(status)) < 0:
        processes.tidy_node()
    return code if code >= 0 else 128 - code
