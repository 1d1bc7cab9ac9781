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

SUFFIXES = (".png", ".svg")
MICROSECONDS, PROCESSOR_TIME, GB_PER_S = "microseconds", "processor time", "GB/s"
SIZES, PROCESSES, OBJECTS = "bytes of the buffer", "processes", "objects"  # what a panel is over

_DPI = 150
_WIDTH, _HEIGHT, _CAPTION = 5.6, 3.3, 0.6  # inches of a panel, and of what stands above all of them
_LABEL = 0.2  # inches between the names of two lines
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
#: Libraries whose names are not those by which the commands know them.
_TITLES = {"mpich": "MPICH", "openmpi": "Open MPI", "nixl": "NIXL", "pipe": "a pipe"}
_OTHERS = (Look("#000000", "P", "--"), Look("#000000", "*", ":"))
#: What a number means, above the axis that has it.
_MEANINGS = {
    MICROSECONDS: "microseconds of one operation: lower is better",
    PROCESSOR_TIME: "milliseconds of processor time for all objects: lower is better",
    GB_PER_S: "GB/s, 10^9 bytes of the buffer a second: higher is better",
}


def looks(names: Sequence[str]) -> dict[str, Look]:
    """Return the looks of contenders; those without a colour of their own are black.

    The second one of the same library, as ``peerlane, between peers``, has the library's colour and a broken line.
    """
    others, taken = iter(_OTHERS * len(names)), set()
    chosen = {}
    for name in names:
        library = name.partition(",")[0]
        look = LOOKS.get(library) or next(others)
        chosen[name] = look._replace(line="--", marker="D") if library in taken else look
        taken.add(library)
    return chosen


def sweeps(panels: Mapping[str, Panel], unit: str, title: str = "", *, columns: int = 2) -> Figure:
    """Draw a panel for each title: a line for each contender, with the range of its rounds as a band.

    ``unit``: times have a logarithmic axis, the same in a row of panels; GB/s begin at zero.
    ``columns``: the number of panels side by side.
    """
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    is_time = unit != GB_PER_S
    figure = _figure(_WIDTH * columns, _HEIGHT * rows + _CAPTION)
    all_axes = [*figure.subplots(rows, columns, squeeze=False, sharey="row" if is_time else "none").flat]
    for axes, panel in zip(all_axes, panels.values(), strict=False):
        _draw(axes, panel)
        _value_axis(axes, is_log=is_time)
    for axes, (heading, panel) in zip(all_axes, panels.items(), strict=False):
        _name_lines(axes, panel.series, _HEIGHT)  # behind all panels, as those of a row share an axis
        _head(axes, heading, _MEANINGS[unit])
    for axes in all_axes[len(panels) :]:
        axes.remove()
    if title:
        figure.suptitle(title, fontsize="medium")
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    for name, look in looks([*panel.series]).items():
        _line(axes, look, panel.series[name])
    _set_axis(axes, panel)


def _head(axes: Axes, heading: str, meaning: str) -> None:
    axes.set_title(f"{heading}\n", loc="left", fontsize="medium", fontweight="bold")
    axes.annotate(
        meaning, (0, 1), (0, 6), xycoords="axes fraction", textcoords="offset points", fontsize="small"
    )


def _line(axes: Axes, look: Look, series: Series) -> None:
    at = sorted(series)
    middle, least, most = zip(*(series[each] for each in at), strict=True)
    axes.plot(
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


def _name_lines(axes: Axes, series: Mapping[str, Series], height: float) -> None:
    """Write the name of each line beside its end, in its colour; names do not meet."""
    to_axes = axes.transData + axes.transAxes.inverted()
    ends = {name: (max(points), points[max(points)][0]) for name, points in series.items()}
    heights = {name: float(to_axes.transform(end)[1]) for name, end in ends.items()}
    for name, at in _spread(heights, _LABEL / height).items():
        colour = looks([*series])[name].colour
        axes.annotate(
            _TITLES.get(name, name),
            ends[name],
            (1.05, at),
            textcoords="axes fraction",
            color=colour,
            va="center",
            fontsize="small",
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.7, "shrinkA": 1, "shrinkB": 4},
        )


def _spread(heights: Mapping[str, float], least: float) -> dict[str, float]:
    """Return heights that lie ``least`` apart, in the same order, none above 1 that need not be."""
    order = sorted(heights, key=lambda name: -heights[name])
    apart, above = {}, 1.0 + least
    for name in order:
        above = apart[name] = min(heights[name], above - least)
    below = 0.0 - least
    for name in reversed(order):
        below = apart[name] = max(apart[name], below + least)
    return apart


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


def _value_axis(axes: Axes, *, is_log: bool) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    if is_log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def ratios(series: Mapping[str, Series], title: str, reference: str) -> Figure:
    """Draw speed over size, a line for each contender with the range of its rounds, beside that of the reference.

    Parameters
    ----------
    series : dict
    title : str
    reference : str
        What has the speed 1 at each size.
    """
    figure = _figure(9, 4.5)
    axes = figure.add_subplot()
    _draw(axes, Panel(dict(series)))
    _value_axis(axes, is_log=False)
    axes.set_ylim(top=max(axes.get_ylim()[1], 1.2))
    axes.axhline(1, color="black", linewidth=1, linestyle=":")
    axes.annotate(
        f"1 = {reference}",
        (0, 1),
        (4, 4),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},  # lines may pass behind
        zorder=5,
    )
    _name_lines(axes, series, 4.5)
    _head(axes, title, "times as fast as the reference of that size: higher is better")
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
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08))
