"""The plots of docs/performance.md show what its tables say."""

from __future__ import annotations

import pytest

from docs_site import plots

pytestmark = pytest.mark.any_schedule

PAGE = plots.PAGE.read_text()


def test_page_shows_each_drawing_once() -> None:
    shown = plots.COMMENT.findall(PAGE)
    assert sorted(name for name, _ in shown) == sorted(plots.drawings(PAGE))
    rendered = plots.with_plots(PAGE)
    assert all(f"![{words}](plots/{name})" in rendered for name, words in shown)


def test_times_of_a_table_are_medians_of_runs_and_ratios_times_own() -> None:
    page = "\n| | peerlane | two | MPICH |\n| --- | --- | --- | --- |\n" + (
        "| write 4 KiB | 1, 3, 2 us | 9 | **0.5**, 0.7, 0.6 |\n"
        "| write 1 MiB | 1,740 us | 9 | 1.0 to 2.0 |\n"
        "| other | 1 us | | |\n"
    )
    assert plots.times(page, "| | peerlane | two | MPICH |", r"write (\d+) (\w+)") == {
        "peerlane": {4096: 2.0, 1 << 20: 1740.0},
        "MPICH": {4096: pytest.approx(1.2), 1 << 20: pytest.approx(2610.0)},
    }


def test_drawing_is_svg() -> None:
    assert b"<svg" in plots.drawings(PAGE)["writes.svg"]()
