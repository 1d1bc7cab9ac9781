"""``peerlane bench``: the speed of this machine, as ratios to references timed in the same run."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from peerlane.cli.outputs import (
    add_output_arguments,
    check_outputs,
    note,
    results_console,
    show_progress,
    write_json,
)
from peerlane.errors import InvalidValue

if TYPE_CHECKING:
    from peerlane.cli.bench.measure import Figure, Skip
    from peerlane.cli.bench.plan import Plan
    from peerlane.cli.bench.timings import Timing

HELP = "measure copies, calls, channels and collectives"
DESCRIPTION = """\
Measures copies and calls, each as a ratio to ctypes.memmove in the same run,
with its spread. Channels, collectives and the transport between machines have
times and GB/s by size."""
EXAMPLES = (
    ("peerlane bench call", "the time of small calls, of ctypes.memmove's"),
    ("peerlane bench copy --sizes 64K,1M --plot copies.png", "copies, of ctypes.memmove's speed"),
    ("peerlane bench channel --sizes 8,4K,1M --plot speed.png", "speed-latency.png, speed-bandwidth.png"),
    ("peerlane bench call --json result.json", "all figures as JSON too"),
)

NODE = "devices=2,memory=1TiB,cache_bytes=0"

_SUBJECTS = ("copy", "call", "channel", "collective", "machines")
_SIZED = ("copy", "channel", "collective", "machines")
_ALL = "all"
_ROUNDS = 9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to ``parser``."""
    names = (*_SUBJECTS, _ALL)
    parser.add_argument("what", metavar="SUBJECT", choices=names, help=f"what to measure: {', '.join(names)}")
    parser.add_argument(
        "--sizes",
        metavar="LIST",
        help="bytes of copies, of channels' writes or of collectives, such as 64K,1M; each has a default list",
    )
    add_rounds_argument(parser)
    add_output_arguments(
        parser, plot="copies, or latency and bandwidth of channels and collectives, over their size"
    )


def add_rounds_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--rounds``."""
    parser.add_argument(
        "--rounds", type=int, default=_ROUNDS, metavar="N", help=f"rounds of each figure (default: {_ROUNDS})"
    )


def run(args: argparse.Namespace) -> int:
    """Measure and show the figures; return 0."""
    check_outputs(args)
    for flag, value in (("--sizes", args.sizes), ("--plot", args.plot)):
        if value is not None and args.what not in (*_SIZED, _ALL):
            raise InvalidValue(
                f"{flag} means nothing to `bench {args.what}`; valid with {', '.join((*_SIZED, _ALL))}"
            )
    # Imported here, so that other commands do not wait for it.
    from peerlane.cli.bench import plan, report

    with show_progress() as progress:
        task = progress.add_task("", total=None)
        figures, timings, skips = _measured(
            args.what,
            plan.Plan(
                sizes=plan.parse_sizes(args.sizes) if args.sizes is not None else (),
                rounds=plan.checked_rounds(args.rounds),
                say=lambda words: progress.update(task, description=words),
            ),
        )
    result = report.Result(figures, timings, skips, args.rounds)
    console = results_console(args)
    report.draw(result, console)
    if args.json is not None:
        write_json(args.json, report.as_json(result))
    if args.plot is not None:
        note(console, f"pictures: {', '.join(report.plot(result, args.plot))}")
    return 0


def _measured(what: str, plan: Plan) -> tuple[list[Figure], list[Timing], list[Skip]]:
    import peerlane as pl
    from peerlane.cli.bench import calls, copies, sweeps

    figures: list[Figure] = []
    timings: list[Timing] = []
    skips: list[Skip] = []
    devices = pl.enter_node(NODE)
    try:
        singles: dict[str, Callable[[], tuple[list[Figure], list[Skip]]]] = {
            "copy": lambda: copies.measure(plan.sized(copies.DEFAULT_SIZES), devices),
            "call": lambda: calls.measure(plan, devices),
        }
        swept: dict[str, Callable[[], sweeps.Sweep]] = {
            "channel": lambda: sweeps.channel(plan.sized(sweeps.CHANNEL_SIZES), NODE),
            "collective": lambda: sweeps.collective(plan.sized(sweeps.COLLECTIVE_SIZES), NODE),
            "machines": lambda: sweeps.machines(plan.sized(sweeps.MACHINE_SIZES), NODE),
        }
        for subject in _SUBJECTS if what == _ALL else (what,):
            if subject in singles:
                found, left = singles[subject]()
                figures += found
            else:
                timed, left = swept[subject]()
                timings += timed
            skips += left
    finally:
        pl.leave_node()
    return figures, timings, skips
