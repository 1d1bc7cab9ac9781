"""Bars, and the comparison of two builds, as tables and as JSON."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from benchmarks.bars import Bar, figures_of, judged
from benchmarks.builds import Comparison
from peerlane.cli import machine
from peerlane.cli.bench import report
from peerlane.cli.bench.measure import SPEED, Figure, Skip
from peerlane.cli.bench.report import Result, draw_skips, duration_text, ratio_text
from peerlane.cli.outputs import note, table

_COLOURS = {"goal": "green", "must": "yellow", "missed": "bold red"}

Judged = list[tuple[Bar, Figure]]


def judged_of(result: Result) -> Judged:
    """Return the bars that were measured, with their figures."""
    return judged([*result.figures, *figures_of(result.timings)])


def draw(result: Result, console: Console) -> None:
    """Print the bars, what `peerlane bench` prints of the rest, and the verdict."""
    met_bars = judged_of(result)
    bars = table("bar", "case", "contender", "ratio", "must", "goal", "met")
    bars.title = "bars"
    for bar, figure in met_bars:
        sign = ">=" if figure.kind == SPEED else "<="
        met = bar.met(figure)
        bars.add_row(
            bar.id,
            bar.case,
            bar.contender if bar.reference is None else f"{bar.contender}, of {bar.reference}",
            ratio_text(figure, figure.ratio),
            f"{sign} {ratio_text(figure, bar.must)}",
            f"{sign} {ratio_text(figure, bar.goal)}",
            Text(met, style=_COLOURS[met]),
        )
    if bars.row_count:
        console.print(bars)
        console.print()
    report.draw(result, console)
    if summary := verdict(met_bars):
        note(console, summary, style="bold")


def verdict(met_bars: Judged) -> str:
    """Return one sentence about the bars of what was measured; empty if it has none."""
    met = Counter(bar.met(figure) for bar, figure in met_bars)
    if not met:
        return ""
    missed = ", ".join(dict.fromkeys(bar.id for bar, figure in met_bars if bar.met(figure) == "missed"))
    return (
        f"bars: {met['goal']} at the goal, {met['must']} within what is asked, {met['missed']} missed"
        f"{f': {missed}' if missed else ''}"
    )


def as_json(result: Result) -> dict[str, object]:
    """Return what `peerlane bench` writes, with the bars and the verdict, as plain JSON values."""
    met_bars = judged_of(result)
    return {
        "bars": [
            {
                "id": bar.id,
                "case": f"{bar.case}, {bar.contender}",
                "ratio": figure.ratio,
                "kind": figure.kind,
                "reference": figure.reference,
                "must": bar.must,
                "goal": bar.goal,
                "met": bar.met(figure),
            }
            for bar, figure in met_bars
        ],
        "verdict": verdict(met_bars) or None,
        **report.as_json(result),
    }


def draw_comparisons(
    comparisons: Sequence[Comparison],
    skips: Sequence[Skip],
    rounds: int,
    builds: dict[str, str],
    console: Console,
) -> None:
    """Print the cases of both builds, those in which this build is slower, and the skipped ones."""
    shown = table("case", "ratio", "rounds", "bound", "", "one takes", "other")
    shown.title = f"time of this build / time of the other: median of {rounds} rounds"
    for each in comparisons:
        shown.add_row(
            each.case,
            f"{each.ratio:.2f}",
            f"{each.low:.2f} to {each.high:.2f}",
            f"{each.bound:.2f}",
            Text("slower", style=_COLOURS["missed"]) if each.is_slower else "",
            duration_text(each.seconds),
            duration_text(each.other_seconds),
        )
    console.print(shown)
    for name, where in builds.items():
        note(console, f"{name}: {where}")
    note(console, "bound: what 95 % of the rounds of a build against itself stay within")
    draw_skips(skips, rounds, console)
    slower = [each.case for each in comparisons if each.is_slower]
    summary = (
        f"slower beyond the bound: {', '.join(slower)}"
        if slower
        else "not slower beyond the bound in any case"
    )
    note(console, summary)


def comparisons_as_json(
    comparisons: Sequence[Comparison], skips: Sequence[Skip], rounds: int, builds: dict[str, str]
) -> dict[str, object]:
    """Return the comparisons, the skipped cases, the builds and the machine as plain JSON values."""
    return {
        "against": [{**dataclasses.asdict(each), "slower": each.is_slower} for each in comparisons],
        "skipped": [dataclasses.asdict(skip) for skip in skips],
        "rounds": rounds,
        "builds": builds,
        "environment": machine.environment(),
    }
