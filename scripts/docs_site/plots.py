"""The plots of docs/performance.md, drawn from its tables: ``PYTHONPATH=scripts python -m docs_site.plots``.

Each SVG has the digest of what it shows in its metadata; a test compares it with the tables.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "performance.md"
FOLDER = ROOT / "docs" / "plots"
OTHERS = "| | peerlane | MPICH | Open MPI | NIXL | gloo | pipe |"
COLLECTIVES = "| | peerlane | two-shot | one-shot | ring | MPICH | Open MPI | gloo |"

_UNITS = {"ns": 1e-3, "us": 1.0, "ms": 1e3}
_SIZES = {"B": 1, "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_LOOKS = {
    "peerlane": ("#1f4fd8", "o", "-"),
    "MPICH": ("#c8441b", "s", "--"),
    "Open MPI": ("#2e8b57", "^", "-."),
    "NIXL": ("#8b3fb5", "D", ":"),
    "gloo": ("#a07800", "v", "--"),
    "pipe": ("#555555", "x", ":"),
}

Times = dict[str, dict[int, float]]  # microseconds, by contender and bytes


def times(page: str, head: str, label: str) -> Times:
    """Return the times in a table of the page: those of peerlane, and those that its ratios to the others come to.

    Parameters
    ----------
    page : str
    head : str
        The table's first line.
    label : str
        The expression of the first cells; its groups are a number and the unit of a size.
    """
    names = _cells(head)[2:]
    found: Times = {}
    for row in page.split(f"\n{head}\n", 1)[1].splitlines()[1:]:
        if not row.startswith("|"):
            break
        first, own, *ratios = _cells(row)
        size = re.fullmatch(label, first)
        if size is not None:
            nbytes = int(size[1]) * _SIZES[size[2]]
            number, _, unit = own.rpartition(" ")
            took = found.setdefault("peerlane", {})[nbytes] = _middle(number) * _UNITS[unit]
            for name, ratio in zip(names, ratios, strict=True):
                if name in _LOOKS and ratio:
                    found.setdefault(name, {})[nbytes] = took * _middle(ratio)
    return found


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def _middle(cell: str) -> float:
    """Return the median of several runs, or the middle of a range."""
    return median(float(each.replace(",", "")) for each in re.split(", | to ", cell.replace("**", "")))


def drawings(page: str) -> dict[str, tuple[str, Callable[[Path], None]]]:
    """Return, by file name, the digest of what a plot shows, and what draws it."""
    writes, messages = (times(page, OTHERS, rf"{what} (\d+) (\w+)") for what in ("write", "message"))
    ranks = [times(page, COLLECTIVES, rf"(\d+) (\w+), {count} processes") for count in (2, 4)]
    large = {
        name: {nbytes: nbytes / took / 1e3 for nbytes, took in each.items() if nbytes >= 64 << 10}
        for name, each in writes.items()
    }
    made = {
        "writes.svg": ([writes], ["Write to another process"], "microseconds"),
        "write-speed.svg": ([large], ["Write to another process"], "GB/s"),
        "messages.svg": ([messages], ["Message to another process, one way"], "microseconds"),
        "all-reduce.svg": (ranks, ["All-reduce, 2 processes", "All-reduce, 4 processes"], "microseconds"),
    }
    return {
        name: (hashlib.sha256(repr(shown).encode()).hexdigest(), partial(_draw, *shown))
        for name, shown in made.items()
    }


def _draw(shown: list[Times], titles: list[str], unit: str, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= {"svg.hashsalt": "peerlane", "svg.fonttype": "path", "font.size": 11}
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    figure, all_axes = plt.subplots(
        len(shown), 1, figsize=(7, 4.4 * len(shown)), layout="constrained", squeeze=False
    )
    for axes, contenders, title in zip(all_axes[:, 0], shown, titles, strict=True):
        for name, each in contenders.items():
            colour, marker, line = _LOOKS[name]
            axes.plot(
                list(each),
                list(each.values()),
                line,
                color=colour,
                marker=marker,
                markersize=5,
                label=name,
                linewidth=2.2 if name == "peerlane" else 1.4,
            )
        sizes = sorted({nbytes for each in contenders.values() for nbytes in each})
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(_apart(sizes)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(_size))
        if unit == "microseconds":
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(FuncFormatter(_number))
        else:
            axes.set_ylim(bottom=0)
        axes.set_title(title, loc="left", fontweight="bold")
        axes.set_xlabel("size")
        axes.set_ylabel(unit)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    digest = drawings(PAGE.read_text())[path.name][0]
    figure.savefig(path, metadata={"Date": None, "Description": digest})
    plt.close(figure)


def _apart(sizes: list[int]) -> list[int]:
    """Return sizes whose labels do not meet: each at least eight times the one before."""
    chosen = sizes[:1]
    for nbytes in sizes:
        if nbytes >= 8 * chosen[-1]:
            chosen.append(nbytes)
    return chosen


def _size(nbytes: float, _: Any = None) -> str:
    for unit in ("GiB", "MiB", "KiB"):
        if nbytes >= _SIZES[unit]:
            return f"{nbytes / _SIZES[unit]:g} {unit}"
    return f"{nbytes:g} B"


def _number(value: float, _: Any = None) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def main() -> None:
    """Draw all plots."""
    FOLDER.mkdir(exist_ok=True)
    for name, (_, draw) in drawings(PAGE.read_text()).items():
        draw(FOLDER / name)


if __name__ == "__main__":
    main()
