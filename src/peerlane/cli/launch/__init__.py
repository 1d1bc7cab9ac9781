"""``peerlane launch``: N processes of one program on one virtual node.

Launch itself is two processes.  The *front*, which the user started, passes signals on.  The *supervisor*, its child,
starts the ranks and prefixes their output.  Each adopts the orphans below it, and each ends all other processes when
the other one dies, so no process stays behind.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from pathlib import Path

from peerlane.checker.chrome_trace import write_trace
from peerlane.checker.timeline import read_timeline
from peerlane.cli.faults import counted
from peerlane.cli.node_options import node_from
from peerlane.cli.outputs import check_file, unwritable
from peerlane.cli.program import add_program_arguments, set_up_program
from peerlane.cli.schedules import told
from peerlane.cli.stdout import BrokenOutput
from peerlane.diagnostics import event_log

from . import front

HELP = "run N processes of a program on one virtual node"

MOST_RANKS = 4096
GRACE_SECONDS = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that stand before the program."""
    parser.add_argument(
        "-n",
        dest="ranks",
        type=count_of_ranks,
        required=True,
        metavar="N",
        help=f"processes, 1 to {MOST_RANKS}",
    )
    add_grace_argument(parser)
    parser.add_argument("--trace", metavar="FILE", help="write a timeline of all processes for Perfetto")
    add_program_arguments(parser)
    parser.usage = "%(prog)s -n N [options] (SCRIPT | -m MODULE | -c CODE) [ARGS ...]"


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
    check_file("--trace", args.trace)
    event_log.discard()  # the ranks have theirs
    node_from(args)  # ranks share memory, which only virtual devices do
    with counted(args, args.ranks, "peerlane launch", _say), told("peerlane launch", _say):
        set_up_program(args)
        words = _words(args.form, *sys.argv)
        if args.trace is None:
            return front.launch(args.ranks, words, args.grace)
        with tempfile.TemporaryDirectory(prefix="peerlane-trace-", ignore_cleanup_errors=True) as folder:
            os.environ[event_log.VARIABLE] = folder
            code = front.launch(args.ranks, words, args.grace)
            with unwritable("--trace", args.trace):
                write_trace(Path(args.trace), read_timeline(Path(folder)))
        return code


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _words(form: str | None, program: str, *more: str) -> list[str]:
    if form:
        return [form, program, *more]
    return [
        f"./{program}" if program.startswith("-") else program,
        *more,
    ]  # python would take the script's name for an option


def count_of_ranks(text: str) -> int:
    """Return the number of processes that a word of the command line means."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_RANKS):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of processes; valid are 1 to {MOST_RANKS}"
        )
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; valid are seconds from 0 to 1e6")
    return seconds
