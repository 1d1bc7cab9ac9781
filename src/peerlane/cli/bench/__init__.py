"""``peerlane bench``: the speed of this machine, as ratios to references timed in the same run."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from peerlane.cli.outputs import (
    add_output_arguments,
    check_outputs,
    note,
    results_console,
    show_steps,
    write_json,
)
from peerlane.cli.parser import whole_number
from peerlane.errors import InvalidValue

if TYPE_CHECKING:
    from rich.console import Console

    from peerlane.cli.bench.measure import Figure, Skip
    from peerlane.cli.bench.plan import Plan
    from peerlane.cli.bench.report import Result
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

Measured: TypeAlias = "tuple[list[Figure], list[Timing], list[Skip]]"

NODE = "devices=2,memory=1TiB,cache_bytes=0"

_SUBJECTS = {
    "copy": "copies within a device, between devices and with the host",
    "call": "small calls",
    "channel": "writes and notifies between two processes",
    "collective": "collectives of several processes",
    "machines": "the transport between machines, over the loopback",
}
_SIZED = ("copy", "channel", "collective", "machines")
ALL = "all"
_ROUNDS = 9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to ``parser``."""
    names = (*_SUBJECTS, ALL)
    meanings = "; ".join(f"{name}: {what}" for name, what in _SUBJECTS.items())
    parser.add_argument(
        "what", metavar="|".join(names), choices=names, help=f"{meanings}; {ALL}: all of them"
    )
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
        "--rounds",
        type=whole_number,
        default=_ROUNDS,
        metavar="N",
        help=f"rounds of each figure (default: {_ROUNDS})",
    )


def run(args: argparse.Namespace) -> int:
    """Measure and show the figures; return 0."""
    check_options(args, f"bench {args.what}", {"sizes": (*_SIZED, ALL), "plot": (*_SIZED, ALL)})
    # Imported here, so that other commands do not wait for it.
    from peerlane.cli.bench import report

    result = measured(args, lambda plan: _measured(args.what, plan))
    show(args, result, report.draw, report.as_json)
    return 0


def check_options(args: argparse.Namespace, called: str, subjects: Mapping[str, Sequence[str]]) -> None:
    """Check the files of the results, and that each option is one of ``subjects`` with the measured subject."""
    check_outputs(args)
    for option, valid in subjects.items():
        if getattr(args, option) is not None and args.what not in valid:
            raise InvalidValue(f"--{option} means nothing to `{called}`; valid with {', '.join(valid)}")


def measured(args: argparse.Namespace, measure: Callable[[Plan], Measured]) -> Result:
    """Measure by the plan of the command line, and show the present step."""
    from peerlane.cli.bench import plan, report

    with show_steps() as show_step:
        figures, timings, skips = measure(
            plan.Plan(
                sizes=plan.parse_sizes(args.sizes) if args.sizes is not None else (),
                rounds=plan.checked_rounds(args.rounds),
                show=show_step,
            )
        )
    return report.Result(figures, timings, skips, args.rounds)


def show(
    args: argparse.Namespace,
    result: Result,
    draw: Callable[[Result, Console], None],
    as_json: Callable[[Result], Mapping[str, object]],
) -> None:
    """Print the result, and write the files that the command line names."""
    from peerlane.cli.bench import report

    console = results_console(args)
    draw(result, console)
    if args.json is not None:
        write_json(args.json, as_json(result))
    if args.plot is not None:
        note(console, f"pictures: {', '.join(report.plot(result, args.plot))}")


def _measured(what: str, plan: Plan) -> Measured:
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
        for subject in _SUBJECTS if what == ALL else (what,):
            if subject in singles:
                singly, left = singles[subject]()
                figures += singly
            else:
                timed, left = swept[subject]()
                timings += timed
            skips += left
    finally:
        pl.leave_node()
    return figures, timings, skips
