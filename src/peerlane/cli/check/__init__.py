"""``peerlane check``: run a program, and say which two of its lines are not ordered.

The program runs as under ``peerlane run``, or with ``-n`` as under ``peerlane launch``, in a process of its own.
Each of its processes writes an event log to a folder that goes away; this process reads the logs while the program
runs.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from peerlane.checker.chrome_trace import write_trace
from peerlane.checker.timeline import read_timeline
from peerlane.cli.launch import add_grace_argument, count_of_ranks
from peerlane.cli.node_options import node_from
from peerlane.cli.outputs import check_file, unwritable
from peerlane.cli.program import add_program_arguments, set_up_node

from .outcome import Outcome, Wanted
from .report import show, write_html, write_json

HELP = "run a program, and name the accesses to memory that nothing orders"

FOUND = 3  #: the exit code of a program that ended with 0, and of which there is a certain finding


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that stand before the program."""
    parser.add_argument(
        "-n", dest="ranks", type=count_of_ranks, metavar="N", help="run N processes, as peerlane launch does"
    )
    add_grace_argument(parser)
    parser.add_argument("--json", metavar="FILE", help="write the findings as JSON")
    parser.add_argument(
        "--html", metavar="FILE", help="write a page with the findings and a timeline; it needs no network"
    )
    parser.add_argument("--trace", metavar="FILE", help="write a timeline of all processes for Perfetto")
    add_program_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the program, print the findings, and return the program's exit code, or 3 for a certain finding."""
    for flag in ("json", "html", "trace"):
        check_file(f"--{flag}", getattr(args, flag))
    if args.ranks is not None:
        node_from(args)  # ranks share memory, which only virtual devices do
    set_up_node(args)
    wanted = Wanted(_command(args), keep=args.html is not None or args.trace is not None)
    with wanted.run() as outcome:
        code = _exit_code(outcome)
        show(outcome, sys.stderr, sources=_sources(args))
        _write_files(args, outcome, code)
    return code


def _write_files(args: argparse.Namespace, outcome: Outcome, code: int) -> None:
    if args.json is not None:
        with unwritable("--json", args.json):
            write_json(Path(args.json), outcome.report, code)
    if args.html is not None:
        with unwritable("--html", args.html):
            write_html(Path(args.html), outcome, command=_shown(args), sources=_sources(args))
    if args.trace is not None:
        with unwritable("--trace", args.trace):
            write_trace(Path(args.trace), read_timeline(outcome.logs))


def _shown(args: argparse.Namespace) -> str:
    ranks = [] if args.ranks is None else ["-n", str(args.ranks)]
    return shlex.join(["peerlane", "check", *ranks, *filter(None, [args.form]), *args.program])


def _exit_code(outcome: Outcome) -> int:
    if outcome.code:
        return outcome.code
    return FOUND if any(each["certain"] for each in outcome.report["findings"]) else 0


def _command(args: argparse.Namespace) -> list[str]:
    """Return the words that follow ``python`` and run the program without a checker."""
    words = ["-m", "peerlane", "run"]
    if args.ranks is not None:
        words = ["-m", "peerlane", "launch", "-n", str(args.ranks), "--grace", str(args.grace)]
    for name in args.dialect or ():
        words += ["--dialect", name]
    if args.shadow_real:
        words.append("--shadow-real")
    program = args.program[1:] if args.program[0] == "--" else args.program
    return [*words, *filter(None, [args.form]), "--", *program]


def _sources(args: argparse.Namespace) -> dict[str, str]:
    return {"<string>": args.program[0]} if args.form == "-c" else {}
