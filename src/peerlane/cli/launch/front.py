"""The process that the user started: it passes signals on to the supervisor, and ends last."""

from __future__ import annotations

import os
import signal
import socket
import sys
from types import FrameType
from typing import Any

from peerlane.cli.outputs import write_json
from peerlane.errors import Error
from peerlane.rendezvous.serving import remove_sockets_of

from . import processes
from .supervisor import Plan, Supervisor

PASSED_ON = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM),
    *(signal.SIGTSTP, signal.SIGCONT),
)


def launch(plan: Plan) -> int:
    """Run the ranks, and return the exit code of launch."""
    _open_standard_descriptors()
    processes.adopt_orphans()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    before = _pass_on(ours)
    supervisor = os.fork()
    if supervisor == 0:
        _supervise(ours, theirs, plan)
    _, status = os.waitpid(supervisor, 0)
    processes.kill_all()  # only a killed supervisor leaves any
    signal.set_wakeup_fd(-1)
    theirs.close()  # not before: a signal that comes once the supervisor has ended is still written
    for number, handler in before.items():
        signal.signal(number, handler)
    ours.close()
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        processes.tidy_node()
        remove_sockets_of(supervisor)
        name = processes.signal_name(-code)
        print(f"peerlane launch: its supervisor was killed by {name}; all ranks were killed", file=sys.stderr)
        return 128 - code
    return code


def _open_standard_descriptors() -> None:
    """Open closed standard descriptors: else a pipe would get such a number and be taken for a standard stream."""
    while True:
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor > 2:
            os.close(descriptor)
            return
        os.set_inheritable(descriptor, True)


def _pass_on(control: socket.socket) -> dict[signal.Signals, Any]:
    """Have each signal written to ``control``; return the handlers from before."""
    control.setblocking(False)
    # The wake-up descriptor is written when the signal arrives; a Python handler may run only after `waitpid`.
    signal.set_wakeup_fd(control.fileno(), warn_on_full_buffer=False)

    def stop(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGTSTP:
            os.kill(os.getpid(), signal.SIGSTOP)

    before: dict[signal.Signals, Any] = {}
    for number in PASSED_ON:
        handler = signal.getsignal(number)
        if handler is not signal.SIG_IGN:  # under `nohup` launch and the ranks ignore hangups
            before[number] = handler
            signal.signal(number, stop)
    return before


def _supervise(ours: socket.socket, control: socket.socket, plan: Plan) -> None:
    """Run the supervisor in this process; never returns."""
    code = 2
    try:
        signal.set_wakeup_fd(-1)
        for number in PASSED_ON:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        ours.close()
        os.setsid()  # the front passes on the terminal's signals, once
        processes.adopt_orphans()
        supervisor = Supervisor(control, plan)
        code = supervisor.run()
        if plan.json is not None:
            write_json(plan.json, supervisor.as_json(code))
    except Error as error:
        print(f"peerlane launch: {error}", file=sys.stderr)
    except BaseException:  # noqa: BLE001  # nothing of the front's may run in this process
        sys.excepthook(*sys.exc_info())
    finally:
        processes.kill_all()
        processes.tidy_node()
        os._exit(code)
