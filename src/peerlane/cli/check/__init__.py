"""``peerlane check``: run a program, and say which two of its lines are not ordered.

The program runs as under ``peerlane run``, or with ``-n`` or ``--hosts`` as under ``peerlane launch``, in a process
of its own.  Each of its processes writes an event log to a folder that goes away.  This process reads the logs while
the program runs, and with ``--hosts`` at the end, when those of the other machines have come.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from peerlane.checker.chrome_trace import write_trace
from peerlane.checker.timeline import read_timeline
from peerlane.cli import faults, schedules
from peerlane.cli.launch import (
    add_grace_argument,
    add_host_arguments,
    add_rank_arguments,
    count_of,
    words_of_ranks,
)
from peerlane.cli.node_options import node_from
from peerlane.cli.outputs import check_files, result_file, unwritable
from peerlane.cli.program import add_program_arguments, set_up_node
from peerlane.errors import InvalidValue

from .outcome import Outcome, Wanted
from .report import print_line, show, show_schedule, write_html, write_json

HELP = "name the accesses to memory that nothing orders"
DESCRIPTION = """\
Runs a program once and names each pair of lines that nothing orders, whether
or not the bytes came out right, also across processes; lost notifies, use
after free, and reads of bytes that nobody wrote. Exits with 3 if a program
that ended with 0 has a certain finding, or with --strict any finding."""
EXAMPLES = (
    ("peerlane check prog.py", "a single process"),
    ("peerlane check -n 2 --html page.html ranks.py", "two ranks; findings and lanes on a page"),
    ("peerlane check -n 2 --schedules 5 ranks.py", "up to five schedules; prints what repeats a failure"),
)

MOST_RUNS = 1_000_000
EXIT_FINDING = 3  #: the exit code of a program that ended with 0 and has a finding that counts
UNWRITTEN = 2  #: that of a right program, if a file could not be written


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that stand before the program."""
    add_rank_arguments(parser)
    add_grace_argument(parser)
    for flag, text in (
        ("--json", "write the findings as JSON"),
        ("--html", "write a page with the findings and a timeline; it needs no network"),
        ("--trace", "write a timeline of all processes for Perfetto"),
    ):
        parser.add_argument(flag, type=result_file, metavar="FILE", help=text)
    parser.add_argument(
        "--schedules",
        type=_count_of_runs,
        metavar="K",
        help="run it under up to K schedules, and stop at the first one that fails",
    )
    parser.add_argument("--strict", action="store_true", help="exit with 3 for uncertain findings, too")
    add_host_arguments(parser)
    add_program_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the program, print the findings, and return the program's exit code, or 3 for a finding that counts."""
    check_files({f"--{flag}": getattr(args, flag) for flag in ("json", "html", "trace")})
    if count_of(args) is not None:
        node_from(args)  # ranks share memory, which only virtual devices do
    set_up_node(args)
    wanted = Wanted(
        _command(args),
        are_ranks=count_of(args) is not None,
        keep=args.html is not None or args.trace is not None,
        comes_last=args.hosts is not None,
    )
    if args.schedules is not None:
        return _run_many(args, wanted)
    with _ran(args, wanted, {}) as outcome:
        return _report(args, outcome)


@contextlib.contextmanager
def _ran(args: argparse.Namespace, wanted: Wanted, variables: Mapping[str, str]) -> Iterator[Outcome]:
    """Run the program once, with its faults."""
    with faults.reported(args.fault, count_of(args) or 1) as report:
        if report is None:
            with wanted.run(variables) as outcome:
                yield outcome
            return
        for line in report.drawn:
            print_line(line, sys.stderr)
        with wanted.run({**report.variables, **variables}) as outcome:
            yield replace(outcome, faults=tuple(report.fates))


