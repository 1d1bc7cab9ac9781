"""``peerlane bench``: the method, the bars, and what it writes; no test here depends on how fast anything is."""

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
from peerlane import dialects
from peerlane.cli import main
from peerlane.cli.bench import NODE, bars, lookups, measure, plan, rivals
from peerlane.errors import InvalidValue

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
    """Return a contender whose first, uncounted sample is 0 and whose others are given."""
    left = iter([0.0, *seconds])

    def sample() -> float:
        log.append(name)
        return next(left)

    return measure.Contender(name, sample)


def test_contenders_take_turns_and_the_first_round_does_not_count() -> None:
    log: list[str] = []
    samples = measure.interleaved([scripted("a", [1, 2, 3], log), scripted("b", [4, 5, 6], log)], 3)
    assert samples == {"a": [1, 2, 3], "b": [4, 5, 6]}
    assert log == ["a", "b", "a", "b", "b", "a", "a", "b"]


def test_a_figure_is_the_median_of_the_rounds_ratios() -> None:
    samples = {"ours": [1.0, 10.0, 2.0], "reference": [2.0, 30.0, 8.0]}
    speed = measure.figure(samples, "case", "ours", "reference", measure.SPEED, 64)
    assert (speed.ratio, speed.low, speed.high, speed.seconds) == (3.0, 2.0, 4.0, 2.0)
    duration = measure.figure(samples, "case", "ours", "reference", measure.TIME)
    assert duration.ratio == pytest.approx(1 / 3)
    assert measure.best(samples, ["reference", "ours"]) == "ours"


@pytest.mark.parametrize(("ratio", "tie"), [(0.96, False), (0.98, True), (1.02, True), (1.04, False)])
def test_within_three_per_cent_is_a_tie(ratio: float, tie: bool) -> None:
    assert figure_of(ratio, measure.SPEED).is_tie is tie


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
def test_a_bar_is_met_by_the_number_alone(kind: str, ratio: float, met: str) -> None:
    must, goal = (0.90, 0.97) if kind == measure.SPEED else (0.97, 0.90)
    assert bars.Bar("P", "case", "peerlane", must, goal).met(figure_of(ratio, kind)) == met


def test_python_loops_of_all_contenders_have_the_same_shape() -> None:
    calls: list[tuple[int, ...]] = []
    contender = measure.looped("c", lambda *arguments: calls.append(arguments), 1, 2, number=5)
    assert contender.sample() >= 0
    assert calls == [(1, 2)] * 5


def test_copies_write_every_figure_they_promise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    assert "1 rounds are too few to quote" in capsys.readouterr().out


def test_large_copies_are_held_to_the_best_reference(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("copy", "--sizes", "16M", "--rounds", 1, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    names = {figure["contender"] for figure in result["figures"]} | {result["figures"][0]["reference"]}
    assert {"peerlane", rivals.MEMCPY} < names


def test_what_memory_does_not_allow_is_skipped_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("peerlane.cli.machine.room", lambda: 100 * KIB)
    assert run("copy", "--sizes", "4K,64K", "--rounds", 1) == 0
    table = capsys.readouterr().out
    assert "skipped: copy 64 KiB on a device: needs 131,072 bytes of memory, 102,400 are available" in table
    assert "copy 4 KiB on a device" in table


@pytest.mark.usefixtures("clean_dialects")
def test_calls_report_the_neutral_copy_and_the_dialect_or_why_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("call", "--rounds", 1, "--json", "--with", "numpy") == 0
    result = json.loads(capsys.readouterr().out)
    contenders = {figure["contender"] for figure in result["figures"]}
    skipped = {skip["case"] for skip in result["skipped"]}
    assert {"peerlane", "peerlane raw", "numpy.copyto"} <= contenders
    assert ("peerlane acl" in contenders) != ("call copying 8 bytes, acl dialect" in skipped)
    assert all(figure["reference"] == "ctypes.memmove" for figure in result["figures"])
    assert [bar["id"] for bar in result["bars"]] == ["P3"] * (1 + ("peerlane acl" in contenders))


def quiet_plan(say: Callable[[str], None] = lambda words: None) -> plan.Plan:
    return plan.Plan(sizes=(), rivals=(), rounds=1, say=say)


def test_lookups_are_timed_in_processes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    figures, skips = lookups.measure(quiet_plan(), NODE, many=2_000)
    assert not skips
    assert [figure.contender for figure in figures] == ["peerlane", "peerlane, without the call"]
    assert all(0 < figure.seconds < 1e-3 for figure in figures)
    monkeypatch.setattr("peerlane.cli.machine.room", lambda: 1000)
    figures, skips = lookups.measure(quiet_plan(), NODE)
    assert not figures
    assert skips[0].case == "look-up among 1,000,000"


def test_an_error_in_a_measuring_process_is_raised_here() -> None:
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
def test_sizes_are_read(text: str, sizes: tuple[int, ...]) -> None:
    assert plan.parse_sizes(text) == sizes


@pytest.mark.parametrize("text", ["", "64Q", "0", "-1", "1M,,2M", "512G", "1e3", "64k", "0.3"])
def test_what_is_no_size_is_named(text: str) -> None:
    with pytest.raises(InvalidValue, match="is no size of 1 byte to 256 GiB; valid are"):
        plan.parse_sizes(text)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["copy", "--with", "cupy"], "no rival 'cupy'; valid are numpy, ctypes, torch, memcpy"),
        (["copy", "--rounds", "0"], "--rounds is 0; valid are 1 to 1000"),
        (["call", "--sizes", "1M"], "--sizes means nothing to `bench call`"),
        (["lookup", "--with", "numpy"], "--with means nothing to `bench lookup`"),
        (["call", "--plot", "a.png"], "--plot means nothing to `bench call`"),
        (["copy", "--json", "no/such/folder/x.json"], "cannot be written"),
    ],
)
def test_errors_say_what_is_valid_and_exit_with_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("peerlane bench: ")
    assert words in printed.err
    assert printed.out == ""


def test_ctrl_c_on_a_terminal_ends_it_and_its_processes_in_silence() -> None:
    command = [sys.executable, "-m", "peerlane", "bench", "lookup"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            _wait_for_children(process.pid, 3)  # multiprocessing's tracker is one of them
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
