"""Figures and bars as tables, as JSON and as a picture."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from peerlane.cli import machine, plots
from peerlane.cli.bench import copies, timing_report, timings
from peerlane.cli.bench.bars import PEERLANE, Bar, judged
from peerlane.cli.bench.builds import Comparison
from peerlane.cli.bench.measure import SHARE, SPEED, TIE, Figure, Skip
from peerlane.cli.bench.timings import Timing
from peerlane.cli.outputs import note, table
from peerlane.errors import InvalidValue
from peerlane.support.sizes import format_size

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

_ENOUGH_ROUNDS = 7
_COLOURS = {"goal": "green", "must": "yellow", "missed": "bold red"}


@dataclass(frozen=True, slots=True)
class Result:
    """What was measured: figures of single cases, timings over sizes, and what was left out."""

    figures: Sequence[Figure]
    timings: Sequence[Timing]
    skips: Sequence[Skip]
    rounds: int

    @property
    def judged(self) -> list[tuple[Bar, Figure]]:
        """The bars that were measured, with their figures."""
        return judged([*self.figures, *timings.figures(self.timings)])


def draw(result: Result, console: Console) -> None:
    """Print the bars, each figure and timing, and the skipped cases."""
    bars = table("bar", "case", "contender", "ratio", "must", "goal", "met")
    bars.title = "bars"
    for bar, figure in result.judged:
        sign = ">=" if figure.kind == SPEED else "<="
        met = bar.met(figure)
        bars.add_row(
            bar.id,
            bar.case,
            bar.contender if bar.reference is None else f"{bar.contender}, of {bar.reference}",
            _ratio(figure, figure.ratio),
            f"{sign} {_ratio(figure, bar.must)}",
            f"{sign} {_ratio(figure, bar.goal)}",
            Text(met, style=_COLOURS[met]),
        )
    if bars.row_count:
        console.print(bars)
        console.print()
    if result.figures:
        _draw_figures(result, console)
    timing_report.draw(result.timings, console)
    _draw_skips(result.skips, result.rounds, console)
    if said := verdict(result):
        note(console, said, style="bold")


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
            f"{_ratio(figure, figure.ratio)} {figure.kind}",
            figure.standing,
            f"{_ratio(figure, figure.low)} to {_ratio(figure, figure.high)}",
            _duration(figure.seconds),
        )
    console.print(every)
    console.print()
    note(
        console,
        "speed: the reference's time / the contender's, more is better; time: the inverse, less is better; "
        f"share: of what there is or may be used, less is better; a tie is within {TIE:.0%}",
    )
    console.print()


def verdict(result: Result) -> str:
    """Return one sentence about the bars of what was measured; empty if it has none."""
    met = Counter(bar.met(figure) for bar, figure in result.judged)
    if not met:
        return ""
    missed = ", ".join(dict.fromkeys(bar.id for bar, figure in result.judged if bar.met(figure) == "missed"))
    return (
        f"bars: {met['goal']} at the goal, {met['must']} within what is asked, {met['missed']} missed"
        f"{f': {missed}' if missed else ''}"
    )


def as_json(result: Result) -> dict[str, object]:
    """Return the bars, the figures, the timings, the skipped cases and the machine as plain JSON values."""
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
            for bar, figure in result.judged
        ],
        "verdict": verdict(result) or None,
        "figures": [{**dataclasses.asdict(figure), "standing": figure.standing} for figure in result.figures],
        "timings": timing_report.as_json(result.timings),
        "skipped": [dataclasses.asdict(skip) for skip in result.skips],
        "rounds": result.rounds,
        "environment": machine.environment(),
    }


def draw_comparisons(
    found: Sequence[Comparison], skips: Sequence[Skip], rounds: int, builds: dict[str, str], console: Console
) -> None:
    """Print the cases of both builds, those in which this build is slower, and the skipped ones."""
    shown = table("case", "ratio", "rounds", "bound", "", "one takes", "other")
    shown.title = f"time of this build / time of the other: median of {rounds} rounds"
    for each in found:
        shown.add_row(
            each.case,
            f"{each.ratio:.2f}",
            f"{each.low:.2f} to {each.high:.2f}",
            f"{each.bound:.2f}",
            Text("slower", style=_COLOURS["missed"]) if each.is_slower else "",
            _duration(each.seconds),
            _duration(each.other_seconds),
        )
    console.print(shown)
    for name, where in builds.items():
        note(console, f"{name}: {where}")
    note(console, "bound: what 95 % of the rounds of a build against itself stay within")
    _draw_skips(skips, rounds, console)
    slower = [each.case for each in found if each.is_slower]
    verdict = (
        f"slower beyond the bound: {', '.join(slower)}"
        if slower
        else "not slower beyond the bound in any case"
    )
    note(console, verdict)


def comparisons_as_json(
    found: Sequence[Comparison], skips: Sequence[Skip], rounds: int, builds: dict[str, str]
) -> dict[str, object]:
    """Return the comparisons, the skipped cases, the builds and the machine as plain JSON values."""
    return {
        "against": [{**dataclasses.asdict(each), "slower": each.is_slower} for each in found],
        "skipped": [dataclasses.asdict(skip) for skip in skips],
        "rounds": rounds,
        "builds": builds,
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
            title = f"{kind}: median of {result.rounds} rounds, and their range"
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
    """Draw speed over size: peerlane on both routes, and the others on a device; the references are in the title."""
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
    named = (
        f"{' to '.join(dict.fromkeys(map(format_size, (min(sizes), max(sizes)))))}: {name}"
        for name, sizes in sorted(references.items(), key=lambda each: min(each[1]))
    )
    title = "\n".join(["copies: median, least and greatest of the rounds; 1 is the reference", *named])
    return plots.ratios(series, title)


def _draw_skips(skips: Sequence[Skip], rounds: int, console: Console) -> None:
    if rounds < _ENOUGH_ROUNDS:
        note(
            console,
            f"{rounds} round{'s are' if rounds > 1 else ' is'} too few to quote; take {_ENOUGH_ROUNDS} or more",
        )
    for skip in skips:
        note(console, f"skipped: {skip.case}: {skip.why}")


def _ratio(figure: Figure, value: float) -> str:
    return f"{value:.2%}" if figure.kind == SHARE else f"{value:.2f}"


def _duration(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