def _run_many(args: argparse.Namespace, wanted: Wanted) -> int:
    """Run the program under many schedules; report the run that failed, or else the last one."""
    with contextlib.ExitStack() as kept:
        chosen: Outcome | None = None
        numbers = itertools.count(1)

        def fails(variables: Mapping[str, str]) -> bool:
            nonlocal chosen
            if sys.stderr is not None and sys.stderr.isatty():
                print_line(f"run {next(numbers):,} of at most {args.schedules:,}", sys.stderr)
            with contextlib.ExitStack() as run:
                outcome = run.enter_context(_ran(args, wanted, variables))
                if outcome.is_interrupted:
                    raise KeyboardInterrupt
                failed = _exit_code(outcome, is_strict=args.strict) != 0
                if failed or chosen is None or not _exit_code(chosen, is_strict=args.strict):
                    kept.close()
                    kept.push(run.pop_all())
                    chosen = outcome
            return failed

        failing = schedules.search(fails, args.schedules)
        assert chosen is not None
        return _report(args, chosen, failing)


def _report(args: argparse.Namespace, outcome: Outcome, failing: schedules.Failing | None = None) -> int:
    code = _exit_code(outcome, is_strict=args.strict)
    show(outcome, sys.stderr, sources=_sources(args), runs=args.schedules or 1)
    for fault in outcome.faults:
        if fault.pid is None:
            print_line(str(fault), sys.stderr)
    if failing is not None:
        show_schedule(failing, sys.stderr, command=_shown(args))
    files = {
        "json": lambda path: write_json(path, outcome, code, failing),
        "html": lambda path: write_html(path, outcome, command=_shown(args), sources=_sources(args)),
        "trace": lambda path: write_trace(path, read_timeline(outcome.logs)),
    }
    is_whole = True
    for name, write in files.items():
        if (target := getattr(args, name)) is not None:
            is_whole &= _is_written(f"--{name}", target, write)
    return code or (0 if is_whole else UNWRITTEN)


def _is_written(flag: str, target: str, write: Callable[[Path], None]) -> bool:
    """Write a file and print its name; if that fails, print why: findings count for more than a full disk."""
    try:
        with unwritable(flag, target):
            write(Path(target))
    except InvalidValue as error:
        print_line(str(error), sys.stderr)
        return False
    print_line(f"wrote {target}", sys.stderr)
    return True


def _shown(args: argparse.Namespace) -> str:
    """Return the command line without what says where results go and how often it runs."""
    words = ["peerlane", "check", *words_of_ranks(args)]
    for flag in ("node", "devices", "switch", "profile"):
        if getattr(args, flag) is not None:
            words += [f"--{flag}", str(getattr(args, flag))]
    for flag in ("dialect", "fault"):
        for value in getattr(args, flag) or ():
            words += [f"--{flag}", value]
    words += ["--shadow-real"] * args.shadow_real
    words += _name_of_torch(args)
    words += ["--strict"] * args.strict
    return shlex.join([*words, *filter(None, [args.form]), *args.program])


def _name_of_torch(args: argparse.Namespace) -> list[str]:
    return [f"--torch-{args.torch_device}"] if args.torch_device else []


def _count_of_runs(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_RUNS):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of runs; valid are 1 to {MOST_RUNS}")
    return int(text)


def _exit_code(outcome: Outcome, *, is_strict: bool) -> int:
    if outcome.code:
        return outcome.code
    return EXIT_FINDING if any(is_strict or each["certain"] for each in outcome.report["findings"]) else 0


def _command(args: argparse.Namespace) -> list[str]:
    """Return the words that follow ``python`` and run the program without a checker."""
    words = ["-m", "peerlane", "run"]
    if count_of(args) is not None:
        words = ["-m", "peerlane", "launch", *words_of_ranks(args), "--grace", str(args.grace)]
    for name in args.dialect or ():
        words += ["--dialect", name]
    if args.shadow_real:
        words.append("--shadow-real")
    words += _name_of_torch(args)
    program = args.program[1:] if args.program[0] == "--" else args.program
    return [*words, *filter(None, [args.form]), "--", *program]


def _sources(args: argparse.Namespace) -> dict[str, str]:
    return {"<string>": args.program[0]} if args.form == "-c" else {}
