"""The demo's result as a table and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from peerlane.cli import machine
from peerlane.cli.demo.concurrent import ONE_BY_ONE, Way
from peerlane.cli.demo.job import ROUNDS, Arrival, Result
from peerlane.cli.demo.ranks import Delivery
from peerlane.cli.demo.workers import Sharing
from peerlane.cli.outputs import note, printable, table
from peerlane.cli.weights_header import clipped
from peerlane.support.sizes import UNITS

_WAYS = "from pinned memory to all devices"

_NUMBERS = (
    *("bytes", "seconds", "GB/s", "x memcpy", "streams", f"x {ONE_BY_ONE}", "ranks"),
    *("opened in", "resident", "its share", "private"),
)


def draw(result: Result, console: Console) -> None:
    """Print the tables, the reason of each staged route, and each tensor that did not arrive whole."""
    total = result.arrivals[0].nbytes
    note(console, f"{printable(Path(result.source).name)}: {len(result.tensors):,} tensors, {total:,} bytes")
    note(console, result.node.describe())
    console.print()
    shown = _table("device", "route", "bytes", "seconds", "GB/s", "x memcpy", "verified")
    for arrival in result.arrivals:
        shown.add_row(*_cells(arrival, len(result.tensors)))
    console.print(shown)
    note(
        console,
        f"x memcpy: speed relative to one thread's memcpy of the same sizes, median of {ROUNDS} rounds",
    )
    console.print()
    shown = _table("way", "streams", "bytes", "seconds", "GB/s", f"x {ONE_BY_ONE}", "verified")
    for way in result.ways:
        shown.add_row(*_cells_of_way(way, len(result.tensors)))
    console.print(shown)
    note(
        console,
        f"{_WAYS}: without streams; on streams, a copy of each tensor; on streams, a copy list for each device",
    )
    if result.sharing is not None:
        _draw_sharing(result.sharing, len(result.tensors), console)
        _draw_deliveries(result.deliveries, len(result.tensors), console)
    for arrival in result.arrivals:
        if arrival.route.kind == "staged":
            note(console, f"{arrival.device}: staged through the host: {arrival.route.reason}")
    console.print()
    for where, name in _mismatches(result):
        line = f"{where}: tensor {clipped(name)} differs from the file"
        note(console, line, style="bold red")
    if result.timeline is not None and result.timeline.lost:
        note(console, f"the timeline lacks its first {result.timeline.lost:,} operations")
    note(console, verdict(result), style="bold green" if result.is_verified else "bold red")


def as_json(result: Result) -> dict[str, object]:
    """Return the whole result, digests included, as plain JSON values."""
    return {
        "weights": {"file": Path(result.source).name, "bytes": result.arrivals[0].nbytes},
        "node": result.node.as_dict(),
        "rounds": ROUNDS,
        "verified": result.is_verified,
        "verdict": verdict(result),
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
        "ways": [
            {
                "way": way.name,
                "streams": way.streams,
                "bytes": way.nbytes,
                "seconds": way.seconds,
                "gb_per_s": way.rate,
                "ratio": way.ratio,
                "verified": None if way.mismatched is None else not any(way.mismatched.values()),
                "mismatched": way.mismatched,
            }
            for way in result.ways
        ],
        "sharing": None if result.sharing is None else _sharing_as_json(result.sharing),
        "deliveries": [_delivery_as_json(each) for each in result.deliveries],
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


def verdict(result: Result) -> str:
    """Return one sentence: what passed and how much, or what did not."""
    total, tensors = result.arrivals[0].nbytes, len(result.tensors)
    wrong = [*_mismatches(result)]
    if wrong:
        where, name = wrong[0]
        return f"NOT verified: wrong bytes {len(wrong):,} times, first in tensor {clipped(name)} of {where}"
    if result.sharing is not None and not result.sharing.is_one_copy:
        return "NOT verified: the processes that share the weights hold more than one copy of them"
    where = f"{len(result.arrivals)} devices"
    if result.sharing is not None:
        holders = len(result.sharing.holders)
        where += f", shared by {holders} processes as one copy, and in a copy of each worker's own"
    return f"verified: {tensors:,} tensors, {total:,} bytes, are whole on {where}"


def _draw_sharing(sharing: Sharing, tensors: int, console: Console) -> None:
    console.print()
    shown = _table("process", "rights", "opened in", "resident", "its share", "private", "verified")
    for holder in sharing.holders:
        found = holder.residence
        shown.add_row(
            holder.name,
            holder.rights,
            "-" if holder.seconds is None else f"{holder.seconds * 1e3:.2f} ms",
            *(["-"] * 3 if found is None else [_mib(found.resident), _mib(found.share), _mib(found.private)]),
            "-" if holder.seconds is None else _verdict(len(holder.mismatched), tensors),
        )
    console.print(shown)
    count = len(sharing.holders)
    if sharing.resident is None:
        line = "the resident memory is not known: this system does not count shared pages (smaps)"
    else:
        copies = "one copy" if sharing.is_one_copy else "MORE THAN ONE COPY"
        line = (
            f"resident: {count} processes share {sharing.resident:,} bytes of weights in all, of {sharing.nbytes:,} "
            f"allocated: {copies}"
        )
    note(console, line, style="" if sharing.is_one_copy else "bold red")
    seeing = sum(not names for names in sharing.unseen.values())
    note(
        console,
        f"{sharing.holders[1].name} wrote tensor {clipped(sharing.written)} back with every bit inverted: "
        f"{seeing} of {count} processes see it",
    )


def _draw_deliveries(deliveries: Sequence[Delivery], tensors: int, console: Console) -> None:
    console.print()
    shown = _table("over channels", "ranks", "bytes", "seconds", "GB/s", "x memcpy", "verified")
    for each in deliveries:
        wrong = sum(map(len, each.mismatched.values()))
        shown.add_row(
            each.name,
            str(each.ranks),
            f"{each.nbytes:,}",
            f"{each.seconds:.4f}",
            f"{each.rate:.1f}",
            f"{each.ratio:.2f}",
            _verdict(wrong, tensors * len(each.mismatched)),
        )
    console.print(shown)
    note(
        console,
        "each process gets its own copy: by a broadcast of the owner's weights, then by an all-gather of a part from "
        "each; bytes: received by all together",
    )


def _delivery_as_json(delivery: Delivery) -> dict[str, object]:
    return {
        "collective": delivery.name,
        "ranks": delivery.ranks,
        "bytes": delivery.nbytes,
        "seconds": delivery.seconds,
        "gb_per_s": delivery.rate,
        "ratio": delivery.ratio,
        "verified": not any(delivery.mismatched.values()),
        "mismatched": delivery.mismatched,
    }


def _sharing_as_json(sharing: Sharing) -> dict[str, object]:
    return {
        "bytes": sharing.nbytes,
        "resident": sharing.resident,
        "one_copy": sharing.is_one_copy,
        "written": sharing.written,
        "unseen": sharing.unseen,
        "processes": [dataclasses.asdict(holder) for holder in sharing.holders],
    }


def _table(*headings: str) -> Table:
    return table(*headings, numbers=_NUMBERS)


def _mismatches(result: Result) -> Iterator[tuple[str, str]]:
    for arrival in result.arrivals:
        for name in arrival.mismatched:
            yield arrival.device, name
    for way in result.ways:
        for device, names in (way.mismatched or {}).items():
            for name in names:
                yield f"{device}, {way.name}", name
    if result.sharing is not None:
        for holder in result.sharing.holders:
            for name in holder.mismatched:
                yield holder.name, name
        for process, names in result.sharing.unseen.items():
            for name in names:
                yield f"{process}, after it was written back", name
    for each in result.deliveries:
        for process, names in each.mismatched.items():
            for name in names:
                yield f"{process}, after the {each.name}", name


def _mib(nbytes: int) -> str:
    return f"{nbytes / UNITS['MiB']:,.1f} MiB"


def _verdict(wrong: int, tensors: int) -> str:
    return f"{'NO' if wrong else 'yes'}, {tensors - wrong:,}/{tensors:,}"


def _cells_of_way(way: Way, tensors: int) -> list[str]:
    wrong = way.mismatched
    return [
        way.name,
        str(way.streams or "-"),
        f"{way.nbytes:,}",
        f"{way.seconds:.4f}",
        f"{way.rate:.1f}",
        f"{way.ratio:.2f}",
        "-" if wrong is None else _verdict(sum(map(len, wrong.values())), tensors * len(wrong)),
    ]


def _cells(arrival: Arrival, tensors: int) -> list[str]:
    return [
        arrival.device,
        "pinned" if arrival.ratio is None else arrival.route.kind,
        f"{arrival.nbytes:,}",
        f"{arrival.seconds:.4f}",
        f"{arrival.rate:.1f}",
        "-" if arrival.ratio is None else f"{arrival.ratio:.2f}",
        _verdict(len(arrival.mismatched), tensors),
    ]
