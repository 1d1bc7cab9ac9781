"""The plots of docs/performance.md, drawn from its tables: ``PYTHONPATH=scripts python -m docs_site.plots``.

Each SVG has the digest of what it shows in its metadata; a test compares it with the tables.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import partial
from itertools import takewhile
from pathlib import Path
from statistics import median

from peerlane.cli.plots import GB_PER_S, MICROSECONDS, Panel, sweeps

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "performance.md"
FOLDER = ROOT / "docs" / "plots"
OTHERS = "| | peerlane | MPICH | Open MPI | NIXL | gloo | pipe |"
COLLECTIVES = "| | 2 processes | MPICH | Open MPI | 4 processes | MPICH | Open MPI |"

_UNITS = {"ns": 1e-3, "us": 1.0, "ms": 1e3}
_SIZES = {"B": 1, "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
#: The contenders by their names in the tables; pictures call them as `peerlane bench` does.
_NAMES = {
    "peerlane": "peerlane",
    "MPICH": "mpich",
    "Open MPI": "openmpi",
    "NIXL": "nixl",
    "gloo": "gloo",
    "pipe": "pipe",
}

Times = dict[str, dict[int, float]]  # microseconds, by contender and bytes


def times(page: str, head: str, label: str, own: int = 1) -> Times:
    """Return the times in a table of the page: those of peerlane, and those that its ratios to the others come to.

    Parameters
    ----------
    page : str
    head : str
        The table's first line.
    label : str
        The expression of the first cells; its groups are a number and the unit of a size.
    own : int
        The column with peerlane's times; those of the others stand behind it.
    """
    names = list(takewhile(lambda name: not name.endswith("processes"), _cells(head)[own + 1 :]))
    found: Times = {}
    for row in page.split(f"\n{head}\n", 1)[1].splitlines()[1:]:
        if not row.startswith("|"):
            break
        cells = _cells(row)
        size = re.fullmatch(label, cells[0])
        if size is not None:
            nbytes = int(size[1]) * _SIZES[size[2]]
            number, _, unit = cells[own].rpartition(" ")
            took = found.setdefault("peerlane", {})[nbytes] = _middle(number) * _UNITS[unit]
            for name, ratio in zip(names, cells[own + 1 :], strict=False):
                if name in _NAMES and ratio:
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
    ranks = {
        name: [times(page, COLLECTIVES, rf"{name} (\d+) (\w+)", own) for own in (1, 4)]
        for name in ("broadcast", "all-gather", "all-reduce")
    }
    large = {
        name: {nbytes: nbytes / took / 1e3 for nbytes, took in each.items() if nbytes >= 64 << 10}
        for name, each in writes.items()
    }
    made = {
        "writes.svg": ([writes], ["Write to another process"], MICROSECONDS),
        "write-speed.svg": ([large], ["Write to another process"], GB_PER_S),
        "messages.svg": ([messages], ["Message to another process, one way"], MICROSECONDS),
        **{
            f"{name}.svg": (
                shown,
                [f"{name.capitalize()}, {count} processes" for count in (2, 4)],
                MICROSECONDS,
            )
            for name, shown in ranks.items()
        },
    }
    return {
        name: (hashlib.sha256(repr(shown).encode()).hexdigest(), partial(_draw, *shown))
        for name, shown in made.items()
    }


def _draw(shown: list[Times], titles: list[str], unit: str, path: Path) -> None:
    import matplotlib as mpl

    panels = {
        title: Panel(
            {
                _NAMES[name]: {nbytes: (value, value, value) for nbytes, value in each.items()}
                for name, each in contenders.items()
            }
        )
        for contenders, title in zip(shown, titles, strict=True)
    }
    digest = drawings(PAGE.read_text())[path.name][0]
    with mpl.rc_context({"svg.hashsalt": "peerlane", "svg.fonttype": "path"}):
        sweeps(panels, unit, columns=1).savefig(path, metadata={"Date": None, "Description": digest})


def main() -> None:
    """Draw all plots."""
    FOLDER.mkdir(exist_ok=True)
    for name, (_, draw) in drawings(PAGE.read_text()).items():
        draw(FOLDER / name)


if __name__ == "__main__":
    main()
