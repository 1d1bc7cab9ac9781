"""Timings as tables for people, as plain data, and as the panels of pictures."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from rich.console import Console

from peerlane.cli.bench.bars import PEERLANE
from peerlane.cli.bench.timings import MEMCPY, Timing
from peerlane.cli.outputs import note, table
from peerlane.support.sizes import UNITS, format_size

_US = 1e-6
_LEAST_BANDWIDTH_SIZE = 4 * UNITS["KiB"]  # below, a call's fixed time is all that a bandwidth shows

#: By title of a panel, contender, and size or number of processes: the median, the least and the greatest.
Panels = dict[str, dict[str, dict[int, tuple[float, float, float]]]]
#: By operation and number of processes.
Sweeps = Mapping[tuple[str, int], Sequence[Timing]]


def draw(timings: Sequence[Timing], console: Console) -> None:
    """Print a table for each operation and number of processes, and how to read them."""
    shown = [each for each in timings if each.is_shown]
    for (operation, processes), mine in _sweeps(shown).items():
        others = list(dict.fromkeys(each.contender for each in mine if each.contender != PEERLANE))
        heads = ("us", "range", "GB/s", *others)
        made = table("size", *heads, numbers=heads)
        made.title = f"{operation} over {processes} processes"
        for size in dict.fromkeys(each.size for each in mine):
            found = {each.contender: each for each in mine if each.size == size}
            ours = found[PEERLANE]
            made.add_row(
                "-" if size is None else format_size(size),
                _number(ours.seconds / _US),
                f"{_number(ours.low / _US)} to {_number(ours.high / _US)}",
                "-" if ours.gb_per_s is None else _number(ours.gb_per_s),
                *(_ratio(found[name]) if name in found else "-" for name in others),
            )
        console.print(made)
        console.print()
    if shown:
        note(
            console,
            "us: peerlane's median time, and its range over the rounds; GB/s: bytes of the buffer / that time, which "
            "NCCL's tests call algbw; then the other contenders' time / peerlane's: above 1 peerlane is faster; "
            "~: the rounds do not agree on that",
        )
    variants: dict[str, dict[str, None]] = {}
    for each in timings:
        variants.setdefault(each.contender, {})[each.variant] = None
    for name, its in variants.items():
        if len(its) > 1 and "" not in its:
            note(console, f"{name}: at each size the quickest of {', '.join(its)}")


def as_json(timings: Sequence[Timing]) -> list[dict[str, object]]:
    """Return all timings, also those of variants that tables leave out, as plain JSON values."""
    return [{**dataclasses.asdict(each), "gb_per_s": each.gb_per_s} for each in timings]


def panels(timings: Sequence[Timing]) -> tuple[Panels, Panels]:
    """Return the panels of latency in microseconds, and those of bandwidth in GB/s.

    A barrier has no size: its latency is over the number of processes, in one panel.  Pictures have libraries only: a
    memcpy in the nearest cache would make all of them small.
    """
    shown = [each for each in timings if each.is_shown and each.contender != MEMCPY]
    latency: Panels = {}
    bandwidth: Panels = {}
    for (operation, processes), mine in _sweeps(shown).items():
        title = f"{operation}, {processes} processes"
        for each in mine:
            us = (each.seconds / _US, each.low / _US, each.high / _US)
            if each.size is None:
                latency.setdefault(operation, {}).setdefault(each.contender, {})[processes] = us
                continue
            latency.setdefault(title, {}).setdefault(each.contender, {})[each.size] = us
            if each.size >= _LEAST_BANDWIDTH_SIZE:
                middle, least, most = (
                    each.size / taken / 1e9 for taken in (each.seconds, each.high, each.low)
                )
                bandwidth.setdefault(title, {}).setdefault(each.contender, {})[each.size] = (
                    middle,
                    least,
                    most,
                )
    return latency, bandwidth


def _sweeps(timings: Sequence[Timing]) -> Sweeps:
    operations = list(dict.fromkeys(each.operation for each in timings))
    found: dict[tuple[str, int], list[Timing]] = {}
    for each in sorted(timings, key=lambda each: (operations.index(each.operation), each.processes)):
        found.setdefault((each.operation, each.processes), []).append(each)
    return found


def _ratio(timing: Timing) -> str:
    sides = {timing.ratio_low > 1, timing.ratio_high > 1}
    return f"{'~' if len(sides) > 1 else ''}{_number(timing.ratio)}"


def _number(value: float) -> str:
    """Return three digits of a number, never as a power of ten."""
    if value < 0.01:
        return "<0.01"
    return f"{value:,.{max(0, 3 - len(str(int(value))))}f}"
