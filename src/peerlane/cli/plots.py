"""Pictures of results.  Matplotlib is in the ``bench`` extra and imported only here, inside functions."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
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


#: By size: the ratio, and the least and the greatest of its rounds.
Series = Mapping[int, tuple[float, float, float]]


def save_ratios(path: str, series: Mapping[str, Series], title: str) -> None:
    """Draw speed over size, a line for each contender with the spread of its rounds; 1 is the reference."""
    figure = _figure(9, 4.5)
    axes = figure.add_subplot()
    for name, points in series.items():
        sizes = sorted(points)
        ratios, least, most = zip(*(points[size] for size in sizes), strict=True)
        [line] = axes.plot(sizes, ratios, marker="o", label=name)
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
    _save(figure, path)


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: Figure, path: str) -> None:
    try:
        figure.savefig(path, dpi=_DPI, format="png")
    except OSError as error:
        raise InvalidValue(f"--plot {path!r} cannot be written: {error.strerror}") from None
