"""``peerlane bench``: its method, its bars and its output. No test here depends on a measured speed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import peerlane as pl
from helpers.promises import Node
from peerlane import _bench, dialects
from peerlane.cli import machine, main
from peerlane.cli.bench import (
    NODE,
    bars,
    batches,
    logged,
    lookups,
    measure,
    overlaps,
    plan,
    rivals,
    scale,
    starts,
    submissions,
    waits,
)
from peerlane.diagnostics.log import event_log
from peerlane.errors import InvalidValue

pytestmark = pytest.mark.any_schedule

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture(autouse=True)
def no_node_left() -> Iterator[None]:
    yield
    pl.leave_node()


@pytest.fixture
def clean_dialects() -> Iterator[None]:
    yield
    dialects.uninstall("acl")


def run(*arguments: object) -> int:
    return main(["bench", *map(str, arguments)])


def scripted(name: str, seconds: list[float], log: list[str]) -> measure.Contender:
    """Return a contender whose first sample, which is not counted, is 0, and whose other samples are given."""
    left = iter([0.0, *seconds])

    def sample() -> float:
        log.append(name)
        return next(left)

    return measure.Contender(name, sample)


def test_interleaved_contenders_take_turns_and_first_round_is_dropped() -> None:
    log: list[str] = []
    samples = measure.interleaved([scripted("a", [1, 2, 3], log), scripted("b", [4, 5, 6], log)], 3)
    assert samples == {"a": [1, 2, 3], "b": [4, 5, 6]}
    assert log == ["a", "b", "a", "b", "b", "a", "a", "b"]


def test_figure_ratio_is_median_of_ratios_of_rounds() -> None:
    samples = {"ours": [1.0, 10.0, 2.0], "reference": [2.0, 30.0, 8.0]}
    speed = measure.figure(samples, "case", "ours", "reference", measure.SPEED, 64)
    assert (speed.ratio, speed.low, speed.high, speed.seconds) == (3.0, 2.0, 4.0, 2.0)
    duration = measure.figure(samples, "case", "ours", "reference", measure.TIME)
    assert duration.ratio == pytest.approx(1 / 3)
    assert measure.best(samples, ["reference", "ours"]) == "ours"


@pytest.mark.parametrize(
    ("ratio", "standing"), [(0.96, "behind"), (0.98, "tie"), (1.02, "tie"), (1.04, "ahead")]
)
def test_figure_within_three_percent_is_a_tie(ratio: float, standing: str) -> None:
    assert figure_of(ratio, measure.SPEED).standing == standing
    assert figure_of(2 - ratio, measure.TIME).standing == standing


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


def test_looped_contender_calls_function_with_its_arguments() -> None:
    calls: list[tuple[int, ...]] = []
    contender = measure.looped("c", lambda *arguments: calls.append(arguments), 1, 2, number=5)
    assert contender.sample() >= 0
    assert calls == [(1, 2)] * 5


def test_looped_contender_passes_keyword_arguments() -> None:
    calls: list[tuple[object, ...]] = []
    contender = measure.looped("c", lambda a, *, b: calls.append((a, b)), 1, number=3, b=2)
    assert contender.sample() >= 0
    assert calls == [(1, 2)] * 3


def test_share_figure_never_ties_and_less_is_better() -> None:
    assert figure_of(1.0, measure.SHARE).standing == ""
    assert bars.Bar("P", "case", "peerlane", 1.0, 1.0).met(figure_of(1.0, measure.SHARE)) == "goal"
    assert bars.Bar("P", "case", "peerlane", 1.0, 1.0).met(figure_of(1.001, measure.SHARE)) == "missed"
    samples = {"ours": [1.0, 3.0], "core": [100.0, 100.0]}
    assert measure.figure(samples, "case", "ours", "core", measure.SHARE).ratio == pytest.approx(0.02)


def test_bench_copy_writes_every_promised_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, picture = tmp_path / "out.json", tmp_path / "speed.png"
    assert (
        run(
            "copy", "--sizes", "4K,64K", "--rounds", 1, "--with", "numpy,ctypes,memcpy,torch",
            "--json", target, "--plot", picture,
        )
        == 0
    )  # fmt: skip
    result = json.loads(target.read_text())
    (bar,) = result["bars"]
    assert (bar["id"], bar["case"]) == ("P2", "copy 64 KiB on a device, peerlane")
    assert (bar["must"], bar["goal"]) == (0.70, 0.95)
    assert bar["met"] in ("goal", "must", "missed")
    assert bar["reference"] == rivals.MEMCPY
    assert result["rounds"] == 1
    assert result["environment"]["cores"] >= 1
    assert {"python", "processor", "date"} <= set(result["environment"])
    measured = {(figure["case"], figure["contender"]) for figure in result["figures"]}
    for size in ("4 KiB", "64 KiB"):
        assert (f"copy {size} between peers", "peerlane") in measured
        for contender in ("peerlane", "numpy.copyto", "ctypes.memmove"):
            assert (f"copy {size} on a device", contender) in measured
    torch_there = any(contender == "torch copy_" for _, contender in measured)
    assert torch_there or [skip["case"] for skip in result["skipped"]] == ["rival torch"]
    assert picture.read_bytes().startswith(b"\x89PNG")
    shown = capsys.readouterr().out
    assert "1 round is too few to quote" in shown
    assert shown.splitlines()[-2:] == [result["verdict"], f"pictures: {picture}"]
    assert result["verdict"].startswith("bars: ") and result["verdict"].count("1") == 1


def test_bench_without_native_module_exits_2_and_says_how_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "peerlane._bench", None)
    assert run("copy") == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert "peerlane._bench" in printed.err
    assert "pip install --no-binary peerlane 'peerlane[bench]'" in printed.err


def test_physical_cores_are_at_most_the_cores_of_this_process() -> None:
    assert 1 <= machine.physical_cores() <= machine.cores()


def test_bench_copy_of_large_size_is_compared_with_best_reference(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("copy", "--sizes", "16M", "--rounds", 1, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    names = {figure["contender"] for figure in result["figures"]} | {result["figures"][0]["reference"]}
    assert {"peerlane", rivals.MEMCPY} < names


def test_bench_copy_without_memory_skips_case_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("peerlane.cli.machine.room", lambda: 100 * KIB)
    assert run("copy", "--sizes", "4K,64K", "--rounds", 1) == 0
    table = capsys.readouterr().out
    assert "skipped: copy 64 KiB on a device: needs 131,072 bytes of memory, 102,400 are available" in table
    assert "copy 4 KiB on a device" in table


@pytest.mark.usefixtures("clean_dialects")
def test_bench_call_reports_neutral_copy_and_dialect_or_why_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("call", "--rounds", 1, "--json", "--with", "numpy") == 0
    result = json.loads(capsys.readouterr().out)
    contenders = {figure["contender"] for figure in result["figures"]}
    skipped = {skip["case"] for skip in result["skipped"]}
    assert {"peerlane", "peerlane raw", "numpy.copyto"} <= contenders
    assert ("peerlane acl" in contenders) != ("call copying 8 bytes, acl dialect" in skipped)
    assert all(figure["reference"] == "ctypes.memmove" for figure in result["figures"])
    assert [bar["id"] for bar in result["bars"]] == ["P3"] * (2 + ("peerlane acl" in contenders))


def test_bench_call_c_times_calls_from_c_or_says_why_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("call", "--c", "--rounds", 1, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert {figure["contender"] for figure in result["figures"]} == {*bars.C_LIMITS}
    assert [bar["id"] for bar in result["bars"]] == ["C"] * len(bars.C_LIMITS)
    monkeypatch.setenv("PATH", "")
    assert run("call", "--c", "--rounds", 1, "--json") == 0
    assert [skip["why"] for skip in json.loads(capsys.readouterr().out)["skipped"]] == [
        "there is no C++ compiler"
    ]


def test_bench_c_means_nothing_to_other_subjects(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("copy", "--c") == 2
    assert "--c means nothing to `bench copy`; valid with call" in capsys.readouterr().err


def quiet_plan(say: Callable[[str], None] = lambda words: None) -> plan.Plan:
    return plan.Plan(sizes=(), rivals=(), rounds=1, say=say)


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
    loop = _bench.time_scattered_copies

    def counting(dsts: Any, srcs: Any, size: int, rounds: int) -> float:
        assert len({*dsts.tolist()}) == len({*srcs.tolist()}) == 300
        seen.append((size, rounds))
        return loop(dsts, srcs, size, rounds)

    monkeypatch.setattr(_bench, "time_scattered_copies", counting)
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
    _bench.time_scattered_copies(ends + target.ctypes.data, starts + origin.ctypes.data, 16, 1)
    assert target.tolist() == [*range(48, 64), *[0] * 16, *range(16), *range(16, 32)]
    with pytest.raises(ValueError, match="as many destinations as sources"):
        _bench.time_scattered_copies(ends[:2], starts, 16, 1)


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


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("64K,1M", (64 << 10, 1 << 20)),
        ("1GiB", (1 << 30,)),
        (" 2M , 512", (512, 2 << 20)),
        ("1.5K,1536", (1536,)),
    ],
)
def test_parse_sizes_of_valid_text_gives_bytes(text: str, sizes: tuple[int, ...]) -> None:
    assert plan.parse_sizes(text) == sizes


@pytest.mark.parametrize("text", ["", "64Q", "0", "-1", "1M,,2M", "512G", "1e3", "64k", "0.3"])
def test_parse_sizes_of_bad_text_raises_invalid_value(text: str) -> None:
    with pytest.raises(InvalidValue, match="is not a size of 1 byte to 256 GiB; valid are"):
        plan.parse_sizes(text)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["copy", "--with", "cupy"], "no rival 'cupy'; valid are numpy, ctypes, torch, memcpy"),
        (["copy", "--rounds", "0"], "--rounds is 0; valid are 1 to 1000"),
        (["call", "--sizes", "1M"], "--sizes means nothing to `bench call`"),
        (["lookup", "--with", "numpy"], "--with means nothing to `bench lookup`"),
        (["call", "--plot", "a.png"], "--plot means nothing to `bench call`"),
        (["copy", "--plot", "a.pdf"], "--plot 'a.pdf': valid is a name that ends in .png or .svg"),
        (
            ["collective", "--sizes", "6,8", "--rounds", "1"],
            "--sizes has 6 bytes; valid for collectives are multiples of 4",
        ),
        (["copy", "--json", "no/such/folder/x.json"], "cannot be written"),
    ],
)
def test_bench_bad_arguments_exit_2_and_say_what_is_valid(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("peerlane bench: ")
    assert words in printed.err
    assert printed.out == ""


def test_bench_ctrl_c_ends_all_its_processes_and_exits_130() -> None:
    command = [sys.executable, "-m", "peerlane", "bench", "lookup"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            _wait_for_children(process.pid, 3)  # one of them is the resource tracker of multiprocessing
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=30)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130
    assert (out, err) == ("", "peerlane bench: interrupted\n")


def _wait_for_children(pid: int, count: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if len(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()) >= count:
            return
        time.sleep(0.02)
    raise AssertionError(f"the bench never had {count} children")


@pytest.mark.timeout(300)
def test_bench_check_gives_costs_of_log_and_of_analysis(node: Node) -> None:
    figures, skips = logged.measure(quiet_plan(), node(), NODE, events=20_000)
    assert not skips
    costs = [each for each in figures if each.contender == bars.PEERLANE_LOGGED]
    judged = {bar.case for bar in bars.BARS if bar.contender == bars.PEERLANE_LOGGED}
    assert {each.case for each in costs} == judged
    assert all(each.reference == bars.PEERLANE and each.ratio > 0 for each in costs)
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
