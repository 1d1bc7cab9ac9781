"""``peerlane launch``: N processes of one program on one virtual node, or on a node of each of several machines.

Launch itself is two processes.  The *front*, which the user started, passes signals on.  The *supervisor*, its child,
starts the ranks and prefixes their output.  Each adopts the orphans below it, and each ends all other processes when
the other one dies, so no process stays behind.

With ``--hosts`` the supervisor starts no ranks.  It runs a command for each machine, such as ``ssh``, which starts a
*part* there.  The parts start the ranks.  By what they say the supervisor decides, as it does for ranks of its own.
"""

from __future__ import annotations

import argparse
import math
import os
import shlex
import sys
from pathlib import Path

from peerlane.cli.faults import counted
from peerlane.cli.native import is_native
from peerlane.cli.node_options import node_from
from peerlane.cli.outputs import check_files, result_file, unwritable
from peerlane.cli.program import add_program_arguments, set_up_program
from peerlane.cli.schedules import shared_seed
from peerlane.cli.stdout import BrokenOutput
from peerlane.diagnostics.log import event_log
from peerlane.dialects import unasked
from peerlane.errors import BadArgument, InvalidValue
from peerlane.rendezvous.server import LEAST_UNREACHABLE, UNREACHABLE_SECONDS
from peerlane.support.scratch_folders import scratch_folder

from . import environment, front, hosts
from .supervisor import Plan

HELP = "run N processes of a program, here or on several machines"
DESCRIPTION = """\
Runs N processes (ranks) of a program on one virtual node, or on a node of
each of several machines. They have a meeting place, and the variables that
torchrun sets. If a rank fails, launch names the one that failed first, ends
the others, and exits with its code. It leaves no process behind."""
EXAMPLES = (
    ("peerlane launch -n 4 ranks.py", "four ranks, whose lines begin with [0] to [3]"),
    ("peerlane launch -n 2 --json ends.json ranks.py", "how each rank ended, for a CI"),
    ("peerlane launch -n 2 --trace trace.json ranks.py", "a timeline of all ranks, for ui.perfetto.dev"),
    ("peerlane launch -n 2 --predict h100-8 ranks.py", "how long its streams would take on eight H100"),
    (
        "peerlane launch --hosts localhost:2 ranks.py",
        "two ranks here, started as those of other machines are",
    ),
)

MOST_RANKS = 4096
GRACE_SECONDS = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that stand before the program."""
    add_rank_arguments(parser)
    add_grace_argument(parser)
    for flag, text in (
        ("--json", "write how each rank ended, and which failed first"),
        ("--trace", "write a timeline of all processes for Perfetto"),
    ):
        parser.add_argument(flag, type=result_file, metavar="FILE", help=text)
    parser.add_argument(
        "--predict",
        metavar="PROFILE",
        help="say how long the streams would take on that machine, such as h100-8, or on one for each host",
    )
    parser.add_argument("--hold-deadlocks", metavar="FILE", help=argparse.SUPPRESS)  # for `peerlane check`
    add_host_arguments(parser)
    add_program_arguments(parser)
    parser.usage = (
        "%(prog)s (-n N | --hosts HOST:N,...) [options]\n"
        "                       (SCRIPT | -m MODULE | -c CODE) [ARGS ...]"
    )


def add_rank_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ``-n`` and ``--hosts``."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "-n", dest="ranks", type=count_of_ranks, metavar="N", help=f"run N processes, 1 to {MOST_RANKS}"
    )
    where.add_argument(
        "--hosts",
        type=lambda text: hosts.counts_of(text, MOST_RANKS),
        metavar="HOST:N,...",
        help="machines, and the number of processes on each; localhost and this machine's own name are this machine",
    )


def words_of_ranks(args: argparse.Namespace) -> list[str]:
    """Return the words that say which ranks there are and how their machines are reached; none without ranks."""
    if args.ranks is not None:
        return ["-n", str(args.ranks)]
    if args.hosts is None:
        return []
    named = ",".join(hosts.at(host, count) for host, count in args.hosts.items())
    words = ["--hosts", named, "--ssh", args.ssh, "--python", args.python]
    words += ["--unreachable", f"{args.unreachable:g}"]
    for flag in ("address", "port"):
        if getattr(args, flag):
            words += [f"--{flag}", str(getattr(args, flag))]
    for each in args.env:
        words += ["--env", each]
    return words


def count_of(args: argparse.Namespace) -> int | None:
    """Return the number of ranks; None if the program is a single process."""
    counts: dict[str, int] | None = args.hosts
    ranks: int | None = args.ranks
    return ranks if counts is None else sum(counts.values())


def add_host_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare how other machines are reached."""
    group = parser.add_argument_group("other machines, with --hosts")
    group.add_argument(
        "--ssh",
        metavar="COMMAND",
        default=hosts.DEFAULT_COMMAND,
        help="runs its further words on the host that comes first, without a terminal: 'srun -N1 -n1 -w' "
        "(not tried on a real Slurm), 'ip netns exec' (default: %(default)s)",
    )
    group.add_argument(
        "--address", metavar="ADDRESS", help="this machine's address for the others (default: that of ssh)"
    )
    group.add_argument(
        "--port",
        type=hosts.port_of,
        default=0,
        metavar="PORT",
        help="where they connect (default: a free one)",
    )
    group.add_argument(
        "--python", metavar="PATH", default=sys.executable, help="Python there (default: this one's path)"
    )
    group.add_argument(
        "--env",
        action="append",
        type=hosts.variable_of,
        default=[],
        metavar="NAME[=VALUE]",
        help="a variable for the processes there, besides those that begin with PEERLANE_; may be repeated",
    )
    group.add_argument(
        "--unreachable",
        type=_unreachable,
        default=UNREACHABLE_SECONDS,
        metavar="SECONDS",
        help="silence after which a machine counts as lost (default: %(default)g)",
    )


