"""Figures and timings as tables, as JSON and as pictures."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from peerlane.cli import machine, plots
from peerlane.cli.bench import copies, timing_report
from peerlane.cli.bench.measure import PEERLANE, SHARE, TIE, Figure, Skip
from peerlane.cli.bench.timings import Timing
from peerlane.cli.outputs import note, table
from peerlane.errors import InvalidValue
from peerlane.support.sizes import format_size

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

_ENOUGH_ROUNDS = 7


@dataclass(frozen=True, slots=True)
class Result:
    """What was measured: figures of single cases, timings over sizes, and what was left out."""

    figures: Sequence[Figure]
    timings: Sequence[Timing]
    skips: Sequence[Skip]
    rounds: int


def draw(result: Result, console: Console) -> None:
    """Print each figure and timing, and the skipped cases."""
    if result.figures:
        _draw_figures(result, console)
    timing_report.draw(result.timings, console)
    draw_skips(result.skips, result.rounds, console)


def _draw_figures(result: Result, console: Console) -> None:
    every = table("case, and contender", "ratio", "", "rounds", "one takes")
    every.title = f"figures: median of {result.rounds} rounds, then the least and the greatest"
    case = ""
    for figure in result.figures:
        heading = f"{figure.case}, of {figure.reference}"
        if heading != case:
            every.add_row(Text(heading, style="bold"))
            case = heading
        every.add_row(
            f"  {figure.contender}",
            f"{ratio_text(figure, figure.ratio)} {figure.kind}",
            figure.standing,
            f"{ratio_text(figure, figure.low)} to {ratio_text(figure, figure.high)}",
            duration_text(figure.seconds),
        )
    console.print(every)
    console.print()
    note(
        console,
        "speed: the reference's time / the contender's, more is better; time: the inverse, less is better; "
        f"share: of what there is or may be used, less is better; a tie is within {TIE:.0%}",
    )
    console.print()


def as_json(result: Result) -> dict[str, object]:
    """Return the figures, the timings, the skipped cases and the machine as plain JSON values."""
    return {
        "figures": [{**dataclasses.asdict(figure), "standing": figure.standing} for figure in result.figures],
        "timings": timing_report.as_json(result.timings),
        "skipped": [dataclasses.asdict(skip) for skip in result.skips],
        "rounds": result.rounds,
        "environment": machine.environment(),
    }


def plot(result: Result, path: str) -> list[str]:
    """Draw the copies to ``path``, the timings to files beside it, and return the names of what was written.

    Raises
    ------
    InvalidValue
        Nothing was measured that can be drawn, or a file cannot be written.
    """
    file = Path(path)
    pictures = {path: _copies_picture(result.figures)}
    for kind, unit, panels in (
        ("latency", plots.MICROSECONDS, timing_report.latency(result.timings)),
        ("bandwidth", plots.GB_PER_S, timing_report.bandwidth(result.timings)),
    ):
        if panels:
            title = (
                "peerlane's virtual devices beside libraries of this machine: "
                f"lines are medians of {result.rounds} rounds, bands their range"
            )
            pictures[str(file.with_stem(f"{file.stem}-{kind}"))] = plots.sweeps(panels, unit, title)
    drawn = {name: figure for name, figure in pictures.items() if figure is not None}
    if not drawn:
        raise InvalidValue(
            "--plot: every case was skipped, so there is nothing to draw; give smaller --sizes"
        )
    for name, figure in drawn.items():
        plots.save(figure, name)
    return list(drawn)


def _copies_picture(figures: Sequence[Figure]) -> Picture | None:
    """Draw speed over size: peerlane on both routes, and the others on a device."""
    series: dict[str, dict[int, tuple[float, float, float]]] = {}
    references: dict[str, list[int]] = {}
    for figure in figures:
        if figure.size is not None and figure.case.startswith("copy "):
            route = copies.BETWEEN_PEERS if figure.case.endswith(copies.BETWEEN_PEERS) else copies.ON_A_DEVICE
            point = (figure.ratio, figure.low, figure.high)
            if figure.contender == PEERLANE:
                series.setdefault(f"{PEERLANE}, {route}", {})[figure.size] = point
                references.setdefault(figure.reference, []).append(figure.size)
            elif route == copies.ON_A_DEVICE:
                series.setdefault(figure.contender, {})[figure.size] = point
    if not series:
        return None
    named = [
        name
        if len(references) == 1
        else f"{' to '.join(dict.fromkeys(map(format_size, (min(sizes), max(sizes)))))}: {name}"
        for name, sizes in sorted(references.items(), key=lambda each: min(each[1]))
    ]
    return plots.ratios(
        series,
        "Copies of virtual devices, whose memory is RAM",
        f"{'; '.join(named)}, between two arrays in RAM",
    )


def draw_skips(skips: Sequence[Skip], rounds: int, console: Console) -> None:
    """Print what was left out, and whether there are too few rounds."""
    if rounds < _ENOUGH_ROUNDS:
        note(
            console,
            f"{rounds} round{'s are' if rounds > 1 else ' is'} too few to quote; take {_ENOUGH_ROUNDS} or more",
        )
    for skip in skips:
        note(console, f"skipped: {skip.case}: {skip.why}")


def ratio_text(figure: Figure, value: float) -> str:
    """Return a ratio, or a share in per cent."""
    return f"{value:.2%}" if figure.kind == SHARE else f"{value:.2f}"


def duration_text(seconds: float) -> str:
    """Return three digits of a time, in the unit that suits it."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
