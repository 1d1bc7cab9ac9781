"""Tables, JSON and pictures of timings, made from given seconds."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from rich.console import Console

from peerlane.cli import plots
from peerlane.cli.bench import report, timing_report, timings
from peerlane.cli.bench.timings import Entrant

pytestmark = pytest.mark.any_schedule

KIB, MIB = 1 << 10, 1 << 20

OURS, MEMMOVE = Entrant("peerlane"), Entrant("memmove")
ONE, TWO = Entrant("openmpi", "one copy"), Entrant("openmpi", "two copies")
#: peerlane takes 20 us, and Open MPI is quicker in one of its variants in all rounds but one.
SAMPLES = {
    OURS: [20e-6, 10e-6, 30e-6],
    Entrant("peerlane", "ring"): [1e-6, 1e-6, 1e-6],
    MEMMOVE: [1e-9, 1e-9, 1e-9],
    ONE: [40e-6, 40e-6, 40e-6],
    TWO: [10e-6, 20e-6, 10e-6],
}


def broadcasts() -> list[timings.Timing]:
    sizes = (8, 4 * KIB, MIB, 64 * MIB)
    results = [
        each
        for processes in (2, 4)
        for size in sizes
        for each in timings.timed(SAMPLES, "broadcast", processes, size)
    ]
    barrier = {variant: SAMPLES[variant] for variant in (OURS, ONE)}
    return results + timings.timed(barrier, "barrier", 2, None) + timings.timed(barrier, "barrier", 4, None)


def drawn(width: int) -> str:
    file = io.StringIO()
    timing_report.draw(
        broadcasts(), Console(file=file, width=width, highlight=False, force_terminal=True, color_system=None)
    )
    return file.getvalue()


def test_timed_gives_median_and_range_and_ratio_of_rounds() -> None:
    results = {
        (each.contender, each.variant): each for each in timings.timed(SAMPLES, "broadcast", 2, 4 * KIB)
    }
    ours, quicker = results[OURS], results[TWO]
    assert (ours.seconds, ours.low, ours.high, ours.ratio) == (20e-6, 10e-6, 30e-6, 1.0)
    assert (quicker.ratio, quicker.ratio_low, quicker.ratio_high) == pytest.approx((0.5, 1 / 3, 2.0))
    assert quicker.gb_per_s == pytest.approx(4096 / 10e-6 / 1e9)
    assert quicker.case == "broadcast 4 KiB over 2 processes"


def test_timed_shows_quickest_variant_of_a_rival_and_the_own_choice_of_peerlane() -> None:
    results = timings.timed(SAMPLES, "broadcast", 2, 8)
    assert [(each.contender, each.variant) for each in results if each.is_shown] == [OURS, MEMMOVE, TWO]
    assert len(results) == len(SAMPLES)


def test_timing_of_barrier_has_no_size_and_no_bandwidth() -> None:
    barrier = timings.timed({OURS: [1e-6]}, "barrier", 4, None)[0]
    assert barrier.gb_per_s is None
    assert barrier.case == "barrier over 4 processes"


def test_table_has_time_range_bandwidth_and_ratios_within_80_columns() -> None:
    shown = drawn(80)
    lines = [line.split() for line in shown.splitlines()]
    assert ["size", "us", "range,", "us", "GB/s", "memmove,", "x", "openmpi,", "x"] in lines
    assert ["4", "KiB", "20.0", "10.0", "to", "30.0", "0.20", "<0.01", "~0.50"] in lines
    assert ["64", "MiB", "20.0", "10.0", "to", "30.0", "3,355", "<0.01", "~0.50"] in lines
    assert ["-", "20.0", "10.0", "to", "30.0", "-", "2.00"] in lines
    assert max(map(len, shown.splitlines())) <= 80


def test_table_explains_its_columns_and_lists_its_variants() -> None:
    shown = drawn(200)
    assert "GB/s: bytes of the buffer / that time" in shown
    assert "openmpi: at each size the quickest of one copy, two copies" in shown
    assert "peerlane: at each size" not in shown
    titles = [line.strip() for line in shown.splitlines() if line.strip().endswith(" processes")]
    assert titles == [
        f"{what} over {count} processes" for what in ("broadcast", "barrier") for count in (2, 4)
    ]


def test_json_has_every_variant() -> None:
    results = timing_report.as_json(timings.timed(SAMPLES, "broadcast", 2, 8))
    assert [each["variant"] for each in results] == [variant.variant for variant in SAMPLES]
    assert results[0] == {
        "operation": "broadcast", "processes": 2, "size": 8, "contender": "peerlane", "variant": "", "is_shown": True,
        "seconds": 20e-6, "low": 10e-6, "high": 30e-6, "ratio": 1.0, "ratio_low": 1.0, "ratio_high": 1.0,
        "gb_per_s": 8 / 20e-6 / 1e9,
    }  # fmt: skip


def test_latency_picture_has_panels_axes_and_colours() -> None:
    figure = plots.sweeps(timing_report.latency(broadcasts()), plots.MICROSECONDS, "latency")
    titles = [axes.get_title(loc="left").rstrip() for axes in figure.axes]
    assert titles == ["broadcast, 2 processes", "broadcast, 4 processes", "barrier"]
    first, _, barrier = figure.axes
    assert (first.get_xscale(), first.get_yscale()) == ("log", "log")
    assert first.get_xlabel() == "bytes of the buffer"
    assert texts(first)[-1] == "microseconds of one operation: lower is better"
    assert [each.get_text() for each in first.get_xticklabels()] == ["8 B", "4 KiB", "1 MiB", "64 MiB"]
    assert (barrier.get_xlabel(), [each.get_text() for each in barrier.get_xticklabels()]) == (
        "processes",
        ["2", "4"],
    )
    ours, openmpi = first.lines
    assert ours.get_ydata() == pytest.approx([20.0] * 4)
    assert openmpi.get_ydata() == pytest.approx([10.0] * 4)
    for line, name in ((ours, "peerlane"), (openmpi, "openmpi")):
        assert to_hex(line.get_color()).upper() == plots.LOOKS[name].colour
    band = first.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((10.0, 30.0))
    assert texts(first)[:-1] == ["peerlane", "Open MPI"]
    for label, line in zip(first.texts, (ours, openmpi), strict=False):
        assert (label.get_color(), label.xy[1]) == (line.get_color(), line.get_ydata()[-1])


def texts(axes: Axes) -> list[str]:
    """Return what stands beside the lines of a panel, and then above it."""
    return [each.get_text() for each in axes.texts]


def test_names_of_lines_with_equal_ends_do_not_meet() -> None:
    ends = plots._spread({"low": 0.0, "a": 0.5, "b": 0.5, "c": 0.49, "high": 1.4}, 0.1)
    assert ends == pytest.approx({"high": 1.0, "a": 0.5, "b": 0.4, "c": 0.3, "low": 0.0})
    crowded = plots._spread(dict.fromkeys(map(str, range(20)), 0.0), 0.1)
    assert sorted(crowded.values()) == pytest.approx([0.1 * each for each in range(20)])


def test_copies_picture_names_the_reference_and_draws_both_routes_unlike() -> None:
    points = {KIB: (0.9, 0.8, 1.0), MIB: (1.0, 0.9, 1.1)}
    series = {"peerlane, on a device": points, "peerlane, between peers": points}
    [axes] = plots.ratios(series, "Copies", "memmove").axes
    assert texts(axes) == [
        "1 = memmove",
        *series,
        "times as fast as the reference of that size: higher is better",
    ]
    one, other, reference = axes.lines
    assert one.get_color() == other.get_color() and one.get_linestyle() != other.get_linestyle()
    assert list(reference.get_ydata()) == [1, 1]


def test_bandwidth_picture_is_in_gb_per_s_from_4_kib_on() -> None:
    figure = plots.sweeps(timing_report.bandwidth(broadcasts()), plots.GB_PER_S)
    assert len(figure.axes) == 2
    axes = figure.axes[0]
    assert (axes.get_yscale(), axes.get_ylim()[0]) == ("linear", 0.0)
    assert texts(axes)[-1].startswith("GB/s") and texts(axes)[-1].endswith("higher is better")
    assert [each.get_text() for each in axes.get_xticklabels()] == ["4 KiB", "1 MiB", "64 MiB"]
    assert axes.lines[0].get_ydata() == pytest.approx(
        [size / 20e-6 / 1e9 for size in (4 * KIB, MIB, 64 * MIB)]
    )


def test_looks_of_known_contenders_differ_and_of_others_are_black() -> None:
    assert len({look.colour for look in plots.LOOKS.values()}) == len(plots.LOOKS)
    results = plots.looks(["peerlane", "new", "newer"])
    assert results["peerlane"] == plots.LOOKS["peerlane"]
    assert results["new"].colour == results["newer"].colour == "#000000"
    assert results["new"].marker != results["newer"].marker


def test_plot_writes_a_picture_for_latency_and_one_for_bandwidth(tmp_path: Path) -> None:
    result = report.Result([], broadcasts(), [], 3)
    written = report.plot(result, str(tmp_path / "speed.png"))
    assert written == [str(tmp_path / f"speed-{kind}.png") for kind in ("latency", "bandwidth")]
    assert all(Path(each).read_bytes().startswith(b"\x89PNG") for each in written)
    assert not (tmp_path / "speed.png").exists()
