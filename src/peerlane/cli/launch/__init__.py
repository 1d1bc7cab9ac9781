"""``peerlane launch``: N processes of one program on one virtual node.

Launch itself is two processes.  The *front*, which the user started, passes signals on.  The *supervisor*, its child,
starts the ranks and prefixes their output.  Each adopts the orphans below it, and each ends all other processes when
the other one dies, so no process stays behind.
"""

from __future__ import annotations

import argparse
import math
import sys

from peerlane.cli.node_options import node_from
from peerlane.cli.program import add_program_arguments, set_up_program
from peerlane.cli.stdout import BrokenOutput
from peerlane.diagnostics import event_log

from . import front

HELP = "run N processes of a program on one virtual node"

MOST_RANKS = 4096
GRACE_SECONDS = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that stand before the program."""
    parser.add_argument(
        "-n", dest="ranks", type=_count, required=True, metavar="N", help=f"processes, 1 to {MOST_RANKS}"
    )
    parser.add_argument(
        "--grace",
        type=_seconds,
        default=GRACE_SECONDS,
        metavar="SECONDS",
        help="time between SIGTERM and SIGKILL when processes have to end (default: %(default)g)",
    )
    add_program_arguments(parser)
    parser.usage = "%(prog)s -n N [options] (SCRIPT | -m MODULE | -c CODE) [ARGS ...]"


def run(args: argparse.Namespace) -> int:
    """Set the node and the dialects, start the ranks, and return the exit code of the one that failed."""
    if sys.stdout is None:
        raise BrokenOutput("it is closed")
    event_log.discard()  # the ranks have theirs
    node_from(args)  # ranks share memory, which only virtual devices do
    set_up_program(args)
    return front.launch(args.ranks, _words(args.form, *sys.argv), args.grace)


def _words(form: str | None, program: str, *more: str) -> list[str]:
    if form:
        return [form, program, *more]
    return [
        f"./{program}" if program.startswith("-") else program,
        *more,
    ]  # python would take the script's name for an option


def _count(text: str) -> int:
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
