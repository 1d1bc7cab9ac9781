"""The plots of docs/performance.md show what its tables say."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs_site import plots

pytestmark = pytest.mark.any_schedule

PAGE = plots.PAGE.read_text()


@pytest.mark.parametrize("name", plots.drawings(PAGE))
def test_plot_shows_the_tables_of_the_page(name: str) -> None:
    digest, _ = plots.drawings(PAGE)[name]
    assert digest in (plots.FOLDER / name).read_text(), "run `make reference`"
    assert f"](plots/{name})" in PAGE


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


def test_plot_is_drawn_with_its_digest(tmp_path: Path) -> None:
    path = tmp_path / "writes.svg"
    digest, draw = plots.drawings(PAGE)["writes.svg"]
    draw(path)
    assert digest in path.read_text()
