"""``peerlane topo --predict``: how long a collective would take on the real machine of a profile, size by size."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict

from peerlane.backends.virtual.node import NodeConfig
from peerlane.errors import BadArgument, InvalidValue
from peerlane.prediction.collectives import COLLECTIVES, CollectiveTime, predicted
from peerlane.prediction.machines import Machine, machine_of
from peerlane.support.sizes import format_size

from . import outputs
from .bench.plan import parse_sizes
from .parser import whole_number

_SIZES = "1MiB:1GiB"
_UNKNOWN = (
    "Not known: other traffic, the vendor's own choice of algorithm, clocks that are throttled, and all below 1 MiB "
    "but the latency that the library itself assumes."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of predictions."""
    group = parser.add_argument_group("prediction")
    group.add_argument(
        "--predict",
        metavar="COLLECTIVE",
        help=f"show how long a collective would take on the real machine: {', '.join(COLLECTIVES)}",
    )
    group.add_argument(
        "--ranks", type=whole_number, metavar="N", help="its ranks, up to 1,048,576 (default: the devices)"
    )
    group.add_argument(
        "--sizes",
        metavar="LIST",
        help=f"its bytes: 1M,64M, or 1M:1G for all powers between (default: {_SIZES})",
    )
    group.add_argument(
        "--algorithm",
        metavar="NAME",
        help="only this algorithm, such as ring or two-shot (default: the fastest of the vendor's)",
    )


def check_options(args: argparse.Namespace) -> None:
    """Refuse options that mean nothing without ``--predict``, or with it."""
    of_predictions = {"--ranks": args.ranks, "--sizes": args.sizes, "--algorithm": args.algorithm}
    lost = [name for name, value in of_predictions.items() if value is not None]
    if args.predict is None and lost:
        raise InvalidValue(
            f"{lost[0]} is for --predict COLLECTIVE; valid: {', '.join(COLLECTIVES)}",
            detail=BadArgument("--predict", None, choices=COLLECTIVES),
        )
    if args.predict is not None and args.dialect is not None:
        raise InvalidValue(
            "--dialect shows a vendor's table, and --predict has its own; give one of them",
            detail=BadArgument("--dialect", args.dialect),
        )


def run(args: argparse.Namespace, node: NodeConfig) -> int:
    """Print the times of a collective and return the exit code."""
    machine = machine_of(node.profile.name, "--profile")
    ranks = args.ranks if args.ranks is not None else min(node.devices, machine.devices)
    times = [
        predicted(machine, args.predict, ranks, nbytes, algorithm=args.algorithm)
        for nbytes in _sizes_of(args.sizes or _SIZES)
    ]
    outputs.show_result(
        args,
        lambda: _as_json(args.predict, machine, ranks, times),
        lambda: _draw(args, machine, ranks, times),
    )
    return 0


def _sizes_of(text: str) -> Iterator[int]:
    """Yield the sizes of ``1M,64M``, or all powers of 2 times the first one of ``1M:1G``."""
    first, colon, last = text.partition(":")
    if not colon:
        yield from parse_sizes(text)
        return
    begins, ends = parse_sizes(first), parse_sizes(last)
    if len(begins) > 1 or len(ends) > 1 or begins > ends:
        raise InvalidValue(
            f"--sizes: {text!r} is no range; valid are the smallest size, a colon and the largest, such as 1M:1G",
            detail=BadArgument("--sizes", text, rule="the smallest size, a colon and the largest"),
        )
    (size,), (most,) = begins, ends
    while size <= most:
        yield size
        size *= 2


def _draw(args: argparse.Namespace, machine: Machine, ranks: int, times: list[CollectiveTime]) -> None:
    console = outputs.results_console(args)
    machines = -(-ranks // machine.devices)
    where = f"{machines:,} machines" if machines > 1 else "one machine"
    outputs.note(
        console, f"{args.predict} of {ranks:,} ranks on {where} {machine.profile}, predicted", "bold"
    )
    numbers = ("size", "us", "algbw GB/s", "busbw GB/s")
    table = outputs.table(*numbers, "algorithm", "protocol", "bottleneck", numbers=numbers)
    for each in times:
        table.add_row(
            format_size(each.nbytes),
            f"{each.seconds * 1e6:,.1f}",
            f"{each.algorithm_bandwidth / 1e9:,.1f}",
            f"{each.bus_bandwidth / 1e9:,.1f}",
            *(each.algorithm, each.protocol, each.bottleneck),
        )
    console.print(table)
    outputs.note(console, _UNKNOWN)


def _as_json(name: str, machine: Machine, ranks: int, times: list[CollectiveTime]) -> dict[str, object]:
    return {
        "collective": name,
        "profile": machine.profile,
        "ranks": ranks,
        "times": [asdict(each) for each in times],
        "not_known": _UNKNOWN,
    }
