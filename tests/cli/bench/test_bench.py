"""``peerlane bench``: its method and its output. No test here depends on a measured speed."""

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

import pytest

import peerlane as pl
from helpers.absent import needs_engine
from peerlane import dialects
from peerlane.cli import main
from peerlane.cli.bench import measure, plan, ranks, sweeps
from peerlane.errors import InvalidValue

pytestmark = pytest.mark.any_schedule

KIB = 1 << 10


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
    samples = {"ours": [1.0, 3.0], "core": [100.0, 100.0]}
    assert measure.figure(samples, "case", "ours", "core", measure.SHARE).ratio == pytest.approx(0.02)


def test_bench_copy_writes_every_promised_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, picture = tmp_path / "out.json", tmp_path / "speed.png"
    assert run("copy", "--sizes", "4K,64K", "--rounds", 1, "--json", target, "--plot", picture) == 0
    result = json.loads(target.read_text())
    assert result["rounds"] == 1
    assert result["environment"]["cores"] >= 1
    assert {"python", "processor", "date"} <= set(result["environment"])
    measured = [(each["case"], each["contender"], each["reference"]) for each in result["figures"]]
    assert measured == [
        (f"copy {size} {route}", "peerlane", "ctypes.memmove")
        for size in ("4 KiB", "64 KiB")
        for route in ("on a device", "between peers")
    ]
    assert result["skipped"] == []
    assert picture.read_bytes().startswith(b"\x89PNG")
    shown = capsys.readouterr().out
    assert "1 round is too few to quote" in shown
    assert shown.splitlines()[-1] == f"pictures: {picture}"


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
    assert run("call", "--rounds", 1, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    contenders = {figure["contender"] for figure in result["figures"]}
    skipped = {skip["case"] for skip in result["skipped"]}
    assert {"peerlane", "peerlane raw", "peerlane hip"} <= contenders
    assert ("peerlane acl" in contenders) != ("call copying 8 bytes, acl dialect" in skipped)
    assert all(figure["reference"] == "ctypes.memmove" for figure in result["figures"])


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
        (["copy", "--rounds", "0"], "--rounds is 0; valid are 1 to 1000"),
        (["call", "--sizes", "1M"], "--sizes means nothing to `bench call`"),
        (["call", "--plot", "a.png"], "--plot means nothing to `bench call`"),
        (["copy", "--plot", "a.pdf"], "--plot 'a.pdf': valid is a name that ends in .png or .svg"),
        (
            ["collective", "--sizes", "6,8", "--rounds", "1"],
            "--sizes has 6 bytes; valid for collectives are multiples of 4",
        ),
        (["copy", "--json", "no/such/folder/x.json"], "cannot be written"),
    ],
)
def test_bench_bad_arguments_exit_2_and_list_valid_values(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("peerlane bench: ")
    assert words in printed.err
    assert printed.out == ""


def test_bench_ctrl_c_ends_all_its_processes_and_exits_130() -> None:
    command = [sys.executable, "-m", "peerlane", "bench", "collective"]
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


def test_rounds_of_tasks_alternate_and_failed_contender_leaves() -> None:
    log: list[str] = []

    def contender(name: str, failing: int = 99) -> Callable[[], measure.TaskSeconds]:
        def run() -> measure.TaskSeconds:
            log.append(name)
            if log.count(name) == failing:
                raise measure.ContenderFailed("tired")
            return {"task": [float(log.count(name)), 0.5]}

        return run

    results, skips = measure.interleaved_tasks(
        {"a": contender("a"), "b": contender("b", failing=2), "c": contender("c")}, 2, lambda words: None
    )
    assert log == ["a", "b", "c", "c", "b", "a", "a", "c"]
    assert skips == [measure.Skip("b", "tired")]
    assert results == {"a": {"task": [[2.0, 3.0], [0.5, 0.5]]}, "c": {"task": [[2.0, 3.0], [0.5, 0.5]]}}


def test_jobs_of_larger_sizes_repeat_less_often() -> None:
    assert measure.jobs_of((8, 1 << 20, 1 << 30), 500) == [(8, 500), (1 << 20, 128), (1 << 30, 1)]


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat little."""
    monkeypatch.setattr(sweeps, "_MOST", dict.fromkeys(sweeps._MOST, 5))


def swept(what: str, sizes: str, tmp_path: Path) -> dict[str, list[dict[str, object]]]:
    target = tmp_path / "out.json"
    assert run(what, "--sizes", sizes, "--rounds", 1, "--json", target) == 0
    result: dict[str, list[dict[str, object]]] = json.loads(target.read_text())
    assert all(float(str(each["seconds"])) > 0 for each in result["timings"])
    return result


@pytest.mark.usefixtures("little")
@pytest.mark.timeout(120)
def test_bench_channel_times_writes_and_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timings = swept("channel", "8,4K", tmp_path)["timings"]
    assert [(each["operation"], each["size"], each["contender"]) for each in timings] == [
        (task, size, "peerlane") for task in ("write", "message") for size in (8, 4096)
    ]
    assert "message over 2 processes" in capsys.readouterr().out


@pytest.mark.usefixtures("little")
@pytest.mark.timeout(120)
def test_bench_channel_without_memory_skips_size_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("peerlane.cli.machine.room", lambda: 100_000)
    result = swept("channel", "8,64K", tmp_path)
    (skip,) = result["skipped"]
    assert skip["case"] == "channel, 64 KiB"
    assert skip["why"] == "needs 589,824 bytes of memory, 100,000 are available"
    assert {each["size"] for each in result["timings"]} == {8}


@pytest.mark.usefixtures("little")
@pytest.mark.timeout(120)
def test_bench_collective_times_each_operation_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot, target = tmp_path / "speed.svg", tmp_path / "out.json"
    words = ("--sizes", "64,4K", "--rounds", 1, "--json", target, "--plot", plot)
    assert run("collective", *words) == 0
    results = [
        (each["operation"], each["processes"], each["size"], each["contender"], each["variant"])
        for each in json.loads(target.read_text())["timings"]
    ]
    algorithms = [("peerlane", name) for name in sweeps.ALGORITHMS]
    assert results == [
        (operation, count, size, *words_of_case)
        for count in (2, 4)
        for operation in ranks.COLLECTIVES
        for size in ((None,) if operation == ranks.BARRIER else (64, 4096))
        for words_of_case in [
            ("peerlane", ""),
            *(algorithms if operation == ranks.ALL_REDUCE else []),
            *([] if operation == ranks.BARRIER else [("memmove", "")]),
        ]
    ]
    assert "barrier over 4 processes" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.glob("*.svg")) == [
        "speed-bandwidth.svg",
        "speed-latency.svg",
    ]


@needs_engine
@pytest.mark.usefixtures("little")
@pytest.mark.timeout(180)
def test_bench_machines_times_the_transport_between_machines(tmp_path: Path) -> None:
    result = swept("machines", "8,4K", tmp_path)
    assert [(each["operation"], each["processes"], each["size"]) for each in result["timings"]] == [
        (f"{task} between machines", processes, size)
        for task, processes in (("write", 2), ("message", 2), ("all-reduce", 4))
        for size in (8, 4096)
    ]


@pytest.mark.timeout(60)
def test_bench_machines_without_engine_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PEERLANE_UCX", "/no/such/library.so")
    assert run("machines", "--sizes", "8", "--rounds", 1) == 2
    assert "pip install peerlane[ucx]" in capsys.readouterr().err
