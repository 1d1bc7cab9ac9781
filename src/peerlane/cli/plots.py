"""Pictures of results.  Matplotlib is in the ``bench`` extra and imported only here, inside functions."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from peerlane.errors import InvalidValue, Unsupported
from peerlane.support.sizes import format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

SUFFIXES = (".png", ".svg")
MICROSECONDS, GB_PER_S = "microseconds", "GB/s"
SIZES, PROCESSES, OBJECTS = "bytes of the buffer", "processes", "objects"  # what a panel is over

_DPI = 150
_WIDTH, _HEIGHT, _LEGEND = 5.0, 3.3, 0.9  # inches of a panel, and of what stands beside all of them
_OCTAVES = 24  # with more of them on an axis, fewer sizes are named


def check_available() -> None:
    """Raise Unsupported, naming the extra, if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise Unsupported(
            "--plot needs matplotlib, which is not installed; install the extra: pip install 'peerlane[bench]'"
        )


#: By size or number: the value, and the least and the greatest of its rounds.
Series = dict[int, tuple[float, float, float]]


class Panel(NamedTuple):
    """What one part of a picture shows: a series for each contender, over sizes or over numbers of something."""

    series: dict[str, Series]
    over: str = SIZES


class Look(NamedTuple):
    """How a contender is drawn."""

    colour: str
    marker: str
    line: str
    width: float = 1.4


#: A contender has one colour in all pictures, of Okabe and Ito's palette, which the colour-blind can tell apart.
LOOKS = {
    "peerlane": Look("#0072B2", "o", "-", 2.2),
    "mpich": Look("#D55E00", "s", "--"),
    "openmpi": Look("#009E73", "^", "-."),
    "gloo": Look("#E69F00", "v", "--"),
    "nixl": Look("#CC79A7", "D", ":"),
    "pipe": Look("#56B4E9", "x", ":"),
}
_OTHERS = (Look("#000000", "P", "--"), Look("#000000", "*", ":"))


def looks(names: Sequence[str]) -> dict[str, Look]:
    """Return the looks of contenders; those without a colour of their own are black."""
    others = iter(_OTHERS * len(names))
    return {name: LOOKS.get(name) or next(others) for name in names}


def sweeps(panels: Mapping[str, Panel], unit: str, title: str = "", *, columns: int = 2) -> Figure:
    """Draw a panel for each title: a line for each contender, with the range of its rounds as a band.

    ``unit``: microseconds have a logarithmic axis, the same in a row of panels; GB/s begin at zero.
    ``columns``: the number of panels side by side.
    """
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel.series))
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    is_time = unit == MICROSECONDS
    figure = _figure(_WIDTH * columns, _HEIGHT * rows + _LEGEND)
    all_axes = [*figure.subplots(rows, columns, squeeze=False, sharey="row" if is_time else "none").flat]
    lines: dict[str, Line2D] = {}
    for axes, (heading, panel) in zip(all_axes, panels.items(), strict=False):
        for name, look in looks(names).items():
            if name in panel.series:
                lines[name] = _line(axes, look, panel.series[name])
        _set_axis(axes, panel)
        _value_axis(axes, unit, is_log=is_time)
        axes.set_title(heading, loc="left", fontsize="medium", fontweight="bold")
    for axes in all_axes[len(panels) :]:
        axes.remove()
    if title:
        figure.suptitle(title, fontsize="medium")
    figure.legend(lines.values(), lines, loc="outside lower center", ncols=len(lines), frameon=False)
    return figure


def _line(axes: Axes, look: Look, series: Series) -> Line2D:
    at = sorted(series)
    middle, least, most = zip(*(series[each] for each in at), strict=True)
    [line] = axes.plot(
        at,
        middle,
        look.line,
        color=look.colour,
        marker=look.marker,
        markersize=4.5,
        linewidth=look.width,
        zorder=1 + look.width,
    )
    axes.fill_between(at, least, most, color=look.colour, alpha=0.18, linewidth=0)
    return line


def _set_axis(axes: Axes, panel: Panel) -> None:
    axes.set_xscale("log", base=2)
    at = sorted({each for series in panel.series.values() for each in series})
    axes.set_xlabel(panel.over)
    if panel.over == SIZES:
        ticks = _apart(at)
        axes.set_xticks(ticks, map(format_size, ticks), fontsize="small")
    else:
        axes.set_xticks(at, [f"{each:,}" for each in at])
    axes.minorticks_off()


def _apart(sizes: Sequence[int]) -> list[int]:
    """Return sizes whose labels do not meet."""
    factor = 8 if sizes[-1] <= sizes[0] << _OCTAVES else 16
    chosen = list(sizes[:1])
    for nbytes in sizes:
        if nbytes >= factor * chosen[-1]:
            chosen.append(nbytes)
    return chosen


def _value_axis(axes: Axes, unit: str, *, is_log: bool) -> None:
    from matplotlib.ticker import FuncFormatter

    if is_log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    else:
        axes.set_ylim(bottom=0)
    axes.set_ylabel(unit)
    axes.grid(alpha=0.3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def ratios(series: Mapping[str, Series], title: str) -> Figure:
    """Draw speed over size, a line for each contender with the spread of its rounds; 1 is the reference."""
    figure = _figure(9, 4.5)
    axes = figure.add_subplot()
    for name, points in series.items():
        sizes = sorted(points)
        middle, least, most = zip(*(points[size] for size in sizes), strict=True)
        [line] = axes.plot(sizes, middle, marker="o", label=name)
        axes.fill_between(sizes, least, most, color=line.get_color(), alpha=0.15, linewidth=0)
    axes.axhline(1, color="grey", linewidth=0.8, linestyle="--")
    axes.set_xscale("log", base=2)
    ticks = sorted({size for points in series.values() for size in points})
    axes.set_xticks(ticks, [format_size(size) for size in ticks])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set(xlabel="bytes of a copy", ylabel="speed, of the reference's of that size")
    figure.suptitle(title, fontsize="medium")
    figure.legend(loc="outside right center")
    return figure


def save(figure: Figure, path: str) -> None:
    """Write a picture, in the format that the name ends in.

    Raises InvalidValue: the file cannot be written.
    """
    try:
        figure.savefig(path, dpi=_DPI, format=Path(path).suffix[1:].lower())
    except OSError as error:
        raise InvalidValue(f"--plot {path!r} cannot be written: {error.strerror}") from None


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")