def add_grace_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the time that processes have to end."""
    parser.add_argument(
        "--grace",
        type=_seconds,
        default=GRACE_SECONDS,
        metavar="SECONDS",
        help="time between SIGTERM and SIGKILL when processes have to end (default: %(default)g)",
    )


def run(args: argparse.Namespace) -> int:
    """Set the node and the dialects, start the ranks, and return the exit code of the one that failed."""
    if sys.stdout is None:
        raise BrokenOutput("it is closed")
    if count_of(args) is None:
        count, *program = args.program if args.program[0].isdecimal() else ("2", *args.program)
        words = shlex.join(["-n", count, *filter(None, [args.form]), *program])
        raise InvalidValue(
            f"-n or --hosts has to say how many processes; write peerlane launch {words}",
            call="peerlane launch",
            detail=BadArgument("-n", None, least=1, most=MOST_RANKS),
        )
    check_files({"--json": args.json, "--trace": args.trace})
    event_log.discard()  # the ranks have theirs
    node_from(args)  # ranks share memory, which only virtual devices do
    if args.predict is not None:
        from peerlane.prediction.machines import machine_of  # as every start would wait for it

        machine_of(args.predict, "--predict")  # refuses one that is not known before the ranks run
    is_read = args.trace is not None or args.predict is not None
    is_logged = is_read or bool(os.environ.get(event_log.VARIABLE))
    with (
        counted(args, count_of(args) or 1, "peerlane launch", _print_line),
        shared_seed("peerlane launch", _print_line),
    ):
        plan = _plan(args, is_logged)
        if not is_read:
            return front.launch(plan)
        with scratch_folder() as folder:
            os.environ[event_log.VARIABLE] = str(folder)
            code = front.launch(plan)
            if args.trace is not None:
                _write_trace(args.trace, folder)
            if args.predict is not None:
                from .predicted import lines  # as every start would wait for it

                for line in lines(args.predict, folder):
                    _print_line(line)
        return code


def _write_trace(target: str, folder: Path) -> None:
    from peerlane.checker.chrome_trace import write_trace  # as every start would wait for it
    from peerlane.checker.timeline import read_timeline

    with unwritable("--trace", target):
        timeline = read_timeline(folder)
        write_trace(Path(target), timeline)
    for line in timeline.clocks:
        _print_line(f"peerlane launch: --trace: {line}")


def _plan(args: argparse.Namespace, is_logged: bool) -> Plan:
    if args.hosts is None:
        set_up_program(args)
        return Plan(
            args.ranks,
            _words(args.form, *sys.argv),
            args.grace,
            json=_path(args.json),
            deadlocks=_path(args.hold_deadlocks),
        )
    hosts.check_python(args.python)
    are_all_local = all(map(hosts.is_local, args.hosts))
    command = [] if are_all_local else hosts.command_of(args.ssh)
    set_up_program(args)
    machines = hosts.Hosts(
        args.hosts,
        command,
        args.python,
        str(Path.cwd()),
        args.address,
        args.port,
        args.unreachable,
        {
            **environment.for_other_machines(os.environ, args.env),
            "PEERLANE_NODE": node_from(args).spec,  # a file would not be there
        },
        args.dialect or unasked(shadow_real=args.shadow_real),
        args.shadow_real,
        is_logged,
    )
    return Plan(
        machines.size,
        _words(args.form, *sys.argv),
        args.grace,
        machines,
        _path(args.json),
        _path(args.hold_deadlocks),
    )


def _path(file: str | None) -> str | None:
    return None if file is None else str(Path(file).absolute())


def _print_line(line: str) -> None:
    print(line, file=sys.stderr)


def _words(form: str | None, program: str, *more: str) -> list[str]:
    if form:
        return [form, program, *more]
    if is_native(program):
        return ["-m", "peerlane.cli.native", program, *more]
    return [
        f"./{program}" if program.startswith("-") else program,
        *more,
    ]  # python would take the script's name for an option


def count_of_ranks(text: str) -> int:
    """Return the number of processes that a word of the command line means."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_RANKS):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of processes; write -n N; valid are 1 to {MOST_RANKS}"
        )
    return int(text)


def _unreachable(text: str) -> float:
    if (seconds := _seconds(text)) < LEAST_UNREACHABLE:
        raise argparse.ArgumentTypeError(
            f"{text!r} is too short; valid are seconds from {LEAST_UNREACHABLE:g}: a machine may be busy"
        )
    return seconds


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; valid are seconds from 0 to 1e6")
    return seconds
