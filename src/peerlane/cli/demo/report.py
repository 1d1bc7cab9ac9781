"""The demo's result as a table and as JSON."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from peerlane.cli import machine
from peerlane.cli.demo.job import ROUNDS, Arrival, Result
from peerlane.cli.outputs import printable
from peerlane.cli.weights_header import clipped

PLOT_TITLE = "the weights between all pairs of devices"


def draw(result: Result, console: Console) -> None:
    """Print the table, why a route is staged, and every tensor that did not arrive whole."""
    total = result.arrivals[0].nbytes
    console.print(
        Text(f"{printable(Path(result.source).name)}: {len(result.tensors):,} tensors, {total:,} bytes"),
        soft_wrap=True,
    )
    console.print(Text(result.node.describe()), soft_wrap=True)
    table = Table()
    for heading in ("device", "route", "bytes", "seconds", "GB/s", "x memcpy", "verified"):
        table.add_column(
            heading, justify="right" if heading in ("bytes", "seconds", "GB/s", "x memcpy") else "left"
        )
    for arrival in result.arrivals:
        table.add_row(*_cells(arrival, len(result.tensors)))
    console.print(table)
    console.print(
        f"x memcpy: speed relative to one thread's memcpy of the same sizes, median of {ROUNDS} rounds",
        soft_wrap=True,
    )
    for arrival in result.arrivals:
        if arrival.route.kind == "staged":
            console.print(
                Text(f"{arrival.device}: staged through the host: {arrival.route.reason}"), soft_wrap=True
            )
    for arrival in result.arrivals:
        for name in arrival.mismatched:
            line = f"{arrival.device}: tensor {clipped(name)} differs from the file"
            console.print(Text(line, style="bold red"), soft_wrap=True)


def as_json(result: Result) -> dict[str, object]:
    """Return the whole result, digests included, as plain JSON values."""
    return {
        "weights": {"file": Path(result.source).name, "bytes": result.arrivals[0].nbytes},
        "node": result.node.as_dict(),
        "rounds": ROUNDS,
        "verified": result.is_verified,
        "devices": [
            {
                "device": arrival.device,
                "route": arrival.route.kind,
                "reason": arrival.route.reason,
                "bytes": arrival.nbytes,
                "seconds": arrival.seconds,
                "gb_per_s": arrival.rate,
                "ratio": arrival.ratio,
                "verified": not arrival.mismatched,
                "mismatched": list(arrival.mismatched),
            }
            for arrival in result.arrivals
        ],
        "matrix": {"devices": result.names, "gb_per_s": result.matrix},
        "tensors": [
            {
                "name": tensor.name,
                "dtype": tensor.dtype,
                "shape": list(tensor.shape),
                "bytes": tensor.nbytes,
                "sha256": digest,
            }
            for tensor, digest in zip(result.tensors, result.digests, strict=True)
        ],
        "environment": machine.environment(),
    }


def _cells(arrival: Arrival, tensors: int) -> list[str]:
    whole = tensors - len(arrival.mismatched)
    return [
        arrival.device,
        "pinned" if arrival.ratio is None else arrival.route.kind,
        f"{arrival.nbytes:,}",
        f"{arrival.seconds:.4f}",
        f"{arrival.rate:.1f}",
        "-" if arrival.ratio is None else f"{arrival.ratio:.2f}",
        f"{'NO' if arrival.mismatched else 'yes'}, {whole:,}/{tensors:,}",
    ]
