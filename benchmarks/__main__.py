"""``python -m benchmarks``: measure a subject, or compare this build with another one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import peerlane as pl
from peerlane.cli.bench import ALL, NODE, Measured, add_rounds_argument, check_options, measured, show
from peerlane.cli.outputs import (
    STDOUT,
    add_json_argument,
    add_output_arguments,
    check_file,
    check_outputs,
    results_console,
    show_progress,
    write_json,
)
from peerlane.errors import Error, InvalidValue

if TYPE_CHECKING:
    from peerlane.cli.bench.measure import Figure, Skip
    from peerlane.cli.bench.plan import Plan
    from peerlane.cli.bench.timings import Timing

SUBJECTS = (
    *("copy", "call", "c-call", "overlap", "submit", "batch", "share", "lookup", "scale", "start", "wait"),
    *("channel", "collective", "machines", "torch", "check"),
)
_SIZED = ("copy", "channel", "collective", "machines", "torch")
_PICTURED = ("copy", "channel", "collective", "machines")
_AGAINST, _GROWTH = "against", "growth"


def main(words: Sequence[str] | None = None) -> int:
    """Run a command; return 1 if this build is slower than the other, 2 for an error."""
    args = _parser().parse_args(words)
    try:
        return {_AGAINST: _against, _GROWTH: _grow}.get(args.what, _measure)(args)
    except Error as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("benchmarks: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    from benchmarks.builds import SUBJECTS as COMPARED

    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=sys.modules[__name__].__doc__)
    commands = parser.add_subparsers(dest="what", required=True, metavar="SUBJECT")
    for name in (*SUBJECTS, ALL):
        command = commands.add_parser(name, help=f"measure {name}")
        command.add_argument("--sizes", metavar="LIST", help="bytes, such as 64K,1M")
        add_rounds_argument(command)
        add_output_arguments(command, plot="what is measured over sizes")
    command = commands.add_parser(
        _GROWTH, help="how costs grow with the work; exit code 1 if one grows faster than n log n"
    )
    command.add_argument("works", nargs="*", metavar="WORK", help="parts of the works' names; default: all")
    add_rounds_argument(command)
    add_output_arguments(command, plot="each work's processor time over its objects")
    command = commands.add_parser(
        _AGAINST, help="compare this build with another; exit code 1 if this one is slower beyond the noise"
    )
    command.add_argument("python", help="the Python of an environment with the other build")
    command.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"some of {', '.join(COMPARED)}")
    add_rounds_argument(command)
    add_json_argument(command, then="to standard error")
    return parser


def _measure(args: argparse.Namespace) -> int:
    check_options(args, args.what, {"sizes": (*_SIZED, ALL), "plot": (*_PICTURED, ALL)})
    from benchmarks import report

    subjects = SUBJECTS if args.what == ALL else (args.what,)
    show(args, measured(args, lambda plan: _measured(subjects, plan)), report.draw, report.as_json)
    return 0


def _measured(subjects: Sequence[str], plan: Plan) -> Measured:
    # Imported here, so that a wrong command line does not wait for it.
    from benchmarks import (
        batches,
        c_calls,
        logged,
        lookups,
        overlaps,
        scale,
        shares,
        starts,
        submissions,
        torches,
        waits,
    )
    from benchmarks import channels as ends
    from benchmarks import copies as native
    from benchmarks import rival_processes as rivals
    from peerlane.cli.bench import calls, copies

    figures: list[Figure] = []
    timings: list[Timing] = []
    skips: list[Skip] = []
    devices = pl.enter_node(NODE)
    singles: dict[str, Callable[[], tuple[list[Figure], list[Skip]]]] = {
        "copy": lambda: native.measure(plan.sized(copies.DEFAULT_SIZES), devices),
        "call": lambda: calls.measure(plan, devices),
        "c-call": lambda: c_calls.measure(plan, NODE),
        "overlap": lambda: overlaps.measure(plan, devices),
        "submit": lambda: submissions.measure(plan, devices),
        "batch": lambda: batches.measure(plan, devices),
        "share": lambda: shares.measure(plan, devices, NODE),
        "lookup": lambda: lookups.measure(plan, NODE),
        "scale": lambda: scale.measure(plan),
        "start": lambda: starts.measure(plan),
        "wait": lambda: waits.measure(plan, devices),
        "channel": lambda: ends.measure(plan, NODE),
        "torch": lambda: torches.measure(plan.sized(torches.DEFAULT_SIZES)),
        "check": lambda: logged.measure(plan, devices, NODE),
    }
    try:
        for subject in subjects:
            if subject in singles:
                measured, left = singles[subject]()
                figures += measured
                skips += left
            if subject in rivals.SWEEPS:
                timed, left = rivals.measure(subject, plan, NODE)
                timings += timed
                skips += left
    finally:
        pl.leave_node()
    return figures, timings, skips


def _against(args: argparse.Namespace) -> int:
    from benchmarks import builds, report
    from peerlane.cli.bench import plan

    if args.json is not None and args.json != STDOUT:
        check_file("--json", args.json)
    if unknown := [name for name in args.subjects if name not in builds.SUBJECTS]:
        raise InvalidValue(f"against: no subject {unknown[0]!r}; valid are {', '.join(builds.SUBJECTS)}")
    rounds = plan.checked_rounds(args.rounds)
    with show_progress() as progress:
        task = progress.add_task("", total=None)
        compared, skips, folders = builds.measure(
            args.python,
            args.subjects or builds.SUBJECTS,
            rounds,
            lambda words: progress.update(task, description=words),
        )
    report.draw_comparisons(compared, skips, rounds, folders, results_console(args))
    if args.json is not None:
        write_json(args.json, report.comparisons_as_json(compared, skips, rounds, folders))
    return 1 if any(each.is_slower for each in compared) else 0


def _grow(args: argparse.Namespace) -> int:
    check_outputs(args)
    from benchmarks import growth
    from peerlane.cli.bench import plan

    unknown = [part for part in args.works if not any(part in name for name in growth.WORKS)]
    if unknown:
        raise InvalidValue(f"growth: no work of {', '.join(unknown)}; valid are {'; '.join(growth.WORKS)}")
    works = [name for name in growth.WORKS if not args.works or any(part in name for part in args.works)]
    rounds = plan.checked_rounds(args.rounds)
    with show_progress() as progress:
        task = progress.add_task("", total=None)
        words = plan.Plan(sizes=(), rounds=rounds, show=lambda text: progress.update(task, description=text))
        growths = growth.measure(words, works)
    growth.draw(growths, results_console(args))
    if args.json is not None:
        write_json(args.json, growth.as_json(growths))
    if args.plot is not None:
        growth.plot(growths, args.plot)
    return 0 if all(each.is_within for each in growths) else 1


if __name__ == "__main__":
    sys.exit(main())
