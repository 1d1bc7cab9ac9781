"""Pictures of results.  Matplotlib is in the ``bench`` extra and imported only here, inside functions."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from peerlane.errors import InvalidValue, Unsupported
from peerlane.support.sizes import format_size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 150


def check_available() -> None:
    """Raise Unsupported, naming the extra, if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise Unsupported(
            "--plot needs matplotlib, which is not installed; install the extra: pip install 'peerlane[bench]'"
        )


def save_matrix(
    path: str,
    names: Sequence[str],
    rows: Sequence[Sequence[float | None]],
    title: str,
    *,
    bars: Mapping[str, float],
    bars_title: str,
) -> None:
    """Draw a matrix of GB/s, a row a source and a column a destination (None is blank), and bars below it."""
    height = max(3.5, 1.5 + 0.7 * len(names))
    below = 0.8 + 0.4 * len(bars)
    figure = _figure(max(5.0, 2 + 0.9 * len(names)), height + below)
    axes, under = figure.subplots(2, height_ratios=(height, below))
    drawn = under.barh(list(bars), list(bars.values()), height=0.6)
    under.bar_label(drawn, fmt="%.1f", padding=3)
    under.margins(x=0.12)
    under.invert_yaxis()
    under.set(xlabel="GB/s", title=bars_title)
    values = [[float("nan") if value is None else value for value in row] for row in rows]
    image = axes.imshow(values, cmap="viridis", vmin=0)
    known = [value for row in rows for value in row if value is not None]
    for a, row in enumerate(rows):
        for b, value in enumerate(row):
            if value is not None:
                colour = "black" if value > 0.6 * max(known) else "white"
                axes.text(b, a, f"{value:.1f}", ha="center", va="center", color=colour)
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="to", ylabel="from", title=title)
    figure.colorbar(image, ax=axes, label="GB/s")
    _save(figure, path)


def save_ratios(path: str, series: Mapping[str, Mapping[int, float]], title: str) -> None:
    """Draw speed over size, one line for each contender; 1 is the reference."""
    figure = _figure(9, 4.5)
    axes = figure.add_subplot()
    for name, points in series.items():
        sizes = sorted(points)
        axes.plot(sizes, [points[size] for size in sizes], marker="o", label=name)
    axes.axhline(1, color="grey", linewidth=0.8, linestyle="--")
    axes.set_xscale("log", base=2)
    ticks = sorted({size for points in series.values() for size in points})
    axes.set_xticks(ticks, [format_size(size) for size in ticks])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set(xlabel="bytes a copy", ylabel="speed relative to the reference", title=title)
    figure.legend(loc="outside right upper")
    _save(figure, path)


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: Figure, path: str) -> None:
    try:
        figure.savefig(path, dpi=_DPI, format="png")
    except OSError as error:
        raise InvalidValue(f"--plot {path!r} cannot be written: {error.strerror}") from None
