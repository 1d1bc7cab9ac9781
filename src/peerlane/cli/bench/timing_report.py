"""Timings as tables for people, as plain data, and as the panels of pictures."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from rich.console import Console

from peerlane.cli.bench.measure import PEERLANE
from peerlane.cli.bench.sweeps import MEMMOVE
from peerlane.cli.bench.timings import Timing
from peerlane.cli.outputs import note, table
from peerlane.cli.plots import PROCESSES, Panel
from peerlane.support.sizes import UNITS, format_size

_US = 1e-6
_LEAST_BANDWIDTH_SIZE = 4 * UNITS["KiB"]  # below, a call's fixed time is all that a bandwidth shows

#: By operation and number of processes.
Sweeps = Mapping[tuple[str, int], Sequence[Timing]]


def draw(timings: Sequence[Timing], console: Console) -> None:
    """Print a table for each operation and number of processes, and how to read them."""
    shown = [each for each in timings if each.is_shown]
    for (operation, processes), mine in _sweeps(shown).items():
        others = list(dict.fromkeys(each.contender for each in mine if each.contender != PEERLANE))
        heads = ("us", "range, us", "GB/s", *(f"{name}, x" for name in others))
        grid = table("size", *heads, numbers=heads)
        grid.title = f"{operation} over {processes} processes"
        for size in dict.fromkeys(each.size for each in mine):
            by_contender = {each.contender: each for each in mine if each.size == size}
            ours = by_contender[PEERLANE]
            grid.add_row(
                "-" if size is None else format_size(size),
                _number(ours.seconds / _US),
                f"{_number(ours.low / _US)} to {_number(ours.high / _US)}",
                "-" if ours.gb_per_s is None else _number(ours.gb_per_s),
                *(_ratio(by_contender[name]) if name in by_contender else "-" for name in others),
            )
        console.print(grid)
        console.print()
    if shown:
        note(
            console,
            "us: peerlane's median time, and its range over the rounds; GB/s: bytes of the buffer / that time, which "
            "NCCL's tests call algbw; x: that contender's time / peerlane's, above 1 peerlane is faster; "
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


def latency(timings: Sequence[Timing]) -> dict[str, Panel]:
    """Return the panels of the microseconds, over sizes; those of a barrier are over the number of processes."""
    panels: dict[str, Panel] = {}
    for (operation, processes), mine in _sweeps(_pictured(timings)).items():
        for each in mine:
            us = each.seconds / _US, each.low / _US, each.high / _US
            if each.size is None:
                panel = panels.setdefault(operation, Panel({}, PROCESSES))
                panel.series.setdefault(each.contender, {})[processes] = us
            else:
                panel = panels.setdefault(f"{operation}, {processes} processes", Panel({}))
                panel.series.setdefault(each.contender, {})[each.size] = us
    return panels


def bandwidth(timings: Sequence[Timing]) -> dict[str, Panel]:
    """Return the panels of the GB/s, over sizes."""
    panels: dict[str, Panel] = {}
    for (operation, processes), mine in _sweeps(_pictured(timings)).items():
        for each in mine:
            if each.size is not None and each.size >= _LEAST_BANDWIDTH_SIZE:
                gb = each.size / 1e9
                panel = panels.setdefault(f"{operation}, {processes} processes", Panel({}))
                points = panel.series.setdefault(each.contender, {})
                points[each.size] = gb / each.seconds, gb / each.high, gb / each.low
    return panels


def _pictured(timings: Sequence[Timing]) -> list[Timing]:
    """Return the timings of libraries: a copy in the nearest cache would make all others small."""
    return [each for each in timings if each.is_shown and each.contender != MEMMOVE]


def _sweeps(timings: Sequence[Timing]) -> Sweeps:
    operations = list(dict.fromkeys(each.operation for each in timings))
    sweeps: dict[tuple[str, int], list[Timing]] = {}
    for each in sorted(timings, key=lambda each: (operations.index(each.operation), each.processes)):
        sweeps.setdefault((each.operation, each.processes), []).append(each)
    return sweeps


def _ratio(timing: Timing) -> str:
    sides = {timing.ratio_low > 1, timing.ratio_high > 1}
    return f"{'~' if len(sides) > 1 else ''}{_number(timing.ratio)}"


def _number(value: float) -> str:
    """Return three digits of a number, never as a power of ten."""
    if value < 0.01:
        return "<0.01"
    return f"{value:,.{max(0, 3 - len(str(int(value))))}f}"
