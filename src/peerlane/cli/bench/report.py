"""Figures and bars as tables, as JSON and as a picture."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from peerlane.cli import machine, plots
from peerlane.cli.bench import copies
from peerlane.cli.bench.bars import PEERLANE, judged
from peerlane.cli.bench.builds import Comparison
from peerlane.cli.bench.measure import SHARE, SPEED, TIE, Figure, Skip
from peerlane.cli.bench.rival_processes import RIVALS
from peerlane.cli.outputs import note, table
from peerlane.errors import InvalidValue
from peerlane.support.sizes import format_size

_ENOUGH_ROUNDS = 7
_COLOURS = {"goal": "green", "must": "yellow", "missed": "bold red"}


def draw(figures: Sequence[Figure], skips: Sequence[Skip], rounds: int, console: Console) -> None:
    """Print the bars, each figure, and the skipped cases."""
    bars = table("bar", "case", "contender", "ratio", "must", "goal", "met")
    bars.title = "bars"
    for bar, figure in judged(figures):
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
    every = table("case, and contender", "ratio", "", "rounds", "one takes")
    every.title = f"figures: median of {rounds} rounds, then the least and the greatest"
    among_rivals, others = _split(figures)
    case = ""
    for figure in others:
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
    if every.row_count:
        console.print(every)
        console.print()
    if among_rivals:
        console.print(_rivals_table(among_rivals))
    note(
        console,
        "speed: the reference's time / the contender's, more is better; time: the inverse, less is better; "
        f"share: of what there is or may be used, less is better; a tie is within {TIE:.0%}",
    )
    _draw_skips(skips, rounds, console)
    if said := verdict(figures):
        note(console, said, style="bold")


def verdict(figures: Sequence[Figure]) -> str:
    """Return one sentence about the bars of what was measured; empty if it has none."""
    met = Counter(bar.met(figure) for bar, figure in judged(figures))
    if not met:
        return ""
    missed = ", ".join(
        dict.fromkeys(bar.id for bar, figure in judged(figures) if bar.met(figure) == "missed")
    )
    return (
        f"bars: {met['goal']} at the goal, {met['must']} within what is asked, {met['missed']} missed"
        f"{f': {missed}' if missed else ''}"
    )


def as_json(figures: Sequence[Figure], skips: Sequence[Skip], rounds: int) -> dict[str, object]:
    """Return the bars, the figures, the skipped cases and the machine as plain JSON values."""
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
        "verdict": verdict(figures) or None,
        "figures": [{**dataclasses.asdict(figure), "standing": figure.standing} for figure in figures],
        "skipped": [dataclasses.asdict(skip) for skip in skips],
        "rounds": rounds,
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


def plot(figures: Sequence[Figure], path: str) -> None:
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
        raise InvalidValue(
            "--plot: every copy was skipped, so there is nothing to draw; give smaller --sizes"
        )
    named = (
        f"{' to '.join(dict.fromkeys(map(format_size, (min(sizes), max(sizes)))))}: {name}"
        for name, sizes in sorted(references.items(), key=lambda each: min(each[1]))
    )
    title = "\n".join(["copies: median, least and greatest of the rounds; 1 is the reference", *named])
    plots.save_ratios(path, series, title)


def _draw_skips(skips: Sequence[Skip], rounds: int, console: Console) -> None:
    if rounds < _ENOUGH_ROUNDS:
        note(
            console,
            f"{rounds} round{'s are' if rounds > 1 else ' is'} too few to quote; take {_ENOUGH_ROUNDS} or more",
        )
    for skip in skips:
        note(console, f"skipped: {skip.case}: {skip.why}")


def _split(figures: Sequence[Figure]) -> tuple[list[Figure], list[Figure]]:
    """Return the figures against other libraries' processes, and all other figures."""
    among = [figure for figure in figures if figure.reference in RIVALS]
    return among, [figure for figure in figures if figure.reference not in RIVALS]


def _rivals_table(figures: Sequence[Figure]) -> Table:
    names = [name for name in RIVALS if any(figure.reference == name for figure in figures)]
    shown = table("case", "one takes", *names)
    shown.title = f"{PEERLANE} against other libraries: how many times their speed"
    by_case: dict[str, dict[str, Figure]] = {}
    for figure in figures:
        by_case.setdefault(figure.case, {})[figure.reference] = figure
    for case, found in by_case.items():
        cells = [f"{each.ratio:.2f} {each.standing}" if (each := found.get(name)) else "-" for name in names]
        shown.add_row(case, _duration(next(iter(found.values())).seconds), *cells)
    return shown


def _ratio(figure: Figure, value: float) -> str:
    return f"{value:.2%}" if figure.kind == SHARE else f"{value:.2f}"


def _duration(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
