"""``peerlane bench``: ratios to references timed in the same run."""

from __future__ import annotations

import argparse
import importlib.util
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
from peerlane.errors import InvalidValue, Unsupported

if TYPE_CHECKING:
    from rich.console import Console

    from peerlane.cli.bench.measure import Figure, Skip
    from peerlane.cli.bench.plan import Plan
    from peerlane.cli.bench.timings import Timing

HELP = "measure against references of the same run"
DESCRIPTION = """\
Measures copies, calls, streams, sharing, look-ups, ranks, torch, machines
and checks. Each figure is a ratio to a reference that is timed in the same run,
with its spread. Channels and collectives have times and GB/s by size, beside
those of the libraries that are installed."""
EXAMPLES = (
    ("peerlane bench call", "the time of small calls, of ctypes.memmove's"),
    ("peerlane bench copy --sizes 64K,1M --with numpy", "copies, beside NumPy's"),
    ("peerlane bench channel --sizes 8,4K,1M --plot speed.png", "speed-latency.png, speed-bandwidth.png"),
    ("peerlane bench call --json result.json", "all figures as JSON too"),
)

NODE = "devices=2,memory=1TiB,cache_bytes=0"

_SUBJECTS = (
    "copy",
    "call",
    "overlap",
    "submit",
    "batch",
    "share",
    "lookup",
    "scale",
    "start",
    "wait",
    "channel",
    "collective",
    "torch",
    "machines",
    "check",
)
_ALL = "all"
_ROUNDS = 9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to ``parser``."""
    parser.add_argument(
        "what",
        nargs="?",
        metavar="SUBJECT",
        choices=(*_SUBJECTS, _ALL),
        help=f"what to measure: {', '.join((*_SUBJECTS, _ALL))}; with --against: all by default",
    )
    parser.add_argument(
        "--against",
        metavar="PYTHON",
        help="compare this build with the peerlane that another Python imports; exit code 1 if this one is slower by "
        "more than a build differs from itself",
    )
    parser.add_argument(
        "--sizes",
        metavar="LIST",
        help="bytes of copies, of channels' writes or of collectives, such as 64K,1M; each has a default list",
    )
    parser.add_argument(
        "--with",
        dest="rivals",
        metavar="LIST",
        help="rivals to measure too: numpy, ctypes, memcpy, torch; those not installed are skipped by name",
    )
    parser.add_argument(
        "--c",
        action="store_true",
        help="with `call`: calls of the C libraries from a program of C, compiled for it",
    )
    parser.add_argument(
        "--rounds", type=int, default=_ROUNDS, metavar="N", help=f"rounds of each figure (default: {_ROUNDS})"
    )
    add_output_arguments(
        parser, plot="copies, or latency and bandwidth of channels and collectives, over their size"
    )


def run(args: argparse.Namespace) -> int:
    """Measure and show the figures; return 0 even if a bar is missed, and 1 if this build is slower."""
    check_outputs(args)
    _check_combination(args)
    if args.against is not None:
        return _run_against(args, results_console(args))
    _check_references()
    # Imported here, so that other commands do not wait for it.
    from peerlane.cli.bench import plan, report, rivals

    names, skips = rivals.installed(rivals.parse(args.rivals) if args.rivals is not None else ())
    with show_progress() as progress:
        task = progress.add_task("", total=None)
        figures, timings, more = _measured(
            args.what,
            plan.Plan(
                sizes=plan.parse_sizes(args.sizes) if args.sizes is not None else (),
                rivals=tuple(names),
                rounds=plan.checked_rounds(args.rounds),
                say=lambda words: progress.update(task, description=words),
            ),
            is_c=args.c,
        )
    result = report.Result(figures, timings, skips + more, args.rounds)
    console = results_console(args)
    report.draw(result, console)
    if args.json is not None:
        write_json(args.json, report.as_json(result))
    if args.plot is not None:
        note(console, f"pictures: {', '.join(report.plot(result, args.plot))}")
    return 0


def _run_against(args: argparse.Namespace, console: Console) -> int:
    from peerlane.cli.bench import builds, plan, report

    subjects = builds.SUBJECTS if args.what in (None, _ALL) else (args.what,)
    rounds = plan.checked_rounds(args.rounds)
    with show_progress() as progress:
        task = progress.add_task("", total=None)
        found, skips, where = builds.measure(
            args.against, subjects, rounds, lambda words: progress.update(task, description=words)
        )
    report.draw_comparisons(found, skips, rounds, where, console)
    if args.json is not None:
        write_json(args.json, report.comparisons_as_json(found, skips, rounds, where))
    return 1 if any(each.is_slower for each in found) else 0


def _measured(what: str, plan: Plan, *, is_c: bool) -> tuple[list[Figure], list[Timing], list[Skip]]:
    import peerlane as pl
    from peerlane.cli.bench import (
        batches,
        c_calls,
        calls,
        channels,
        collectives,
        copies,
        logged,
        lookups,
        machines,
        overlaps,
        scale,
        shares,
        starts,
        submissions,
        torches,
        waits,
    )

    figures: list[Figure] = []
    timings: list[Timing] = []
    skips: list[Skip] = []
    devices = pl.enter_node(NODE)
    try:
        measures: dict[str, Callable[[], tuple[list[Figure], list[Skip]]]] = {
            "copy": lambda: copies.measure(plan.sized(copies.DEFAULT_SIZES), devices),
            "call": lambda: c_calls.measure(plan, NODE) if is_c else calls.measure(plan, devices),
            "overlap": lambda: overlaps.measure(plan, devices),
            "submit": lambda: submissions.measure(plan, devices),
            "batch": lambda: batches.measure(plan, devices),
            "share": lambda: shares.measure(plan, devices, NODE),
            "lookup": lambda: lookups.measure(plan, NODE),
            "scale": lambda: scale.measure(plan),
            "start": lambda: starts.measure(plan),
            "wait": lambda: waits.measure(plan, devices),
            "torch": lambda: torches.measure(plan.sized(torches.DEFAULT_SIZES)),
            "machines": lambda: machines.measure(plan),
            "check": lambda: logged.measure(plan, devices, NODE),
        }
        sweeps: dict[str, Callable[[], tuple[list[Figure], list[Timing], list[Skip]]]] = {
            "channel": lambda: channels.measure(plan.sized(channels.DEFAULT_SIZES), devices, NODE),
            "collective": lambda: collectives.measure(plan.sized(collectives.DEFAULT_SIZES), devices, NODE),
        }
        for subject in _SUBJECTS if what == _ALL else (what,):
            if subject in sweeps:
                done, timed, left = sweeps[subject]()
                timings += timed
            else:
                done, left = measures[subject]()
            figures += done
            skips += left
    finally:
        pl.leave_node()
    return figures, timings, skips


def _check_references() -> None:
    """Refuse to measure if the extension module with the native references was not built."""
    if importlib.util.find_spec("peerlane._bench") is None:
        raise Unsupported(
            "the references timed in C are an extension module, peerlane._bench, and this build of peerlane was made "
            "without it (PEERLANE_BENCH=OFF): install peerlane from source, by "
            "pip install --no-binary peerlane 'peerlane[bench]'"
        )


def _check_combination(args: argparse.Namespace) -> None:
    """Refuse options that would have no effect, and a missing subject."""
    from peerlane.cli.bench.builds import SUBJECTS

    if args.what is None and args.against is None:
        raise InvalidValue(f"say what to measure: {', '.join([*_SUBJECTS, _ALL])}")
    useful = {
        "--sizes": (args.sizes, ("copy", "channel", "collective", "torch", _ALL)),
        "--plot": (args.plot, ("copy", "channel", "collective", _ALL)),
        "--with": (args.rivals, ("copy", "call", _ALL)),
        "--c": (args.c or None, ("call",)),
        "--against": (args.against, (None, *SUBJECTS, _ALL)),
    }
    for flag, (given, subjects) in useful.items():
        if given is not None and args.what not in subjects:
            raise InvalidValue(
                f"{flag} means nothing to `bench {args.what}`; valid with {', '.join(filter(None, subjects))}"
            )
        if given is not None and args.against is not None and flag != "--against":
            raise InvalidValue(
                f"{flag} means nothing beside --against, which has sizes and contenders of its own"
            )
