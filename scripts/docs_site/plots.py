"""Hooks of mkdocs: the plots of docs/performance.md are drawn from the tables of docs/design/figures.md.

A comment stands where a plot belongs, ``<!-- plot writes.svg: what it shows -->``; a forge shows the tables only.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from functools import partial
from itertools import takewhile
from pathlib import Path
from statistics import median
from typing import Any

from mkdocs.structure.files import File

from peerlane.cli.plots import GB_PER_S, MICROSECONDS, Panel, sweeps

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "performance.md"
TABLES = DOCS / "design/figures.md"
FOLDER = "plots"
COMMENT = re.compile(r"<!-- plot ([\w-]+\.svg): ([^\n]+) -->")
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
    times_of_cases: Times = {}
    for row in page.split(f"\n{head}\n", 1)[1].splitlines()[1:]:
        if not row.startswith("|"):
            break
        cells = _cells(row)
        size = re.fullmatch(label, cells[0])
        if size is not None:
            nbytes = int(size[1]) * _SIZES[size[2]]
            number, _, unit = cells[own].rpartition(" ")
            took = times_of_cases.setdefault("peerlane", {})[nbytes] = _middle(number) * _UNITS[unit]
            for name, ratio in zip(names, cells[own + 1 :], strict=False):
                if name in _NAMES and ratio:
                    times_of_cases.setdefault(name, {})[nbytes] = took * _middle(ratio)
    return times_of_cases


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def _middle(cell: str) -> float:
    """Return the median of several runs, or the middle of a range."""
    return median(float(each.replace(",", "")) for each in re.split(", | to ", cell.replace("**", "")))


def drawings(page: str) -> dict[str, Callable[[], bytes]]:
    """Return, by file name, what draws a plot as SVG."""
    writes, messages = (times(page, OTHERS, rf"{what} (\d+) (\w+)") for what in ("write", "message"))
    ranks = {
        name: [times(page, COLLECTIVES, rf"{name} (\d+) (\w+)", own) for own in (1, 4)]
        for name in ("broadcast", "all-gather", "all-reduce")
    }
    large = {
        name: {nbytes: nbytes / took / 1e3 for nbytes, took in each.items() if nbytes >= 64 << 10}
        for name, each in writes.items()
    }
    return {
        "writes.svg": partial(_drawn, {"Write to another process": writes}, MICROSECONDS),
        "write-speed.svg": partial(_drawn, {"Write to another process": large}, GB_PER_S),
        "messages.svg": partial(_drawn, {"Message to another process, one way": messages}, MICROSECONDS),
        **{
            f"{name}.svg": partial(
                _drawn,
                {
                    f"{name.capitalize()}, {count} processes": each
                    for count, each in zip((2, 4), shown, strict=True)
                },
                MICROSECONDS,
            )
            for name, shown in ranks.items()
        },
    }


def _drawn(shown: dict[str, Times], unit: str) -> bytes:
    panels = {
        title: Panel(
            {
                _NAMES[name]: {nbytes: (value, value, value) for nbytes, value in each.items()}
                for name, each in contenders.items()
            }
        )
        for title, contenders in shown.items()
    }
    svg = io.BytesIO()
    sweeps(panels, unit, columns=1).savefig(svg, format="svg")
    return svg.getvalue()


def with_plots(markdown: str) -> str:
    """Return the page with an image for each comment that names a plot and says what it shows."""
    return COMMENT.sub(rf"![\2]({FOLDER}/\1)", markdown)


def on_files(files: Any, config: Any) -> Any:
    """Draw the plots among the files of the site."""
    for name, draw in drawings(TABLES.read_text()).items():
        files.append(File.generated(config, f"{FOLDER}/{name}", content=draw()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Show the plots on their page."""
    return with_plots(markdown) if page.file.src_uri == PAGE.name else markdown
