"""The laboratory's subjects and its bars. No test here depends on a measured speed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import peerlane as pl
from benchmarks import (
    bars,
    batches,
    copies,
    logged,
    lookups,
    overlaps,
    references,
    report,
    scale,
    starts,
    submissions,
    waits,
)
from benchmarks.__main__ import main
from helpers.promises import Node
from peerlane.cli import machine
from peerlane.cli.bench import NODE, measure, plan
from peerlane.cli.bench.report import Result
from peerlane.cli.bench.timings import Entrant, timed
from peerlane.diagnostics.log import event_log

pytestmark = pytest.mark.any_schedule

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture(autouse=True)
def no_node_left() -> Iterator[None]:
    yield
    pl.leave_node()


def run(*arguments: object) -> int:
    return main([*map(str, arguments)])


def figure_of(ratio: float, kind: str) -> measure.Figure:
    return measure.Figure("case", "peerlane", "reference", kind, ratio, ratio, ratio, 1.0)


@pytest.mark.parametrize(
    ("kind", "ratio", "met"),
    [
        (measure.SPEED, 0.97, "goal"),
        (measure.SPEED, 0.9699, "must"),
        (measure.SPEED, 0.90, "must"),
        (measure.SPEED, 0.8999, "missed"),
        (measure.TIME, 0.90, "goal"),
        (measure.TIME, 0.95, "must"),
        (measure.TIME, 0.97, "must"),
        (measure.TIME, 0.98, "missed"),
    ],
)
def test_bar_of_each_kind_is_met_by_its_ratio_alone(kind: str, ratio: float, met: str) -> None:
    must, goal = (0.90, 0.97) if kind == measure.SPEED else (0.97, 0.90)
    assert bars.Bar("P", "case", "peerlane", must, goal).met(figure_of(ratio, kind)) == met


def test_physical_cores_are_at_most_the_cores_of_this_process() -> None:
    assert 1 <= machine.physical_cores() <= machine.cores()


def test_bench_copy_of_large_size_is_compared_with_best_reference(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("copy", "--sizes", "64K,16M", "--rounds", 1, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    by_size = {size: [] for size in (64 * KIB, 16 * MIB)}  # type: dict[int, list[dict[str, str]]]
    for figure in result["figures"]:
        by_size[figure["size"]].append(figure)
    assert {each["reference"] for each in by_size[64 * KIB]} == {copies.MEMCPY}
    for figures in by_size.values():
        names = {each["contender"] for each in figures} | {figures[0]["reference"]}
        assert {"peerlane", "numpy.copyto", "ctypes.memmove", copies.MEMCPY} <= names
    (bar,) = result["bars"]
    assert (bar["id"], bar["case"]) == ("P2", "copy 64 KiB on a device, peerlane")
    assert (bar["must"], bar["goal"]) == (0.70, 0.95)
    assert bar["met"] in ("goal", "must", "missed")
    assert result["verdict"].startswith("bars: ") and result["verdict"].count("1") == 1


def test_c_call_times_calls_from_c_or_names_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("c-call", "--rounds", 1, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert {figure["contender"] for figure in result["figures"]} == {*bars.C_LIMITS}
    assert [bar["id"] for bar in result["bars"]] == ["C"] * len(bars.C_LIMITS)
    monkeypatch.setenv("PATH", "")
    assert run("c-call", "--rounds", 1, "--json") == 0
    assert [skip["why"] for skip in json.loads(capsys.readouterr().out)["skipped"]] == [
        "there is no C++ compiler"
    ]


def quiet_plan(show: Callable[[str], None] = lambda words: None) -> plan.Plan:
    return plan.Plan(sizes=(), rounds=1, show=show)


def test_bench_lookup_gives_two_figures_or_skips_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    figures, skips = lookups.measure(quiet_plan(), NODE, many=2_000)
    assert not skips
    assert [figure.contender for figure in figures] == ["peerlane", "peerlane, without the call"]
    assert all(0 < figure.seconds < 0.1 for figure in figures)
    monkeypatch.setattr("peerlane.cli.machine.room", lambda: 1000)
    figures, skips = lookups.measure(quiet_plan(), NODE)
    assert not figures
    assert skips[0].case == "look-up among 1,000,000"


@pytest.mark.timeout(60)
def test_bench_overlap_is_compared_with_longer_of_the_two(node: Node) -> None:
    figures, skips = overlaps.measure(quiet_plan(), node(), size=MIB)
    assert not skips
    assert [(figure.contender, figure.reference) for figure in figures] == [
        ("peerlane", "the longer of the two alone"),
        ("Python, beside the copy", "Python alone"),
    ]
    assert {figure.case for figure in figures} == {"async copy of 1 MiB beside Python"}


@pytest.mark.timeout(60)
def test_bench_submit_runs_every_submission(node: Node) -> None:
    devices = node()
    streams: list[pl.Stream] = []
    create = pl.Device.create_stream

    def creating(device: pl.Device) -> pl.Stream:
        streams.append(create(device))
        return streams[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pl.Device, "create_stream", creating)
        figures, skips = submissions.measure(quiet_plan(), devices, number=500)
    assert not skips
    assert [(figure.case, figure.contender) for figure in figures] == [
        ("submit 8 bytes, stream idle", "peerlane"),
        ("submit 8 bytes, behind a wait", "peerlane"),
        ("submit 8 bytes, behind a wait", "peerlane, sync behind them"),
    ]
    assert {figure.reference for figure in figures} == {"ctypes.memmove"}
    (stream,) = streams
    assert stream.completed == stream.submitted == 2 * (2 * 500) + 2  # two rounds of two cases, and two waits


@pytest.mark.timeout(60)
def test_bench_batch_and_its_reference_copy_the_same_blocks(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    loop = references.time_scattered_copies

    def counting(dsts: Any, srcs: Any, size: int, rounds: int) -> float:
        assert len({*dsts.tolist()}) == len({*srcs.tolist()}) == 300
        seen.append((size, rounds))
        return loop(dsts, srcs, size, rounds)

    monkeypatch.setattr(references, "time_scattered_copies", counting)
    figures, skips = batches.measure(quiet_plan(), node(), blocks=300)
    assert not skips
    assert seen == [(4 * KIB, 1)] * 2
    assert [figure.contender for figure in figures] == [
        "peerlane",
        "peerlane, on a stream",
        "peerlane, launch of a copy list",
    ]
    assert all(figure.seconds > 0 for figure in figures)


def test_time_scattered_copies_moves_every_byte() -> None:
    origin, target = np.arange(64, dtype=np.uint8), np.zeros(64, np.uint8)
    starts = np.array([48, 0, 16], np.uint64)
    ends = np.array([0, 32, 48], np.uint64)
    references.time_scattered_copies(ends + target.ctypes.data, starts + origin.ctypes.data, 16, 1)
    assert target.tolist() == [*range(48, 64), *[0] * 16, *range(16), *range(16, 32)]
    with pytest.raises(ValueError, match="as many destinations as sources"):
        references.time_scattered_copies(ends[:2], starts, 16, 1)


@pytest.mark.timeout(120)
def test_bench_scale_gives_memory_and_threads_of_own_process() -> None:
    figures, skips = scale.measure(quiet_plan(), devices=20, streams=50, events=300)
    assert not skips
    assert [(figure.contender, figure.reference) for figure in figures] == [
        ("resident memory", "1 GiB"),
        ("threads", "200 threads"),
    ]
    assert {figure.case for figure in figures} == {"20 devices, 50 streams, 300 events"}
    assert all(0 < figure.ratio < 1 for figure in figures)


def test_bench_scale_error_in_its_process_is_raised() -> None:
    with pytest.raises(pl.InvalidValue, match="4096"):
        scale.measure(quiet_plan(), devices=5000)


@pytest.mark.timeout(60)
def test_bench_wait_gives_share_of_a_core(node: Node) -> None:
    figures, skips = waits.measure(quiet_plan(), node(), seconds=0.05)
    assert not skips
    assert [figure.contender for figure in figures] == ["peerlane", "peerlane, a word of memory"]
    assert all(figure.kind == measure.SHARE and figure.seconds >= 0 for figure in figures)


def test_bench_stream_bars_name_the_measured_cases(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peerlane.cli.machine.room", lambda: 1000)
    devices = node()
    skips = []
    for subject in (overlaps, submissions, batches):
        figures, left = subject.measure(quiet_plan(), devices)
        assert not figures
        skips += left
    assert [skip.case for skip in skips] == [bar.case for bar in bars.BARS if bar.id in ("P4", "P5", "P6")]


@pytest.mark.timeout(120)
def test_bench_scale_of_full_size_meets_its_goal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("scale", "--rounds", 1, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert [(bar["id"], bar["met"]) for bar in result["bars"]] == [("P11", "goal")] * 2


def test_bench_lookup_error_in_its_process_is_raised() -> None:
    with pytest.raises(pl.OutOfMemory, match="cannot allocate"):
        lookups.measure(quiet_plan(), "devices=1,memory=2MiB", many=20_000)


@pytest.mark.timeout(300)
def test_bench_check_gives_costs_of_log_and_of_analysis(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logged, "_SAMPLE_SECONDS", 0.001)  # ranks that share cores wait for their turns
    figures, skips = logged.measure(quiet_plan(), node(), NODE, events=20_000)
    assert not skips
    costs = [each for each in figures if each.contender == bars.PEERLANE_LOGGED]
    judged = {bar.case for bar in bars.BARS if bar.contender == bars.PEERLANE_LOGGED}
    assert {each.case for each in costs} == judged
    assert all(each.reference == measure.PEERLANE and each.ratio > 0 for each in costs)
    rest = {each.contender: each for each in figures if each.case == bars.analysis_case(20_000)}
    assert set(rest) == {bars.PROCESSOR_OF_ANALYSIS, bars.RESIDENT, bars.BYTES_OF_EVENT}
    assert 0 < rest[bars.RESIDENT].ratio < 1
    assert rest[bars.BYTES_OF_EVENT].ratio == pytest.approx(1, abs=0.01)
    (rate,) = (each for each in figures if each.case == bars.NOTHING_DROPPED)
    assert rate.reference == bars.MILLION
    assert rate.ratio > 0
    assert event_log.facts() is None


def test_bench_check_beside_a_log_is_skipped(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "active", True)
    assert logged.measure(quiet_plan(), node(), NODE) == (
        [],
        [measure.Skip("an event log", "this process writes one already")],
    )


def test_bench_start_compares_fresh_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # By processor time: no stop of the machine turns the one round.
    monkeypatch.setattr(starts, "time", SimpleNamespace(perf_counter=starts._processor_time))
    assert run("start", "--rounds", 1, "--json", tmp_path / "out.json") == 0
    result = json.loads((tmp_path / "out.json").read_text())
    assert [(each["id"], each["reference"]) for each in result["bars"]] == [
        ("start", "import numpy"),
        ("start", "0.1 s"),
    ]
    figures = {each["contender"]: each for each in result["figures"]}
    assert len(figures) == 3
    # NumPy takes five times as long, so that no load of the machine turns this round.
    assert 0 < figures["peerlane"]["ratio"] < 1


def test_share_bar_is_met_at_its_limit() -> None:
    assert bars.Bar("P", "case", "peerlane", 1.0, 1.0).met(figure_of(1.0, measure.SHARE)) == "goal"
    assert bars.Bar("P", "case", "peerlane", 1.0, 1.0).met(figure_of(1.001, measure.SHARE)) == "missed"


def test_references_without_compiler_report_its_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(pl.Unsupported, match="there is no compiler"):
        references.compiled.__wrapped__()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["call", "--sizes", "1M"], "--sizes means nothing to `call`; valid with copy"),
        (["wait", "--plot", "a.png"], "--plot means nothing to `wait`"),
        (["copy", "--rounds", "0"], "--rounds is 0; valid are 1 to 1000"),
    ],
)
def test_bad_arguments_exit_2_and_list_valid_values(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    printed = capsys.readouterr()
    assert (printed.err.startswith("benchmarks: "), printed.out) == (True, "")
    assert words in printed.err


def test_bar_is_judged_by_timing_of_quickest_variant() -> None:
    samples = {
        Entrant("peerlane"): [20e-6, 10e-6, 30e-6],
        Entrant("openmpi", "one copy"): [40e-6, 40e-6, 40e-6],
        Entrant("openmpi", "two copies"): [10e-6, 20e-6, 10e-6],
    }
    timings = timed(samples, "all-reduce", 2, 64 * MIB)
    [(bar, figure)] = report.judged_of(Result([], timings, [], 3))
    assert (bar.reference, figure.kind, figure.ratio) == ("openmpi", measure.SPEED, pytest.approx(0.5))
    assert (figure.seconds, figure.reference_seconds) == (20e-6, 10e-6)
    assert bar.met(figure) == "missed"
    assert bar in bars.BARS
