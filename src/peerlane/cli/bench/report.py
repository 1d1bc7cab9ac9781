"""Figures and bars as tables, as JSON and as a picture."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from peerlane.cli import machine, plots
from peerlane.cli.bench import copies
from peerlane.cli.bench.bars import PEERLANE, judged
from peerlane.cli.bench.measure import SHARE, SPEED, TIE, Figure, Skip
from peerlane.errors import InvalidValue

_ENOUGH_ROUNDS = 7
_COLOURS = {"goal": "green", "must": "yellow", "missed": "bold red"}


def draw(figures: Sequence[Figure], skips: Sequence[Skip], rounds: int, console: Console) -> None:
    """Print the bars, every figure, and what was skipped."""
    bars = Table(title="bars")
    for heading in ("bar", "case", "contender", "ratio", "must", "goal", "met"):
        bars.add_column(heading)
    for bar, figure in judged(figures):
        sign = ">=" if figure.kind == SPEED else "<="
        met = bar.met(figure)
        bars.add_row(
            bar.id,
            bar.case,
            bar.contender,
            _ratio(figure, figure.ratio),
            f"{sign} {_ratio(figure, bar.must)}",
            f"{sign} {_ratio(figure, bar.goal)}",
            Text(met, style=_COLOURS[met]),
        )
    if bars.row_count:
        console.print(bars)
    every = Table(title=f"figures: median of {rounds} rounds, then the least and the greatest")
    for heading in ("case", "contender", "reference", "ratio", "", "rounds", "one takes"):
        every.add_column(heading)
    for figure in figures:
        every.add_row(
            figure.case,
            figure.contender,
            figure.reference,
            f"{_ratio(figure, figure.ratio)} {figure.kind}",
            "tie" if figure.is_tie else "",
            f"{_ratio(figure, figure.low)} to {_ratio(figure, figure.high)}",
            _duration(figure.seconds),
        )
    console.print(every)
    console.print(
        "speed: the reference's time / the contender's, more is better; time: the inverse, less is better; "
        f"share: of what there is or may be used, less is better; a tie is within {TIE:.0%}",
        soft_wrap=True,
    )
    if rounds < _ENOUGH_ROUNDS:
        console.print(f"{rounds} rounds are too few to quote; take {_ENOUGH_ROUNDS} or more", soft_wrap=True)
    for skip in skips:
        console.print(Text(f"skipped: {skip.case}: {skip.why}"), soft_wrap=True)


def as_json(figures: Sequence[Figure], skips: Sequence[Skip], rounds: int) -> dict[str, object]:
    """Return bars, figures, what was skipped, and the machine, as plain JSON values."""
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
            for bar, figure in judged(figures)
        ],
        "figures": [dataclasses.asdict(figure) for figure in figures],
        "skipped": [dataclasses.asdict(skip) for skip in skips],
        "rounds": rounds,
        "environment": machine.environment(),
    }


def plot(figures: Sequence[Figure], path: str) -> None:
    """Draw the speed over the size of ours on both routes, and of the others on a device."""
    series: dict[str, dict[int, float]] = {}
    for figure in figures:
        if figure.size is not None:
            route = copies.BETWEEN_PEERS if figure.case.endswith(copies.BETWEEN_PEERS) else copies.ON_A_DEVICE
            if figure.contender == PEERLANE:
                series.setdefault(f"{PEERLANE}, {route}", {})[figure.size] = figure.ratio
            elif route == copies.ON_A_DEVICE:
                series.setdefault(figure.contender, {})[figure.size] = figure.ratio
    if not series:
        raise InvalidValue(
            "--plot: every copy was skipped, so there is nothing to draw; give smaller --sizes"
        )
    plots.save_ratios(path, series, "copies: speed relative to the reference of each size")


def _ratio(figure: Figure, value: float) -> str:
    return f"{value:.2%}" if figure.kind == SHARE else f"{value:.2f}"


def _duration(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
